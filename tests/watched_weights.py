"""Statistics computed from the weights that a model of transformers returns in eager mode."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import glasshead as gh
from watched_models import DECODERS, NAMES

STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top": gh.TopK(3),
    "sink": gh.MassOn([0]),
    "largest": gh.MaxWeight(),
    "at": gh.ArgMax(),
}


def weights_of(build: Any, given: dict[str, Any], **changes: Any) -> dict[str, Tensor]:
    """The weights of the same model in eager mode, by the name of the module.

    Zeros for queries that see nothing, of which it makes what it likes.
    """
    model = build("eager", **changes)
    with torch.no_grad():
        output = model(**given, output_attentions=True)
    weights = {
        name.format(layer): one
        for kind, name in NAMES[build].items()
        for layer, one in enumerate(output[kind])
    }
    growing = "attentions" if build in DECODERS else "decoder_attentions"
    mask = given.get("attention_mask" if build in DECODERS else "decoder_attention_mask")
    if mask is None or growing not in NAMES[build]:
        return weights
    for layer, one in enumerate(output[growing]):
        name = NAMES[build][growing].format(layer)
        sees = causal(*one.shape[-2:], window=window_of(model, name)) & (mask[:, None] > 0)
        weights[name] = one * sees.any(-1)[:, None, :, None]
    return weights


def real_queries(build: Any, given: dict[str, Any], name: str) -> Tensor | None:
    """Which queries of an attention are tokens, and no padding; None where all are."""
    decoder = build not in DECODERS and "decoder." in name
    mask = given.get("decoder_attention_mask" if decoder else "attention_mask")
    return None if mask is None or bool(mask.all()) else mask > 0


def compared(names: Iterable[str], mode: str, side: str | None) -> list[str]:
    """The attentions whose weights are the same in that mode as in eager mode.

    A query of padding that sees nothing goes on with another context in each mode, and then looks
    at the other text.
    """
    crossing = ("EncDecAttention", "encoder_attn")
    same = mode == "eager" or side != "left"
    return [name for name in names if same or not name.endswith(crossing)]


def window_of(model: nn.Module, name: str) -> int | None:
    """How many keys a query of an attention sees at most."""
    if model.config.model_type == "mistral":
        return model.config.sliding_window
    return getattr(model.get_submodule(name), "sliding_window", None)


def causal(queries: int, keys: int, window: int | None = None) -> Tensor:
    """Which keys a query sees."""
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    return (distance >= 0) & (distance < (window or keys))


def check(
    watched: Any, weights: Tensor, tolerance: float = 3e-5, real: Tensor | None = None
) -> None:
    """What was seen of a text is what these weights say, `[batch, heads, queries, keys]`.

    Of `STATISTICS`, and of the weights themselves where they were kept.

    Args:
        watched: What was seen.
        weights: Of eager mode.
        tolerance: Of each number.
        real: Which queries are tokens, `[batch, queries]`, that sums over queries count.
    """
    counted = weights if real is None else weights * real[:, None, :, None]
    assert (watched.real is None) == (real is None)
    assert real is None or torch.equal(watched.real, real)
    near = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    torch.testing.assert_close(watched.entropy, entropy, **near)
    torch.testing.assert_close(watched.received, counted.sum(-2), **near)
    torch.testing.assert_close(watched.sink, weights[..., 0], **near)
    torch.testing.assert_close(watched.largest, weights.amax(-1), **near)
    count = min(3, weights.shape[-1])
    found, keys = watched.top
    torch.testing.assert_close(found[..., :count], weights.topk(count).values, **near)
    # Two weights that are almost the same may change places, but not be other keys.
    for values, places in ((found, keys), (watched.largest[..., None], watched.at[..., None])):
        at_keys = weights.gather(-1, places.clamp(min=0))
        torch.testing.assert_close(torch.where(places >= 0, at_keys, 0.0), values, **near)
        assert bool(((places >= 0) | (values == 0)).all())
    if watched.prefill.weights is not None:
        torch.testing.assert_close(watched.weights.dense(), weights, **near)

"""Head writes: what each head adds to the output of its attention, by the output projection."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.watching.analytics.components import split, tolerance
from glasshead.watching.errors import UnfollowedError, UnseenError
from glasshead.watching.layer_record import check_whole
from glasshead.watching.module_calls import compiled_parts
from glasshead.watching.recorded_call import Call
from glasshead.watching.residual.nodes import (
    Axes,
    Batch,
    Leaf,
    Node,
    Rows,
    Text,
    axes_of,
    reachable,
)
from glasshead.watching.residual.replay import alone, value_of
from glasshead.watching.watch_and_intervene import watch

# What is kept is split at the end of the block.
_BUDGET = 2**59


@dataclass(frozen=True, eq=False)
class HeadWrites:
    """Norms and shares of what heads write in one call of an attention: w_h = context_h W_hᵀ.

    The attention's output is o = Σ_h w_h + b, as it is added to the residual stream: a norm after
    the projection, at its scale in this run, is a part of W_h.

    Attributes:
        norm: ‖w_h‖ of each head and query.
        share: w_h·o / ‖o‖², the head's share of the output in its direction; below 0 if a head
            works against the others, and 0 if o is 0. Over heads and bias they sum to 1.
        bias_share: b·o / ‖o‖², the share of the projection's bias.
        output_norm: ‖o‖.
        projection: The name of the module that projects first.
    """

    norm: Float[Tensor, "*batch heads queries"]
    share: Float[Tensor, "*batch heads queries"]
    bias_share: Float[Tensor, "*batch queries"]
    output_norm: Float[Tensor, "*batch queries"]
    projection: str


@contextmanager
def head_writes(
    model: nn.Module, *, layers: str | Sequence[str] | None = None
) -> Iterator[Mapping[str, list[HeadWrites]]]:
    """Measure what each head adds to the output of its attention while the block lasts.

    w_h = softmax(q_h·k_h/√d) v_h W_hᵀ, where W_h are the columns of the output projection that read
    head h. It is the split of `logit_parts`, of the product of the output with itself. The model
    runs unchanged, on its own kernels, and is followed as by `watch(…, keep="parts")`, so that
    memory is as of that.

    Args:
        model: The model to run inside the block, without `torch.inference_mode`.
        layers: Patterns of module names, as of `watch`; None: all.

    Yields: the writes of each call, by the dotted name of the attention's module, as in `watch`;
    it is filled at the end of the block.

    Errors: a TypeError or ValueError if an argument is invalid, or the model is compiled. At the
    end of the block an `UnseenError` as of `watch`, and if the output of the heads does not go to
    linear operators alone, or these do not give what the model computed.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits), section
    "Attention heads are independent and additive".

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> with torch.no_grad(), gh.head_writes(model) as writes:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> (call,) = writes["blocks.1.attention"]
    >>> call.norm.shape
    torch.Size([1, 3, 5])
    >>> torch.allclose(call.share.sum(-2) + call.bias_share, torch.ones(1, 5), atol=1e-5)
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"head_writes needs a model, got {type(model).__name__}. Pass a module.")
    if compiled_parts(model):
        raise ValueError(
            "head_writes needs an uncompiled model, because it follows operators. Pass the model "
            "from before torch.compile."
        )
    writes: dict[str, list[HeadWrites]] = {}
    with watch(model, layers=layers, keep="parts", budget=_BUDGET) as seen:
        yield writes
    for name, watched in seen.items():
        check_whole(name, watched, "head_writes")
        with torch.no_grad():
            writes[name] = [_of_call(name, call) for call in watched]


def _of_call(name: str, call: Call) -> HeadWrites:
    """Split what the heads of a call wrote."""
    parts = call.parts
    if parts is None:
        raise _elsewhere(name, "were not followed")
    leaf, node, last = parts.context, parts.written.node, parts.written.last
    context = leaf.held.tensor
    if not bool(context.isfinite().all()):
        raise _elsewhere(name, "hold NaN or infinity, which identify no projection")
    if parts.why is not None:
        raise UnseenError(f"what the heads of {name!r} write is not known, as {parts.why}.")
    if node is None or last is None:
        raise _elsewhere(name, "go elsewhere")
    # Attention without an axis of heads is of one head.
    *batch, heads, length, _ = (
        context.shape if len(call.shape) > 2 else (*context.shape[:-2], 1, *context.shape[-2:])
    )
    count = int(torch.tensor(batch).prod())
    axes = _axes(name, node, leaf, count, length)
    places = torch.cartesian_prod(torch.arange(count), torch.arange(length)).T
    rows = Rows(places[0], places[1])
    dtype = torch.promote_types(context.dtype, torch.float32)
    output = value_of(node, axes, rows, dtype)
    _check(name, output, last, node.eps)
    square = output.square().sum(-1, keepdim=True)
    pulling = torch.where(square > 0, output / square, 0.0)
    found = split(name, node, axes, rows, pulling, None)
    own = [one.place == leaf.order for one in found.components]
    if any(
        one.kind != "parameter" for one, ours in zip(found.components, own, strict=True) if not ours
    ):
        raise _elsewhere(name, "are added to other modules' output before the projection ends")
    shares = found.parts[:, own].T.reshape(heads, count, length).movedim(0, 1)
    bias = found.parts[:, [not ours for ours in own]].sum(-1)
    norms = [
        alone(node, axes, rows, leaf.order, torch.full_like(rows.tokens, head), dtype).norm(dim=-1)
        for head in range(heads)
    ]
    norm = torch.stack([one.reshape(count, length) for one in norms], 1)
    return HeadWrites(
        norm=norm.reshape(*batch, heads, length),
        share=shares.reshape(*batch, heads, length),
        bias_share=bias.reshape(*batch, length),
        output_norm=square.sqrt().reshape(*batch, length),
        projection=parts.written.projection,
    )


def _axes(name: str, node: Node, leaf: Leaf, batch: int, length: int) -> Axes:
    """Return the axes of what heads wrote: those by which their own tokens are the last but one."""
    text, texts = (Text(length),), (Batch(batch) if batch > 1 else 1,)
    width, nodes = (node.shape[-1],), reachable(node)
    for axes in (
        (texts, text, width),
        (text, texts, width),
        ((*texts, *text), width),
        (text, width),
    ):
        if len(axes) != len(node.shape):
            continue
        try:
            found = axes_of(nodes, axes)[id(leaf)]
        except UnfollowedError:
            continue
        # An axis of one token is not marked.
        if length == batch == 1 or any(type(one) is Text for one in found[-2]):
            return axes
    raise _elsewhere(name, "go elsewhere")


def _check(name: str, output: Tensor, last: Tensor, eps: float) -> None:
    """Check that what is computed is what the model gave."""
    ours = output.reshape(-1, output.shape[-1])[-1]
    wrong = float((ours - last.to(ours)).abs().amax() / ours.abs().amax().clamp(min=1e-30))
    if not wrong <= tolerance(eps):
        raise _elsewhere(name, "go elsewhere")


def _elsewhere(name: str, why: str) -> UnseenError:
    return UnseenError(
        "head_writes needs attention whose heads feed only a linear projection, but the heads "
        f"of {name!r} {why}. Exclude it with layers=."
    )

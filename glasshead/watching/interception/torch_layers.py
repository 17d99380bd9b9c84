"""PyTorch's own attention layers, captured by their arguments, and changed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines import REFERENCE
from glasshead.recipe.masks import Mask, combined, dense
from glasshead.recipe.problem import Problem, Trace
from glasshead.watching.captured_call import (
    CapturedCall,
    OutputGradient,
    problem_from_inputs,
)
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.torch_attention import (
    capture_change,
    capture_sdpa,
    filled,
    within,
)
from glasshead.watching.intervener import AttentionChange

_NAMES = tuple(signature(F.multi_head_attention_forward).parameters)


def by_name(*inputs: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of `F.multi_head_attention_forward` by name."""
    return dict(zip(_NAMES, inputs, strict=False)) | named


def shows_itself(given: Mapping[str, Any]) -> bool:
    """Return whether the call goes on to `scaled_dot_product_attention` with the text's keys only.

    It does where it need not return weights and adds no keys of its own, which would be taken for
    the text's there.
    """
    return not (given.get("need_weights", True) or _added(given))


def crosses(given: Mapping[str, Any]) -> bool:
    """Return whether it is cross-attention: self-attention gets one tensor as query and key."""
    query, key = given["query"], given["key"]
    return not (query is key or query.is_set_to(key))


def contexts_multi_head(
    original: Callable[..., Any], given: Mapping[str, Any]
) -> tuple[Float[Tensor, "batch heads queries head_dim"], Tensor | None]:
    """Run a call that projects its own output, and return the output of its heads, and its weights.

    As these are internal to the call, its output projection is replaced by the identity.
    """
    weight = given["out_proj_weight"]
    one = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)
    output, weights = original(**{**given, "out_proj_weight": one, "out_proj_bias": None})
    apart = output.unflatten(-1, (given["num_heads"], -1))
    apart = apart if apart.ndim > 3 else apart.unsqueeze(1)
    return apart.permute(1, 2, 0, 3), weights


def changed_multi_head(
    original: Callable[..., Any], given: Mapping[str, Any], change: AttentionChange
) -> tuple[Any, Tensor]:
    """Run a call that projects its own output, with interventions.

    Returns: what it returns, and the output of its heads before their context is changed.
    """
    changed = dict(given)
    if change.rekeys:
        raise ValueError(
            "PatchPart needs attention whose queries and keys are given to a function, but "
            f"{change.name!r} projects them itself. Call it with need_weights=False."
        )
    if change.scales:
        changed |= _scaled(given, change)
    if change.hides:
        changed |= _hiding(given, change)
    made, weights = contexts_multi_head(original, changed)
    made = change.emptied(made)
    joined = change.context(made).permute(2, 0, 1, 3).flatten(2)
    output = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    if given["query"].ndim < 3:
        output = output.squeeze(1)
    return (output, weights), made


def _scaled(given: Mapping[str, Any], change: AttentionChange) -> dict[str, Any]:
    """Return the projection of the queries with the factor of each head."""
    heads, width = given["num_heads"], given["embed_dim_to_check"]
    separate = bool(given.get("use_separate_proj_weight"))
    name = "q_proj_weight" if separate else "in_proj_weight"
    weight, bias = given[name], given["in_proj_bias"]
    factors = change.factors(heads, weight).repeat_interleave(width // heads)
    changed = {}
    for part, own in ((name, weight), ("in_proj_bias", bias)):
        if own is not None:
            factor = torch.cat([factors, factors.new_ones(len(own) - width)])
            changed[part] = own * (factor if own.ndim == 1 else factor[:, None])
    return changed


def _hiding(given: Mapping[str, Any], change: AttentionChange) -> dict[str, Any]:
    """Return the mask of a call, in which True hides, with what the interventions hide."""
    mask, heads = given.get("attn_mask"), given["num_heads"]
    query, key = given["query"], given["key"]
    visible = change.visible(key.shape[0] + len(_added(given)))[..., : key.shape[0]]
    batch = query.shape[1] if query.ndim > 2 else 1
    visible = visible.expand(batch, heads, *visible.shape[-2:]).flatten(0, 1)
    if mask is not None and mask.dtype != torch.bool:
        return {"attn_mask": mask.masked_fill(~visible, -torch.inf), "is_causal": False}
    return {"attn_mask": ~visible if mask is None else mask | ~visible, "is_causal": False}


def capture_multi_head(
    given: Mapping[str, Any], context: CallContext, original: Callable[..., Any] | None = None
) -> CapturedCall:
    """Capture a call that computes its own attention: queries and keys are projected once more.

    Args:
        given: Its arguments by name; inputs are `[length, batch, dim]`.
        context: What else is known of the call; its output is projected.
        original: The function, to run once more for the output of its heads.
    """
    captured = _capture_multi_head(given, context._replace(output=None))
    if not _drops(given):
        captured = replace(captured, trace=partial(_trace_multi_head, given, captured.problem))
    if original is not None and not _drops(given):
        captured = replace(captured, context=lambda: contexts_multi_head(original, given)[0])
    output = context.output
    if output is None or _added(given) or given.get("static_v") is not None:
        return captured
    projection, heads = given["out_proj_weight"].detach(), given["num_heads"]

    def of_heads(gradient: Tensor) -> Tensor:
        gradient = gradient if gradient.ndim > 2 else gradient.unsqueeze(1)
        return (gradient @ projection).unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)

    arrives = OutputGradient(output, of_heads, partial(_values, given), _drops(given))
    return replace(captured, gradient=arrives)


def _trace_multi_head(given: Mapping[str, Any], problem: Problem) -> Trace:
    """Compute every step of a call, with its own values."""
    heads = given["num_heads"]
    value = _values(given)
    if given.get("static_v") is not None:
        value = given["static_v"].unflatten(0, (-1, heads))
    rows = [] if given.get("bias_v") is None else [given["bias_v"]]
    if given.get("add_zero_attn"):
        rows.append(value.new_zeros(1, 1, heads * value.shape[-1]))
    apart = [row.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for row in rows]
    value = torch.cat([value, *(row.expand(*value.shape[:-2], 1, -1) for row in apart)], -2)
    return REFERENCE.trace(replace(problem, value=value.detach()))


def capture_changed_multi_head(
    change: AttentionChange, given: Mapping[str, Any], made: Tensor
) -> CapturedCall:
    """Capture a call that projects its own output and was changed.

    Args:
        change: The interventions.
        given: Its arguments by name.
        made: The output of its heads before their context is changed.
    """
    changed = capture_change(change, made, drops=_drops(given), follows=False)
    if changed.gradient is None or _added(given) or given.get("static_v") is not None:
        return replace(changed, gradient=None)
    return replace(changed, gradient=replace(changed.gradient, values=partial(_values, given)))


def _drops(given: Mapping[str, Any]) -> bool:
    """Return whether a call of `F.multi_head_attention_forward` drops weights."""
    return bool(given.get("training", True) and given["dropout_p"])


def _values(given: Mapping[str, Any]) -> Float[Tensor, "batch heads keys head_dim"]:
    """Project the values of all heads."""
    value, bias = given["value"], given["in_proj_bias"]
    value = value if value.ndim == 3 else value.unsqueeze(1)
    separate = given.get("use_separate_proj_weight")
    weight = given["v_proj_weight"] if separate else given["in_proj_weight"].chunk(3)[2]
    projected = F.linear(value, weight, None if bias is None else bias.chunk(3)[2])
    return projected.unflatten(-1, (given["num_heads"], -1)).permute(1, 2, 0, 3)


def _capture_multi_head(given: Mapping[str, Any], context: CallContext) -> CapturedCall:
    """Capture it without the output of its heads."""
    heads = given["num_heads"]
    query, key = _projected(given)
    query, key = (x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for x in (query, key))
    if given.get("static_k") is not None:
        key = given["static_k"].unflatten(0, (-1, heads))
    hidden = _hidden(given, query)
    captured = capture_sdpa(query, key, key, hidden, context=context)
    added = _added(given)
    if not added:
        return captured
    # The added keys follow all others, and every query sees them; the offset stays the same.
    rows = [row.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for row in added]
    key = torch.cat([key, *(row.expand(*key.shape[:-2], 1, -1) for row in rows)], -2)
    hidden = None if hidden is None else F.pad(hidden, (0, len(rows)))
    problem = capture_sdpa(query, key, key, hidden, context=context).problem
    return CapturedCall(
        replace(problem, offset=captured.problem.offset), crossing=captured.crossing
    )


def _projected(
    given: Mapping[str, Any],
) -> tuple[Float[Tensor, "queries batch dim"], Float[Tensor, "keys batch dim"]]:
    """Project the queries and keys of all heads."""
    query, key = (x if x.ndim == 3 else x.unsqueeze(1) for x in (given["query"], given["key"]))
    if given.get("use_separate_proj_weight"):
        weights = given["q_proj_weight"], given["k_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)[:2]
    bias = given["in_proj_bias"]
    biases = (None, None) if bias is None else bias.chunk(3)[:2]
    return F.linear(query, weights[0], biases[0]), F.linear(key, weights[1], biases[1])


def _added(given: Mapping[str, Any]) -> list[Float[Tensor, "1 1 dim"]]:
    """Return the keys that the call adds to those of the text."""
    rows = [] if given.get("bias_k") is None else [given["bias_k"]]
    if given.get("add_zero_attn"):
        rows.append(given["query"].new_zeros(1, 1, given["embed_dim_to_check"]))
    return rows


def _hidden(
    given: Mapping[str, Any], query: Float[Tensor, "batch heads queries dim"]
) -> Float[Tensor, "#batch #heads #queries keys"] | None:
    """Combine both masks, in which True hides, into one additive mask."""
    pairs, keys = given.get("attn_mask"), given.get("key_padding_mask")
    if pairs is not None and pairs.ndim == 3:
        pairs = pairs.unflatten(0, (-1, query.shape[1]))
    if keys is not None:
        keys = keys.reshape(-1, 1, 1, keys.shape[-1])
    masks = [_additive(mask, query.dtype) for mask in (pairs, keys) if mask is not None]
    return sum(masks[1:], masks[0]) if masks else None


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


# `mask_type` of the operators for a key padding mask.
_KEYS = 1


def capture_encoder_layer(
    src: Tensor,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    **others: Any,
) -> CapturedCall:
    """Capture the fused operator of `nn.TransformerEncoderLayer` in inference."""
    norm = None
    if others["norm_first"]:
        norm = others["norm_weight_1"], others["norm_bias_1"], others["eps"]
    return _capture(src, num_heads, qkv_weight, qkv_bias, others, norm)


def capture_native_multi_head(
    query: Tensor, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor, **others: Any
) -> CapturedCall:
    """Capture the fused self-attention operator of `nn.MultiheadAttention` in inference."""
    return _capture(query, num_head, qkv_weight, qkv_bias, others)


FAST_PATHS: dict[str, Callable[..., CapturedCall]] = {
    "aten::_transformer_encoder_layer_fwd": capture_encoder_layer,
    "aten::_native_multi_head_attention": capture_native_multi_head,
}


def _capture(
    x: Tensor,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    others: Mapping[str, Any],
    norm: tuple[Tensor, Tensor, float] | None = None,
) -> CapturedCall:
    """Capture one of these operators; a nested tensor is padded."""
    mask = _mask(others.get("mask"), others.get("mask_type"))
    if x.is_nested:
        x, lengths = filled(x)
        mask = combined([within(lengths, lengths), mask])
    if norm is not None:
        x = F.layer_norm(x, x.shape[-1:], *norm)
    width = qkv_weight.shape[1]

    def projected(parts: slice) -> list[Tensor]:
        made = F.linear(x, qkv_weight[parts], qkv_bias[parts]).split(width, -1)
        return [part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in made]

    query, key = projected(slice(2 * width))
    problem = problem_from_inputs(query, key, key, scale=None, offset=0, mask=mask)

    def context() -> Tensor:
        # The operator keeps the output of its heads to itself.
        (value,) = projected(slice(2 * width, None))
        return REFERENCE.run(replace(problem, value=value))

    def trace() -> Trace:
        (value,) = projected(slice(2 * width, None))
        return REFERENCE.trace(replace(problem, value=value.detach()))

    return CapturedCall(problem, context=context, trace=trace)


def _mask(mask: Tensor | None, kind: int | None) -> Mask | None:
    """Convert a mask of these operators, in which nonzero hides."""
    if mask is None:
        return None
    visible = ~mask.bool()
    return dense(visible[:, None, None, :] if kind == _KEYS else visible)

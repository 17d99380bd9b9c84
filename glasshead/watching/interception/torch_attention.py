"""PyTorch's attention functions and layers, captured by their arguments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from math import lcm
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines.base import cast_inputs
from glasshead.recipe.masks import Mask, causal, combined, dense, padding
from glasshead.recipe.problem import Problem
from glasshead.watching.captured_call import (
    CapturedCall,
    first_keys,
    position_among,
    problem_from_inputs,
)
from glasshead.watching.interception.session import CallContext, without_heads


def filled(x: Tensor) -> tuple[Float[Tensor, "batch ... longest dim"], list[int]]:
    """Pad the texts of a nested tensor with zeros; return them and their lengths."""
    texts = x.unbind()
    lengths = [text.shape[-2] for text in texts]
    longest = max(lengths, default=0)
    ends = [F.pad(text, (0, 0, 0, longest - text.shape[-2])) for text in texts]
    return torch.stack(ends), lengths


def within(queries: Sequence[int], keys: Sequence[int]) -> Mask:
    """Return a mask that hides padding, both as queries and as keys.

    Args:
        queries, keys: Number of queries and keys of each text of the batch.
    """
    shown = torch.arange(max(queries)) < torch.tensor(queries)[:, None]
    return padding(list(keys)) & dense(shown[:, None, :, None])


def capture_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    context: CallContext,
    **others: Any,
) -> CapturedCall:
    """Capture a call of `F.scaled_dot_product_attention`.

    Its `is_causal` is aligned to the top left. Where the numbers of queries and keys differ and all
    queries see the same keys, it is taken for cross-attention, except for a single query, as in a
    decoding step; where they are equal, the layer around it decides.

    Args:
        query, key, value, attn_mask, dropout_p, is_causal, scale: Arguments of that function.
        context: What else is known of the call.
        others: `enable_gqa`, and arguments without effect here.
    """
    grouped = bool(others.get("enable_gqa"))
    output = None if dropout_p or context.output is None else context.output.detach()
    if query.is_nested:
        return _capture_packed(query, key, value, is_causal=is_causal, scale=scale, output=output)
    if attn_mask is not None and query.ndim == attn_mask.ndim == 3 and not grouped:
        attn_mask = attn_mask.unsqueeze(-3)
    query, key, value = _with_heads(*cast_inputs(query, key, value), grouped=grouped)
    queries, keys = query.shape[-2], key.shape[-2]
    if is_causal:
        mask, bias, offset = causal(offset=0), None, 0
    else:
        mask, bias, visible = context.masks.read(attn_mask)
        offset = position_among(queries, keys, visible)
    other = (queries != keys and queries > 1) or context.crosses()
    crossing = other and not is_causal and _same_for_all(attn_mask)
    problem = problem_from_inputs(
        query, key, value, scale=scale, offset=offset, mask=mask, bias=bias
    )
    if not crossing:
        problem = first_keys(problem, offset + queries)
    if output is not None:
        output = output.reshape(*problem.query.shape[:-1], value.shape[-1])
    return CapturedCall(
        problem, crossing=crossing, logsumexp=of_rows(context.logsumexps, problem), output=output
    )


def capture_scores(
    scores: Float[Tensor, "... queries keys"],
    context: CallContext,
    *,
    value: Float[Tensor, "*batch heads keys value_dim"] | None = None,
    lowest: torch.dtype | None = None,
) -> CapturedCall:
    """Capture an attention by its scores, masked with -inf, without queries and keys.

    They come from the math fallback of PyTorch's function, as for dropout, from eager
    FlexAttention, and from attention written by hand. Here they become a bias of scores that are 0.

    Args:
        scores: The input of the softmax; three axes have no heads.
        context: What else is known of the call.
        value: The values, where known.
        lowest: The type of which the lowest number hides a key, too, as that of a mask.
    """
    scores = scores.detach()
    scores = scores.unsqueeze(-3) if scores.ndim == 3 else scores
    queries, keys = scores.shape[-2:]
    hidden = scores.isneginf() if lowest is None else hidden_scores(scores, lowest)
    hides = bool(hidden.any())
    hidden = _once(hidden)
    visible = ~hidden if hides else None
    offset = position_among(queries, keys, visible)
    other = (queries != keys and queries > 1) or context.crosses()
    crossing = other and _same_for_all(visible)
    query, key = (scores.new_zeros(*scores.shape[:-2], count, 1) for count in (queries, keys))
    problem = problem_from_inputs(
        query,
        key,
        key if value is None else value,
        scale=1.0,
        offset=offset,
        mask=None if visible is None else dense(visible),
        bias=scores if visible is None else scores.masked_fill(hidden, 0.0),
    )
    if not crossing:
        problem = first_keys(problem, offset + queries)
    output = None if context.output is None else context.output.detach()
    return CapturedCall(problem, crossing=crossing, output=output)


def _once(hidden: Tensor) -> Tensor:
    """Return a mask with one index for axes before the queries along which it is the same."""
    for axis in range(hidden.ndim - 2):
        first = hidden.narrow(axis, 0, 1)
        if hidden.shape[axis] > 1 and bool((hidden == first).all()):
            hidden = first
    return hidden


def hidden_scores(scores: Tensor, lowest: torch.dtype) -> Tensor:
    """Return which scores hide a key, by -inf or by the lowest number of a type.

    A mask of that number may have been scaled since.
    """
    return scores <= torch.finfo(lowest).min / (2 if lowest == torch.float16 else 1e6)


def of_rows(logsumexps: Sequence[Tensor], problem: Problem) -> Tensor | None:
    """Return the logsumexp of the only kernel, in the layout of the problem; None of several.

    Kernels may pack grouped heads into the queries, and pad the rows.
    """
    shape = problem.query.shape[:-1]
    if len(logsumexps) != 1 or logsumexps[0].numel() == 0:
        return None
    (known,) = logsumexps
    if known.numel() == shape.numel():
        return known.reshape(shape)
    return known[..., : shape[-1]].reshape(shape) if known.shape[:-1] == shape[:-1] else None


def _capture_packed(
    *inputs: Tensor, is_causal: bool, scale: float | None, output: Tensor | None
) -> CapturedCall:
    """Capture a call with nested tensors, `[batch, heads, length, dim]`, which take no mask."""
    (query, queries), (key, keys), (value, _) = map(filled, inputs)
    mask = within(queries, keys)
    problem = problem_from_inputs(
        *cast_inputs(query, key, value),
        scale=scale,
        offset=0,
        mask=causal(offset=0) & mask if is_causal else mask,
    )
    made = None if output is None else filled(output)[0]
    return CapturedCall(problem, crossing=queries != keys and not is_causal, output=made)


def _with_heads(
    *inputs: Tensor, grouped: bool
) -> tuple[
    Float[Tensor, "*batch heads queries dim"],
    Float[Tensor, "*batch kv_heads keys dim"],
    Float[Tensor, "*batch kv_heads keys value_dim"],
]:
    """Broadcast queries, keys and values to one batch, and keys and values to equal heads.

    Three axes are those of a batch without heads, unless grouped heads are enabled.
    """
    axes = max(x.ndim for x in inputs)
    query, key, value = (x[(None,) * (axes - x.ndim)] for x in inputs)
    while query.ndim < 4:
        place = -3 if query.ndim == 3 and not grouped else 0
        query, key, value = (x.unsqueeze(place) for x in (query, key, value))
    batch = torch.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value)))
    query, key, value = (x.expand(*batch, *x.shape[-3:]) for x in (query, key, value))
    heads = lcm(key.shape[-3], value.shape[-3])
    if key.shape[-3] != value.shape[-3]:
        key, value = (x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value))
    if query.shape[-3] == 1:
        query = query.expand(*batch, heads, *query.shape[-2:])
    return query, key, value


def _same_for_all(attn_mask: Tensor | None) -> bool:
    """Return whether a mask is the same for every query."""
    return attn_mask is None or bool((attn_mask == attn_mask[..., :1, :]).all())


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


def projecting_without(heads: Sequence[int], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with some heads ablated.

    As their contexts are internal to the call, their columns of the output projection are set to 0.
    """
    weight = given["out_proj_weight"].unflatten(1, (given["num_heads"], -1))
    return {**given, "out_proj_weight": without_heads(weight, heads, 1).flatten(1)}


def capture_multi_head(given: Mapping[str, Any], context: CallContext) -> CapturedCall:
    """Capture a call that computes its own attention: queries and keys are projected once more.

    Args:
        given: Its arguments by name; inputs are `[length, batch, dim]`.
        context: What else is known of the call.
    """
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
    projected = F.linear(x, qkv_weight[: 2 * width], qkv_bias[: 2 * width])
    query, key = (
        part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in projected.chunk(2, -1)
    )
    return CapturedCall(problem_from_inputs(query, key, key, scale=None, offset=0, mask=mask))


def _mask(mask: Tensor | None, kind: int | None) -> Mask | None:
    """Convert a mask of these operators, in which nonzero hides."""
    if mask is None:
        return None
    visible = ~mask.bool()
    return dense(visible[:, None, None, :] if kind == _KEYS else visible)

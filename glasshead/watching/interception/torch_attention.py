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
from glasshead.watching.active import ACTIVE, without_heads
from glasshead.watching.captured_call import (
    CapturedCall,
    first_keys,
    position_among,
    problem_from_inputs,
)
from glasshead.watching.interception.masks import read_mask


def filled(x: Tensor) -> tuple[Float[Tensor, "batch ... longest dim"], list[int]]:
    """Texts of one length, that of the longest, with zeros after each; and how long each is."""
    texts = x.unbind()
    lengths = [text.shape[-2] for text in texts]
    longest = max(lengths, default=0)
    ends = [F.pad(text, (0, 0, 0, longest - text.shape[-2])) for text in texts]
    return torch.stack(ends), lengths


def within(queries: Sequence[int], keys: Sequence[int]) -> Mask:
    """What was filled in is no query, which sees nothing, and no key, which nobody sees.

    Args:
        queries, keys: How many of each every text of the batch has.
    """
    shown = torch.arange(max(queries)) < torch.tensor(queries)[:, None]
    return padding(list(keys)) & dense(shown[:, None, :, None])


def met_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    output: Tensor | None = None,
    told: Sequence[Tensor] = (),
    **others: Any,
) -> CapturedCall:
    """A call of `F.scaled_dot_product_attention`.

    Its `is_causal` is aligned to the top left. Where there are not as many keys as queries and all
    queries see the same, the keys are taken to belong to another text, unless there is one query
    alone, as in a step with a cache; where there are as many, the layer around it has to tell.

    Args:
        query, key, value, attn_mask, dropout_p, is_causal, scale: As of that function.
        output: What it gave.
        told: The logsumexps that kernels told meanwhile.
        others: `enable_gqa`, and what changes nothing.
    """
    grouped = bool(others.get("enable_gqa"))
    output = None if dropout_p or output is None else output.detach()
    if query.is_nested:
        return _met_packed(query, key, value, is_causal=is_causal, scale=scale, output=output)
    if attn_mask is not None and query.ndim == attn_mask.ndim == 3 and not grouped:
        attn_mask = attn_mask.unsqueeze(-3)
    query, key, value = _with_heads(*cast_inputs(query, key, value), grouped=grouped)
    queries, keys = query.shape[-2], key.shape[-2]
    if is_causal:
        mask, bias, offset = causal(offset=0), None, 0
    else:
        mask, bias, visible = read_mask(attn_mask)
        offset = position_among(queries, keys, visible)
    other = (queries != keys and queries > 1) or ACTIVE.crosses()
    crossing = other and not is_causal and _same_for_all(attn_mask)
    problem = problem_from_inputs(
        query, key, value, scale=scale, offset=offset, mask=mask, bias=bias
    )
    if not crossing:
        problem = first_keys(problem, offset + queries)
    if output is not None:
        output = output.reshape(*problem.query.shape[:-1], value.shape[-1])
    return CapturedCall(problem, crossing=crossing, logsumexp=of_rows(told, problem), output=output)


def met_scores(
    scores: Float[Tensor, "... queries keys"],
    *,
    value: Float[Tensor, "*batch heads keys value_dim"] | None = None,
    output: Float[Tensor, "*batch heads queries value_dim"] | None = None,
) -> CapturedCall:
    """Attention of which the scores are there, masked with -inf, and no queries and keys.

    PyTorch's function has them where it takes the long way, for a backend that was asked for, or
    dropout, and FlexAttention where it is not compiled. They are a bias here, to scores that are 0.

    Args:
        scores: What its softmax is given; three axes are of a batch.
        value, output: What it averages, and what it gave, where that is known.
    """
    scores = scores.detach()
    scores = scores.unsqueeze(-3) if scores.ndim == 3 else scores
    queries, keys = scores.shape[-2:]
    hidden = scores.isneginf()
    visible = ~hidden if bool(hidden.any()) else None
    offset = position_among(queries, keys, visible)
    other = (queries != keys and queries > 1) or ACTIVE.crosses()
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
    return CapturedCall(
        problem, crossing=crossing, output=None if output is None else output.detach()
    )


def of_rows(told: Sequence[Tensor], problem: Problem) -> Tensor | None:
    """The logsumexp that the one kernel told, in the layout of the problem; None of several.

    Kernels may have packed grouped heads into the queries, and filled the rows up.
    """
    shape = problem.query.shape[:-1]
    if len(told) != 1 or told[0].numel() == 0:
        return None
    (known,) = told
    if known.numel() == shape.numel():
        return known.reshape(shape)
    return known[..., : shape[-1]].reshape(shape) if known.shape[:-1] == shape[:-1] else None


def _met_packed(
    *inputs: Tensor, is_causal: bool, scale: float | None, output: Tensor | None
) -> CapturedCall:
    """A call with nested tensors, `[batch, heads, length, dim]`, which take no mask of pairs."""
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
    """Queries, keys and values of one batch, and as many heads of values as of keys.

    Three axes are of a batch, unless heads share others.
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
    """Whether a mask is of keys alone, and says the same of every query."""
    return attn_mask is None or bool((attn_mask == attn_mask[..., :1, :]).all())


_NAMES = tuple(signature(F.multi_head_attention_forward).parameters)


def by_name(*inputs: Any, **named: Any) -> dict[str, Any]:
    """The arguments of `F.multi_head_attention_forward` by their names."""
    return dict(zip(_NAMES, inputs, strict=False)) | named


def shows_itself(given: Mapping[str, Any]) -> bool:
    """Whether the call goes on to `scaled_dot_product_attention` with the keys of the text alone.

    Without weights to give it does; keys of its own, which it may add, would be taken for the
    text's there.
    """
    return not (given.get("need_weights", True) or _added(given))


def crosses(given: Mapping[str, Any]) -> bool:
    """Whether its keys belong to another text: self-attention is given one tensor twice."""
    query, key = given["query"], given["key"]
    return not (query is key or query.is_set_to(key))


def projecting_without(heads: Sequence[int], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call without some heads, whose contexts nobody has outside of it.

    The columns that project them are 0 instead.
    """
    weight = given["out_proj_weight"].unflatten(1, (given["num_heads"], -1))
    return {**given, "out_proj_weight": without_heads(weight, heads, 1).flatten(1)}


def met_multi_head(given: Mapping[str, Any]) -> CapturedCall:
    """A call that does not: queries and keys are projected here once more.

    Args:
        given: Its arguments by name; inputs are `[length, batch, dim]`.
    """
    heads = given["num_heads"]
    query, key = _projected(given)
    query, key = (x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for x in (query, key))
    if given.get("static_k") is not None:
        key = given["static_k"].unflatten(0, (-1, heads))
    hidden = _hidden(given, query)
    met = met_sdpa(query, key, key, hidden)
    added = _added(given)
    if not added:
        return met
    # What is added stands after all keys, and is seen by all queries; these stand where they stood.
    rows = [row.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for row in added]
    key = torch.cat([key, *(row.expand(*key.shape[:-2], 1, -1) for row in rows)], -2)
    hidden = None if hidden is None else F.pad(hidden, (0, len(rows)))
    problem = met_sdpa(query, key, key, hidden).problem
    return CapturedCall(replace(problem, offset=met.problem.offset), crossing=met.crossing)


def _projected(
    given: Mapping[str, Any],
) -> tuple[Float[Tensor, "queries batch dim"], Float[Tensor, "keys batch dim"]]:
    """The queries and the keys of all heads."""
    query, key = (x if x.ndim == 3 else x.unsqueeze(1) for x in (given["query"], given["key"]))
    if given.get("use_separate_proj_weight"):
        weights = given["q_proj_weight"], given["k_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)[:2]
    bias = given["in_proj_bias"]
    biases = (None, None) if bias is None else bias.chunk(3)[:2]
    return F.linear(query, weights[0], biases[0]), F.linear(key, weights[1], biases[1])


def _added(given: Mapping[str, Any]) -> list[Float[Tensor, "1 1 dim"]]:
    """The keys that it adds to those of the text."""
    rows = [] if given.get("bias_k") is None else [given["bias_k"]]
    if given.get("add_zero_attn"):
        rows.append(given["query"].new_zeros(1, 1, given["embed_dim_to_check"]))
    return rows


def _hidden(
    given: Mapping[str, Any], query: Float[Tensor, "batch heads queries dim"]
) -> Float[Tensor, "#batch #heads #queries keys"] | None:
    """Both of its masks as one that is added to the scores; True hides in them."""
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


# How the operators number a mask that is of keys, not of pairs.
_KEYS = 1


def met_encoder_layer(
    src: Tensor,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    *,
    mask: Tensor | None = None,
    mask_type: int | None = None,
    **others: Any,
) -> CapturedCall:
    """`nn.TransformerEncoderLayer`, evaluated without gradients: an operator from end to end."""
    src, texts = _filled(src)
    if others["norm_first"]:
        weight, bias = others["norm_weight_1"], others["norm_bias_1"]
        src = F.layer_norm(src, src.shape[-1:], weight, bias, others["eps"])
    return _met(src, num_heads, qkv_weight, qkv_bias, combined([texts, _mask(mask, mask_type)]))


def met_native_multi_head(
    query: Tensor,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    *,
    mask: Tensor | None = None,
    mask_type: int | None = None,
    **others: Any,
) -> CapturedCall:
    """`nn.MultiheadAttention` of a text to itself, evaluated without gradients."""
    del others
    query, texts = _filled(query)
    return _met(query, num_head, qkv_weight, qkv_bias, combined([texts, _mask(mask, mask_type)]))


FAST_PATHS: dict[Any, Callable[..., CapturedCall]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: met_encoder_layer,  # noqa: SLF001
    torch.ops.aten._native_multi_head_attention.default: met_native_multi_head,  # noqa: SLF001
}


def _met(
    x: Tensor, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, mask: Mask | None
) -> CapturedCall:
    width = qkv_weight.shape[1]
    projected = F.linear(x, qkv_weight[: 2 * width], qkv_bias[: 2 * width])
    query, key = (
        part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in projected.chunk(2, -1)
    )
    return CapturedCall(problem_from_inputs(query, key, key, scale=None, offset=0, mask=mask))


def _filled(x: Tensor) -> tuple[Tensor, Mask | None]:
    """Texts of one length, and which is which where the encoder has packed them."""
    if not x.is_nested:
        return x, None
    x, lengths = filled(x)
    return x, within(lengths, lengths)


def _mask(mask: Tensor | None, kind: int | None) -> Mask | None:
    """A mask of these operators, which hide what is not 0."""
    if mask is None:
        return None
    visible = ~mask.bool()
    return dense(visible[:, None, None, :] if kind == _KEYS else visible)

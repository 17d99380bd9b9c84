"""Scaled dot product attention of PyTorch: what its arguments mean."""

from collections.abc import Sequence
from math import lcm
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.engines.base import cast_inputs
from glasshead.recipe.masks import causal, dense
from glasshead.recipe.problem import Problem
from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.mask_tensors import read_mask
from glasshead.watching.doors.packed import filled, within
from glasshead.watching.met import Met, first_keys, stated
from glasshead.watching.positions import position_among


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
) -> Met:
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
    problem = stated(query, key, value, scale=scale, offset=offset, mask=mask, bias=bias)
    if not crossing:
        problem = first_keys(problem, offset + queries)
    if output is not None:
        output = output.reshape(*problem.query.shape[:-1], value.shape[-1])
    return Met(problem, crossing=crossing, logsumexp=of_rows(told, problem), output=output)


def met_scores(
    scores: Float[Tensor, "... queries keys"],
    *,
    value: Float[Tensor, "*batch heads keys value_dim"] | None = None,
    output: Float[Tensor, "*batch heads queries value_dim"] | None = None,
) -> Met:
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
    problem = stated(
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
    return Met(problem, crossing=crossing, output=None if output is None else output.detach())


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
) -> Met:
    """A call with nested tensors, `[batch, heads, length, dim]`, which take no mask of pairs."""
    (query, queries), (key, keys), (value, _) = map(filled, inputs)
    mask = within(queries, keys)
    problem = stated(
        *cast_inputs(query, key, value),
        scale=scale,
        offset=0,
        mask=causal(offset=0) & mask if is_causal else mask,
    )
    made = None if output is None else filled(output)[0]
    return Met(problem, crossing=queries != keys and not is_causal, output=made)


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

"""PyTorch's multi-head attention where it multiplies its weights out: met by its own inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.watching.ablater import without_heads
from glasshead.watching.doors.sdpa import met_sdpa
from glasshead.watching.met import Met

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


def met_multi_head(given: Mapping[str, Any]) -> Met:
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
    return Met(replace(problem, offset=met.problem.offset), crossing=met.crossing)


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

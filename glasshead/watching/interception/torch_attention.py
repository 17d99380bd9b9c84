"""`F.scaled_dot_product_attention`, captured by its arguments or its scores, and changed."""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines.reducing import of_rows
from glasshead.recipe.masks import Mask, causal, dense, padding
from glasshead.recipe.validation import cast_inputs
from glasshead.watching.captured_call import (
    CapturedCall,
    ConvertedMask,
    OutputGradient,
    first_keys,
    problem_from_inputs,
)
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.module_calls import crosses_by_arguments


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


# As PyTorch aligns it.
_CAUSAL = ConvertedMask(causal(offset=0))


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

    Its `is_causal` is aligned to the top left. It is cross-attention if the layer around it says
    so, or if its keys come from another tensor than its queries, and all queries see the same keys.

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
        read, offset = _CAUSAL, 0
    else:
        read = context.masks.read(attn_mask)
        offset = read.position(queries, keys)
    other = not is_causal and (context.crosses() or crosses_by_arguments(queries, keys))
    crossing = other and same_for_all(attn_mask)
    count = keys if crossing else offset + queries
    if count < keys and not is_causal:
        # Later keys are hidden, as in a static cache.
        read = read.first(count)
        key, value = (x[..., :count, :] for x in (key, value))
    problem = problem_from_inputs(
        query, key, value, scale=scale, offset=offset, mask=read.mask, bias=read.bias
    )
    if is_causal:
        problem = first_keys(problem, count)
    captured = CapturedCall(
        problem, crossing=crossing, logsumexp=of_rows(context.logsumexps, problem)
    )
    return with_output(captured, context.output, drops=bool(dropout_p))


def with_output(
    captured: CapturedCall, output: Tensor | None, *, drops: bool, follows: bool = True
) -> CapturedCall:
    """Return a captured call with its output, `[*batch, heads, queries, value_dim]`.

    Args:
        captured: The call.
        output: The output, in that order of axes; None: unknown.
        drops: Whether weights were dropped.
        follows: Whether the output follows from the problem otherwise.
    """
    if output is None:
        return captured
    problem = captured.problem
    shape = *problem.query.shape[:-1], output.shape[-1]
    made = output.detach().reshape(shape)
    arrives = OutputGradient(
        output, lambda gradient: gradient.reshape(shape), lambda: problem.value, drops
    )
    return replace(
        captured,
        output=made if follows and not drops else None,
        context=lambda: made,
        gradient=arrives,
    )


def capture_change(
    change: AttentionChange,
    output: Tensor,
    logsumexps: Sequence[Tensor] = (),
    *,
    drops: bool,
    follows: bool = True,
) -> CapturedCall:
    """Capture a call that was changed.

    Args:
        change: The interventions.
        output: Its output before its context is changed.
        logsumexps: The logsumexps of the kernels that it ran.
        drops: Whether weights were dropped.
        follows: Whether the output follows from the problem otherwise.
    """
    changed = change.changed_call(of_rows(logsumexps, change.captured.problem))
    return with_output(changed, output, drops=drops, follows=follows)


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
    return CapturedCall(
        problem,
        crossing=queries != keys and not is_causal,
        output=made,
        context=None if made is None else lambda: made,
    )


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
    query, key, value = inputs
    batch = query.shape[:-3]
    if (
        query.ndim > 3
        and query.shape[-3] > 1
        and batch == key.shape[:-3] == value.shape[:-3]
        and key.shape[-3] == value.shape[-3]
    ):
        return query, key, value
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


def same_for_all(attn_mask: Tensor | None) -> bool:
    """Return whether a mask is the same for every query."""
    return attn_mask is None or bool((attn_mask == attn_mask[..., :1, :]).all())


def hide(
    mask: Tensor | None, visible: Bool[Tensor, "*#batch #heads queries keys"]
) -> Bool[Tensor, "..."] | Float[Tensor, "..."]:
    """Return a mask of `F.scaled_dot_product_attention` that also hides what is not visible."""
    if mask is None or mask.dtype == torch.bool:
        return visible if mask is None else mask & visible
    return mask.masked_fill(~visible, -torch.inf)


def changed_sdpa(
    change: AttentionChange,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **named: Any,
) -> dict[str, Any]:
    """Return the arguments of a call of `F.scaled_dot_product_attention` with interventions.

    Args:
        change: The interventions.
        query, key, value, attn_mask, dropout_p, is_causal, named: Its arguments.

    Errors: a ValueError for nested tensors.
    """
    if query.is_nested:
        raise ValueError(
            f"intervene needs texts that are padded to one length, but {change.name!r} was given "
            "packed ones, a nested tensor. Pad them, and hide the padding with a mask."
        )
    if change.hides:
        visible = change.visible(key.shape[-2])
        if query.ndim < 4 and not named.get("enable_gqa"):
            # In three axes there are no heads, and the mask has none.
            visible = visible.squeeze(-3)
        attn_mask, is_causal = hide(attn_mask, visible), False
    if change.scales:
        query = change.query(query)
    key = change.key(key)
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    return {**given, "dropout_p": dropout_p, "is_causal": is_causal, **named}

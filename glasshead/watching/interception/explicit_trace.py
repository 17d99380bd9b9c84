"""Every step of an attention written by hand, from its queries and keys on."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from glasshead.attention import Attention
from glasshead.recipe.masks import Mask, causal, dense
from glasshead.recipe.problem import Trace
from glasshead.recipe.scores import Dot, ScaledDot, Score
from glasshead.watching.captured_call import hiding_limit, with_own_context, within
from glasshead.watching.errors import UnfollowedError
from glasshead.watching.interception.explicit_records import HandWeights, TakenWeights

_NOT_FOLLOWED = "made its scores of queries and keys in a way that watch does not recognize"
_OTHERWISE = "changes its scores in another way"
_FEATURES = "weighs features by its softmax, and not tokens"
_ANOTHER_OUTPUT = "gave another output than its weights do with its values"
_MIXES = "mixes the weights of its heads after the softmax"


def trace_explicit(taken: TakenWeights) -> Trace:
    """Compute the steps of an attention written by hand, in the layout of its softmax.

    Errors: an `UnfollowedError` if the scores are not products, scaled, with biases and masks.
    """
    if taken.weights.over_features:
        raise UnfollowedError(_FEATURES)
    if any(step.mixing is not None for step in taken.after):
        raise UnfollowedError(_MIXES)
    query, key = _queries_and_keys(taken)
    scores, value = taken.of_scores(), taken.of_values()
    factors = [step.factor for step in taken.weights.steps]
    if None in factors:
        raise UnfollowedError(_OTHERWISE)
    beta = prod(factors)  # type: ignore[arg-type] - none is None
    product = taken.weights.product.dtype
    trace = trace_of_scores(query, key, value, scores, beta=beta, product=product)
    if taken.found.added or not all(step.keeps for step in taken.after):
        # Words describe what comes between its weights and its output.
        return trace
    own = with_own_context(trace, taken.of_output())
    if own is None:
        raise UnfollowedError(_ANOTHER_OUTPUT)
    return own


def trace_of_scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    *,
    beta: float,
    product: torch.dtype,
) -> Trace:
    """Compute the steps of an attention whose scores are known: scaled products, biases, a mask.

    Args:
        query, key, value, scores: The vectors, and the input of the softmax; heads may be grouped.
        beta: The scale of the products.
        product: The type in which the products were computed.
    """
    hidden = scores <= hiding_limit(product)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    query, key, value, scores = (one.to(dtype) for one in (query, key, value, scores))
    scores = scores.masked_fill(hidden, 0.0)
    every = key
    if query.ndim > 3 and key.shape[-3] != query.shape[-3]:
        every = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    rest = (scores - beta * (query @ every.mT)).masked_fill(hidden, 0.0)
    largest = float(scores.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    rounding = max(1e-5, 16 * torch.finfo(product).eps) * max(1.0, largest)
    biased = not within(rest, torch.zeros_like(rest), rounding)
    attention = Attention(score=score_of(beta, query.shape[-1]), mask=_mask(~hidden))
    return attention.trace(query, key, value, bias=rest if biased else None)


def score_of(beta: float, width: int) -> Score:
    """Return the score whose name fits a scale."""
    if abs(beta * width**0.5 - 1) < 1e-6:
        return ScaledDot()
    return Dot() if beta == 1 else Dot(beta=beta)


def _mask(visible: Tensor) -> Mask | None:
    """Return a mask, by its name where it is causal; None if it hides nothing."""
    if bool(visible.all()):
        return None
    queries, keys = visible.shape[-2:]
    lower = torch.ones(queries, keys, dtype=torch.bool, device=visible.device).tril(keys - queries)
    return causal() if bool((visible == lower).all()) else dense(visible)


def _queries_and_keys(taken: TakenWeights) -> tuple[Tensor, Tensor]:
    """Return the operands of the product of the scores, `[*batch, length, dim]`."""
    weights = taken.weights
    side = None
    if weights.axes is not None:
        side = weights.product.side(weights.axes[weights.axis])
    # Of a single key nothing tells its side; texts write queries first.
    side = 1 if side is None else side
    query = _operand(weights, 1 - side, taken.batch, taken.queries)
    key = _operand(weights, side, taken.batch, weights.axis)
    batch = taken.of_scores().shape[:-2]
    return tuple(one.expand(*batch, *one.shape[-2:]) for one in (query, key))  # type: ignore[return-value]


def _operand(weights: HandWeights, side: int, batch: Sequence[int], own: int | None) -> Tensor:
    """Return an operand of the product of the scores with the axes of the softmax.

    Args:
        weights: The softmax.
        side: Which operand.
        batch, own: The axes of the softmax that stand for the batch, and for the operand's length.
    """
    found, axes = weights.product.found, weights.axes
    if found is None or axes is None or any(len(axis) > 1 for axis in axes):
        raise UnfollowedError(_NOT_FOLLOWED)
    sizes: list[int] = []
    places: list[int | None] = []
    for label, size in zip(found.labels[side], found.operands[side].shape, strict=True):
        at = found.made.index(label) if label in found.made else -1
        parts = sorted(
            (part.inner, place, part.size)
            for place, axis in enumerate(axes)
            for part in axis
            if part.axis == at >= 0
        )[::-1]
        if prod(size for _, _, size in parts) != size and parts:
            raise UnfollowedError(_NOT_FOLLOWED)
        if label in found.summed or not parts:
            sizes.append(size)
            places.append(None if label in found.summed else -1)
        sizes += [size for _, _, size in parts]
        places += [place for _, place, _ in parts]
    tensor = found.operands[side].detach().reshape(sizes)
    for place in reversed(range(len(places))):
        if places[place] == -1:
            tensor = tensor.select(place, 0)
            del places[place]
    order = [*batch, *([] if own is None else [own])]
    known = [places.index(at) for at in order if at in places]
    if len(known) + 1 != len(places):
        raise UnfollowedError(_NOT_FOLLOWED)
    tensor = tensor.permute(*known, places.index(None))
    for place, at in enumerate(order):
        tensor = tensor if at in places else tensor.unsqueeze(place)
    return tensor.unsqueeze(-2) if own is None else tensor

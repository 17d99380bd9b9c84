"""Recomputation of single softmax weights from row statistics, and products with the matrix."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines import STREAMING, reduce_by_fastest
from glasshead.engines.reference import as_computed
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import InnerProduct
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import without_autocast
from glasshead.statistics.reductions import TimesKeys

# From this size on, matrix products round alike whatever their shape; those with one or a few
# vectors sum in another order.
_ALIKE = 16
# The largest relative rounding error of a weight at which the order of a sum is ignored.
_ROUNDING = 3e-5


class KnownRows(NamedTuple):
    """Row statistics that turn scores into weights: P_ij = exp(s_ij - score_i) · weight_i.

    Attributes:
        score: The largest score of each row, or its logsumexp; -inf where a query sees nothing.
        weight: The weight of such a score; None: 1, that of a logsumexp.
    """

    score: Float[Tensor, "*batch heads all_queries"]
    weight: Float[Tensor, "*batch heads all_queries"] | None = None

    def at(self, place: tuple[Any, ...]) -> "KnownRows":
        """Select some of the rows."""
        return KnownRows(self.score[place], None if self.weight is None else self.weight[place])


def known_weights(
    problem: Problem, tile: Tile, rows: KnownRows
) -> Float[Tensor, "*batch heads queries keys"]:
    """Recompute P_ij for the pairs of a tile alone, without a gradient.

    Args:
        problem: The whole of it, of exponentials.
        tile: Which queries and keys.
        rows: Of every row.

    >>> import glasshead as gh
    >>> x = torch.eye(3)
    >>> problem = gh.Attention(mask=gh.causal()).problem(x, x, x)
    >>> tile = replace(problem.tile(), queries=range(1, 3), keys=range(2))
    >>> known_weights(problem, tile, KnownRows(torch.tensor([[0.577, 1.025, 1.310]])))
    tensor([[[0.3588, 0.6391],
             [0.2698, 0.2698]]])
    """
    scores, visible = _scores_and_visible(problem, tile)
    score, weight = rows.at((..., slice(tile.queries.start, tile.queries.stop), None))
    weights = _exponentials(scores.sub_(score.masked_fill(score.isneginf(), 0.0)), weight)
    return weights if visible is None else weights.masked_fill_(~visible, 0.0)


def complete_weights(
    problem: Problem, tile: Tile
) -> Float[Tensor, "*batch heads queries all_keys"]:
    """Compute P_ij of complete rows, each divided by its own sum, without a gradient.

    Args:
        problem: The whole of it, with a softmax without a sink.
        tile: Which queries, and every key.
    """
    scores, visible = _scores_and_visible(problem, tile)
    if not scores.numel():
        return scores
    if visible is not None:
        scores.masked_fill_(~visible, -torch.inf)
    largest = scores.amax(-1, keepdim=True)
    weights = _exponentials(scores.sub_(largest.masked_fill(largest.isneginf(), 0.0)), None)
    weights.div_(weights.sum(-1, keepdim=True).clamp_(min=1.0))
    return weights if visible is None else weights.masked_fill_(~visible, 0.0)


def is_complete(problem: Problem, keys: range) -> bool:
    """Return whether rows of these keys hold all that a weight is divided by."""
    return problem.normalizer.is_softmax and len(keys) == problem.scores_shape[-1]


def rounded_alike(problem: Problem, rows: range, columns: range) -> tuple[range, range]:
    """Widen a tile to a shape at which matrix products round scores as for the full matrix.

    A vector times a matrix is summed in another order than two matrices are, which for scores of
    1e4 is a difference of 1e-3.
    """
    queries, keys = problem.scores_shape[-2:]
    if min(queries, keys) < _ALIKE:
        return range(queries), range(keys)
    return _widened(rows, queries), _widened(columns, keys)


def _widened(part: range, length: int) -> range:
    start = max(0, min(part.start, length - _ALIKE))
    return range(start, max(part.stop, start + _ALIKE))


def scores_are_coarse(problem: Problem, scores: Float[Tensor, "..."]) -> bool:
    """Return whether float32 rounds scores so coarsely that the order of a sum shows in weights.

    The product of queries and keys may be large where the scores are not, as a bias is added.

    Args:
        problem: The problem with these scores.
        scores: The largest score of each row, or its logsumexp.
    """
    largest = scores.masked_fill(scores.isneginf(), 0.0).abs()
    bound = largest.amax() if largest.numel() else largest.new_zeros(())
    score, query, key = problem.score, problem.query, problem.key
    if isinstance(score, InnerProduct) and query.numel() and key.numel():
        query, key = score.checked_features(query.to(problem.dtype), key.to(problem.dtype))
        sizes = [torch.linalg.vector_norm(x, dim=-1).amax(-1) for x in (query, key)]
        size = sizes[0] * sizes[1].repeat_interleave(problem.group, -1)
        scale = problem.scale
        if isinstance(scale, Tensor):
            scale = scale.to(size).flatten()
        bound = torch.maximum(bound, (size * scale).abs().amax())
    # False for NaN too.
    return not bool(bound * torch.finfo(problem.dtype).eps <= _ROUNDING)


def _exponentials(
    scores: Float[Tensor, "*shape"], weight: Float[Tensor, "*rows 1"] | None
) -> Float[Tensor, "*shape"]:
    """Compute weight · exp(s) in place, 0 if it is at or below the smallest normal number.

    PyTorch's exp takes ten times as long, for all of them, where one falls below that, which is
    1e-38 in float32.
    """
    least = math.log(torch.finfo(scores.dtype).tiny) + 1
    exact = scores.clamp_(min=least).exp_()
    if weight is not None:
        exact.mul_(weight)
    return F.threshold(exact, math.exp(least + 0.5), 0.0, inplace=True)


def _scores_and_visible(problem: Problem, tile: Tile) -> tuple[Tensor, Tensor | None]:
    """Compute a tile's normalizer input, in memory of its own, and which pairs are visible."""
    # A mask that hides nothing of the tile need not be evaluated pair by pair.
    mask = None if problem.mask is None else problem.mask.simplified(tile)
    with torch.no_grad(), without_autocast(problem.query.device):
        bias, visible = problem.bias_and_visible(mask, tile)
        scores = _scores(problem, tile, visible)
        if problem.softcap is not None:
            scores.div_(problem.softcap).tanh_().mul_(problem.softcap)
        if bias is not None:
            scores += bias
    return scores, visible


def unmasked_scores(problem: Problem) -> Float[Tensor, "*batch heads queries keys"]:
    """Compute β times the score of each pair, before softcap, bias and mask."""
    with torch.no_grad(), without_autocast(problem.query.device):
        return _scores(problem, problem.tile(), None)


def _scores(problem: Problem, tile: Tile, visible: Tensor | None) -> Tensor:
    """Compute β times the score of each pair, in memory of its own, rounded as the reference."""
    some = replace(
        problem,
        query=problem.query[..., tile.queries.start : tile.queries.stop, :],
        key=problem.key[..., tile.keys.start : tile.keys.stop, :],
        value=problem.key[..., tile.keys.start : tile.keys.stop, :0],
    )
    query, key, _ = (x.to(problem.dtype) for x in as_computed(some, visible))
    if problem.group > 1:
        key = key.repeat_interleave(problem.group, dim=-3)
    score, scale = problem.score, problem.scale
    if isinstance(scale, Tensor):
        scale = scale.to(query)
    if score.is_inner_product:
        return score(query, key).mul_(scale)
    return (score(query, key) * scale).expand(some.scores_shape).contiguous()


# Reductions take a pass over the weights per column; with more columns, computing R as values is
# faster. With so few queries it would round otherwise.
_FEW, _FEW_QUERIES = 8, 4


def right_product(
    problem: Problem,
    right: Float[Tensor, "... keys r"],
    logsumexp: Float[Tensor, "*batch heads queries"],
) -> Float[Tensor, "*batch heads queries r"]:
    """Compute P·R for R `[*#batch, #heads, keys, r]` or `[keys, r]`, and the rows' logsumexp."""
    queries = problem.scores_shape[-2]
    wide = right.shape[-1] > _FEW and queries > _FEW_QUERIES
    # As values, numbers of R that no query sees may be NaN; as factors, 0 · NaN is NaN.
    if wide and STREAMING.refusal(problem) is None and bool(right.isfinite().all()):
        return STREAMING.run(_with_values(problem, right))
    ((result,),) = reduce_by_fastest(problem, [TimesKeys(right)], logsumexp)
    return result


def _with_values(problem: Problem, right: Tensor) -> Problem:
    """Return a problem whose context is P·R, with keys per head where R has columns per head."""
    # Results have the precision of the sums, not that of half-precision inputs.
    query, key = (x.to(problem.dtype) for x in (problem.query, problem.key))
    if right.ndim > 2 and right.shape[-3] > 1:
        key = key.repeat_interleave(problem.group, -3)
    value = right.expand(*key.shape[:-1], right.shape[-1])
    return replace(problem, query=query, key=key, value=value)

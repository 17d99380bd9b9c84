"""The weights of some pairs of a softmax, whose rows are known by their logsumexps."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.engines.autocast import without_autocast
from glasshead.engines.reference import as_computed
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import InnerProduct
from glasshead.recipe.tile import Tile


def known_weights(
    problem: Problem, tile: Tile, logsumexp: Float[Tensor, "*batch heads all_queries"]
) -> Float[Tensor, "*batch heads queries keys"]:
    """P_ij = exp(s_ij - lse_i) for the pairs of a tile, at their price alone, without a gradient.

    Args:
        problem: The whole of it, of exponentials.
        tile: Which queries and keys.
        logsumexp: Of every row; -inf where a query sees nothing, whose weights are 0.

    >>> import glasshead as gh
    >>> x = torch.eye(3)
    >>> problem = gh.Attention(mask=gh.causal()).problem(x, x, x)
    >>> tile = replace(problem.tile(), queries=range(1, 3), keys=range(2))
    >>> known_weights(problem, tile, torch.tensor([[0.577, 1.025, 1.310]]))
    tensor([[[0.3588, 0.6391],
             [0.2698, 0.2698]]])
    """
    # Where the mask hides nothing of the tile, nothing is asked pair by pair.
    mask = None if problem.mask is None else problem.mask.simplified(tile)
    with torch.no_grad(), without_autocast(problem.query.device):
        bias, visible = problem.bias_and_visible(mask, tile)
        scores = _scores(problem, tile, visible)
        if problem.softcap is not None:
            scores.div_(problem.softcap).tanh_().mul_(problem.softcap)
        if bias is not None:
            scores += bias
        lse = logsumexp[..., tile.queries.start : tile.queries.stop, None]
        weights = _exponentials(scores.sub_(lse.masked_fill(lse.isneginf(), 0.0)))
        return weights if visible is None else weights.masked_fill_(~visible, 0.0)


def _exponentials(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """exp(s) in place, 0 where it is all but below the least normal number, 1e-38 in float32.

    PyTorch's exp takes ten times as long, for all of them, where one falls below that.
    """
    least = math.log(torch.finfo(scores.dtype).tiny) + 1
    exact = scores.clamp_(min=least).exp_()
    return F.threshold(exact, math.exp(least + 0.5), 0.0, inplace=True)


def _scores(problem: Problem, tile: Tile, visible: Tensor | None) -> Tensor:
    """β times the score of each pair, in memory of its own."""
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
    # A score of one's own may be an inner product no more, and its β stays outside of it.
    if isinstance(score, InnerProduct) and type(score).forward is InnerProduct.forward:
        query, key = score.features(query, key)
        return (query * scale) @ key.transpose(-1, -2)
    return (score(query, key) * scale).expand(some.scores_shape).contiguous()

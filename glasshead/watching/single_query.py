"""Statistics of a single query, as in each step of generation: one row, without blocks of rows."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Dot, ScaledDot
from glasshead.statistics import Entropy, MassOn, MaxWeight, Received, Statistic
from glasshead.statistics.reductions import Rows


def single_query(problem: Problem, statistics: Mapping[str, Statistic]) -> dict[str, Any] | None:
    """Compute the statistics of a problem of one query, without gradients.

    Returns: their values by name, as of `reductions_of`; None for a problem of another kind.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(1, 2), torch.zeros(3, 2)
    >>> problem = gh.Attention().problem(query, key, key)
    >>> single_query(problem, {"received": gh.Received()})
    {'received': tensor([0.3333, 0.3333, 0.3333])}
    """
    queries, keys = problem.scores_shape[-2:]
    scale = problem.scale
    if (
        queries != 1
        or not keys
        or not isinstance(scale, float)
        or type(problem.score) not in (Dot, ScaledDot)
        or type(problem.normalizer) not in (Softmax, SoftmaxOne)
        or problem.dropout
    ):
        return None
    rows = _row(problem, scale)
    found = {}
    for name, one in statistics.items():
        compute = _SHORT.get(type(one))
        if compute is None:
            reduced = [reduction.of(rows) for reduction in one.reductions(problem)]
            value = one.finish(problem, *reduced)
        else:
            value = compute(one, rows)
        found[name] = problem.as_given(value)
    return found


def _row(problem: Problem, scale: float) -> Rows:
    """Compute the only row of weights.

    A hidden key may hold anything: its score is overwritten, and no value is read.
    """
    tile, dtype = problem.tile(), problem.dtype
    bias, visible = problem.bias_and_visible(problem.mask, tile)
    query, key = problem.query.to(dtype), problem.key.to(dtype)
    if problem.group > 1:
        # The heads of a group read the same keys, as queries of one head would.
        query = query.unflatten(-3, (-1, problem.group)).squeeze(-2)
    scores = (query * scale) @ key.mT
    if problem.group > 1:
        scores = scores.reshape(problem.scores_shape)
    if problem.softcap is not None:
        scores = problem.softcap * torch.tanh(scores / problem.softcap)
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return Rows(problem, tile, scores, problem.normalizer(scores, visible), visible)


def _mass_on(statistic: MassOn, rows: Rows) -> Float[Tensor, "*batch heads 1"]:
    # Keys that are not there yet receive nothing.
    keys = [key for key in statistic.keys if key < rows.weights.shape[-1]]
    if len(keys) == 1:
        return rows.weights[..., keys[0]].clone()
    return rows.weights[..., keys].sum(-1)


# Of these a row of weights tells more directly than by their reductions.
_SHORT: dict[type[Statistic], Callable[[Any, Rows], Tensor]] = {
    Entropy: lambda _, rows: torch.special.entr(rows.weights).sum(-1),
    MassOn: _mass_on,
    MaxWeight: lambda _, rows: rows.weights.amax(-1),
    # However many queries count, it is one of the last.
    Received: lambda _, rows: rows.weights.squeeze(-2),
}

"""Statistics of single queries, as in the steps of generation: rows, without blocks of rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.recipe.normalizers import Normalizer, Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Dot, ScaledDot
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import without_autocast
from glasshead.statistics import Entropy, MassOn, MaxWeight, Received, Statistic
from glasshead.statistics.reductions import Rows

_One = TypeVar("_One")
# Rows that wait at most, however many layers a model has.
_MOST = 64


def single_query(problem: Problem, statistics: Mapping[str, Statistic]) -> dict[str, Any] | None:
    """Compute the statistics of a problem of one query, without gradients.

    Returns: their values by name, as of `reduce_by_fastest`; None for a problem of another kind.

    >>> import glasshead as gh
    >>> query, key = torch.zeros(1, 2), torch.zeros(3, 2)
    >>> problem = gh.Attention().problem(query, key, key)
    >>> single_query(problem, {"received": gh.Received()})
    {'received': tensor([0.3333, 0.3333, 0.3333])}
    """
    row = row_of(problem, problem.tile())
    if row is None:
        return None
    weights = problem.normalizer(row.scores, row.visible)
    found, rows = {}, None
    for name, one in statistics.items():
        compute = _SHORT.get(type(one))
        if compute is not None:
            value = compute(one, weights)
        else:
            rows = rows or Rows(problem, problem.tile(), row.scores, weights, row.visible)
            reduced = [reduction.of(rows) for reduction in one.reductions(problem)]
            value = one.finish(problem, *reduced)
        found[name] = problem.as_given(value)
    return found


class ScoreRow(NamedTuple):
    """The row of a query.

    Attributes:
        scores: Input of the normalizer, `[*batch, heads, 1, keys]`; -inf where hidden.
        visible: Which keys are not hidden, broadcastable to these; None: all.
        normalizer: Turns scores into weights.
    """

    scores: Float[Tensor, "*batch heads 1 keys"]
    visible: Bool[Tensor, "*#batch #heads 1 #keys"] | None
    normalizer: Normalizer

    @property
    def kind(self) -> tuple[Any, ...]:
        """A value that is equal for stacks `[rows, …]` that can be computed together."""
        scores, shown = self.scores, None if self.visible is None else self.visible.shape
        return scores.shape[1:], scores.dtype, scores.device, shown, _shared(self.normalizer)


class RowRule(NamedTuple):
    """Rule by which the products of a query and its keys become a row of scores.

    Attributes:
        scale: β, the factor of the products.
        softcap, normalizer: As of the problem.
        dtype: What scores are computed in.
        bias: Added to the scores, broadcastable to `[*batch, heads, 1, keys]`; None: nothing.
        visible: Which keys are not hidden, broadcastable to these; None: all.
        hidden: Its opposite.
    """

    scale: float
    softcap: float | None
    normalizer: Normalizer
    dtype: torch.dtype
    bias: Float[Tensor, "*#batch #heads 1 #keys"] | None
    visible: Bool[Tensor, "*#batch #heads 1 #keys"] | None
    hidden: Bool[Tensor, "*#batch #heads 1 #keys"] | None

    @classmethod
    def of(cls, problem: Problem, tile: Tile) -> "RowRule | None":
        """Return the rule of the only query of a tile; None for a problem of another kind."""
        (queries, keys), scale = (tile.queries, tile.keys), problem.scale
        if (
            queries.stop - queries.start != 1
            or keys.stop == keys.start
            or not isinstance(scale, float)
            or type(problem.score) not in (Dot, ScaledDot)
            or type(problem.normalizer) not in (Softmax, SoftmaxOne)
            or problem.dropout
        ):
            return None
        bias = visible = None
        if problem.mask is not None or problem.biases:
            bias, visible = problem.bias_and_visible(problem.mask, tile)
        known = scale, problem.softcap, problem.normalizer, problem.dtype
        return cls(*known, bias, visible, None if visible is None else ~visible)

    @property
    def kind(self) -> tuple[Any, ...]:
        """A value that is equal for rules of equal rows; masks and biases are known by identity."""
        own = id(self.bias), id(self.hidden), _shared(self.normalizer)
        return self.scale, self.softcap, self.dtype, *own

    def row(
        self,
        query: Float[Tensor, "*batch heads 1 dim"],
        key: Float[Tensor, "*batch kv_heads keys dim"],
    ) -> ScoreRow:
        """Compute the row. A hidden key may hold anything: its score is overwritten."""
        return self.of_products(self.products(query, key))

    def products(
        self,
        query: Float[Tensor, "*batch heads 1 dim"],
        key: Float[Tensor, "*batch kv_heads keys dim"],
    ) -> Float[Tensor, "*batch heads 1 keys"]:
        """Compute the products of the query and the keys."""
        if query.dtype != self.dtype:
            query, key = query.to(self.dtype), key.to(self.dtype)
        # The heads of a group read the same keys, as queries of one head would.
        group = query.shape[-3] // max(key.shape[-3], 1) or 1
        keys = key.flatten(0, -3)
        products = torch.bmm(query.reshape(len(keys), group, query.shape[-1]), keys.mT)
        return products.view(*query.shape[:-1], key.shape[-2])

    def of_products(self, products: Float[Tensor, "*leading heads 1 keys"]) -> ScoreRow:
        """Compute the row of products, or a stack of rows; the products are overwritten."""
        scores = products.mul_(self.scale)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.bias is not None:
            scores = scores + self.bias
        if self.hidden is not None:
            scores = scores.masked_fill(self.hidden, -torch.inf)
        return ScoreRow(scores, self.visible, self.normalizer)

    def by_kernel(
        self,
        query: Float[Tensor, "batch heads 1 dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys dim"],
    ) -> Float[Tensor, "batch heads dim"] | None:
        """Compute the context of the row by PyTorch's kernel; None if it knows no such problem.

        The kernel copies no keys and values to another type, which takes several times as long as
        the row. Its context is rounded as a model's is, so it is compared, and never recorded.
        """
        heads, kv_heads = query.shape[-3], key.shape[-3]
        if (
            query.device.type != "cpu"
            or query.ndim != 4
            or query.shape[-1] != value.shape[-1]
            or not query.dtype == key.dtype == value.dtype
            or type(self.normalizer) is not Softmax
            or self.softcap is not None
            or self.bias is not None
        ):
            return None
        visible = self.visible
        if visible is not None:
            visible = visible[(None,) * (4 - visible.ndim)]
            if heads != kv_heads and visible.shape[1] > 1:
                return None
        # The heads of a group read the same keys, as queries of one head would.
        query = query.reshape(len(query), kv_heads, heads // kv_heads, -1)
        # The operator itself: for a model, something else may stand in the function's place.
        kernel = torch.ops.aten.scaled_dot_product_attention.default
        made = kernel(query, key, value, visible, scale=self.scale)
        return made.reshape(len(query), heads, -1)


def row_of(problem: Problem, tile: Tile) -> ScoreRow | None:
    """Compute the row of scores of a query; None for a problem of another kind.

    Args:
        problem: The problem, of which no value is read.
        tile: The query, and the keys that it may see.
    """
    rule = RowRule.of(problem, tile)
    return None if rule is None else rule.row(*operands_of(problem, tile)[:2])


def operands_of(problem: Problem, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    """Return the queries, keys and values of a tile."""
    query, key, value = problem.query, problem.key, problem.value
    if tile is not problem.tile():
        query = query[..., tile.queries.start : tile.queries.stop, :]
        key, value = (x[..., tile.keys.start : tile.keys.stop, :] for x in (key, value))
    return query, key, value


def _mass_on(statistic: MassOn, weights: Tensor) -> Float[Tensor, "*batch heads 1"]:
    # Keys that are not there yet receive nothing.
    keys = [key for key in statistic.keys if key < weights.shape[-1]]
    if len(keys) == 1:
        return weights[..., keys[0]].clone()
    return weights[..., keys].sum(-1)


# Of these a row of weights, `[*batch, heads, 1, keys]`, tells more directly than their reductions.
_SHORT: dict[type[Statistic], Callable[[Any, Tensor], Tensor]] = {
    Entropy: lambda _, weights: torch.special.entr(weights).sum(-1),
    MassOn: _mass_on,
    MaxWeight: lambda _, weights: weights.amax(-1),
    # However many queries count, it is one of the last.
    Received: lambda _, weights: weights.squeeze(-2),
}


class _Waiting(NamedTuple):
    """A query that waits.

    Attributes:
        rule: The rule of its row.
        products: Of the query and its keys.
        real: Which queries of the batch are no padding; None: all.
        values: Where its statistics are put by name.
    """

    rule: RowRule
    products: Float[Tensor, "*batch heads 1 keys"]
    real: Bool[Tensor, "batch 1"] | None
    values: dict[str, Any]

    @property
    def kind(self) -> tuple[Any, ...]:
        """A value that is equal for queries whose rows can be computed together."""
        return *self.rule.kind, self.products.shape, self.products.device


class QueryBatch:
    """Single queries of several layers, whose statistics are computed together.

    The products of queries and keys are computed at once, as a model may write to both, and to its
    mask. The rest is computed later, for all layers of a pass together: one operator for all takes
    the time of one.

    Args:
        statistics: Statistics by name.

    Attributes:
        undisturbed: Returns the block in which the statistics are computed.

    >>> import glasshead as gh
    >>> batch = QueryBatch({"entropy": gh.Entropy()})
    >>> query, key = torch.zeros(1, 2, 1, 3), torch.zeros(1, 2, 4, 3)
    >>> values = {}
    >>> batch.add(gh.Attention().problem(query, key, key), None, values) is not None
    True
    >>> batch.settle()
    >>> values["entropy"]
    tensor([[[1.3863],
             [1.3863]]])
    """

    def __init__(self, statistics: Mapping[str, Statistic]) -> None:
        self.undisturbed: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._statistics = statistics
        self._together = all(type(one) in _SHORT for one in statistics.values())
        self._waiting: list[_Waiting] = []
        # Another thread may read what has been seen so far.
        self._lock = RLock()

    def add(
        self,
        problem: Problem,
        real: Bool[Tensor, "batch 1"] | None,
        values: dict[str, Any],
    ) -> RowRule | None:
        """Add a query, unless its problem or a statistic is of another kind.

        Args:
            problem: Its problem, with heads.
            real: Which queries of the batch are no padding, which sums leave out; None: all.
            values: Where its statistics are put by name once they are computed.

        Returns: the rule of its row, which does for other queries, too; None if it is not added.
        """
        rule = None
        if self._together and problem.axes > 3:
            rule = RowRule.of(problem, problem.tile())
        if rule is None:
            return None
        if rule.visible is not None:
            axes = (None,) * (problem.query.ndim - rule.visible.ndim)
            rule = rule._replace(visible=rule.visible[axes].clone())
        if rule.bias is not None:
            rule = rule._replace(bias=rule.bias.clone())
        self.add_by_rule(rule, problem.query, problem.key, real, values)
        return rule

    def add_by_rule(
        self,
        rule: RowRule,
        query: Float[Tensor, "*batch heads 1 dim"],
        key: Float[Tensor, "*batch kv_heads keys dim"],
        real: Bool[Tensor, "batch 1"] | None,
        values: dict[str, Any],
    ) -> None:
        """Add a query by the rule of another one, which `add` has returned."""
        waiting = _Waiting(rule, rule.products(query, key), real, values)
        with self._lock:
            self._waiting.append(waiting)
            if len(self._waiting) >= _MOST:
                self.settle()

    def settle(self) -> None:
        """Compute the statistics of the queries that wait."""
        if not self._waiting:
            return
        with self._lock, self.undisturbed(), torch.no_grad():
            rows = [
                (alike[0].rule.of_products(torch.stack([one.products for one in alike])), alike)
                for alike in _grouped(self._waiting, lambda one: one.kind)
            ]
            for several in _grouped(rows, lambda one: one[0].kind):
                own = [row for row, _ in several]
                self._compute(own, [one for _, alike in several for one in alike])
            self._waiting.clear()

    def _compute(self, rows: Sequence[ScoreRow], waiting: Sequence[_Waiting]) -> None:
        """Compute the statistics of queries by stacks of their rows."""
        first, visible = rows[0], None
        with without_autocast(first.scores.device):
            if first.visible is not None:
                masks = ((row.visible, len(row.scores)) for row in rows)
                visible = torch.cat(
                    [one.expand(n, *one.shape) for one, n in masks if one is not None]
                )
            weights = first.normalizer(torch.cat([row.scores for row in rows]), visible)
            for name, one in self._statistics.items():
                found = _SHORT[type(one)](one, weights).unbind()
                for (_, _, real, values), own in zip(waiting, found, strict=True):
                    if real is None or one.axes[:1] == ("query",):
                        values[name] = own
                    else:
                        which = real.reshape(*own.shape[:-2], 1, 1)
                        values[name] = own.masked_fill(~which, 0.0)


def _grouped(ones: Iterable[_One], kind: Callable[[_One], Any]) -> list[list[_One]]:
    """Return the groups of one kind, each in order."""
    groups: dict[Any, list[_One]] = {}
    for one in ones:
        groups.setdefault(kind(one), []).append(one)
    return [*groups.values()]


def _shared(normalizer: Normalizer) -> int | None:
    """Return a value that is equal for normalizers that are equal: layers may have own sinks."""
    return None if type(normalizer) is Softmax else id(normalizer)

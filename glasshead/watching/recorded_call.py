"""One recorded call of an attention: its statistics, what was kept, and its place in the text."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.attention.lazy_matrix import first_head
from glasshead.attention.observe import StatisticResults, value_table
from glasshead.attention.weight_gradients import WeightGradients
from glasshead.attention.weights import Weights
from glasshead.recipe.problem import Trace
from glasshead.statistics import Statistic
from glasshead.watching.attention_map import Images
from glasshead.watching.errors import BudgetError
from glasshead.watching.sharding import Shard

if TYPE_CHECKING:
    import pandas as pd


# The step by which `by_hand` tells that queries and keys are features of a head, and not tokens.
OVER_FEATURES = "softmax over features"


class CallInfo(NamedTuple):
    """Metadata of a call: its position in the text and in the run of the model.

    Attributes:
        position: Position of its first query in the text; above 0 with a cache.
        first_key: Position in the text of the first key of its weights; above 0 where a
            sliding-window cache has evicted earlier keys. Statistics count keys from the beginning
            of the text.
        keys: Number of keys of the text so far.
        crossing: Whether it is cross-attention: its keys belong to another text than its queries.
        heads: Indices of its heads, where only some were requested or are of this rank.
        real: Which queries are real tokens, `[batch, queries]`, and not padding, which statistics
            that sum over queries leave out; None where all are, or the padding is unknown.
        forward: Number of the forward pass of the model.
        run: Index of the run of its module, where a forward pass runs that several times, or it
            attends several times in one call.
        interleaved: Whether other attention ran between the last run of its module and this one.
        beside: Whether the last run was in the same call of its module, so that how both combine
            is not known.
        merged: Whether its last keys are those of another text, so that keys of its own come in
            between in the next call.
        by_hand: The steps of an attention that is written by hand, in words; None for one that the
            model left to a function of its libraries.
        images: The pictures among its keys, or a clause that says why they are not known; None
            where there are none.
        shards: Which of its heads and queries this rank computes, where ranks share them.
    """

    position: int = 0
    first_key: int = 0
    keys: int = 0
    crossing: bool = False
    heads: tuple[int, ...] | None = None
    real: Bool[Tensor, "batch queries"] | None = None
    forward: int = 0
    run: int = 0
    interleaved: bool = False
    beside: bool = False
    merged: bool = False
    by_hand: str | None = None
    images: Images | str | None = None
    shards: tuple[Shard, ...] = ()


class Call(StatisticResults):
    """One call of an attention: its statistics, `[batch, heads, …]`, as attributes by name.

    Attributes:
        position, first_key, keys, crossing, heads, real, forward, run: See `CallInfo`.
        interleaved, beside, merged, by_hand, images, shards: See `CallInfo`.
        missing: Why what was to be kept is not; None where it is, or nothing was asked for.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
        info: CallInfo,
        weights: Weights | None = None,
        trace: Trace | None = None,
        context: Float[Tensor, "*batch heads queries value_dim"] | None = None,
        arrived: Callable[[], WeightGradients | None] | None = None,
        missing: str | None = None,
    ) -> None:
        super().__init__(shape, statistics, values)
        self._info, self._weights, self._trace, self._context = info, weights, trace, context
        self._arrived, self.missing = arrived, missing
        self.position, self.first_key, self.keys = info.position, info.first_key, info.keys
        self.crossing, self.heads, self.real = info.crossing, info.heads, info.real
        self.forward, self.run, self.interleaved = info.forward, info.run, info.interleaved
        self.beside, self.merged, self.by_hand = info.beside, info.merged, info.by_hand
        self.images, self.shards = info.images, info.shards

    @property
    def weights(self) -> Weights | None:
        """The lazy matrix of all heads, `[batch, heads, queries, keys]`; None: not asked for.

        Errors: a `BudgetError` where the budget was exhausted before.
        """
        return self._kept(self._weights)

    @property
    def has_weights(self) -> bool:
        """Whether the weights were kept."""
        return self._weights is not None

    @property
    def trace(self) -> Trace | None:
        """Every step of the attention, in the layout of its softmax; None: not asked for.

        Errors: a `BudgetError` where the budget was exhausted before.
        """
        return self._kept(self._trace)

    @property
    def context(self) -> Float[Tensor, "*batch heads queries value_dim"] | None:
        """The output of all heads before the output projection; None: not asked for.

        Errors: a `BudgetError` where the budget was exhausted before.
        """
        return self._kept(self._context)

    def _kept(self, value: Any) -> Any:
        if value is None and self.missing is not None:
            raise BudgetError(self.missing)
        return value

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the axes before heads and queries."""
        return self.shape[:-2]

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.shape[-1]

    @property
    def end(self) -> int:
        """Position after its last query."""
        return self.position + self.queries

    @property
    def over_features(self) -> bool:
        """Whether its queries and keys are the features of a head, and not tokens."""
        return OVER_FEATURES in (self.by_hand or "")

    @property
    def gradients(self) -> WeightGradients:
        """The lazy gradients of the loss with respect to the weights, of the last backward pass.

        Errors: a ValueError where they were not kept, or no backward pass has reached this call.
        """
        if self._kept(self._arrived) is None:
            raise ValueError("the gradients were not kept: watch with keep='gradients'.")
        found = self.arrived
        if found is None:
            raise ValueError(
                "no gradient has reached the output of this attention: call backward() on a loss "
                "that depends on it."
            )
        return found

    def alone(self, name: str) -> "Call":
        """Return the call with one of its statistics only."""
        return self._with(self.shape, {name: self.statistics[name]}, {name: self.values[name]})

    def bare(self) -> "Call":
        """Return the call without statistics and weights."""
        return self._with(self.shape, {}, {})

    def __add__(self, other: "Call") -> "Call":
        """Join two consecutive calls; the result has no weights.

        Errors: a ValueError where a statistic of the whole does not follow from its parts.
        """
        if not isinstance(other, Call):
            return NotImplemented
        real = None
        if self.real is not None or other.real is not None:
            real = torch.cat([self._real_like(other), other._real_like(self)], -1)
        return self._with(
            (*self.shape[:-1], self.queries + other.queries),
            self.statistics,
            self._joined(other),
            first_key=min(self.first_key, other.first_key),
            keys=max(self.keys, other.keys),
            crossing=self.crossing or other.crossing,
            real=real,
        )

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """Return the statistics as a pandas table, without rows for padding.

        Args:
            names: See `Observation.to_frame`.

        Errors: as of `Observation.to_frame`.
        """
        table = super().to_frame(*names)
        if self.real is None or "query" not in table.index.names:
            return table
        index = table.index.to_frame(index=False)
        batch = [name for name in table.index.names if str(name).startswith("batch")]
        places = tuple(index[name].to_numpy() for name in (*batch, "query"))
        real = self.real.cpu().reshape(*self.shape[: len(batch)], self.queries).numpy()
        return table.loc[real[places]]

    def _real_like(self, other: "Call") -> Bool[Tensor, "batch queries"]:
        """Return which queries are real, where either call of the text has padding."""
        if self.real is not None or other.real is None:
            return self.real  # type: ignore[return-value] - one of both has some
        return other.real.new_ones(other.real.shape[0], self.queries)

    def _with(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
        **changed: Any,
    ) -> "Call":
        """Return the call with other statistics, without weights."""
        return Call(shape, statistics, values, self._info._replace(**changed))

    @property
    def arrived(self) -> WeightGradients | None:
        """The lazy gradients; None where they were not kept, or have not arrived."""
        return None if self._arrived is None else self._arrived()

    def moved(
        self,
        values: dict[str, Any] | None = None,
        shape: tuple[int, ...] | None = None,
        weights: Weights | None = None,
        context: Tensor | None = None,
        gradients: WeightGradients | None = None,
        **changed: Any,
    ) -> "Call":
        """Return the call as it travels between ranks, without its gradients, or as all saw it.

        Args:
            values, shape, weights, context, gradients: What all saw; of values, None: its own.
            changed: What has changed in its `CallInfo`.
        """
        travels = values is None
        return Call(
            self.shape if shape is None else shape,
            self.statistics,
            self.values if values is None else values,
            self._info._replace(**changed),
            self._weights if travels else weights,
            context=self._context if travels else context,
            arrived=None if gradients is None else lambda: gradients,
            missing=self.missing,
        )

    def __repr__(self) -> str:
        stands = f" at {self.position}" if self.position else ""
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        about = f"Call of {queries}{stands} on {self.keys} keys"
        written = [] if self.by_hand is None else [f"by hand: {self.by_hand}"]
        kept = [] if self._weights is None else [repr(self._weights)]
        return "\n".join([about, *written, *self._lines(), *kept])

    def _repr_html_(self) -> str:
        from glasshead.drawing import Document

        kept = [] if self._weights is None else first_head(self._weights)
        title = repr(self).partition("\n")[0]
        return Document([value_table(self), *kept], title=title)._repr_html_()

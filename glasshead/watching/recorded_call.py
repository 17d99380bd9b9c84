"""One recorded call of an attention: its statistics, what was kept, and its place in the text."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention.lazy_matrix import first_head
from glasshead.attention.observe import StatisticResults, value_table
from glasshead.attention.weight_gradients import WeightGradients
from glasshead.attention.weights import Weights
from glasshead.recipe.problem import Trace
from glasshead.statistics import Received, Statistic
from glasshead.watching.attention_map import Images
from glasshead.watching.errors import BudgetError
from glasshead.watching.sharding import Shard

if TYPE_CHECKING:
    import pandas as pd


# The kind of a layer that attends.
ATTENTION = "attention"
# The step by which `by_hand` tells that queries and keys are features of a head, and not tokens.
OVER_FEATURES = "softmax over features"


class CallInfo(NamedTuple):
    """Metadata of a call: its position in the text and in the run of the model.

    Attributes:
        position: Position of its first query in the text; above 0 with a cache.
        first_key: Position in the text of the first key of its weights; above 0 if a
            sliding-window cache has evicted earlier keys. Statistics count keys from the beginning
            of the text.
        keys: Number of keys of the text so far.
        crossing: Whether it is cross-attention: its keys belong to another text than its queries.
        compressed: Number of its last keys that each stand for several earlier tokens, and have no
            place in the text.
        heads: Indices of its heads, where only some were requested or are of this rank.
        real: Which queries are real tokens, `[batch, queries]`, and not padding, which statistics
            that sum over queries leave out; None if all are, or the padding is unknown.
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
        text: The text that it belongs to: a number, after that of the text with which it shares its
            beginning, as a copy of a cache does.
        rows: For each row, the row of the text's last call that it continues, as beams change
            places; None: the same.
        apart: Why the calls of its text cannot be joined, a clause; None: they can.
        untold: Why some of its statistics have no value, a clause; None: all have one.
        stop: The number of tokens of the text that were kept after it; None: all.
        kernel: The engine that computed it in the model's place, as `same_bits=False` allows; None:
            the model's own kernel ran.
        kind: What it computes, in words: "attention", or the kind of a mixer.
        channels: Whether each of its heads is a single channel.
        refused: The statistics that were requested, and that implied weights do not have, by name.
    """

    position: int = 0
    first_key: int = 0
    keys: int = 0
    crossing: bool = False
    compressed: int = 0
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
    text: tuple[int, ...] = ()
    rows: tuple[int, ...] | None = None
    apart: str | None = None
    untold: str | None = None
    stop: int | None = None
    kernel: str | None = None
    kind: str = ATTENTION
    channels: bool = False
    refused: Mapping[str, Statistic] | None = None


def names_keys(statistic: Statistic) -> bool:
    """Return whether a statistic tells keys or distances, which takes their positions."""
    return statistic.reads_positions or not statistic.has_mean or statistic.axes != ("query",)


class Call(StatisticResults):
    """One call of an attention: its statistics, `[batch, heads, …]`, as attributes by name.

    Attributes:
        position, first_key, keys, crossing, compressed, heads, real: See `CallInfo`.
        forward, run, interleaved, beside, merged: See `CallInfo`.
        by_hand, images, shards, text, rows, apart, untold, stop, kernel: See `CallInfo`.
        kind, channels, refused: See `CallInfo`.
        missing: Why what was to be kept is not; None if it is, or nothing was asked for.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is kept, each by its name
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
        parts: Any = None,
    ) -> None:
        self.shape, self.statistics, self.values = shape, statistics, values
        self._info, self._weights, self._trace, self._context = info, weights, trace, context
        self._arrived, self.missing, self._parts = arrived, missing, parts
        self.position, self.first_key, self.keys = info.position, info.first_key, info.keys
        self.crossing, self.compressed = info.crossing, info.compressed
        self.heads, self.real = info.heads, info.real
        self.forward, self.run, self.interleaved = info.forward, info.run, info.interleaved
        self.beside, self.merged, self.by_hand = info.beside, info.merged, info.by_hand
        self.images, self.shards = info.images, info.shards
        self.text, self.rows = info.text, info.rows
        self.apart, self.untold, self.stop = info.apart, info.untold, info.stop
        self.kernel, self.kind, self.channels = info.kernel, info.kind, info.channels
        self.refused = dict(info.refused or {})

    @property
    def weights(self) -> Weights | None:
        """The lazy matrix of all heads, `[batch, heads, queries, keys]`; None: not asked for.

        Errors: a `BudgetError` if the budget was exhausted before.
        """
        return self._kept(self._weights)

    @property
    def has_weights(self) -> bool:
        """Whether the weights were kept."""
        return self._weights is not None

    @property
    def trace(self) -> Trace | None:
        """Every step of the attention, in the layout of its softmax; None: not asked for.

        Errors: a `BudgetError` if the budget was exhausted before.
        """
        return self._kept(self._trace)

    @property
    def context(self) -> Float[Tensor, "*batch heads queries value_dim"] | None:
        """The output of all heads before the output projection; None: not asked for.

        Errors: a `BudgetError` if the budget was exhausted before.
        """
        return self._kept(self._context)

    @property
    def parts(self) -> Any:
        """Its queries and keys as they were followed, for `score_parts`; None: not asked for.

        Errors: a `BudgetError` if the budget was exhausted before.
        """
        return self._kept(self._parts)

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

        Errors: a ValueError if they were not kept, or no backward pass has reached this call.
        """
        if self._kept(self._arrived) is None:
            raise ValueError("the gradients were not kept. Watch with keep='gradients'.")
        found = self.arrived
        if found is None:
            raise ValueError(
                "no gradient has reached the output of this attention. Call backward() on a loss "
                "that depends on it."
            )
        return found

    def name_of(self, statistic: "str | Statistic") -> str:
        """Return the name of a statistic.

        Errors: a KeyError if it was not observed, a ValueError if it has no value.
        """
        if self.untold is not None:
            for name, one in self.statistics.items():
                if statistic in (name, one) and name not in self.values:
                    raise ValueError(f"{one!r} has no value, as {self.untold}.")
        for name, one in self.refused.items():
            if statistic in (name, one):
                raise ValueError(
                    f"{one!r} needs weights that are shares of 1, but implied weights, as of "
                    f"{self.kind}, may be signed. Use Received, MeanDistance or MassOn."
                )
        return super().name_of(statistic)

    def __getattr__(self, name: str) -> Any:
        if any(name in self.__dict__.get(known, {}) for known in ("statistics", "refused")):
            return self[name]
        return super().__getattr__(name)

    def has(self, names: Sequence["str | Statistic"]) -> bool:
        """Return whether it has some statistics, or without names any with a number a query.

        Attention has what was requested, or says why not when it is read.
        """
        if self.kind == ATTENTION:
            return True
        if not names:
            return any(one.axes == ("query",) for one in self.statistics.values())
        known = [*self.statistics, *self.statistics.values()]
        return all(one in known for one in names)

    def alone(self, name: str) -> "Call":
        """Return the call with one of its statistics only."""
        name = self.name_of(name)
        return self._with(self.shape, {name: self.statistics[name]}, {name: self.values[name]})

    def stopped(self, left: int) -> "Call":
        """Return the call after which `left` tokens of its text were kept."""
        twin = copy(self)
        twin._info, twin.stop = self._info._replace(stop=left), left  # noqa: SLF001 - a Call
        return twin

    def selected(
        self,
        rows: Sequence[int] | None,
        queries: int | None = None,
        why: str = "",
        **changed: Any,
    ) -> "Call":
        """Return some rows of the call, as the beginning of a text, and its first queries.

        Args:
            rows: The rows; -1: one that has ended, of which no query counts. None: all.
            queries: The number of queries; None: all.
            why: Why a statistic does not follow from fewer queries, a clause.
            changed: What else has changed in its `CallInfo`.
        """
        count = self.queries if queries is None else queries
        chosen, keys = _Chosen.of(rows, count), self.keys
        if count < self.queries and not self.crossing:
            # No query that is kept sees the others as keys.
            keys = min(keys, self.position + count)
        weights = self.weights
        if weights is not None:
            weights = weights.selected(chosen.rows, count, keys - self.first_key)
        values, untold = {}, self.untold
        for name, value in self.values.items():
            axes = self.statistics[name].axes
            if "query" in axes:
                values[name] = chosen.of_queries(value, axes.index("query") - len(axes))
            elif count == self.queries:
                values[name] = chosen.of_rows(value)
            elif self.statistics[name] == Received() and weights is not None:
                # The sum over queries follows from the weights that were kept.
                ones = torch.ones(count, 1, dtype=weights.dtype, device=weights.device)
                values[name] = F.pad((weights.T @ ones)[..., 0], (self.first_key, 0))
            else:
                untold = why
        known = {"real": chosen.real(self), "images": chosen.images(self.images)}
        known |= {"rows": None, "keys": keys, "untold": untold, "stop": self.stop}
        info = self._info._replace(**{**known, **changed})
        shape = (*self.shape[:-1], count)
        shape = shape if rows is None else (len(rows), *shape[1:])
        context = None if self.context is None else chosen.of_queries(self.context, -2)
        whole = rows is None and count == self.queries
        arrived = self._arrived if whole else None
        return Call(shape, self.statistics, values, info, weights, self.trace, context, arrived)

    def __add__(self, other: "Call") -> "Call":
        """Join two consecutive calls; the result has no weights.

        Errors: a ValueError if a statistic of the whole does not follow from its parts.
        """
        if not isinstance(other, Call):
            return NotImplemented
        for name, one in self.statistics.items():
            if "key" in one.axes or one.reads_positions or not one.has_mean:
                check_places(name, (self, other))
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
            compressed=max(self.compressed, other.compressed),
            real=real,
        )

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """Return the statistics as a pandas table, without rows for padding.

        Args:
            names: See `Observation.to_frame`.

        Errors: as of `Observation.to_frame`.
        """
        if not names and self.untold is not None:
            names = tuple(name for name, one in self.statistics.items() if one.axes == ("query",))
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
        """The lazy gradients; None if they were not kept, or have not arrived."""
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
        written = [] if self.by_hand is None else [f"explicit attention: {self.by_hand}"]
        ran = [] if self.kernel is None else [f"computed by the {self.kernel} engine"]
        kept = [] if self._weights is None else [repr(self._weights)]
        return "\n".join([about, *written, *ran, *self._lines(), *kept])

    def _repr_html_(self) -> str:
        from glasshead.drawing import Document

        kept = [] if self._weights is None else first_head(self._weights)
        title = repr(self).partition("\n")[0]
        return Document([value_table(self), *kept], title=title)._repr_html_()


class _Chosen(NamedTuple):
    """Some rows and the first queries of a call.

    Attributes:
        rows: The rows; None: all.
        ended: Which of them have ended, so that no query of theirs counts.
        queries: The number of queries.
    """

    rows: Int[Tensor, " rows"] | None
    ended: Bool[Tensor, " rows"] | None
    queries: int

    @classmethod
    def of(cls, rows: Sequence[int] | None, queries: int) -> "_Chosen":
        if rows is None:
            return cls(None, None, queries)
        given = torch.tensor([*rows])
        ended = given < 0
        return cls(given.clamp(min=0), ended if bool(ended.any()) else None, queries)

    def of_queries(self, value: Any, axis: int) -> Any:
        """Select from a value with an axis of queries."""
        return _each(value, lambda x: self._taken(x).narrow(axis, 0, self.queries))

    def of_rows(self, value: Any) -> Any:
        """Select from a sum over queries, which is 0 if a row has ended."""
        return _each(value, lambda x: self._without_ended(self._taken(x)))

    def real(self, call: Call) -> Bool[Tensor, "batch queries"] | None:
        """Return which queries are real."""
        if call.real is None and self.ended is None:
            return None
        real = call.real
        if real is None:
            real = torch.ones(torch.Size(call.batch).numel(), call.queries, dtype=torch.bool)
        return self._without_ended(self._taken(real)[:, : self.queries])

    def images(self, images: Images | str | None) -> Images | str | None:
        """Return the pictures of the rows."""
        if self.rows is None or images is None or isinstance(images, str):
            return images
        return [images[row] for row in self.rows.tolist()] if len(images) > 1 else images

    def _taken(self, x: Tensor) -> Tensor:
        return x if self.rows is None else x.index_select(0, self.rows.to(x.device))

    def _without_ended(self, x: Tensor) -> Tensor:
        if self.ended is None:
            return x
        ended = self.ended.to(x.device).reshape(-1, *[1] * (x.ndim - 1))
        return x.masked_fill(ended, 0)


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change each tensor of a statistic's value."""
    if isinstance(value, Tensor):
        return change(value)
    parts = [_each(part, change) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def check_places(what: str, calls: Sequence[Call]) -> None:
    """Raise a ValueError if calls cannot be joined by the places of their keys.

    Args:
        what: What is to be joined.
        calls: Consecutive calls of an attention.
    """
    if len(calls) > 1 and any(call.compressed for call in calls):
        raise ValueError(
            f"{what} of several calls needs keys with a place in the text, but "
            f"{calls[-1].compressed} are compressed. Use one call, such as seen[name][-1]."
        )

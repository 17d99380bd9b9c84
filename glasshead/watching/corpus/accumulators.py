"""Accumulators: how each statistic adds up over documents, without their padding."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import UnfitError
from glasshead.statistics import (
    DistanceHistogram,
    MassOn,
    MaxScore,
    PooledMap,
    Received,
    Statistic,
)
from glasshead.statistics.reductions import (
    DiagonalSum,
    Largest,
    Reduction,
    Rows,
    TimesKeys,
    TimesQueries,
)
from glasshead.watching.layer_record import Call, Watched, check_of_tokens, check_whole
from glasshead.watching.padding import check_mask, last_real
from glasshead.watching.seen import Seen


@dataclass(frozen=True, eq=False)
class Padding:
    """The padding mask of a batch.

    Attributes:
        real: True if a token belongs to a document.
    """

    real: Bool[Tensor, "documents length"] = field(repr=False)

    @property
    def lengths(self) -> Int[Tensor, " documents"]:
        """Number of real tokens of each document."""
        return self.real.sum(-1)

    @cached_property
    def aside(self) -> bool:
        """Whether any document has padding before or between its tokens."""
        return bool((self.real[:, 1:] & ~self.real[:, :-1]).any())

    @cached_property
    def order(self) -> Int[Tensor, "documents length"]:
        """Indices of the real tokens, in order, followed by those of the padding."""
        return (~self.real).to(torch.uint8).argsort(dim=-1, stable=True)

    def as_if(self, other: "Padding") -> bool:
        """Return whether the other mask is equal."""
        return torch.equal(self.real, other.real.to(self.real.device))


@dataclass(frozen=True, eq=False)
class Text:
    """The documents of a batch in one layer.

    Attributes:
        layer: Name of the layer.
        call: The observed call; the calls of a text that grew with a cache are joined.
        padding: The padding mask; None: no padding.
    """

    layer: str
    call: Call
    padding: Padding | None

    @property
    def heads(self) -> int:
        """Number of heads; 1 for inputs without a head axis."""
        return self.call.shape[-2] if self._headed else 1

    @property
    def documents(self) -> int:
        """Batch size."""
        leading = self.call.shape[:-2] if self._headed else self.call.shape[:-1]
        return torch.Size(leading).numel()

    def rows(self, value: Any) -> Any:
        """Reshape a value to `[documents, heads, …]`; of several tensors, each."""
        if not isinstance(value, Tensor):
            return [self.rows(part) for part in value]
        leading = len(self.call.shape) - 1
        value = value.detach()
        # Apple's GPUs have no float64.
        value = value.cpu() if value.device.type == "mps" else value
        return value.reshape(self.documents, self.heads, *value.shape[leading:])

    @property
    def real_documents(self) -> int:
        """Number of documents with at least one real token."""
        return self.documents if self.padding is None else int(self.padding.real.any(-1).sum())

    @property
    def lengths(self) -> tuple[int, int]:
        """Number of queries and keys of each document."""
        return self.call.queries, self.call.keys

    @property
    def omits_padding(self) -> bool:
        """Whether the watch omitted padding from its sums over queries."""
        real = self.call.real
        return real is not None and self.padding is not None and self.padding.as_if(Padding(real))

    @property
    def _headed(self) -> bool:
        return len(self.call.shape) > 2


def padding_of(attention_mask: Any) -> Padding | None:
    """Return the padding of an attention mask; None without a mask, or where all tokens are real.

    Errors: a TypeError or ValueError for an invalid mask.
    """
    real = check_mask(attention_mask)
    return None if real is None or real.all() else Padding(real)


def texts_of(seen: Any, padding: Padding | None) -> list[Text]:
    """Return the observed texts, without those that hold no document.

    Errors: a TypeError if `seen` is not the result of a watch; a ValueError if the padding
    does not fit, or this rank computes a part of an attention.
    """
    if not isinstance(seen, Seen):
        raise TypeError(f"update needs the result of gh.watch, got {type(seen).__name__}.")
    texts = []
    for name, watched in seen.observed.items():
        check_whole(name, watched, "update")
        for calls in watched.texts:
            call = Watched(name, calls).joined
            own = None if call.real is None else Padding(call.real)
            if padding is not None:
                check_of_tokens(name, calls, "update with an attention_mask")
            texts.append(Text(name, call, padding or own))
    if padding is not None:
        _check(texts, padding)
    return [text for text in texts if text.real_documents]


def _check(texts: list[Text], padding: Padding) -> None:
    shape = tuple(padding.real.shape)
    known: set[str] = set()
    for text in texts:
        if text.layer in known:
            raise ValueError(
                f"update with an attention_mask needs one text per watch, but {text.layer!r} saw "
                "several. Open a watch for each batch."
            )
        known.add(text.layer)
        if (text.documents, text.call.queries) != shape:
            raise ValueError(
                f"attention_mask must have the shape {[text.documents, text.call.queries]} of the "
                f"input of {text.layer!r}, got {list(shape)}."
            )


@dataclass(frozen=True, eq=False)
class Partial:
    """Partial sums of some documents in one layer, in float64.

    Attributes:
        total: A sum, or a maximum.
        count: The number of terms.
    """

    total: Float[Tensor, " heads *rest"]
    count: Float[Tensor, " heads *counted"]

    def to(self, device: torch.device) -> Self:
        """Move the sums to a device."""
        return type(self)(self.total.to(device), self.count.to(device))


class Accumulator(ABC):
    """Accumulator of one statistic over a corpus.

    Attributes:
        statistic: The requested statistic.
        reduction: How totals are combined: "sum" or "max".
        neutral: Initial value of the total.
        counted: Shape of the count after the axis of heads.
        of_one_length: Whether all texts of a layer must have equal length.
    """

    reduction: ClassVar[str] = "sum"
    neutral: ClassVar[float] = 0.0
    of_one_length: ClassVar[bool] = False

    def __init__(self, statistic: Statistic) -> None:
        self.statistic = statistic
        self.counted: tuple[int, ...] = ()

    @property
    def rest(self) -> tuple[int, ...]:
        """Shape of the total after the axis of heads."""
        return ()

    @property
    def watched(self) -> Statistic:
        """The statistic to request from a watch."""
        return self.statistic

    def of_real(self, padding: Padding) -> Statistic:
        """Return the statistic to request for a padded batch."""
        return self.watched

    def without_padding(self, padding: Padding) -> Statistic:
        """Return the statistic to request from a watch that omits padding by itself."""
        return self.watched

    @abstractmethod
    def part(self, text: Text, value: Any) -> Partial:
        """Return the partial sums of the documents of a text.

        Args:
            text: The observed text.
            value: Its statistic, `[documents, heads, …]`.

        Errors: a ValueError if a document is too short for the statistic.
        """

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the statistic of the corpus; 0 if the count is 0."""
        count = count.reshape(*count.shape, *[1] * (total.ndim - count.ndim))
        return total / count.clamp(min=1)


class HistogramSums(NamedTuple):
    """Numerator and denominator of a mean histogram.

    Attributes:
        mass: Weight by distance, summed over the queries.
        queries: Number of queries that see a key.
    """

    mass: Float[Tensor, "... bins"]
    queries: Int[Tensor, "..."]


@dataclass(frozen=True)
class SummedHistogram(DistanceHistogram):
    """A `DistanceHistogram` before averaging, as documents differ in their number of queries."""

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> HistogramSums:  # type: ignore[override]
        diagonals, (weight, key, score) = reduced
        # The mean over one query is a sum.
        mass = super().finish(problem, diagonals, (weight, key[..., :1].clamp(min=0), score))
        return HistogramSums(mass, self._counted(key >= 0).sum(-1))

    def joined(self, first: HistogramSums, second: HistogramSums) -> HistogramSums:  # type: ignore[override]
        return HistogramSums(first.mass + second.mass, first.queries + second.queries)

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        """Return which of the queries that see a key are counted."""
        return seeing


@dataclass(frozen=True)
class MaskedHistogram(SummedHistogram):
    """A `SummedHistogram` over real queries only."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        return _RealDiagonalSum(self.padding), Largest()

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        return seeing & self.padding.real[:, None].to(seeing.device)


@dataclass(frozen=True)
class _RealDiagonalSum(DiagonalSum):
    """The sum along each diagonal over real queries only."""

    padding: Padding

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries = rows.tile.queries
        real = self.padding.real[:, None, queries.start : queries.stop, None].to(rows.weights)
        return super().of(replace(rows, weights=rows.weights * real))


@dataclass(frozen=True)
class MaskedReceived(Received):
    """The mass that each key receives from real queries, or from the last of these."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        real = self.padding.real
        counted = last_real(real, self.last or real.shape[-1])
        return (TimesQueries(counted[:, None, :, None].to(problem.query)),)


@dataclass(frozen=True)
class MaskedMaxScore(MaxScore):
    """The maximum score over real queries only."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        return super().reductions(problem)

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Tensor:
        weight, key, score = reduced[0]
        real = self.padding.real[:, None].to(score.device)
        return super().finish(problem, (weight, key, score.masked_fill(~real, -torch.inf)))


@dataclass(frozen=True)
class MaskedMassOn(MassOn):
    """The mass on some tokens of each document, counted from its first real token."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        real = self.padding.real
        number = real.cumsum(-1) - 1
        counted = sum((number == key) & real for key in self.keys) + torch.zeros_like(number)
        return (TimesKeys(counted[:, None, :, None].to(problem.query)),)


def _check_heads_of(problem: Problem, padding: Padding) -> None:
    """Raise a ValueError if the mask does not fit both queries and keys."""
    batch, (queries, keys) = problem.scores_shape[:-3], problem.scores_shape[-2:]
    documents, length = padding.real.shape
    if batch != (documents,) or not queries == keys == length:
        raise UnfitError(
            "statistics_of needs the attention_mask of what the model attends to, but it is "
            f"{[documents, length]} where an attention has batch {list(batch)}, {queries} queries "
            f"and {keys} keys. Name with layers= those that it fits, or give documents one by one."
        )


class QueryMean(Accumulator):
    """The mean over all real queries; -inf, the logsumexp of an empty row, is left out."""

    def part(self, text: Text, value: Tensor) -> Partial:
        numbers = value.double()
        counts = ~numbers.isneginf()
        if text.padding is not None:
            counts = counts & text.padding.real[:, None].to(counts.device)
        total = torch.where(counts, numbers, 0.0).sum((0, 2))
        return Partial(total, counts.sum((0, 2)).double())


class OnKeys(QueryMean):
    """The mean mass on some keys of each document, counted from its first token."""

    statistic: MassOn

    def of_real(self, padding: Padding) -> Statistic:
        keys = self.statistic.keys
        return MaskedMassOn(keys, padding=padding) if padding.aside else self.statistic

    def without_padding(self, padding: Padding) -> Statistic:
        return self.of_real(padding)


class LargestOf(Accumulator):
    """The maximum over all documents."""

    reduction = "max"
    neutral = -torch.inf

    def of_real(self, padding: Padding) -> Statistic:
        return MaskedMaxScore(padding=padding)

    def part(self, text: Text, value: Tensor) -> Partial:
        return Partial(value.double().amax(0), value.new_full((text.heads,), len(value)).double())

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        return total.clone()


class ByPosition(Accumulator):
    """The mean mass received by each position, over the documents that are long enough."""

    statistic: Received

    def __init__(self, statistic: Received, positions: int) -> None:
        super().__init__(statistic)
        self._positions, self.counted = positions, (positions,)

    @property
    def rest(self) -> tuple[int, ...]:
        return (self._positions,)

    def of_real(self, padding: Padding) -> Statistic:
        return MaskedReceived(self.statistic.last, padding=padding)

    def part(self, text: Text, value: Tensor) -> Partial:
        mass, exists = value.double(), torch.ones_like(value[:, 0], dtype=torch.bool)
        least = text.call.queries
        # The keys of cross-attention belong to another text.
        if text.padding is not None and not text.call.crossing:
            if text.padding.real.shape[-1] != mass.shape[-1]:
                raise ValueError(
                    f"{self.statistic!r} of a corpus needs whole texts if some are padded, but "
                    f"{text.layer!r} has {mass.shape[-1]} keys of {text.call.queries} queries. "
                    "Watch them from their beginning."
                )
            order = text.padding.order.to(mass.device)
            mass = mass.gather(-1, order[:, None].expand_as(mass))
            lengths = text.padding.lengths.to(mass.device)
            exists = torch.arange(mass.shape[-1], device=mass.device) < lengths[:, None]
            least = int(lengths[lengths > 0].min())
        if self.statistic.last is not None and self.statistic.last > least:
            raise ValueError(
                f"{self.statistic!r} needs at least {self.statistic.last} queries, but a document "
                f"has {least}. Ask for a smaller last, or omit shorter documents."
            )
        beyond = (0, self._positions - mass.shape[-1])
        total = F.pad(torch.where(exists[:, None], mass, 0.0).sum(0), beyond)
        count = F.pad(exists.sum(0).double(), beyond)
        return Partial(total, count.expand_as(total))

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        """Return the mean up to the length of the longest document."""
        longest = int((count > 0).any(0).sum())
        return super().value(total[:, :longest], count[:, :longest])


class ByDistance(Accumulator):
    """The mean over all real queries that see a key."""

    statistic: DistanceHistogram

    @property
    def rest(self) -> tuple[int, ...]:
        return (len(self.statistic.edges) - 1,)

    @property
    def watched(self) -> Statistic:
        return SummedHistogram(self.statistic.edges)

    def of_real(self, padding: Padding) -> Statistic:
        return MaskedHistogram(self.statistic.edges, padding=padding)

    def part(self, text: Text, value: Any) -> Partial:
        mass, queries = value
        return Partial(mass.double().sum(0), queries.double().sum(0))


class OverMaps(Accumulator):
    """The mean map over documents of equal length."""

    statistic: PooledMap
    of_one_length = True

    @property
    def rest(self) -> tuple[int, ...]:
        return self.statistic.rows, self.statistic.columns

    def without_padding(self, padding: Padding) -> Statistic:
        return self.of_real(padding)

    def of_real(self, padding: Padding) -> Statistic:
        raise ValueError(
            f"{self.statistic!r} of a corpus needs texts of one length, but this batch has texts "
            f"of {int(padding.lengths.min())} to {int(padding.lengths.max())} tokens and padding. "
            "Cut the texts to one length, or omit the map."
        )

    def part(self, text: Text, value: Tensor) -> Partial:
        queries, keys = text.call.queries, text.call.keys
        if self.statistic.rows > queries or self.statistic.columns > keys:
            raise ValueError(
                f"{self.statistic!r} needs at least as many queries and keys, got {queries} and "
                f"{keys}. Ask for a smaller map."
            )
        return Partial(
            value.double().sum(0), value.new_full((text.heads,), text.documents).double()
        )


def sums_of(statistic: Statistic, positions: int) -> Accumulator:
    """Return the accumulator of a statistic.

    Errors: a ValueError if the statistic has no meaning for a corpus.
    """
    if statistic.axes == ("query",) and statistic.has_mean:
        return (OnKeys if isinstance(statistic, MassOn) else QueryMean)(statistic)
    match statistic:
        case MaxScore():
            return LargestOf(statistic)
        case Received():
            return ByPosition(statistic, positions)
        case DistanceHistogram():
            return ByDistance(statistic)
        case PooledMap():
            return OverMaps(statistic)
    why = "its mean over documents is not defined"
    if statistic.axes[:1] == ("query",) or not statistic.has_mean:
        why = "the keys of one text are not those of the next"
    raise ValueError(
        f"a corpus needs statistics that add up over documents, got {statistic!r}, but {why}. "
        "Omit it."
    )

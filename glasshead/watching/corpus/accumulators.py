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
from glasshead.watching.layer_record import Call, Watched
from glasshead.watching.padding import check_mask
from glasshead.watching.seen import Seen


@dataclass(frozen=True, eq=False)
class Padding:
    """Which tokens of a padded batch are real.

    Attributes:
        real: True where a token belongs to a document.
    """

    real: Bool[Tensor, "documents length"] = field(repr=False)

    @property
    def lengths(self) -> Int[Tensor, " documents"]:
        """Of each document."""
        return self.real.sum(-1)

    @cached_property
    def aside(self) -> bool:
        """Whether a document begins elsewhere than at the first place, or has holes."""
        return bool((self.real[:, 1:] & ~self.real[:, :-1]).any())

    @cached_property
    def order(self) -> Int[Tensor, "documents length"]:
        """The places of the real tokens, in order, and then those of the others."""
        return (~self.real).to(torch.uint8).argsort(dim=-1, stable=True)

    def as_if(self, other: "Padding") -> bool:
        """Whether the other says the same."""
        return torch.equal(self.real, other.real.to(self.real.device))


@dataclass(frozen=True, eq=False)
class Text:
    """The documents of a batch in a layer.

    Attributes:
        layer: Its name.
        call: What was seen, all calls of a growing text together.
        padding: Which of the tokens are real; None: all.
    """

    layer: str
    call: Call
    padding: Padding | None

    @property
    def heads(self) -> int:
        """How many there are; inputs without heads have one."""
        return self.call.shape[-2] if self._headed else 1

    @property
    def documents(self) -> int:
        """How many rows the batch has."""
        leading = self.call.shape[:-2] if self._headed else self.call.shape[:-1]
        return torch.Size(leading).numel()

    def rows(self, value: Any) -> Any:
        """A value as `[documents, heads, …]`; of several tensors, each."""
        if not isinstance(value, Tensor):
            return [self.rows(part) for part in value]
        leading = len(self.call.shape) - 1
        value = value.detach()
        # Apple's GPUs have no float64.
        value = value.cpu() if value.device.type == "mps" else value
        return value.reshape(self.documents, self.heads, *value.shape[leading:])

    @property
    def real_documents(self) -> int:
        """How many of them have a real token."""
        return self.documents if self.padding is None else int(self.padding.real.any(-1).sum())

    @property
    def lengths(self) -> tuple[int, int]:
        """How many queries and keys each has."""
        return self.call.queries, self.call.keys

    @property
    def left_out(self) -> bool:
        """Whether the watch has left the padding out of what it summed over queries."""
        real = self.call.real
        return real is not None and self.padding is not None and self.padding.as_if(Padding(real))

    @property
    def _headed(self) -> bool:
        return len(self.call.shape) > 2


def padding_of(attention_mask: Any) -> Padding | None:
    """What a mask of tokens says; None where there is none, or all tokens are real.

    Errors: a TypeError or ValueError where it is none.
    """
    real = check_mask(attention_mask)
    return None if real is None or real.all() else Padding(real)


def texts_of(seen: Any, padding: Padding | None) -> list[Text]:
    """What was seen, a text each, without those that hold no document.

    Errors: a TypeError for what is not seen; a ValueError where the padding is that of others.
    """
    if not isinstance(seen, Seen):
        raise TypeError(
            f"update takes what `gh.watch` has seen, and got {type(seen).__name__}: give that."
        )
    joined = [
        (name, Watched(name, calls).joined)
        for name, watched in seen.layers.items()
        for calls in watched.texts
    ]
    texts = [Text(name, call, padding or _padding_of_call(call)) for name, call in joined]
    if padding is not None:
        _check(texts, padding)
    return [text for text in texts if text.real_documents]


def _padding_of_call(call: Call) -> Padding | None:
    return None if call.real is None else Padding(call.real)


def _check(texts: list[Text], padding: Padding) -> None:
    shape = tuple(padding.real.shape)
    known: set[str] = set()
    for text in texts:
        if text.layer in known:
            raise ValueError(
                f"update takes an attention_mask with one text a watch, and {text.layer!r} saw "
                f"several: open a watch for each batch."
            )
        known.add(text.layer)
        if (text.documents, text.call.queries) != shape:
            raise ValueError(
                f"attention_mask tells of {list(shape)} tokens, and {text.layer!r} saw "
                f"{[text.documents, text.call.queries]}: give the mask of what the model read."
            )


@dataclass(frozen=True, eq=False)
class Partial:
    """What some documents add to the sums of a layer, in float64.

    Attributes:
        total: A sum, or what is largest.
        count: Of how many it is.
    """

    total: Float[Tensor, "heads *rest"]
    count: Float[Tensor, "heads *counted"]

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(self.total.to(device), self.count.to(device))


class Accumulator(ABC):
    """How one statistic of a corpus is summed up.

    Attributes:
        statistic: As it was asked for.
        reduction: What makes one of several totals: their "sum", or "max".
        of_one_length: Whether the texts of a layer have to be equally long.
    """

    reduction: ClassVar[str] = "sum"
    of_one_length: ClassVar[bool] = False

    def __init__(self, statistic: Statistic) -> None:
        self.statistic = statistic

    @property
    def rest(self) -> tuple[int, ...]:
        """How long the axes of the total are, after that of the heads."""
        return ()

    @property
    def counted(self) -> tuple[int, ...]:
        """The same of the count."""
        return ()

    @property
    def neutral(self) -> float:
        """The total of nothing."""
        return 0.0

    @property
    def watched(self) -> Statistic:
        """What a watch is to be asked for."""
        return self.statistic

    def of_real(self, padding: Padding) -> Statistic:
        """The same where some of the tokens are padding."""
        del padding
        return self.watched

    def left_out(self, padding: Padding) -> Statistic:
        """What a watch is to be asked for that leaves padding out by itself."""
        del padding
        return self.watched

    @abstractmethod
    def part(self, text: Text, value: Any) -> Partial:
        """What the documents of a text add.

        Args:
            text: Where they were seen.
            value: The statistic, `[documents, heads, …]`.

        Errors: a ValueError where a document does not have what the statistic is of.
        """

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        """The statistic of the corpus; 0 where there was nothing."""
        count = count.reshape(*count.shape, *[1] * (total.ndim - count.ndim))
        return total / count.clamp(min=1)


class HistogramSums(NamedTuple):
    """What a mean over queries is made of.

    Attributes:
        mass: By distance, summed over the queries.
        queries: How many see a key.
    """

    mass: Float[Tensor, "... bins"]
    queries: Int[Tensor, "..."]


@dataclass(frozen=True)
class SummedHistogram(DistanceHistogram):
    """A `DistanceHistogram` before its mean is taken, as documents have unlike many queries."""

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> HistogramSums:  # type: ignore[override]
        diagonals, (weight, key, score) = reduced
        # The mean over one query is a sum.
        mass = super().finish(problem, diagonals, (weight, key[..., :1].clamp(min=0), score))
        return HistogramSums(mass, self._counted(key >= 0).sum(-1))

    def joined(self, first: HistogramSums, second: HistogramSums) -> HistogramSums:  # type: ignore[override]
        return HistogramSums(first.mass + second.mass, first.queries + second.queries)

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        """Which of the queries that see a key count."""
        return seeing


@dataclass(frozen=True)
class MaskedHistogram(SummedHistogram):
    """The same of the real queries."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        return _RealDiagonalSum(self.padding), Largest()

    def _counted(self, seeing: Bool[Tensor, "... queries"]) -> Bool[Tensor, "... queries"]:
        return seeing & self.padding.real[:, None].to(seeing.device)


@dataclass(frozen=True)
class _RealDiagonalSum(DiagonalSum):
    """Accumulator over each diagonal, of the real queries."""

    padding: Padding

    def of(self, rows: Rows) -> tuple[Tensor]:
        queries = rows.tile.queries
        real = self.padding.real[:, None, queries.start : queries.stop, None].to(rows.weights)
        return super().of(replace(rows, weights=rows.weights * real))


@dataclass(frozen=True)
class MaskedReceived(Received):
    """The mass that each key receives from the real queries, or from the last of these."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        real = self.padding.real
        counted = real if self.last is None else real & (_left(real) <= self.last)
        return (TimesQueries(counted[:, None, :, None].to(problem.query)),)


@dataclass(frozen=True)
class MaskedMaxScore(MaxScore):
    """The largest score of the real queries."""

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
    """The mass on some tokens of each document, counted from its first real one."""

    padding: Padding = field(kw_only=True)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        _check_heads_of(problem, self.padding)
        real = self.padding.real
        number = real.cumsum(-1) - 1
        counted = sum((number == key) & real for key in self.keys) + torch.zeros_like(number)
        return (TimesKeys(counted[:, None, :, None].to(problem.query)),)


def _left(real: Tensor) -> Tensor:
    """How many real tokens there are from each on, itself included."""
    return real.flip(-1).cumsum(-1).flip(-1)


def _check_heads_of(problem: Problem, padding: Padding) -> None:
    """Raise where the mask does not tell of both the queries and the keys."""
    batch, (queries, keys) = problem.scores_shape[:-3], problem.scores_shape[-2:]
    documents, length = padding.real.shape
    if batch != (documents,) or not queries == keys == length:
        raise ValueError(
            f"statistics_of takes the attention_mask of what the model attends to, and it is "
            f"{[documents, length]} where an attention has batch {list(batch)}, {queries} queries "
            f"and {keys} keys: name by layers= those that it fits, or give documents one by one."
        )


class QueryMean(Accumulator):
    """The mean over all real queries; -inf, the logsumexp of one that sees nothing, is left out."""

    def part(self, text: Text, value: Tensor) -> Partial:
        numbers = value.double()
        counts = ~numbers.isneginf()
        if text.padding is not None:
            counts = counts & text.padding.real[:, None].to(counts.device)
        total = torch.where(counts, numbers, 0.0).sum((0, 2))
        return Partial(total, counts.sum((0, 2)).double())


class OnKeys(QueryMean):
    """The mean mass on some keys of each document, counted from its beginning."""

    statistic: MassOn

    def of_real(self, padding: Padding) -> Statistic:
        keys = self.statistic.keys
        return MaskedMassOn(keys, padding=padding) if padding.aside else self.statistic

    def left_out(self, padding: Padding) -> Statistic:
        return self.of_real(padding)


class LargestOf(Accumulator):
    """The largest of all documents."""

    reduction = "max"

    @property
    def neutral(self) -> float:
        return -torch.inf

    def of_real(self, padding: Padding) -> Statistic:
        return MaskedMaxScore(padding=padding)

    def part(self, text: Text, value: Tensor) -> Partial:
        return Partial(value.double().amax(0), value.new_full((text.heads,), len(value)).double())

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        del count
        return total.clone()


class ByPosition(Accumulator):
    """The mean over the documents that have a position of what it receives."""

    statistic: Received

    def __init__(self, statistic: Received, positions: int) -> None:
        super().__init__(statistic)
        self._positions = positions

    @property
    def rest(self) -> tuple[int, ...]:
        return (self._positions,)

    @property
    def counted(self) -> tuple[int, ...]:
        return (self._positions,)

    def of_real(self, padding: Padding) -> Statistic:
        return MaskedReceived(self.statistic.last, padding=padding)

    def part(self, text: Text, value: Tensor) -> Partial:
        mass, there = value.double(), torch.ones_like(value[:, 0], dtype=torch.bool)
        least = text.call.queries
        # Of cross-attention, the keys are those of another text.
        if text.padding is not None and not text.call.crossing:
            if text.padding.real.shape[-1] != mass.shape[-1]:
                raise ValueError(
                    f"{self.statistic!r} of a corpus takes whole texts where some are padded, and "
                    f"{text.layer!r} has {mass.shape[-1]} keys of {text.call.queries} queries: "
                    f"watch them from their beginning."
                )
            order = text.padding.order.to(mass.device)
            mass = mass.gather(-1, order[:, None].expand_as(mass))
            lengths = text.padding.lengths.to(mass.device)
            there = torch.arange(mass.shape[-1], device=mass.device) < lengths[:, None]
            least = int(lengths[lengths > 0].min())
        if self.statistic.last is not None and self.statistic.last > least:
            raise ValueError(
                f"{self.statistic!r} takes at least {self.statistic.last} queries, and a document "
                f"has {least}: ask for a smaller last, or leave shorter documents out."
            )
        beyond = (0, self._positions - mass.shape[-1])
        total = F.pad(torch.where(there[:, None], mass, 0.0).sum(0), beyond)
        count = F.pad(there.sum(0).double(), beyond)
        return Partial(total, count.expand_as(total))

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        """As far as there are documents as long."""
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
        del text
        mass, queries = value
        return Partial(mass.double().sum(0), queries.double().sum(0))


class OverMaps(Accumulator):
    """The mean over documents of one length."""

    statistic: PooledMap
    of_one_length = True

    @property
    def rest(self) -> tuple[int, ...]:
        return self.statistic.rows, self.statistic.columns

    def left_out(self, padding: Padding) -> Statistic:
        return self.of_real(padding)

    def of_real(self, padding: Padding) -> Statistic:
        raise ValueError(
            f"{self.statistic!r} of a corpus takes texts of one length, and this batch has padding "
            f"beside {int(padding.lengths.min())} to {int(padding.lengths.max())} tokens: cut the "
            f"texts to one length, or leave the map out."
        )

    def part(self, text: Text, value: Tensor) -> Partial:
        queries, keys = text.call.queries, text.call.keys
        if self.statistic.rows > queries or self.statistic.columns > keys:
            raise ValueError(
                f"{self.statistic!r} takes at least as many queries and keys, and got {queries} "
                f"and {keys}: ask for a smaller map."
            )
        return Partial(
            value.double().sum(0), value.new_full((text.heads,), text.documents).double()
        )


def sums_of(statistic: Statistic, positions: int) -> Accumulator:
    """How a statistic is summed up.

    Errors: a ValueError where one of a corpus would mean nothing.
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
    of_keys = statistic.axes[:1] == ("query",) or not statistic.has_mean
    why = (
        "the keys of one text are not those of the next"
        if of_keys
        else "its mean over documents is not defined"
    )
    raise ValueError(
        f"a corpus takes statistics that add up over documents, and got {statistic!r}, but {why}: "
        f"leave it out."
    )

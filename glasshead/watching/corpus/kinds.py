"""Kinds: the sums of each statistic that adds up over documents."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glasshead.statistics import (
    DistanceHistogram,
    MassOn,
    MaxScore,
    PooledMap,
    Received,
    Statistic,
)
from glasshead.watching.corpus.real import (
    RealHistogram,
    RealMassOn,
    RealMaxScore,
    RealReceived,
    SummedHistogram,
)
from glasshead.watching.corpus.sums import Part, Sums
from glasshead.watching.corpus.text import Padding, Text


class OverQueries(Sums):
    """The mean over all real queries; -inf, the logsumexp of one that sees nothing, is left out."""

    def part(self, text: Text, value: Tensor) -> Part:
        numbers = value.double()
        counts = ~numbers.isneginf()
        if text.padding is not None:
            counts = counts & text.padding.real[:, None].to(counts.device)
        total = torch.where(counts, numbers, 0.0).sum((0, 2))
        return Part(total, counts.sum((0, 2)).double())


class OnKeys(OverQueries):
    """The mean mass on some keys of each document, counted from its beginning."""

    statistic: MassOn

    def of_real(self, padding: Padding) -> Statistic:
        keys = self.statistic.keys
        return RealMassOn(keys, padding=padding) if padding.aside else self.statistic

    def left_out(self, padding: Padding) -> Statistic:
        return self.of_real(padding)


class LargestOf(Sums):
    """The largest of all documents."""

    reduction = "max"

    @property
    def neutral(self) -> float:
        return -torch.inf

    def of_real(self, padding: Padding) -> Statistic:
        return RealMaxScore(padding=padding)

    def part(self, text: Text, value: Tensor) -> Part:
        return Part(value.double().amax(0), value.new_full((text.heads,), len(value)).double())

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        del count
        return total.clone()


class ByPosition(Sums):
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
        return RealReceived(self.statistic.last, padding=padding)

    def part(self, text: Text, value: Tensor) -> Part:
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
        return Part(total, count.expand_as(total))

    def value(self, total: Tensor, count: Tensor) -> Tensor:
        """As far as there are documents as long."""
        longest = int((count > 0).any(0).sum())
        return super().value(total[:, :longest], count[:, :longest])


class ByDistance(Sums):
    """The mean over all real queries that see a key."""

    statistic: DistanceHistogram

    @property
    def rest(self) -> tuple[int, ...]:
        return (len(self.statistic.edges) - 1,)

    @property
    def watched(self) -> Statistic:
        return SummedHistogram(self.statistic.edges)

    def of_real(self, padding: Padding) -> Statistic:
        return RealHistogram(self.statistic.edges, padding=padding)

    def part(self, text: Text, value: Any) -> Part:
        del text
        mass, queries = value
        return Part(mass.double().sum(0), queries.double().sum(0))


class OverMaps(Sums):
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

    def part(self, text: Text, value: Tensor) -> Part:
        queries, keys = text.call.queries, text.call.keys
        if self.statistic.rows > queries or self.statistic.columns > keys:
            raise ValueError(
                f"{self.statistic!r} takes at least as many queries and keys, and got {queries} "
                f"and {keys}: ask for a smaller map."
            )
        return Part(value.double().sum(0), value.new_full((text.heads,), text.documents).double())


def sums_of(statistic: Statistic, positions: int) -> Sums:
    """How a statistic is summed up.

    Errors: a ValueError where one of a corpus would mean nothing.
    """
    if statistic.axes == ("query",) and statistic.has_mean:
        return (OnKeys if isinstance(statistic, MassOn) else OverQueries)(statistic)
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

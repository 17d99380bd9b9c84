"""The state of a request in a worker: queries that wait, and the statistics of those before."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from glasshead.attention.io import tensors_of
from glasshead.statistics import Statistic

# The bytes of a record without numbers, about: those that failed take memory too.
_RECORD = 1000


class QueryRows(NamedTuple):
    """Queries of a step, in the copies of each group of layers.

    Attributes:
        copies: The queries of all requests of the step, `[layers, tokens, heads · dim]`, by group.
        first, last: The rows of the request, the one after the last.
    """

    copies: list[Tensor]
    first: int
    last: int


class StepOutput(NamedTuple):
    """The kernel's own output of one query.

    Attributes:
        position: The position of the query.
        row: Its row of both.
        queries, outputs: Some queries of the step, as of `QueryRows.copies`, and their outputs.
    """

    position: int
    row: int
    queries: list[Tensor]
    outputs: list[Tensor]


class Chunks:
    """The statistics of chunks of queries, joined so that each number is copied O(log n) times.

    Args:
        statistics: Statistics by name.
    """

    def __init__(self, statistics: Mapping[str, Statistic]) -> None:
        self._statistics, self._parts = statistics, list[tuple[int, dict[str, Any]]]()

    def add(self, queries: int, values: dict[str, Any]) -> None:
        """Add the statistics of the next queries."""
        self._parts.append((queries, values))
        while len(self._parts) > 1 and self._parts[-2][0] <= self._parts[-1][0]:
            self._join()

    def whole(self) -> dict[str, Any]:
        """Return the statistics of all queries; empty if there is none."""
        while len(self._parts) > 1:
            self._join()
        return self._parts[0][1] if self._parts else {}

    def _join(self) -> None:
        (many, first), (more, second) = self._parts[-2:]
        joined = {n: one.joined(first[n], second[n]) for n, one in self._statistics.items()}
        self._parts[-2:] = [(many + more, joined)]

    @property
    def nbytes(self) -> int:
        """The memory of all numbers."""
        return sum(x.nbytes for _, values in self._parts for x in tensors_of(values).values())


@dataclass(eq=False)
class WatchedRequest:
    """A request of an engine.

    Attributes:
        name: The name that the engine gives it.
        first_query: The position of its first query: those before it were not computed, as their
            keys came from the prefix cache.
        chunks: Its statistics so far, by group of layers.
        end: The position after its last query.
        settled: The position after the last query whose statistics are computed.
        waiting: The queries between both.
        opened, latest: The outputs of its first query and of its last one; None: compared already,
            or no longer to be compared.
        kept_queries, kept_keys: Of each group of layers, to compute its weights later.
        preemptions: How often its keys were dropped and computed again.
        ended: The time at which it had finished; None: it goes on.
        error: Why its statistics are not given, a sentence; None: they are.
    """

    name: str
    first_query: int
    chunks: list[Chunks]
    end: int = 0
    settled: int = 0
    waiting: list[QueryRows] = field(default_factory=list)
    opened: StepOutput | None = None
    latest: StepOutput | None = None
    kept_queries: list[list[Tensor]] = field(default_factory=list)
    kept_keys: list[list[Tensor]] = field(default_factory=list)
    preemptions: int = 0
    ended: float | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        self.end = self.settled = self.first_query

    def fail(self, why: str) -> None:
        """Drop what is known, and record why."""
        self.error = self.error or why
        self.chunks, self.waiting, self.opened, self.latest = [], [], None, None
        self.kept_queries, self.kept_keys = [], []

    def finish(self) -> None:
        """Record that the engine has computed its last token."""
        self.ended = self.ended or time.monotonic()
        self.opened = self.latest = None

    @property
    def nbytes(self) -> int:
        """The memory of what is known of it, about."""
        kept = (x for several in (*self.kept_queries, *self.kept_keys) for x in several)
        return _RECORD + sum(one.nbytes for one in self.chunks) + sum(x.nbytes for x in kept)

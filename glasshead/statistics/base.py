"""Base class of statistics, and normalization of requests to a dict keyed by name."""

import keyword
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from glasshead.recipe.problem import Problem, Trace
from glasshead.statistics.reductions import Reducing, Reduction, Rows


class Statistic(Reducing):
    """Base class of statistics of attention weights, computed without keeping the weights.

    A statistic is a frozen dataclass of numbers and tuples. `reductions` and `finish` compute it
    from sums that every engine can compute in one pass; `of` is the same on a trace, which has the
    full matrix in memory.

    Attributes:
        unit: The unit of the numbers, as text.
        axes: The names of its value's axes, after batch and heads: "query", "key", or
            a name of its own.
        gives_keys: Whether the numbers are places of keys, which have no mean.
        differentiable: Whether it can be observed with `gradient=True`.
        reads_positions: Whether it reads the positions of tokens: their distance, or numbers that
            it was given.
    """

    unit: ClassVar[str]
    axes: ClassVar[tuple[str, ...]] = ("query",)
    gives_keys: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    reads_positions: ClassVar[bool] = False

    @property
    def has_mean(self) -> bool:
        """Return whether the numbers have a mean."""
        return not self.gives_keys

    def of(self, trace: Trace) -> Any:
        """Compute the statistic from the full matrix, in the inputs' layout.

        Errors: a ValueError if it does not fit the problem.
        """
        problem = trace.problem
        self.check(problem)
        # A problem always has a heads axis, and the steps have one where the inputs do.
        scores, weights = trace.masked, trace.weights
        headed = weights.ndim == problem.query.ndim
        if not headed:
            scores, weights = scores.unsqueeze(-3), weights.unsqueeze(-3)
        rows = Rows(problem, problem.tile(), scores, weights, ~scores.isneginf())
        reduced = [reduction.of(rows) for reduction in self.reductions(problem)]
        value = self.finish(problem, *reduced)
        return value if headed else problem.as_given(value)

    @abstractmethod
    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        """Return the reductions that `finish` needs."""

    @abstractmethod
    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        """Compute the statistic, `[*batch, heads, …]`, from the results of each reduction."""

    def check(self, problem: Problem) -> None:
        """Raise a ValueError if the statistic does not fit the problem; values are not read."""

    def joined(self, first: Any, second: Any) -> Any:
        """Merge the statistics of one chunk of queries and the next.

        Errors: a ValueError if it does not follow from the chunks.
        """
        raise ValueError(
            f"{self!r} of a whole does not follow from its chunks. Observe it in one go."
        )


# Attributes of observations, which no statistic may be named after.
_TAKEN = (
    "add",
    "alone",
    "apart",
    "batch",
    "beside",
    "compressed",
    "context",
    "count",
    "end",
    "first_key",
    "forward",
    "heads",
    "index",
    "joined",
    "kernel",
    "keys",
    "load",
    "merged",
    "missing",
    "name",
    "name_of",
    "position",
    "prefill",
    "queries",
    "rows",
    "save",
    "shape",
    "statistics",
    "steps",
    "stop",
    "text",
    "texts",
    "to_frame",
    "untold",
    "values",
    "weights",
)


def normalize_statistics(statistics: Any, *, needed_by: str | None = None) -> dict[str, Statistic]:
    """Normalize a list or dict of statistics to a dict keyed by name.

    Errors: a TypeError for what is not a statistic; a ValueError for a duplicate, two of
    one class in a list, and for a name that cannot be an attribute of an observation.

    >>> from glasshead.statistics import Entropy, MassOn, TopK
    >>> normalize_statistics([Entropy(), TopK(3)])
    {'entropy': Entropy(), 'top_k': TopK(k=3)}
    >>> normalize_statistics({"sink": MassOn([0])})
    {'sink': MassOn(keys=(0,))}
    """
    named = dict(statistics) if isinstance(statistics, Mapping) else _from_list(statistics)
    seen: list[Statistic] = []
    for name, statistic in named.items():
        _check_statistic(statistic)
        check_name(name, statistic)
        if statistic in seen:
            raise ValueError(f"statistics must have each statistic once, got {statistic!r} twice.")
        seen.append(statistic)
    if needed_by is not None and not named:
        raise ValueError(f"{needed_by} needs statistics such as [gh.Entropy()], got none.")
    return named


_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """Convert a class name to snake case.

    >>> snake_case("LogSumExp"), snake_case("TopK"), snake_case("KLFromUniform")
    ('log_sum_exp', 'top_k', 'kl_from_uniform')
    """
    return _WORD.sub("_", name).lower()


def _from_list(statistics: Any) -> dict[str, Statistic]:
    if not isinstance(statistics, (list, tuple)):
        raise TypeError(
            "statistics must be a list such as [Entropy()], or a dict of names and statistics, "
            f"got {_shown(statistics)}."
        )
    named: dict[str, Statistic] = {}
    for statistic in statistics:
        _check_statistic(statistic)
        name = snake_case(type(statistic).__name__)
        if named.get(name, statistic) != statistic:
            raise ValueError(
                f"a list of statistics must have one of each class, got {named[name]!r} and "
                f"{statistic!r}. Name each in a dict."
            )
        if name in named:
            raise ValueError(f"statistics must have each statistic once, got {statistic!r} twice.")
        named[name] = statistic
    return named


def _check_statistic(statistic: Any) -> None:
    if isinstance(statistic, Statistic):
        return
    if isinstance(statistic, type) and issubclass(statistic, Statistic):
        raise TypeError(
            f"statistics must be objects such as Entropy(), got the class {statistic.__name__}. "
            f"Write {statistic.__name__}()."
        )
    raise TypeError(f"statistics must be objects such as Entropy(), got {_shown(statistic)}.")


def check_name(name: Any, statistic: Statistic) -> None:
    """Raise a ValueError if the name cannot be an attribute of an observation."""
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name[0] == "_"
    ):
        raise ValueError(
            "the name of a statistic must be able to stand after a dot, as 'sink' can, got "
            f"{name!r} for {statistic!r}."
        )
    if name in _TAKEN:
        raise ValueError(
            f"the name of a statistic must not be an attribute of Observation, got {name!r} for "
            f"{statistic!r}. Choose another in a dict."
        )


def _shown(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 60 else f"{text[:57]}…"

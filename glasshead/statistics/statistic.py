"""What every statistic is: a definition on the full matrix, and the sums that it needs."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics.reductions import Reduction

# The unit of numbers that name keys.
KEY = "key"


class Statistic(ABC):
    """Something to know of the attention weights, without keeping them.

    A statistic is a frozen dataclass of numbers and tuples. `of` defines it on a trace, where the
    whole matrix lies open; `reductions` and `finish` say how the same is had from sums that every
    engine can take while it goes.

    Attributes:
        unit: Of the numbers, as text; "key" where they are the places of keys.
        axes: What the axes of its value count, after those of batch and heads: "query", "key", or
            a name of its own.
        differentiable: Whether it can be asked for with its gradient.
    """

    unit: ClassVar[str]
    axes: ClassVar[tuple[str, ...]] = ("query",)
    differentiable: ClassVar[bool] = False

    @property
    def has_mean(self) -> bool:
        """Whether a mean of its numbers tells something: that of the places of keys does not."""
        return self.unit != KEY

    @abstractmethod
    def of(self, trace: Trace) -> Any:
        """The statistic of the full matrix, in the layout of the inputs: its definition."""

    @abstractmethod
    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        """The sums that `finish` wants."""

    @abstractmethod
    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        """The statistic, `[*batch, heads, …]`, from the results of each reduction."""

    def check(self, problem: Problem) -> None:  # noqa: B027 - most statistics fit all
        """Raise a ValueError where the statistic does not fit the problem; no number is read."""

    def joined(self, first: Any, second: Any) -> Any:
        """The statistic of the queries of one chunk and those of the next.

        Errors: a ValueError where it does not follow from those of the chunks.
        """
        del first, second
        raise ValueError(
            f"{self!r} of a whole does not follow from that of its chunks: observe it in one go."
        )


class PerQuery(Statistic):
    """A statistic that is a number for each query, `[..., queries]`: chunks follow each other."""

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second], -1)

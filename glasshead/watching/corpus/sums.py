"""Sums: how a statistic of a corpus is made of those of its documents."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.statistics import Statistic
from glasshead.watching.corpus.text import Padding, Text


@dataclass(frozen=True, eq=False)
class Part:
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


class Sums(ABC):
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
    def part(self, text: Text, value: Any) -> Part:
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

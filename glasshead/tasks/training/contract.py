"""What a task brings to the engine: its examples, and what is to be made small."""

from collections.abc import Sequence
from typing import Protocol

from jaxtyping import Float
from torch import Tensor, nn


class Source(Protocol):
    """Examples, by number, and in which batches they are seen."""

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """The global batches of an epoch: numbers of examples, the same at each call."""
        ...

    def collate(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """The tensors of these examples, which are a batch or a part of one."""
        ...

    def count(self, indices: Sequence[int]) -> int:
        """How many targets of these examples count, padding being none."""
        ...


class Task(Protocol):
    """A model, and how well it does.

    Attributes:
        monitor: The figure, among those of `metrics`, by which the best model is chosen.
        higher_is_better: Whether it is to grow.
    """

    monitor: str
    higher_is_better: bool

    @property
    def model(self) -> nn.Module:
        """What learns."""
        ...

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The sum of the loss over the targets that count."""
        ...

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums over the batch, `loss` and `targets` among them."""
        ...

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Figures from the sums over everything that was held out, `loss` among them."""
        ...

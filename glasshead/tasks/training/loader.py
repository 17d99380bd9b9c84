"""The task that brings the examples, and loaders whose state is (epoch, position)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor, nn


class ExampleSource(Protocol):
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


# Lightning reads a batch ahead from a loader without a length, and then saves a place too far.
_ENDLESS = 2**40


class EpochPart(NamedTuple):
    """What one process computes at once.

    Attributes:
        tensors: The part's own examples, collated.
        share: 1 / how many targets of the whole global batch count; 0 for a part without examples.
    """

    tensors: dict[str, Tensor]
    share: float


class TrainingLoader:
    """The parts of all batches of all epochs, without end.

    A global batch is dealt out to processes and, in each, to `accumulate` parts; part p of n has
    its examples p, p + n, p + 2 n, ... Where there are more parts than examples, a part has
    an example whose share is 0, so that each process computes as often.
    """

    def __init__(
        self, source: ExampleSource, *, rank: int = 0, ranks: int = 1, accumulate: int = 1
    ) -> None:
        self._source = source
        self._parts = range(rank * accumulate, (rank + 1) * accumulate)
        self._of = ranks * accumulate
        self._epoch, self._position = 0, 0

    def __len__(self) -> int:
        return _ENDLESS

    def state_dict(self) -> dict[str, int]:
        """Which global batch is next."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on with that batch."""
        self._epoch, self._position = state["epoch"], state["position"]

    def __iter__(self) -> Iterator[EpochPart]:
        while True:
            batches = self._source.batches(self._epoch)
            while self._position < len(batches):
                batch = batches[self._position]
                # A checkpoint is saved when the last part has been handed out.
                self._position += 1
                share = 1 / max(1, self._source.count(batch))
                for part in self._parts:
                    yield _part(self._source, batch, slice(part, None, self._of), share)
            self._epoch, self._position = self._epoch + 1, 0


class HeldOutLoader:
    """The parts of the held-out batches that a process validates."""

    def __init__(self, source: ExampleSource, *, rank: int = 0, ranks: int = 1) -> None:
        self._source, self._own = source, slice(rank, None, ranks)
        self._batches = source.batches(0)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[EpochPart]:
        for batch in self._batches:
            yield _part(self._source, batch, self._own, 1.0)


def _part(source: ExampleSource, batch: Sequence[int], own: slice, share: float) -> EpochPart:
    indices = batch[own]
    if len(indices):
        return EpochPart(source.collate(indices), share)
    return EpochPart(source.collate(batch[:1]), 0.0)


def check_batches(source: ExampleSource, name: str) -> None:
    """Raise a ValueError where there is nothing to train on, or to validate with."""
    batches: Sequence[Any] = source.batches(0)
    if not len(batches) or not all(len(batch) for batch in batches):
        raise ValueError(f"{name} has no examples, or a batch without any: give it some.")

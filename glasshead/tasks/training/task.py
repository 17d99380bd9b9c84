"""Tasks: the protocols of a task and its examples, their batches, cross-entropy, and evaluation."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.attention import io as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.processes import (
    Diverged,
    check_weights,
    on_rank_zero,
    raised_by_first_rank,
    summed,
)
from glasshead.tasks.training.settings import TrainingSettings

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class ExampleSource(Protocol):
    """Indexed examples and their division into batches."""

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Return the global batches of an epoch as example indices, deterministically."""
        ...

    def collate(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Collate examples, a batch or a part of one, to tensors."""
        ...

    def count(self, indices: Sequence[int]) -> int:
        """Return the number of targets of these examples, without padding."""
        ...


class Task(Protocol):
    """A model with its loss and metrics.

    Attributes:
        monitor: The metric, among those of `metrics`, by which the best model is selected.
        higher_is_better: Whether a higher value of it is better.
    """

    monitor: str
    higher_is_better: bool

    @property
    def model(self) -> nn.Module:
        """The model to train."""
        ...

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """Return the loss, summed over the targets."""
        ...

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return sums over the batch, including `loss` and `targets`."""
        ...

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Compute metrics, including `loss`, from the sums over all held-out examples."""
        ...


class EpochPart(NamedTuple):
    """A micro-batch: the part of a global batch that one process computes at once.

    Attributes:
        tensors: The collated examples.
        share: 1 / number of targets of the global batch; 0 for a part without examples.
    """

    tensors: dict[str, Tensor]
    share: float


class TrainingLoader:
    """An endless loader over the parts of the global batches of all epochs.

    A global batch is divided among processes and, in each, into `accumulate` parts; part p of n has
    the examples p, p + n, p + 2 n, ... A part without examples has one with share 0, so that all
    processes run the same number of steps.
    """

    def __init__(
        self, source: ExampleSource, *, rank: int = 0, ranks: int = 1, accumulate: int = 1
    ) -> None:
        self._source = source
        self._parts = range(rank * accumulate, (rank + 1) * accumulate)
        self._of = ranks * accumulate
        self._epoch, self._position = 0, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position of the next global batch."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved position."""
        self._epoch, self._position = state["epoch"], state["position"]

    def __iter__(self) -> Iterator[EpochPart]:
        while True:
            batches = self._source.batches(self._epoch)
            while self._position < len(batches):
                batch = batches[self._position]
                # A checkpoint is saved after the last part was yielded.
                self._position += 1
                share = 1 / max(1, self._source.count(batch))
                for part in self._parts:
                    yield _part(self._source, batch, slice(part, None, self._of), share)
            self._epoch, self._position = self._epoch + 1, 0


class HeldOutLoader:
    """A loader over one process's parts of the held-out batches."""

    def __init__(self, source: ExampleSource, *, rank: int = 0, ranks: int = 1) -> None:
        self._source, self._own = source, slice(rank, None, ranks)

    def __iter__(self) -> Iterator[EpochPart]:
        for batch in self._source.batches(0):
            yield _part(self._source, batch, self._own, 1.0)


def _part(source: ExampleSource, batch: Sequence[int], own: slice, share: float) -> EpochPart:
    indices = batch[own]
    if len(indices):
        return EpochPart(source.collate(indices), share)
    return EpochPart(source.collate(batch[:1]), 0.0)


def check_batches(source: ExampleSource, name: str) -> None:
    """Check that there are batches, and that none is empty.

    Errors: a ValueError if there are none, or one is empty.
    """
    batches: Sequence[Any] = source.batches(0)
    if not len(batches) or not all(len(batch) for batch in batches):
        raise ValueError(f"{name} must have examples, and batches that are not empty.")


# Target index that is ignored in the loss.
IGNORED = -100

M = TypeVar("M", bound=nn.Module)


def cross_entropy(
    logits: Float[Tensor, "*batch classes"],
    answers: Int[Tensor, "*batch"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross-entropy, summed: -Σ_i Σ_k q_ik ln softmax(logits_i)_k, with label smoothing.

    The smoothed targets are q_ik = (1 - ε) [k = answer_i] + ε / classes.

    Args:
        logits: Unnormalized scores of the classes.
        answers: Target classes; `IGNORED` if there is none.
        smoothing: Label smoothing ε.

    Source: Szegedy et al. 2016 (Rethinking the inception architecture), section 7.

    >>> cross_entropy(torch.zeros(2, 3, 4), torch.tensor([[1, 3, 0], [2, -100, -100]]))
    tensor(5.5452)
    """
    return F.cross_entropy(
        logits.flatten(0, -2),
        answers.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=smoothing,
    )


class CrossEntropyObjective(ABC, Generic[M]):
    """Cross-entropy over the answers of a batch, -Σ ln p(answer), in nats.

    Args:
        model: What answers.
        smoothing: The share that all answers are given alike, in training alone.
    """

    monitor = "accuracy"
    higher_is_better = True
    # The tensor of a batch that has the answers.
    answers = "answers"

    def __init__(self, model: M, smoothing: float = 0.0) -> None:
        self.model = model
        self.smoothing = smoothing

    @abstractmethod
    def logits(self, batch: dict[str, Tensor]) -> Float[Tensor, "*answers classes"]:
        """Return the model's logits for a batch."""

    def loss(self, batch: dict[str, Tensor]) -> Float[Tensor, ""]:
        """Return the loss, summed over the answers, in nats, with label smoothing."""
        return cross_entropy(self.logits(batch), batch[self.answers], self.smoothing)

    def validate(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums `loss`, without smoothing, `targets` and `right` of a batch."""
        logits, answers = self.logits(batch), batch[self.answers]
        return {
            "loss": cross_entropy(logits, answers),
            "targets": torch.sum(answers != IGNORED),
            "right": torch.sum(logits.argmax(-1) == answers),
        }

    def metrics(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the mean loss in nats, and the accuracy."""
        return {
            "loss": sums["loss"] / sums["targets"],
            "accuracy": sums["right"] / sums["targets"],
        }


@torch.no_grad()
def evaluate(
    fabric: "Fabric", model: nn.Module, task: Task, held_out: ExampleSource
) -> dict[str, float]:
    """Return the metrics over all held-out examples, of which each rank takes its share."""
    model.eval()
    sums: dict[str, Tensor] = {}
    for part in HeldOutLoader(held_out, rank=fabric.global_rank, ranks=fabric.world_size):
        for name, value in model(fabric.to_device(part.tensors), validate=True).items():
            # Sums over many batches need float64.
            own = value.detach().cpu().double() * part.share
            sums[name] = sums[name] + own if name in sums else own
    model.train()
    names = sorted(sums)
    total = summed(fabric, torch.stack([sums[name] for name in names]))
    return task.metrics(dict(zip(names, total.tolist(), strict=True)))


class Best:
    """The best validation so far, and the last: the content of metrics.json.

    Attributes:
        improved: Whether the last validation was the best so far.
    """

    def __init__(
        self, fabric: "Fabric", folder: RunFolder, task: Task, settings: TrainingSettings
    ) -> None:
        self._fabric, self._folder, self._task = fabric, folder, task
        self._patience = settings.patience
        self._best: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._worse = 0

    @property
    def figures(self) -> dict[str, Any]:
        """The content of metrics.json, which `train` returns."""
        return {
            "steps": self._last.get("step", 0),
            "monitor": self._task.monitor,
            "best": self._best,
            "last": self._last,
        }

    @property
    def improved(self) -> bool:
        return self._worse == 0

    @property
    def out_of_patience(self) -> bool:
        """Whether as many validations as `patience` were no better."""
        return self._patience is not None and self._worse >= self._patience

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "last": self._last, "worse": self._worse}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best, self._last, self._worse = state["best"], state["last"], state["worse"]

    def update(
        self,
        step: int,
        rate: float,
        metrics: dict[str, float],
        weights: Callable[[], dict[str, Tensor]],
    ) -> None:
        """Take the metrics of a validation, and write what is new.

        Errors: a ValueError if a metric or a weight is not finite; an OSError if a file
        cannot be written.
        """
        if not all(map(math.isfinite, metrics.values())):
            raise raised_by_first_rank(self._fabric, Diverged("validation figure", step, rate))
        self._last = {"step": step, **metrics}
        new, old = metrics[self._task.monitor], self._best.get(self._task.monitor)
        if old is None or (new > old if self._task.higher_is_better else new < old):
            self._best, self._worse = self._last, 0
        else:
            self._worse += 1
        on_rank_zero(self._fabric, self._write, weights() if self.improved else None, rate)

    def _write(self, weights: dict[str, Tensor] | None, rate: float) -> None:
        if weights is not None:
            check_weights(weights, self._last["step"], rate)
            # The format of models.saving.write_weights, which does not support sharded models.
            files.write(self._folder.weights, "weights", {}, weights)
        self._folder.write_json(self._folder.metrics, self.figures)

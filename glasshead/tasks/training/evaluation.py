"""Validation: metrics of the held-out examples, the best model so far, and early stopping."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glasshead.attention import tensor_files as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.stopping import (
    check_weights,
    not_finite,
    on_rank_zero,
    summed,
    told_by_the_first,
)
from glasshead.tasks.training.task import ExampleSource, HeldOutLoader, Task

if TYPE_CHECKING:
    from lightning.fabric import Fabric


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

        Errors: a ValueError where a metric or a weight is not finite; an OSError where a file
        cannot be written.
        """
        if not all(map(math.isfinite, metrics.values())):
            raise told_by_the_first(self._fabric, not_finite("validation figure", step, rate))
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

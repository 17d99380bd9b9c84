"""The best model so far, the figures, and whether training is over."""

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from glasshead.attention import tensor_files as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.contract import Task
from glasshead.tasks.training.journal import Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.not_finite import check_finite, not_finite
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.together import by_the_first, told_by_the_first


class Best(Callback):
    """Keeps model.safetensors and metrics.json; ends training after `patience` validations."""

    def __init__(
        self, folder: RunFolder, settings: TrainingSettings, task: Task, journal: Journal
    ) -> None:
        self._folder, self._settings, self._task = folder, settings, task
        self._journal = journal
        self._best: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._worse = 0

    @property
    def figures(self) -> dict[str, Any]:
        """What `train` gives, and metrics.json has."""
        return {
            "steps": self._last.get("step", 0),
            "monitor": self._task.monitor,
            "best": self._best,
            "last": self._last,
        }

    @property
    def improved(self) -> bool:
        """Whether the last validation was the best so far."""
        return self._worse == 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "last": self._last, "worse": self._worse}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best, self._last = state_dict["best"], state_dict["last"]
        self._worse = state_dict["worse"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch, batch_idx
        # This is how Lightning is asked for a last validation.
        if trainer.global_step >= self._settings.steps:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        step, metrics = trainer.global_step, TaskModule.of(pl_module).metrics
        rate = self._journal.learning_rate
        if not all(math.isfinite(value) for value in metrics.values()):
            raise told_by_the_first(trainer, not_finite("validation figure", step, rate))
        self._last = {"step": step, **metrics}
        weights = None
        if self._improves():
            self._best, self._worse = self._last, 0
            weights = weights_of(trainer)
        else:
            self._worse += 1
        by_the_first(trainer, lambda: self._write(weights, step, rate))
        if self._settings.patience is not None and self._worse >= self._settings.patience:
            trainer.should_stop = True

    def _improves(self) -> bool:
        if not self._best:
            return True
        new, old = (figures[self._task.monitor] for figures in (self._last, self._best))
        return new > old if self._task.higher_is_better else new < old

    def _write(self, weights: dict[str, Tensor] | None, step: int, rate: float) -> None:
        if weights is not None:
            check_finite(weights, step, rate)
            # In the form of models.saving.write_weights, which knows no model in shares.
            files.write(self._folder.weights, "weights", {}, weights)
        self._folder.write_json(self._folder.metrics, self.figures)


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    """The model's tensors, whole, by its own names."""
    state = trainer.strategy.lightning_module_state_dict()
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}

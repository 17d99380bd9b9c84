"""The best model so far, early stopping, non-finite values and interrupts."""

import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from glasshead.attention import tensor_files as files
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.hardware import on_rank_zero, told_by_the_first
from glasshead.tasks.training.loader import Task
from glasshead.tasks.training.logs import Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import TrainingSettings


def not_finite(what: str, step: int, rate: float) -> ValueError:
    """Return the error for a loss, a gradient, a weight or a metric that is NaN or infinite."""
    return ValueError(
        f"step {step}, with learning rate {rate:.3g}, has a {what} that is NaN or infinite, and "
        f"the last good checkpoint is kept: train anew, in another folder, with a lower "
        f"learning rate or a longer warmup."
    )


def check_finite(weights: Mapping[str, Tensor], step: int, rate: float) -> None:
    """Check that weights are finite before they are saved.

    Errors: a ValueError where one is NaN or infinite.
    """
    for tensor in weights.values():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise not_finite("weight", step, rate)


class Best(Callback):
    """Callback that writes model.safetensors and metrics.json, and stops after `patience`."""

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
        """The content of metrics.json, which `train` returns."""
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
        # Makes Lightning run a last validation.
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
        on_rank_zero(trainer, lambda: self._write(weights, step, rate))
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
            # The format of models.saving.write_weights, which does not support sharded models.
            files.write(self._folder.weights, "weights", {}, weights)
        self._folder.write_json(self._folder.metrics, self.figures)


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    """Return the model's full tensors by its own parameter names."""
    state = trainer.strategy.lightning_module_state_dict()
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Handles SIGINT and SIGTERM, to stop training after a step.

    Attributes:
        asked: Whether this process received a signal.
        ended: Whether it received a second one.
    """

    def __init__(self) -> None:
        self.asked = self.ended = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle Ctrl-C and SIGTERM while the block runs; a second one ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        older = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in older.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Install the signal handlers, which Lightning may have replaced."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self.ended = True
            raise KeyboardInterrupt
        self.asked = True
        # The signal may have interrupted a print, so write to the descriptor.
        with suppress(OSError):
            os.write(2, b"\nEnding after this step, and saving; once more ends at once.\n")

"""Progress of training: a bar in a terminal, and occasional lines elsewhere."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from glasshead.tasks.training.best import Best
from glasshead.tasks.training.logs import Journal
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import TrainingSettings

# Seconds between updates; drawing the bar takes some milliseconds.
_BAR_SECONDS, _LINE_SECONDS = 0.5, 30.0


class Progress(Callback):
    """Callback that prints step, loss, speed, time left and validations."""

    def __init__(
        self,
        settings: TrainingSettings,
        journal: Journal,
        best: Best,
        console: Console,
    ) -> None:
        self._settings, self._journal, self._best = settings, journal, best
        self._console = console
        self._bar: Bar | None = None
        self._first, self._since, self._next = 0, 0.0, 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        self._first, self._since = trainer.global_step, time.monotonic()
        self._next = self._since + _LINE_SECONDS
        if not trainer.is_global_zero:
            self._next = float("inf")
        elif self._console.is_terminal:
            self._bar = _bar(self._console)
            self._bar.add_task("", total=self._settings.steps, completed=self._first, said="")
            self._bar.start()
            self._next = self._since

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch, batch_idx
        if time.monotonic() >= self._next and trainer.global_step > self._first:
            self._show(trainer.global_step, f"loss {self._journal.loss:.4g}, {self._pace(trainer)}")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        if self._bar is not None:
            self._show(trainer.global_step, "validating")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            metrics = TaskModule.of(pl_module).metrics
            values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            best = ", the best so far" if self._best.improved else ""
            step, steps = trainer.global_step, self._settings.steps
            line = f"step {step} of {steps}: validation {values}{best}; {self._pace(trainer)}"
            self._console.print(line, highlight=False, soft_wrap=True)
            self._again()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        self._stop(trainer.global_step)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        del pl_module, exception
        self._stop(trainer.global_step)

    def _show(self, step: int, said: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, said=said, refresh=True)
        else:
            line = f"step {step} of {self._settings.steps}: {said}"
            self._console.print(line, highlight=False, soft_wrap=True)
        self._again()

    def _again(self) -> None:
        self._next = time.monotonic() + (_LINE_SECONDS if self._bar is None else _BAR_SECONDS)

    def _pace(self, trainer: Trainer) -> str:
        done = trainer.global_step - self._first
        seconds = time.monotonic() - self._since
        left = (self._settings.steps - trainer.global_step) * seconds / max(1, done)
        return f"{done / max(seconds, 1e-9):.3g} steps/s, {duration(left)} left"

    def _stop(self, step: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, said="")
            self._bar.stop()
            self._bar = None


def duration(seconds: float) -> str:
    """Format seconds for reading.

    >>> duration(7.4), duration(83), duration(7260)
    ('7 s', '1 min 23 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _bar(console: Console) -> Bar:
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[said]}"),
    )
    # A drawing thread would slow down the steps.
    return Bar(*columns, console=console, auto_refresh=False)

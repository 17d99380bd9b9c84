"""Logs of a training run: log.csv, curve.png, attention.csv and alarms.jsonl."""

import csv
import io
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from torch import nn

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.attention_log import (
    complete_lines,
    line_of,
    read_attention_log,
    text_of,
)
from glasshead.tasks.training.hardware import on_rank_zero
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import VALIDATION, TrainingSettings
from glasshead.watching.alarms import AlarmRule, HeadReading
from glasshead.watching.alarms.with_lightning import WatchedSteps

_COLUMNS = ("step", "loss", "learning_rate", "seconds")


class Journal(Callback):
    """Callback that writes log.csv: a row every `log_every` steps and at each validation.

    A row has the mean loss since the last one. The values are also sent to Lightning's loggers.
    """

    def __init__(self, folder: RunFolder, settings: TrainingSettings) -> None:
        self.rows: list[dict[str, str]] = []
        self.loss = self.learning_rate = float("nan")
        self._folder, self._settings = folder, settings
        self._columns = list(_COLUMNS)
        self._sum, self._count, self._seconds = 0.0, 0, 0.0
        self._since = time.monotonic()

    def record(self, loss: float, rate: float) -> None:
        """Record loss and learning rate of a step."""
        self.loss, self.learning_rate = loss, rate
        self._sum += loss
        self._count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count, "seconds": self.seconds()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sum, self._count = state_dict["sum"], state_dict["count"]
        self._seconds = state_dict["seconds"]

    def seconds(self) -> float:
        """Return the total training time in seconds, across resumptions."""
        return self._seconds + time.monotonic() - self._since

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        self._since = time.monotonic()
        on_rank_zero(trainer, lambda: self._begin(trainer.global_step))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del pl_module, outputs, batch
        step = trainer.global_step
        if (
            (batch_idx + 1) % self._settings.accumulate == 0
            and step % self._settings.log_every == 0
            and not self._settings.validates_at(step)
        ):
            self._add(trainer, {})

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = TaskModule.of(pl_module).metrics
        self._add(trainer, {f"{VALIDATION}{name}": value for name, value in metrics.items()})

    def _begin(self, step: int) -> None:
        """Drop the rows of steps that will be repeated."""
        self.rows = [row for row in self._read() if int(row["step"]) <= step]
        self._columns = list(dict.fromkeys([*_COLUMNS, *(n for row in self.rows for n in row)]))
        self._write_all()

    def _add(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        values = {
            "step": str(trainer.global_step),
            "loss": f"{self._sum / max(1, self._count):.8g}",
            "learning_rate": f"{self.learning_rate:.8g}",
            "seconds": f"{self.seconds():.2f}",
        }
        row = values | {name: f"{value:.8g}" for name, value in metrics.items()}
        self._sum, self._count = 0.0, 0
        on_rank_zero(trainer, lambda: self._write(row))
        figures = {name: float(value) for name, value in row.items() if name != "step"}
        for logger in trainer.loggers:
            logger.log_metrics(figures, trainer.global_step)

    def _write(self, row: dict[str, str]) -> None:
        self.rows.append(row)
        new = [name for name in row if name not in self._columns]
        if new:
            self._columns += new
            self._write_all()
        else:
            self._folder.append(self._folder.log, self._lines([row]))

    def _lines(self, rows: list[dict[str, str]]) -> str:
        out = io.StringIO()
        csv.DictWriter(out, self._columns, lineterminator="\n").writerows(rows)
        return out.getvalue()

    def _write_all(self) -> None:
        head = ",".join(self._columns) + "\n"
        self._folder.write_text(self._folder.log, head + self._lines(self.rows))

    def _read(self) -> list[dict[str, str]]:
        """Read the complete rows."""
        if not self._folder.log.exists():
            return []
        lines = io.StringIO(complete_lines(self._folder.log))
        rows = [row for row in csv.DictReader(lines) if row.get("step", "").isdigit()]
        return [{name: value for name, value in row.items() if name and value} for row in rows]


_SECONDS = 60.0


class Curve(Callback):
    """Callback that draws the learning curve at the end, and at validations once a minute."""

    def __init__(self, folder: RunFolder, journal: Journal) -> None:
        self._folder, self._journal = folder, journal
        self._drawn = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        due = trainer.is_global_zero and time.monotonic() - self._drawn > _SECONDS
        if trainer.should_stop or due:
            self._drawn = time.monotonic()
        if trainer.should_stop:
            on_rank_zero(trainer, self._draw)
        elif due:
            self._draw()

    def _draw(self) -> None:
        picture = drawn(self._journal.rows)
        if picture is not None:
            self._folder.write_bytes(self._folder.curve, picture)


def drawn(rows: list[dict[str, str]]) -> bytes | None:
    """Draw the learning curve as PNG; return None where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    for name, label in (("loss", "training"), (f"{VALIDATION}loss", "validation")):
        points = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker="." if "_" in name else "")
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    axes.grid(alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


_ROWS = 4


class AttentionJournal(WatchedSteps):
    """Callback that writes attention.csv with every fourth row of log.csv, and alarms.jsonl.

    A resumed run drops the readings of steps that will be repeated. Alarms and the state of the
    rule are functions of the readings, so the remaining ones are fed to it again.
    """

    def __init__(self, folder: RunFolder, settings: TrainingSettings, console: Console) -> None:
        super().__init__(_ROWS * settings.log_every)
        self._folder, self._console = folder, console
        self._rule = AlarmRule()

    def watched(self, pl_module: LightningModule) -> nn.Module:
        return TaskModule.of(pl_module).model

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        on_rank_zero(trainer, lambda: self._begin(trainer.global_step))

    def read(self, trainer: Trainer, readings: list[HeadReading]) -> None:
        on_rank_zero(trainer, lambda: self._write(readings))

    def _begin(self, step: int) -> None:
        folder = self._folder
        read = read_attention_log(folder.path).readings if folder.attention.exists() else []
        valid = [reading for reading in read if reading.step <= step]
        folder.write_text(folder.attention, text_of(valid))
        folder.write_text(folder.alarms, "".join(map(line_of, self._rule.feed(valid))))

    def _write(self, readings: list[HeadReading]) -> None:
        folder, alarms = self._folder, self._rule.feed(readings)
        folder.append(folder.attention, text_of(readings, head=False))
        if alarms:
            folder.append(folder.alarms, "".join(map(line_of, alarms)))
            more = f" And {len(alarms) - 1} more." if len(alarms) > 1 else ""
            line = f"{alarms[0].sentence}{more}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

"""log.csv, and the learning curve drawn from it."""

import csv
import io
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from glasshead.guarded_file import LOG_BYTES, read_regular
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.hardware import by_the_first
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import TrainingSettings

_COLUMNS = ("step", "loss", "learning_rate", "seconds")
VALIDATION = "validation_"


class Journal(Callback):
    """A row each `log_every` steps and at each validation: the mean loss since the last row.

    Lightning's loggers, where there are any, are told the same.
    """

    def __init__(self, folder: RunFolder, settings: TrainingSettings) -> None:
        self.rows: list[dict[str, str]] = []
        self.loss = self.learning_rate = float("nan")
        self._folder, self._settings = folder, settings
        self._columns = list(_COLUMNS)
        self._sum, self._count, self._seconds = 0.0, 0, 0.0
        self._since = time.monotonic()

    def record(self, loss: float, rate: float) -> None:
        """Take note of a step."""
        self.loss, self.learning_rate = loss, rate
        self._sum += loss
        self._count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count, "seconds": self.seconds()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._sum, self._count = state_dict["sum"], state_dict["count"]
        self._seconds = state_dict["seconds"]

    def seconds(self) -> float:
        """How long this run has been trained, all resumptions together."""
        return self._seconds + time.monotonic() - self._since

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        self._since = time.monotonic()
        by_the_first(trainer, lambda: self._begin(trainer.global_step))

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
        """Drop the rows of steps that are to be made again."""
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
        by_the_first(trainer, lambda: self._write(row))
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
        """The rows that are there; a last line without its end was cut off."""
        if not self._folder.log.exists():
            return []
        try:
            text = read_regular(self._folder.log, LOG_BYTES).decode(errors="replace")
        except OSError as error:
            raise type(error)(
                f"{self._folder.log} cannot be read ({error.strerror}): take it away to go on."
            ) from error
        whole = text[: text.rfind("\n") + 1]
        rows = [row for row in csv.DictReader(io.StringIO(whole)) if row.get("step", "").isdigit()]
        return [{name: value for name, value in row.items() if name and value} for row in rows]


_SECONDS = 60.0


class Curve(Callback):
    """Draws the curve at the end, and at a validation when the last drawing is a minute old."""

    def __init__(self, folder: RunFolder, journal: Journal) -> None:
        self._folder, self._journal = folder, journal
        self._drawn = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        due = trainer.is_global_zero and time.monotonic() - self._drawn > _SECONDS
        if trainer.should_stop or due:
            self._drawn = time.monotonic()
        if trainer.should_stop:
            by_the_first(trainer, self._draw)
        elif due:
            self._draw()

    def _draw(self) -> None:
        picture = drawn(self._journal.rows)
        if picture is not None:
            self._folder.write_bytes(self._folder.curve, picture)


def drawn(rows: list[dict[str, str]]) -> bytes | None:
    """The curve of the rows of a log as PNG; None where matplotlib is not installed."""
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

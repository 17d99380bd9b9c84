"""Logs of a training run: progress, log.csv, the curve, and statistics of its heads with alarms."""

import csv
import dataclasses
import importlib.util
import io
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from torch import nn

from glasshead.explanation.translations import Say
from glasshead.files import LOG_BYTES, read_regular
from glasshead.tasks.run_folder import VALIDATION, RunFolder
from glasshead.tasks.training.processes import Diverged, on_rank_zero
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.watching.alarms import Alarm, AlarmRule, HeadReading
from glasshead.watching.alarms.probe import Every, Probe
from glasshead.watching.alarms.rule import Kind

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# Seconds between updates; drawing the bar takes some milliseconds.
_BAR_SECONDS, _LINE_SECONDS = 0.5, 30.0


class Progress:
    """Prints step, loss, speed, time left and validations, while its block runs.

    Args:
        console: Where to; None: nowhere.
        first: The step to go on from.
        steps: The number of steps.
        say: The language.
    """

    def __init__(self, console: Console | None, first: int, steps: int, say: Say) -> None:
        self._console, self._first, self._steps, self._say = console, first, steps, say
        self._done = first
        self._bar: Bar | None = None
        self._since, self._next = 0.0, 0.0

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        self._next = self._since + _LINE_SECONDS
        if self._console is None:
            self._next = float("inf")
        elif self._console.is_terminal:
            self._bar = _bar(self._console)
            self._bar.add_task("", total=self._steps, completed=self._first, said="")
            self._bar.start()
            self._next = self._since
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, said="")
            self._bar.stop()

    def step(self, step: int, loss: float) -> None:
        """Show a step, unless one was shown just now."""
        self._done = step
        if time.monotonic() >= self._next:
            say = self._say
            self._show(step, say("loss {loss:.4g}, {pace}", loss=loss, pace=self._pace(step)))

    def validating(self, step: int) -> None:
        """Show that a validation has begun."""
        if self._bar is not None:
            say = self._say
            self._show(step, say("validating"))

    def validated(self, step: int, metrics: dict[str, float], *, best: bool) -> None:
        """Print the metrics of a validation."""
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        say, pace = self._say, self._pace(step)
        said = say("validation {values}; {pace}", values=values, pace=pace)
        if best:
            said = say("validation {values}, the best so far; {pace}", values=values, pace=pace)
        self._print(step, said)

    def _show(self, step: int, said: str) -> None:
        if self._bar is None:
            self._print(step, said)
        else:
            self._bar.update(self._bar.task_ids[0], completed=step, said=said, refresh=True)
            self._next = time.monotonic() + _BAR_SECONDS

    def _print(self, step: int, said: str) -> None:
        if self._console is not None:
            say = self._say
            line = say("step {step} of {steps}: {said}", step=step, steps=self._steps, said=said)
            self._console.print(line, highlight=False, soft_wrap=True)
            self._next = time.monotonic() + (_LINE_SECONDS if self._bar is None else _BAR_SECONDS)

    def _pace(self, step: int) -> str:
        done, seconds = step - self._first, time.monotonic() - self._since
        left = (self._steps - step) * seconds / max(1, done)
        say, speed = self._say, done / max(seconds, 1e-9)
        return say("{speed:.3g} steps/s, {left} left", speed=speed, left=duration(left))


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


_CURVE_COLUMNS = ("step", "loss", "learning_rate", "seconds")
# Seconds between drawings of the learning curve.
_CURVE_SECONDS = 60.0


def loggers(folder: RunFolder) -> list[Any]:
    """Return the loggers that metrics are sent to: TensorBoard's, where it is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return []
    from lightning.fabric.loggers.tensorboard import TensorBoardLogger

    return [TensorBoardLogger(folder.path, name="tensorboard", version="")]


class MetricsLog:
    """log.csv: the mean loss since the last row, and the metrics of validations.

    The values are also sent to the loggers of Fabric, and drawn as curve.png.
    """

    def __init__(self, fabric: "Fabric", folder: RunFolder) -> None:
        self._fabric, self._folder = fabric, folder
        self._rows: list[dict[str, str]] = []
        self._columns = list(_CURVE_COLUMNS)
        self._rate = float("nan")
        self._sum, self._count, self._seconds = 0.0, 0, 0.0
        self._since = self._drawn = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count, "seconds": self._total_seconds()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum, self._count, self._seconds = state["sum"], state["count"], state["seconds"]

    def begin(self, step: int) -> None:
        """Begin after a step: rows of later steps, which will be repeated, are dropped."""
        self._since = time.monotonic()
        on_rank_zero(self._fabric, self._drop_after, step)

    @contextmanager
    def ended_by_divergence(self) -> Iterator[None]:
        """Add the steps since the last row where the block ends as training diverged."""
        try:
            yield
        except Diverged as error:
            # The other ranks have ended.
            if self._count:
                self._write(self._row(error.step), draw=False)
            raise

    def record(self, loss: float, rate: float) -> None:
        """Record loss and learning rate of a step."""
        self._sum += loss
        self._count += 1
        self._rate = rate

    def add(
        self, step: int, metrics: dict[str, float] | None = None, *, last: bool = False
    ) -> None:
        """Add a row, with the metrics of a validation if there was one.

        The learning curve is drawn with the `last` one, and at validations once a minute.
        """
        row = self._row(step)
        row |= {f"{VALIDATION}{name}": f"{value:.8g}" for name, value in (metrics or {}).items()}
        self._sum, self._count = 0.0, 0
        due = metrics is not None and (last or time.monotonic() - self._drawn > _CURVE_SECONDS)
        on_rank_zero(self._fabric, self._write, row, due)
        figures = {name: float(value) for name, value in row.items() if name != "step"}
        self._fabric.log_dict(figures, step)

    def _row(self, step: int) -> dict[str, str]:
        return {
            "step": str(step),
            "loss": f"{self._sum / max(1, self._count):.8g}",
            "learning_rate": f"{self._rate:.8g}",
            "seconds": f"{self._total_seconds():.2f}",
        }

    def _total_seconds(self) -> float:
        """Return the training time across resumptions."""
        return self._seconds + time.monotonic() - self._since

    def _drop_after(self, step: int) -> None:
        self._rows = [row for row in self._read() if int(row["step"]) <= step]
        self._columns = list(
            dict.fromkeys([*_CURVE_COLUMNS, *(n for row in self._rows for n in row)])
        )
        self._write_all()

    def _write(self, row: dict[str, str], draw: bool) -> None:
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        if new:
            self._columns += new
            self._write_all()
        else:
            self._folder.append(self._folder.log, self._lines([row]))
        picture = drawn(self._rows) if draw else None
        if picture is not None:
            self._folder.write_bytes(self._folder.curve, picture)
            self._drawn = time.monotonic()

    def _lines(self, rows: list[dict[str, str]]) -> str:
        out = io.StringIO()
        csv.DictWriter(out, self._columns, lineterminator="\n").writerows(rows)
        return out.getvalue()

    def _write_all(self) -> None:
        head = ",".join(self._columns) + "\n"
        self._folder.write_text(self._folder.log, head + self._lines(self._rows))

    def _read(self) -> list[dict[str, str]]:
        """Read the complete rows."""
        if not self._folder.log.exists():
            return []
        head, *lines = complete_lines(self._folder.log).splitlines() or [""]
        names, rows = head.split(","), []
        for number, line in enumerate(lines, 2):
            row = {name: cell for name, cell in zip(names, line.split(","), strict=False) if cell}
            try:
                _whole(int(row["step"]))
                for cell in row.values():
                    _number(cell)
            except (ValueError, KeyError):
                raise _broken(self._folder.log, number) from None
            rows.append(row)
        return rows


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


# The heads are read at every fourth row of log.csv.
_ROWS = 4
# JavaScript has no larger whole numbers.
_LARGEST = 2**53
# Of a number that a log has.
_LETTERS = 40
_HEAD_COLUMNS = ("step", "layer", "head", "entropy", "normalized_entropy", "max_score")


@dataclass(frozen=True, eq=False)
class AttentionLog:
    """The attention statistics and alarms of a watched training run.

    Attributes:
        readings: Readings by step, layer and head, in this order.
        alarms: Alarms in the order in which they were raised.
    """

    readings: list[HeadReading]
    alarms: list[Alarm]


def read_attention_log(folder: str | os.PathLike[str]) -> AttentionLog:
    """Read the attention statistics that `glasshead train --watch` has written to a run folder.

    The run may still be training: an incomplete last line is skipped.

    Errors: a FileNotFoundError if the run was not watched; another OSError if a file cannot
    be read; a ValueError that names the file and the line where it is malformed.

    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp())
    >>> reading = HeadReading(10, "blocks.0", 1, 2.5, 0.61, 7.25)
    >>> folder.write_text(folder.attention, text_of([reading]))
    >>> read_attention_log(folder.path).readings[0].max_score
    7.25
    """
    run = RunFolder(folder)
    if not run.attention.exists():
        raise FileNotFoundError(
            f"{run.path} has no {run.attention.name}, as training was not watched. Train with "
            "--watch."
        )
    return AttentionLog(
        _readings(run.attention), _alarms(run.alarms) if run.alarms.exists() else []
    )


class AttentionWriter:
    """Writes attention.csv with every fourth row of log.csv, and alarms.jsonl.

    Of a watched step the first batch is read, or the first part of it; in distributed training that
    of rank 0. A resumed run drops the readings of steps that will be repeated. Alarms and the state
    of the rule are functions of the readings, so the remaining ones are fed to it again.

    Args:
        model: The model to watch; None: nothing is watched or written.
        fabric: The Fabric of the run.
        folder: The run folder.
        settings: Training settings.
        console: Where alarms are printed.
        first: The step to go on from.
        say: The language of the alarms.
    """

    def __init__(
        self,
        model: nn.Module | None,
        fabric: "Fabric",
        folder: RunFolder,
        settings: TrainingSettings,
        console: Console,
        first: int,
        say: Say,
    ) -> None:
        self._model, self._fabric, self._folder, self._console = model, fabric, folder, console
        self._say = say
        self._every, self._rule = Every(_ROWS * settings.log_every), AlarmRule()
        self._due = False
        self._readings: list[HeadReading] = []
        if model is not None:
            on_rank_zero(fabric, self._drop_after, first)

    @contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """Read the heads in the block, a forward pass, where the step is due."""
        if self._model is None or not self._every.due(step):
            yield
            return
        self._due = True
        if not self._fabric.is_global_zero:
            yield
            return
        probe = Probe(self._model)
        probe.begin()
        try:
            yield
            self._readings = probe.end(step)
        finally:
            probe.leave()

    def write(self) -> None:
        """Write what was read in this step, and the alarms that it raises."""
        if self._due:
            self._due = False
            on_rank_zero(self._fabric, self._write)

    def _drop_after(self, step: int) -> None:
        folder = self._folder
        read = read_attention_log(folder.path).readings if folder.attention.exists() else []
        valid = [reading for reading in read if reading.step <= step]
        folder.write_text(folder.attention, text_of(valid))
        folder.write_text(folder.alarms, "".join(map(line_of, self._rule.feed(valid))))

    def _write(self) -> None:
        folder, alarms = self._folder, self._rule.feed(self._readings)
        folder.append(folder.attention, text_of(self._readings, head=False))
        if alarms:
            folder.append(folder.alarms, "".join(map(line_of, alarms)))
            say = self._say
            line = say.translated(alarms[0].sentence)
            if len(alarms) > 1:
                line = say.after_each_other(line, say("And {count} more.", count=len(alarms) - 1))
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)


def text_of(readings: Iterable[HeadReading], *, head: bool = True) -> str:
    """Format readings as CSV, with a header if `head`.

    >>> print(text_of([HeadReading(10, "blocks.0", 1, 2.5, 0.61, 7.25)]), end="")
    step,layer,head,entropy,normalized_entropy,max_score
    10,blocks.0,1,2.5,0.61,7.25
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if head:
        writer.writerow(_HEAD_COLUMNS)
    writer.writerows(dataclasses.astuple(reading) for reading in readings)
    return out.getvalue()


def line_of(alarm: Alarm) -> str:
    """Format an alarm with its sentence as a line of JSON."""
    fields = dataclasses.asdict(alarm) | {"sentence": alarm.sentence}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _readings(file: Path) -> list[HeadReading]:
    names, *rows = complete_lines(file).splitlines() or [""]
    if rows and names != ",".join(_HEAD_COLUMNS):
        raise ValueError(
            f"the columns of {file} must be {', '.join(_HEAD_COLUMNS)}, got "
            f"{', '.join(names.split(','))[:200]}. Move it away to continue."
        )
    readings = []
    for number, row in enumerate(rows, 2):
        try:
            # Line by line, so that an unclosed quote breaks only its own line.
            step, layer, head, *numbers = next(csv.reader([row]))
            entropy, share, score = map(float, numbers)
            place = _whole(int(step)), layer, _whole(int(head))
            readings.append(HeadReading(*place, entropy, share, score))
        except (ValueError, csv.Error, StopIteration):
            raise _broken(file, number) from None
    return readings


def _alarms(file: Path) -> list[Alarm]:
    alarms = []
    for number, line in enumerate(complete_lines(file).splitlines(), 1):
        try:
            alarms.append(_alarm(json.loads(line)))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise _broken(file, number) from None
    return alarms


def _alarm(fields: dict[str, Any]) -> Alarm:
    """Return the alarm of a line.

    Errors: any, if a value is missing or of another type.
    """
    layer, kind, numbers = fields["layer"], fields["kind"], (fields["value"], fields["threshold"])
    if not isinstance(layer, str) or kind not in get_args(Kind):
        raise TypeError
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers):
        raise TypeError
    value, threshold = map(float, numbers)
    return Alarm(_whole(fields["step"]), layer, _whole(fields["head"]), kind, value, threshold)


def _number(cell: str) -> float:
    """Return the number of a cell; a longer one would be read as infinite.

    Errors: a ValueError for anything else.
    """
    if len(cell) > _LETTERS:
        raise ValueError
    return float(cell)


def _whole(value: Any) -> int:
    """Return a step or a head, which a page can show.

    Errors: a ValueError for anything else.
    """
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError
    return value


def complete_lines(file: Path) -> str:
    """Read the complete lines of a log; a last one without line end is still being written."""
    try:
        text = read_regular(file, LOG_BYTES).decode(errors="replace")
    except OSError as error:
        raise type(error)(
            f"{file} cannot be read ({error.strerror}). Move it away to continue."
        ) from error
    return text[: text.rfind("\n") + 1]


def _broken(file: Path, line: int) -> ValueError:
    return ValueError(f"{file} is broken in line {line}. Fix it, or move it away to continue.")

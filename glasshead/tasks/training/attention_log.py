"""attention.csv and alarms.jsonl: statistics of the heads during training, written and read."""

import csv
import dataclasses
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from torch import nn

from glasshead.files import LOG_BYTES, read_regular
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.tasks.training.stopping import on_rank_zero
from glasshead.watching.alarms import Alarm, AlarmRule, HeadReading
from glasshead.watching.alarms.probe import Every, Probe

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# The heads are read at every fourth row of log.csv.
_ROWS = 4
COLUMNS = ("step", "layer", "head", "entropy", "normalized_entropy", "max_score")


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

    Errors: a FileNotFoundError where the run was not watched; another OSError where a file cannot
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
            f"{run.path} has no {run.attention.name}, as training was not watched: train with "
            f"--watch."
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
    """

    def __init__(
        self,
        model: nn.Module | None,
        fabric: "Fabric",
        folder: RunFolder,
        settings: TrainingSettings,
        console: Console,
        first: int,
    ) -> None:
        self._model, self._fabric, self._folder, self._console = model, fabric, folder, console
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
            more = f" And {len(alarms) - 1} more." if len(alarms) > 1 else ""
            line = f"{alarms[0].sentence}{more}"
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
        writer.writerow(COLUMNS)
    writer.writerows(dataclasses.astuple(reading) for reading in readings)
    return out.getvalue()


def line_of(alarm: Alarm) -> str:
    """Format an alarm with its sentence as a line of JSON."""
    fields = dataclasses.asdict(alarm) | {"sentence": alarm.sentence}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _readings(file: Path) -> list[HeadReading]:
    names, *rows = complete_lines(file).splitlines() or [""]
    if rows and names != ",".join(COLUMNS):
        raise ValueError(
            f"{file} takes the columns {', '.join(COLUMNS)}, and has "
            f"{', '.join(names.split(','))[:200]}: take it away to go on."
        )
    readings = []
    for number, row in enumerate(rows, 2):
        try:
            # Line by line, so that an unclosed quote breaks only its own line.
            step, layer, head, *numbers = next(csv.reader([row]))
            entropy, share, score = map(float, numbers)
            readings.append(HeadReading(int(step), layer, int(head), entropy, share, score))
        except (ValueError, csv.Error, StopIteration):
            raise _broken(file, number) from None
    return readings


def _alarms(file: Path) -> list[Alarm]:
    names = [field.name for field in dataclasses.fields(Alarm)]
    alarms = []
    for number, line in enumerate(complete_lines(file).splitlines(), 1):
        try:
            fields = json.loads(line)
            alarms.append(Alarm(**{name: fields[name] for name in names}))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _broken(file, number) from None
    return alarms


def complete_lines(file: Path) -> str:
    """Read the complete lines of a log; a last one without line end is still being written."""
    try:
        text = read_regular(file, LOG_BYTES).decode(errors="replace")
    except OSError as error:
        raise type(error)(
            f"{file} cannot be read ({error.strerror}): take it away to go on."
        ) from error
    return text[: text.rfind("\n") + 1]


def _broken(file: Path, line: int) -> ValueError:
    return ValueError(f"{file} is broken in line {line}: mend it, or take it away to go on.")

"""attention.csv and alarms.jsonl: statistics of the heads during training."""

import csv
import dataclasses
import io
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from rich.console import Console
from torch import nn

from glasshead.guarded_file import LOG_BYTES, read_regular
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training.hardware import by_the_first
from glasshead.tasks.training.module import TaskModule
from glasshead.tasks.training.settings import TrainingSettings
from glasshead.watching.alarms import Alarm, AlarmRule, Reading
from glasshead.watching.alarms.with_lightning import WatchedSteps

COLUMNS = ("step", "layer", "head", "entropy", "normalized_entropy", "max_score")


@dataclass(frozen=True, eq=False)
class AttentionLog:
    """What was seen of a run's heads.

    Attributes:
        readings: Of each watched step, layer by layer and head by head, in that order.
        alarms: In the order in which they were raised.
    """

    readings: list[Reading]
    alarms: list[Alarm]


def read_attention_log(folder: str | os.PathLike[str]) -> AttentionLog:
    """What `glasshead train --watch` has written into a run folder so far.

    It may be read while the run is trained: a line that is not whole yet is left out.

    Errors: a FileNotFoundError where the run was not watched; another OSError where a file cannot
    be read; a ValueError that names the file and the line where it is no such table.

    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp())
    >>> folder.write_text(folder.attention, text_of([Reading(10, "blocks.0", 1, 2.5, 0.61, 7.25)]))
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


def text_of(readings: Iterable[Reading], *, head: bool = True) -> str:
    """Readings as lines of the table, with the names of its columns above them if `head`.

    >>> print(text_of([Reading(10, "blocks.0", 1, 2.5, 0.61, 7.25)]), end="")
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
    """An alarm as a line of JSON, its sentence with it."""
    told = dataclasses.asdict(alarm) | {"sentence": alarm.sentence}
    return json.dumps(told, ensure_ascii=False) + "\n"


def _readings(file: Path) -> list[Reading]:
    names, *rows = _whole(file).splitlines() or [""]
    if rows and names != ",".join(COLUMNS):
        raise ValueError(
            f"{file} takes the columns {', '.join(COLUMNS)}, and has "
            f"{', '.join(names.split(','))[:200]}: take it away to go on."
        )
    readings = []
    for number, row in enumerate(rows, 2):
        try:
            # Line by line, as a quote that was left open is to break its own line alone.
            step, layer, head, *numbers = next(csv.reader([row]))
            entropy, share, score = map(float, numbers)
            readings.append(Reading(int(step), layer, int(head), entropy, share, score))
        except (ValueError, csv.Error, StopIteration):
            raise _broken(file, number) from None
    return readings


def _alarms(file: Path) -> list[Alarm]:
    names = [field.name for field in dataclasses.fields(Alarm)]
    alarms = []
    for number, line in enumerate(_whole(file).splitlines(), 1):
        try:
            told = json.loads(line)
            alarms.append(Alarm(**{name: told[name] for name in names}))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _broken(file, number) from None
    return alarms


def _whole(file: Path) -> str:
    """The lines that are whole: a last one without its end was cut off, or is being written."""
    try:
        text = read_regular(file, LOG_BYTES).decode(errors="replace")
    except OSError as error:
        raise type(error)(
            f"{file} cannot be read ({error.strerror}): take it away to go on."
        ) from error
    return text[: text.rfind("\n") + 1]


def _broken(file: Path, line: int) -> ValueError:
    return ValueError(f"{file} is broken in line {line}: mend it, or take it away to go on.")


# A watched step of a small model takes up to three times as long: of fewer steps that would be too
# much.
_ROWS = 4


class AttentionJournal(WatchedSteps):
    """Writes attention.csv and alarms.jsonl with every fourth row of log.csv, and tells of alarms.

    A run that goes on drops the readings of steps that are to be made again. Alarms follow from
    readings, and so does what the rule remembers: those that are kept are fed to it again.
    """

    def __init__(self, folder: RunFolder, settings: TrainingSettings, console: Console) -> None:
        super().__init__(_ROWS * settings.log_every)
        self._folder, self._console = folder, console
        self._rule = AlarmRule()

    def watched(self, pl_module: LightningModule) -> nn.Module:
        return TaskModule.of(pl_module).model

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        del pl_module
        by_the_first(trainer, lambda: self._begin(trainer.global_step))

    def read(self, trainer: Trainer, readings: list[Reading]) -> None:
        by_the_first(trainer, lambda: self._write(readings))

    def _begin(self, step: int) -> None:
        folder = self._folder
        there = read_attention_log(folder.path).readings if folder.attention.exists() else []
        kept = [reading for reading in there if reading.step <= step]
        folder.write_text(folder.attention, text_of(kept))
        folder.write_text(folder.alarms, "".join(map(line_of, self._rule.feed(kept))))

    def _write(self, readings: list[Reading]) -> None:
        folder, alarms = self._folder, self._rule.feed(readings)
        folder.append(folder.attention, text_of(readings, head=False))
        if alarms:
            folder.append(folder.alarms, "".join(map(line_of, alarms)))
            more = f" And {len(alarms) - 1} more." if len(alarms) > 1 else ""
            line = f"{alarms[0].sentence}{more}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)

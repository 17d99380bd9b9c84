"""attention.csv and alarms.jsonl: statistics of the heads during training."""

import csv
import dataclasses
import io
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from glasshead.files import LOG_BYTES, read_regular
from glasshead.tasks.run_folder import RunFolder
from glasshead.watching.alarms import Alarm, HeadReading

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


# Rows of log.csv per watched step, which takes up to three times as long in a small model.

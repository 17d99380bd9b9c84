"""Tables that have a row a key."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from glasshead.drawing import Table
from glasshead.explanation.figures import figure
from glasshead.explanation.subject import Subject


@dataclass(frozen=True)
class Column:
    """A number for each key; those of a share are worth adding up."""

    head: str
    values: Sequence[float]
    share: bool = False


def key_table(
    subject: Subject, columns: Sequence[Column], *, caption: str | None = None, total: bool = False
) -> Table:
    """Numbers by key: all keys, or those that weigh most and one row for the others together.

    Args:
        subject: Whose keys they are.
        columns: What stands behind each key.
        caption: What the table shows.
        total: Whether a last row has the sums of the shares.
    """
    say, shown = subject.say, subject.shown
    others = sorted(set(range(len(subject.key_names))) - set(shown))
    rows = [[subject.key_names[key], *(figure(c.values[key]) for c in columns)] for key in shown]
    if others:
        rows.append([say("… and {count} others", count=len(others)), *_sums(columns, others)])
    if total:
        rows.append([say("together"), *_sums(columns, range(len(subject.key_names)))])
    return Table([say("key"), *(column.head for column in columns)], rows, caption=caption)


def _sums(columns: Sequence[Column], keys: Sequence[int]) -> list[str]:
    """The sum of each share over some keys."""
    return [
        figure(fsum(column.values[key] for key in keys)) if column.share else ""
        for column in columns
    ]

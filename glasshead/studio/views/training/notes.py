"""Notes: what a picture of a training leaves out, by the names of the words that say so."""

from collections.abc import Sequence
from typing import Any

from glasshead.studio.views.training.curves import is_thinned
from glasshead.studio.views.training.rows import Rows

Note = tuple[str, dict[str, str]]


def notes_of(
    rows: Rows, heads: dict[str, Any] | None, alarms: Sequence[Any], raised: int
) -> list[Note]:
    """A word and its places for each thing that is to be said.

    Args:
        rows: Of the log.
        heads: As `heads_of` tells of them; None where the run was not watched.
        alarms: Those that are shown.
        raised: How many there are.

    >>> notes_of(Rows([], [], []), {"heads": [[0, 0]], "of_heads": 1, "columns": [], "of_steps": 0},
    ...          [], 0)
    [('training.alarms.none', {})]
    """
    notes: list[Note] = []
    if is_thinned(rows):
        notes.append(("training.thinned", {"count": _count(len(rows.steps))}))
    if heads is None:
        return notes
    if heads["of_steps"] > len(heads["columns"]):
        notes.append(("training.thinned.heads", {"count": _count(heads["of_steps"])}))
    shown, of = len(heads["heads"]), heads["of_heads"]
    if of > shown:
        notes.append(("training.heads.left_out", {"shown": _count(shown), "count": _count(of)}))
    if raised > len(alarms):
        counts = {"shown": _count(len(alarms)), "count": _count(raised)}
        notes.append(("training.alarms.some", counts))
    return notes if alarms else [*notes, ("training.alarms.none", {})]


def _count(number: int) -> str:
    """With thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u2009")

"""What there is to tell about a score."""

from collections.abc import Callable
from typing import NamedTuple

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.subject import Subject


class ScoreTelling(NamedTuple):
    """A score's formula, the same with numbers for some keys, and why it is made so."""

    formula: str
    numbers: tuple[str, ...]
    why: str


def by_key(subject: Subject, write: Callable[[list[float], list[float]], str]) -> tuple[str, ...]:
    """A line for each key that is written out: what `write` says of query and key, and the score.

    The score is the trace's own.
    """
    from_trace = subject.row("scores")
    query, keys = subject.used
    return aligned(
        [
            (
                f"s({subject.key_names[key]})",
                f"{write(query.tolist(), keys[key].tolist())} = {figure(from_trace[key])}",
            )
            for key in subject.written
        ]
    )

"""What there is to tell about a normalizer."""

from collections.abc import Callable
from typing import NamedTuple

from glasshead.explanation.figures import aligned, figure
from glasshead.explanation.subject import Subject
from glasshead.explanation.tables import Column


class NormalizerTelling(NamedTuple):
    """What a normalizer does, its formula, the same with numbers, and why it is made so.

    `columns` are its own numbers between the scores and the weights, a number for each key.
    """

    intro: tuple[str, ...]
    formula: str
    numbers: tuple[str, ...]
    why: str
    columns: tuple[Column, ...] = ()


def hidden_weight(subject: Subject, key: int) -> str:
    """The weight of a key that is not seen."""
    weight, hidden = subject.row("weights")[key], subject.say("hidden")
    return f"{figure(weight)}   ({hidden})"


def by_key(subject: Subject, write: Callable[[float], str]) -> tuple[str, ...]:
    """A line for each key that is written out: what `write` says of its score, and its weight.

    The weight is the trace's own.
    """
    scores, weights, seen = subject.row("masked"), subject.row("weights"), set(subject.seen)
    lines = []
    for key in subject.written:
        name, weight = f"p({subject.key_names[key]})", figure(weights[key])
        if key in seen:
            lines.append((name, f"{write(scores[key])} = {weight}"))
        else:
            lines.append((name, hidden_weight(subject, key)))
    return aligned(lines)

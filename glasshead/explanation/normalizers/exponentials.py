"""The exponentials of a row of scores, as softmax divides them."""

import math
from dataclasses import dataclass

from glasshead.explanation.figures import factor, figure, total
from glasshead.explanation.subject import Subject

_LARGEST = 10.0


@dataclass(frozen=True)
class Exponentials:
    """e to the power of each score, less the row's largest where powers would be large.

    Attributes:
        shift: What is taken from each score; 0 where the powers are handy as they are.
        powers: The exponentials, one a key; 0 for a hidden one.
    """

    shift: float
    powers: list[float]

    @classmethod
    def of(cls, subject: Subject) -> "Exponentials":
        scores, seen = subject.row("masked"), set(subject.seen)
        largest = max((scores[key] for key in seen), default=0.0)
        shift = largest if abs(largest) > _LARGEST and math.isfinite(largest) else 0.0
        powers = [_exp(s - shift) if key in seen else 0.0 for key, s in enumerate(scores)]
        return cls(shift, powers)

    @property
    def exponent(self) -> str:
        """What stands above e in a formula."""
        return "(s - m)" if self.shift else "s"

    def above(self, place: str) -> str:
        """The same for the score at a place."""
        return self.exponent.replace("s", place)

    def power(self, score: float) -> float:
        """One exponential."""
        return _exp(score - self.shift)

    def sum(self, sink: float = 0.0) -> float:
        """All exponentials together, with the sink's where there is one."""
        return sum([*self.powers, sink])

    def written(self, score: float) -> str:
        """One exponential with its number."""
        if self.shift:
            return f"e^({figure(score)} - {factor(self.shift)})"
        return f"e^{factor(score)}"

    def sum_written(
        self, subject: Subject, whole: float, first: tuple[tuple[str, float], ...] = ()
    ) -> tuple[str, str]:
        """The sum over the keys that are seen, of many the first, as powers and as numbers.

        Args:
            subject: Whose keys they are.
            whole: The sum.
            first: Terms that come before them, written, with their numbers.
        """
        scores = subject.row("masked")
        keys = [key for key in subject.written if key in set(subject.seen)]
        left_out = len(subject.seen) - len(keys)
        powers = [*(term for term, _ in first), *(self.written(scores[key]) for key in keys)]
        figures = [
            *(figure(value) for _, value in first),
            *(figure(self.powers[key]) for key in keys),
        ]
        say = subject.say
        return (
            f"Σ = {total(powers, say, left_out)}",
            f"  = {total(figures, say, left_out)} = {figure(whole)}",
        )

    def remark(self, subject: Subject) -> tuple[str, ...]:
        """Why the largest score was taken away, where it was."""
        if not self.shift:
            return ()
        sentence = subject.say(
            "These scores are far from 0, so the powers of e would be unwieldy; the largest score, "
            "m = {largest}, is therefore first subtracted from all of them, as computers always "
            "do. That changes no weight, for it divides every power, and so their sum, by the same "
            "number.",
            largest=figure(self.shift),
        )
        return (sentence,)


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf

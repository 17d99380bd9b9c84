"""What decoding gives: texts, as tokens, with their scores."""

from dataclasses import dataclass
from typing import NamedTuple


class Chosen(NamedTuple):
    """One token of a stream.

    Attributes:
        row: The row of the prompt that it goes on.
        token: The token.
        log_probability: Of the token, given those before it, in nats.
    """

    row: int
    token: int
    log_probability: float


@dataclass(frozen=True)
class Hypothesis:
    """One text for one row.

    Attributes:
        tokens: The tokens, without those of the prompt and without the end.
        score: By which it was ranked: the log-probability, or for a beam the penalised one.
        log_probability: Σ ln p(token | those before), that of the end with it, in nats.
        ended: Whether the end was chosen, or the text was cut off after `max_tokens`.
    """

    tokens: list[int]
    score: float
    log_probability: float
    ended: bool


@dataclass(frozen=True)
class Generated:
    """The texts of all rows, in the order of the prompt.

    Attributes:
        alternatives: For each row its texts, the best first: one, or the `candidates` of a beam.

    >>> one, other = Hypothesis([4, 2], -1.0, -1.0, True), Hypothesis([4], -1.5, -1.5, True)
    >>> generated = Generated([[one, other]])
    >>> generated.tokens, generated.scores, generated.ended
    ([[4, 2]], [-1.0], [True])
    """

    alternatives: list[list[Hypothesis]]

    @property
    def tokens(self) -> list[list[int]]:
        """The best text of each row, without the prompt and without the end."""
        return [best.tokens for best, *_ in self.alternatives]

    @property
    def scores(self) -> list[float]:
        """The score of each of these, in nats; for a beam divided by the length penalty."""
        return [best.score for best, *_ in self.alternatives]

    @property
    def ended(self) -> list[bool]:
        """Whether each of these came to its end, or was cut off."""
        return [best.ended for best, *_ in self.alternatives]

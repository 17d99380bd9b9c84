"""The texts of one row that a beam search has finished."""

from collections.abc import Callable, Sequence

from glasshead.models.decoding.generated import Hypothesis


class Finished:
    """The texts of one row: those that ended, and those cut off, by falling score.

    Args:
        width: After how many that ended open texts are judged as they stand.
        candidates: How many are wanted.
        penalty: By which the log-probability of a text of so many tokens is divided.
    """

    def __init__(self, width: int, candidates: int, penalty: Callable[[int], float]) -> None:
        self._width, self._candidates, self._penalty = width, candidates, penalty
        self._ended: list[Hypothesis] = []
        self._cut_off: list[Hypothesis] = []

    def end(self, tokens: Sequence[int], log_probability: float) -> None:
        """A text that ended; its end is not among the tokens, and counts."""
        score = log_probability / self._penalty(len(tokens) + 1)
        self._ended.append(Hypothesis(list(tokens), score, log_probability, ended=True))
        # Stable: of equal ones the text found first stays first.
        self._ended.sort(key=lambda text: -text.score)

    def cut_off(self, tokens: Sequence[int], log_probability: float) -> None:
        """A text that has as many tokens as are allowed; given by falling log-probability."""
        score = log_probability / self._penalty(len(tokens))
        self._cut_off.append(Hypothesis(list(tokens), score, log_probability, ended=False))

    def suffices(self, now: float, bound: float) -> bool:
        """Whether no open text is wanted any more.

        Args:
            now: The score of the best open text, if it ended here.
            bound: The highest score that an open text can end with.
        """
        if len(self._ended) < self._candidates:
            return False
        least = self._ended[self._candidates - 1].score
        return (now if len(self._ended) >= self._width else bound) <= least

    def best(self) -> list[Hypothesis]:
        """The best, as many as are wanted or there are; those that ended come first."""
        return [*self._ended, *self._cut_off][: self._candidates]

"""Beam search."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.models.decoding.generation import (
    Generated,
    Hypothesis,
    NextTokens,
    Request,
    Strategy,
    Turn,
)
from glasshead.models.decoding.strategies import largest
from glasshead.recipe.validation import finite, whole_number


class Finished:
    """The finished hypotheses of one row, ended or cut off, by descending score.

    Args:
        width: Number of ended texts after which open ones are judged by their current score.
        candidates: Number of texts to return.
        penalty: Divisor of the log-probability, by the length of the text.
    """

    def __init__(self, width: int, candidates: int, penalty: Callable[[int], float]) -> None:
        self._width, self._candidates, self._penalty = width, candidates, penalty
        self._ended: list[Hypothesis] = []
        self._cut_off: list[Hypothesis] = []

    def end(self, tokens: Sequence[int], log_probability: float) -> None:
        """Add a text that ended; the end token is not in `tokens`, but counts to its length."""
        score = log_probability / self._penalty(len(tokens) + 1)
        self._ended.append(Hypothesis(list(tokens), score, log_probability, ended=True))
        # Stable: of equal ones the text found first stays first.
        self._ended.sort(key=lambda text: -text.score)

    def cut_off(self, tokens: Sequence[int], log_probability: float) -> None:
        """Add a text of maximum length; texts are added by descending log-probability."""
        score = log_probability / self._penalty(len(tokens))
        self._cut_off.append(Hypothesis(list(tokens), score, log_probability, ended=False))

    def suffices(self, now: float, bound: float) -> bool:
        """Return whether no open text can enter the results any more.

        Args:
            now: Score of the best open text, if it ended here.
            bound: Upper bound of the score of an open text.
        """
        if len(self._ended) < self._candidates:
            return False
        least = self._ended[self._candidates - 1].score
        return (now if len(self._ended) >= self._width else bound) <= least

    def best(self) -> list[Hypothesis]:
        """Return the best `candidates` texts, or fewer; ended ones first."""
        return [*self._ended, *self._cut_off][: self._candidates]


class BeamTexts(NamedTuple):
    """The beams of each row, by descending log-probability.

    Attributes:
        tokens: Tokens chosen so far.
        sums: Log-probabilities; -inf for an empty beam.
        parents: Index of the beam of the previous step that each extends.
    """

    tokens: Int[Tensor, "rows texts length"]
    sums: Float[Tensor, "rows texts"]
    parents: Int[Tensor, "rows texts"]

    def select(self, places: Int[Tensor, "rows some"]) -> "BeamTexts":
        """Select beams of each row by index."""
        tokens = self.tokens.gather(1, places[..., None].expand(-1, -1, self.tokens.shape[-1]))
        return BeamTexts(tokens, self.sums.gather(1, places), self.parents.gather(1, places))


def _nothing_yet(rows: int) -> BeamTexts:
    return BeamTexts(
        tokens=torch.empty(rows, 1, 0, dtype=torch.long),
        sums=torch.zeros(rows, 1, dtype=torch.float64),
        parents=torch.zeros(rows, 1, dtype=torch.long),
    )


def _extended(texts: BeamTexts, following: NextTokens, width: int, ends: int) -> BeamTexts:
    """Extend the texts by one token, best first: enough that `width` of them do not end."""
    rows, beams, _ = texts.tokens.shape
    # At most `ends` tokens end a text, so that `width` others remain.
    logits, tokens = largest(following.logits, width + ends)
    steps = following.log_probabilities(logits).reshape(rows, beams, -1)
    sums = (texts.sums[..., None] + steps).flatten(1)
    # Stable: among equal sums the better text comes first, and within a text the lower token.
    sums, order = sums.sort(descending=True, stable=True)
    # At most `ends · width` texts end, `ends` for each that was open.
    most = width + ends * width
    sums, order = sums[:, :most], order[:, :most]
    parents = order // steps.shape[-1]
    chosen = tokens.cpu().reshape(rows, -1).gather(1, order)
    return BeamTexts(
        torch.cat([texts.select(parents).tokens, chosen[..., None]], -1), sums, parents
    )


def _still_open(extended: BeamTexts, ends: Bool[Tensor, "rows texts"], width: int) -> BeamTexts:
    """Select the best `width` texts of each row that did not end, or all of them."""
    closed = ends | extended.sums.isneginf()
    most = int((~closed).sum(1).max())
    places = closed.long().sort(dim=1, stable=True).indices[:, : min(max(most, 1), width)]
    empty = closed.gather(1, places)
    # Empty beams repeat the best text, so that the model is never fed one that ended.
    texts = extended.select(torch.where(empty, places[:, :1], places))
    return texts._replace(sums=texts.sums.masked_fill(empty, -torch.inf))


def _collect_ended(
    extended: BeamTexts, ends: Bool[Tensor, "rows width"], finished: Sequence[Finished]
) -> None:
    found = ends & ~extended.sums[:, : ends.shape[1]].isneginf()
    for row, place in found.nonzero().tolist():
        *tokens, _ = extended.tokens[row, place].tolist()
        finished[row].end(tokens, float(extended.sums[row, place]))


def _collect_cut_off(texts: BeamTexts, finished: Sequence[Finished]) -> None:
    for row, place in (~texts.sums.isneginf()).nonzero().tolist():
        finished[row].cut_off(texts.tokens[row, place].tolist(), float(texts.sums[row, place]))


# Beyond any use, and without overflow for any length.
_LARGEST_PENALTY = 10.0
# Each text of a beam has a cache of its own.
_WIDEST = 1024


@dataclass(frozen=True)
class Beam(Strategy):
    """argmax_Y ln p(Y) / lp(Y), with lp(Y) = ((5 + |Y|) / 6)^length_penalty, by beam search.

    At each step every open text is extended by every token, and the `width` likeliest extensions
    by ln p are considered. The ones that end are finished; the likeliest `width` that do not
    end stay open. |Y| counts the chosen tokens, the end token included. Among equals, the token of
    the better text comes first, then the lower token. A width of 1 is `Greedy()`; one that prunes
    nothing finds the optimum.

    A row is done when no open text can still beat the best `candidates` finished ones: ln p only
    falls, and lp is at most that of `max_tokens`, so that an open text ends with at most
    ln p / lp(max_tokens). Once `width` texts have finished, it is done when no open text beats the
    best `candidates` by its current score: a text that is far ahead is not given up for short ones
    that ended early. Texts cut off after `max_tokens` rank after those that ended.

    Args:
        width: Beam width, 1024 at most.
        length_penalty: Exponent of the length penalty, from 0, ln p alone, to 10; larger values
            favor longer texts.
        candidates: Number of texts to return per row, in `Generated.alternatives`.

    Errors: a TypeError or ValueError for numbers out of these ranges.

    Source: Wu et al. 2016 (Google's neural machine translation system), section 7, equation 14,
    without its coverage penalty; Vaswani et al. 2017, section 6.1, take width 4 and penalty 0.6.

    >>> from types import SimpleNamespace
    >>> import torch
    >>> from glasshead.models.decoding import Greedy, generate
    >>> start, end = [0.0, 0.6, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0]           # a Markov chain
    >>> p = torch.tensor([start, [0.0, 0.4, 0.3, 0.3], [0.0, 0.0, 0.1, 0.9], end])
    >>> chain = SimpleNamespace(next=lambda x: p[x[:, -1]].log(), reorder=lambda rows: None)
    >>> prompt = torch.tensor([[0]])
    >>> generate(chain, prompt, Greedy(), max_tokens=2, end=3).tokens
    [[1, 1]]
    >>> best = generate(chain, prompt, Beam(2), max_tokens=2, end=3)
    >>> best.tokens, best.ended
    ([[2]], [True])
    """

    width: int
    length_penalty: float = 1.0
    _: KW_ONLY
    candidates: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "width", whole_number(self.width, "Beam(width)", least=1, most=_WIDEST)
        )
        name = "Beam(length_penalty=…)"
        if not 0 <= finite(self.length_penalty, name) <= _LARGEST_PENALTY:
            raise ValueError(
                f"{name} must be a number from 0 to {_LARGEST_PENALTY:g}, got "
                f"{self.length_penalty!r}."
            )
        object.__setattr__(self, "length_penalty", float(self.length_penalty))
        candidates = whole_number(self.candidates, "Beam(candidates=…)", least=1)
        if candidates > self.width:
            raise ValueError(
                f"Beam(candidates=…) must be at most the width, {self.width}, got {candidates}. "
                "Widen the beam."
            )
        object.__setattr__(self, "candidates", candidates)

    def penalty(self, length: int) -> float:
        """Return lp of a text of `length` tokens.

        >>> Beam(4, length_penalty=0.6).penalty(1), Beam(4).penalty(7)
        (1.0, 2.0)
        """
        return ((5 + length) / 6) ** self.length_penalty

    @torch.no_grad()
    def decode(self, request: Request) -> Generated:
        count = len(request.prompt)
        finished = [Finished(self.width, self.candidates, self.penalty) for _ in range(count)]
        rows, texts, fed = list(range(count)), _nothing_yet(count), request.prompt
        while rows:
            following = request.next(fed)
            fed_rows, fed_beams = texts.sums.shape
            extended = _extended(texts, following, self.width, len(request.ends))
            ends = torch.isin(
                extended.tokens[..., -1], torch.tensor(request.ends, dtype=torch.long)
            )
            _collect_ended(extended, ends[:, : self.width], [finished[row] for row in rows])
            texts = _still_open(extended, ends, self.width)
            if texts.tokens.shape[-1] == request.max_tokens:
                _collect_cut_off(texts, [finished[row] for row in rows])
                break
            sums = texts.sums[:, 0].tolist()
            now, last = self.penalty(texts.tokens.shape[-1]), self.penalty(request.max_tokens)
            kept = [
                place
                for place, (row, best) in enumerate(zip(rows, sums, strict=True))
                if best > -torch.inf and not finished[row].suffices(best / now, best / last)
            ]
            rows = [rows[place] for place in kept]
            texts = BeamTexts(*(part[kept] for part in texts))
            if rows:
                device = following.logits.device
                parents = (torch.tensor(kept)[:, None] * fed_beams + texts.parents).flatten()
                # Skip the identity, which would copy the cache for nothing.
                if parents.tolist() != list(range(fed_rows * fed_beams)):
                    request.steps.reorder(parents.to(device))
                fed = texts.tokens[..., -1].reshape(-1, 1).to(device, fed.dtype)
        return Generated([texts.best() for texts in finished])

    def turns(self, request: Request) -> Iterator[Turn]:
        raise ValueError(
            "stream needs a strategy that chooses token by token, Greedy() or Sampling(), got "
            f"{self!r}. Call generate(), which returns the whole text."
        )

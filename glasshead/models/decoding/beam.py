"""Beam search: several texts side by side, the best of which wins."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from glasshead.models.decoding.beam_search import beam_search
from glasshead.models.decoding.generated import Generated
from glasshead.models.decoding.request import Request
from glasshead.models.decoding.strategy import Strategy, Turn
from glasshead.recipe.validation import finite, whole_number

# Far beyond any use, and no power of a length overflows.
_LARGEST_PENALTY = 10.0
# Each text of a beam has a cache of its own.
_WIDEST = 1024


@dataclass(frozen=True)
class Beam(Strategy):
    """argmax_Y ln p(Y) / lp(Y), with lp(Y) = ((5 + |Y|) / 6)^length_penalty, over what is searched.

    At each step every open text is gone on with every token, and the `width` likeliest by ln p are
    looked at. Those among them that end are finished; the likeliest `width` that do not end stay
    open. |Y| counts the tokens chosen, that of the end with them. Among equals, the token of the
    better text comes first, then the lower token. A width of 1 is `Greedy()`; one that nothing
    falls out of finds the optimum.

    A row is done when no open text can still come before the best `candidates` finished ones: ln p
    only falls, and lp is at most that of `max_tokens`, so that an open text ends at
    ln p / lp(max_tokens) at best. Once `width` texts have finished, it is done when no open text
    comes before the best `candidates` as it stands: a text that is far ahead is not given up for
    short ones that ended early. Texts that were cut off after
    `max_tokens` come after those that ended.

    Args:
        width: How many texts stay open, 1024 at most.
        length_penalty: From 0, ln p alone, up to 10; the more, the longer the texts.
        candidates: How many texts are wanted of a row, in `Generated.alternatives`.

    Errors: a TypeError or ValueError for numbers out of these ranges.

    Source: Wu et al. 2016 (Google's neural machine translation system), section 7, equation 14,
    without its coverage penalty; Vaswani et al. 2017, section 6.1, take width 4 and penalty 0.6.

    >>> import torch
    >>> from glasshead.models.decoding import Greedy, generate
    >>> from glasshead.models.decoding.chain import Chain
    >>> start, end = [0.0, 0.6, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0]
    >>> chain = Chain([start, [0.0, 0.4, 0.3, 0.3], [0.0, 0.0, 0.1, 0.9], end])
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
                f"{name} takes a number from 0 to {_LARGEST_PENALTY:g}, "
                f"and got {self.length_penalty!r}."
            )
        object.__setattr__(self, "length_penalty", float(self.length_penalty))
        wanted = whole_number(self.candidates, "Beam(candidates=…)", least=1)
        if wanted > self.width:
            raise ValueError(
                f"Beam(candidates=…) takes at most the width, {self.width}, and got {wanted}: "
                "widen the beam."
            )
        object.__setattr__(self, "candidates", wanted)

    def penalty(self, length: int) -> float:
        """lp of a text of `length` tokens.

        >>> Beam(4, length_penalty=0.6).penalty(1), Beam(4).penalty(7)
        (1.0, 2.0)
        """
        return ((5 + length) / 6) ** self.length_penalty

    def decode(self, request: Request) -> Generated:
        return beam_search(
            request, width=self.width, candidates=self.candidates, penalty=self.penalty
        )

    def turns(self, request: Request) -> Iterator[Turn]:
        del request
        raise ValueError(
            f"stream takes a strategy that chooses token by token, Greedy() or Sampling(), and got "
            f"{self!r}, which knows no token before the whole text: call generate()."
        )

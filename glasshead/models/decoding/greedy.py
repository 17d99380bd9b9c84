"""The likeliest token at each step."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from glasshead.models.decoding.request import NextTokens, Request
from glasshead.models.decoding.strategy import Choose, OneByOne


@dataclass(frozen=True)
class Greedy(OneByOne):
    """token_t = argmax_v p(v | the tokens before t); of equal ones the lower token.

    >>> from glasshead.models.decoding import generate
    >>> from glasshead.models.decoding.chain import Chain
    >>> import torch
    >>> chain = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> generate(chain, torch.tensor([[0]]), Greedy(), max_tokens=4).tokens
    [[1, 2, 0, 1]]
    """

    def chooser(self, request: Request) -> Choose:
        del request
        return likeliest


def likeliest(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, "rows"]:
    """The likeliest token of each row."""
    del rows
    # The first of equal ones, as `argmax` promises.
    return following.logits.argmax(-1)

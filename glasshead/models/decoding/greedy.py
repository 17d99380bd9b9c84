"""The likeliest token at each step."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.models.decoding.repetition import checked_penalty, penalizing
from glasshead.models.decoding.request import NextTokens, Request
from glasshead.models.decoding.strategy import Choose, OneByOne


@dataclass(frozen=True)
class Greedy(OneByOne):
    """token_t = argmax_v p(v | the tokens before t); of equal ones the lower token.

    Args:
        repetition_penalty: What the logits of tokens that stand in the row already, the prompt with
            it, are divided by where positive and multiplied by where negative.

    Errors: a TypeError or ValueError where the penalty is no number above 0.

    Source: Keskar et al. 2019 (CTRL), section 4.1, for the penalty.

    >>> from glasshead.models.decoding import generate
    >>> from glasshead.models.decoding.chain import Chain
    >>> import torch
    >>> chain = Chain([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.4, 0.2]])
    >>> generate(chain, torch.tensor([[0]]), Greedy(), max_tokens=4).tokens
    [[1, 2, 0, 1]]
    """

    _: KW_ONLY
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        penalty = checked_penalty(self.repetition_penalty, "Greedy")
        object.__setattr__(self, "repetition_penalty", penalty)

    def chooser(self, request: Request) -> Choose:
        return penalizing(likeliest, self.repetition_penalty, request)


def likeliest(following: NextTokens, rows: Sequence[int]) -> Int[Tensor, "rows"]:
    """The likeliest token of each row."""
    del rows
    logits = following.logits
    # The first of equal ones, as both promise; on the CPU NumPy's is several times as fast.
    return (
        torch.from_numpy(logits.detach().numpy().argmax(-1)) if logits.is_cpu else logits.argmax(-1)
    )

"""How the tokens are chosen: what all strategies share, and those that choose one by one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.models.decoding.generated import Generated, Hypothesis
from glasshead.models.decoding.request import NextTokens, Request

# The token of each row that is still open; the rows are told by their place in the prompt.
Choose = Callable[[NextTokens, Sequence[int]], Int[Tensor, "rows"]]


class Turn(NamedTuple):
    """One step of the rows that were still open."""

    rows: list[int]
    tokens: list[int]
    log_probabilities: list[float]


class Strategy(ABC):
    """A way to choose the tokens of a text."""

    @abstractmethod
    def decode(self, request: Request) -> Generated:
        """The texts."""

    @abstractmethod
    def turns(self, request: Request) -> Iterator[Turn]:
        """The steps as they come.

        Errors: a ValueError, at once, where a token is known only when the whole text is.
        """


class OneByOne(Strategy):
    """A strategy that chooses each token for good before it sees the next one."""

    @abstractmethod
    def chooser(self, request: Request) -> Choose:
        """What chooses, for one text of each row, from the first token to the last."""

    def decode(self, request: Request) -> Generated:
        count = len(request.prompt)
        tokens: list[list[int]] = [[] for _ in range(count)]
        sums = [0.0] * count
        ended = [False] * count
        for turn in self.turns(request):
            for row, token, log_probability in zip(*turn, strict=True):
                sums[row] += log_probability
                if token in request.ends:
                    ended[row] = True
                else:
                    tokens[row].append(token)
        texts = zip(tokens, sums, sums, ended, strict=True)
        return Generated([[Hypothesis(*text)] for text in texts])

    # As a decorator, which leaves the caller's own gradient mode alone between two steps.
    @torch.no_grad()
    def turns(self, request: Request) -> Iterator[Turn]:
        choose = self.chooser(request)
        rows, fed = list(range(len(request.prompt))), request.prompt
        for length in range(1, request.max_tokens + 1):
            if not rows:
                return
            following = request.next(fed)
            chosen = choose(following, rows)
            turn = Turn(rows, chosen.tolist(), following.of_chosen(chosen))
            yield turn
            open_ = [place for place, token in enumerate(turn.tokens) if token not in request.ends]
            if len(open_) < len(rows):
                kept = torch.tensor(open_, device=chosen.device, dtype=torch.long)
                rows, chosen = [rows[place] for place in open_], chosen[kept]
                if rows and length < request.max_tokens:
                    request.steps.reorder(kept)
            fed = chosen[:, None].to(request.prompt.dtype)

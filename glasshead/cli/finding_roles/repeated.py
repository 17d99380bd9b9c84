"""Repeated: the random tokens of the standard test, as a model can read them."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

import glasshead as gh
from glasshead.tasks.readers.base import Reader

# As Olsson et al. 2022 have it.
_PERIOD, _TIMES = 25, 4
_ROWS = 8


@dataclass(frozen=True, eq=False)
class Repeated:
    """Random tokens and the same again.

    Attributes:
        tokens: What the model reads.
        period: How many tokens are repeated.
        times: How often they stand there.
    """

    tokens: Int[Tensor, "rows length"]
    period: int
    times: int

    @property
    def said(self) -> str:
        """What it is, in words."""
        rows, length = self.tokens.shape
        return (
            f"{rows} texts of {length} tokens: {self.period} at random, none of them special or "
            f"twice, and the same again, {self.times} times in all."
        )


def repeated(reader: Reader, asked: int | None, seed: int) -> Repeated:
    """Texts of repeated tokens, within what the model knows and reads at once.

    Errors: a ValueError where there is no room for two periods, or too few tokens to draw from.
    """
    before, after = reader.around
    # Where a text begins with nothing of its own, another text has just ended.
    before = before or reader.ending[:1]
    room = None if reader.context is None else reader.context - len(before) - len(after)
    known = len(reader.ordinary)
    most = known if room is None else min(known, room // 2)
    if most < 2:
        reads = "" if room is None else f" and reads {reader.context} at once"
        raise ValueError(
            f"the test repeats two tokens at least, and {reader.name} knows {known}{reads}: name "
            f"another model."
        )
    if asked is not None and asked > most:
        raise ValueError(
            f"--period takes at most {most} tokens, and got {asked}: {reader.name} knows "
            f"{known:,}, and two periods stand in what it reads at once."
        )
    period = asked or min(_PERIOD, most)
    times = _TIMES if room is None else min(_TIMES, room // period)
    places = gh.repeated_random_tokens(known, period, _ROWS, seed, times=times)
    drawn = torch.tensor(reader.ordinary)[places]
    sides = (torch.tensor(side, dtype=torch.long).expand(_ROWS, -1) for side in (before, after))
    first, last = sides
    return Repeated(torch.cat([first, drawn, last], 1), period, times)

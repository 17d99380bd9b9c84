"""Repeating: the text of the standard test for induction heads."""

from collections.abc import Collection

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.recipe.validation import whole_number

# Beyond any model's vocabulary for a thousand texts, and some seconds to draw.
_MOST = 2**28


def repeated_random_tokens(
    vocab_size: int,
    period: int,
    rows: int = 1,
    seed: int = 0,
    *,
    begin: int | None = None,
    times: int = 4,
    avoid: Collection[int] = (),
) -> Int[Tensor, "rows length"]:
    """Random tokens, all distinct, and the same again: [begin], x_1 … x_p, x_1 … x_p, …

    As the tokens are random, nothing but an earlier period tells what comes next: a head that
    finds it there is an induction head, and no knowledge of a language helps. The global random
    numbers stay as they are.

    Args:
        vocab_size: Tokens are drawn from 0 to below it.
        period: How many are drawn.
        rows: How many texts, each of its own tokens.
        seed: Of the draw.
        begin: The token that a text begins with, which is not drawn; None: none.
        times: How often the period stands there.
        avoid: Tokens that are not drawn, such as special ones.

    Errors: a TypeError or ValueError where these are not whole numbers in their ranges, the period
    stands there less than twice, or there are fewer tokens to draw from than a period has.

    Source: Olsson et al. 2022 (In-context learning and induction heads), "Head activation
    evaluators": 25 random tokens, repeated four times after a start-of-sequence token. There they
    may recur within a period; distinct ones have one place each that a query may find.

    >>> repeated_random_tokens(vocab_size=11, period=3, rows=2, begin=0, times=2)
    tensor([[ 0,  ...
    """
    name = "repeated_random_tokens({})".format
    vocab_size = whole_number(vocab_size, name("vocab_size"), least=1)
    period, rows = (
        whole_number(given, name(called), least=1)
        for given, called in ((period, "period"), (rows, "rows"))
    )
    times = whole_number(times, name("times"), least=2)
    tokens = max(vocab_size, vocab_size * rows, rows * period * times)
    if tokens > _MOST:
        raise ValueError(
            f"repeated_random_tokens makes at most {_MOST} numbers, and would make {tokens}: ask "
            "for fewer rows, or a smaller vocabulary."
        )
    seed = whole_number(seed, name("seed"))
    first = [] if begin is None else [whole_number(begin, name("begin"))]
    banned = {whole_number(token, name("avoid")) for token in (*avoid, *first)}
    drawn_from = torch.tensor([token for token in range(vocab_size) if token not in banned])
    if len(drawn_from) < period:
        raise ValueError(
            f"repeated_random_tokens draws {period} distinct tokens, and there are "
            f"{len(drawn_from)} to draw from: take a shorter period."
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(len(drawn_from), generator=generator) for _ in range(rows)])
    repeated = drawn_from[order[:, :period]].repeat(1, times)
    return torch.cat([torch.tensor(first, dtype=torch.long).expand(rows, -1), repeated], 1)

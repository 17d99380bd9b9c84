"""Reading: what one head did in one step of training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.watching.seen import Seen
from glasshead.watching.watched import Watched

# So that a number is the same before and after it was written down.
_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Reading:
    """What one head did in one step.

    Attributes:
        step: Of training, counted from 1; it is read before the step changes the weights.
        layer: The name of its attention.
        head: Its number, from 0.
        entropy: mean_i H_i, in nats, over the queries that see two keys or more.
        normalized_entropy: Σ_i H_i / Σ_i ln n_i over the same queries, n_i being the keys that
            query i sees: 1 where weight lies alike on all of them, 0 where each has one key; 1
            where no query sees two.
        max_score: max_ij s_ij, what the softmax was given; -inf where nothing was visible.
    """

    step: int
    layer: str
    head: int
    entropy: float
    normalized_entropy: float
    max_score: float


def readings_of(watched: Mapping[str, Watched], step: int) -> list[Reading]:
    """The readings of a watch that asked for `entropy`, `visible_keys` and `max_score`.

    >>> import glasshead as gh
    >>> from glasshead.watching.alarms import VisibleKeys
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 4)
    >>> with gh.watch(rule, [gh.Entropy(), VisibleKeys(), gh.MaxScore()]) as seen:
    ...     context = rule(x, x, x)
    >>> readings_of(seen, step=7)[1]         # (ln 2 + ln 3) / 2 nats: as much as there can be
    Reading(step=7, layer='', head=1, entropy=0.8958797, normalized_entropy=1.0, max_score=0.0)
    """
    return [
        Reading(step, name, head, *map(_rounded, numbers))
        for name, one in (watched.layers if isinstance(watched, Seen) else watched).items()
        for head, numbers in enumerate(_of_heads(one))
    ]


def _of_heads(watched: Watched) -> list[list[float]]:
    """Entropy, normalized entropy and maximum score of each head, over all calls."""
    entropies, most, queries, scores = [], [], [], []
    for call in watched:
        headed = len(call.shape) > 2
        seen = _heads_last(call.visible_keys.double(), headed)
        counts = seen > 1
        if call.real is not None:
            counts &= call.real.reshape(-1, 1)
            seen = seen.where(counts, 1.0)
        entropies.append(_heads_last(call.entropy.double(), headed).where(counts, 0.0).sum(0))
        most.append(seen.clamp(min=1).log().sum(0))
        queries.append(counts.sum(0))
        score = call.max_score.double()
        score = score.reshape(-1, score.shape[-1] if headed else 1)
        # A batch may be empty.
        scores.append(torch.cat([score, score.new_full((1, score.shape[1]), -torch.inf)]).amax(0))
    entropy, possible, count = (torch.stack(x).sum(0) for x in (entropies, most, queries))
    mean = entropy / count.clamp(min=1)
    share = (entropy / possible).where(possible > 0, 1.0)
    return torch.stack([mean, share, torch.stack(scores).amax(0)], -1).tolist()


def _heads_last(value: Tensor, headed: bool) -> Float[Tensor, "numbers heads"]:
    """What is a number a query as a column for each head; texts without heads have one."""
    return value.movedim(-2, -1).flatten(0, -2) if headed else value.reshape(-1, 1)


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else number

"""The alarm rule: which readings of a head announce a divergence."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.recipe.masks.base import split
from glasshead.recipe.problem import Problem, Trace
from glasshead.recipe.tile import Span, Tile
from glasshead.recipe.validation import positive, whole_number
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import Reduction
from glasshead.watching.layer_record import Watched
from glasshead.watching.seen import Seen

# Queries whose pairs are asked one by one at once, where a mask is no range of keys.
_ROWS = 256


@dataclass(frozen=True)
class VisibleKeys(Statistic):
    """n_i = Σ_j [key j is visible to query i], `[..., queries]`, a number of keys.

    ln n_i is the largest entropy that query i can have. Neither weights nor scores are read: of a
    mask that shows each query one range of keys it is two numbers a query.

    >>> import glasshead as gh
    >>> x = torch.zeros(3, 1)
    >>> VisibleKeys().of(gh.Attention(mask=gh.causal()).trace(x, x, x))
    tensor([1, 2, 3])
    """

    unit = "keys"
    axes = ("query",)

    def of(self, trace: Trace) -> Int[Tensor, "*leading queries"]:
        return (trace.masked != -torch.inf).sum(-1)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        return ()

    def finish(
        self, problem: Problem, *reduced: tuple[Tensor, ...]
    ) -> Int[Tensor, "*batch heads queries"]:
        del reduced
        queries = problem.scores_shape[-2]
        counts = [
            _count(
                problem, replace(problem.tile(), queries=Span(start, min(start + _ROWS, queries)))
            )
            for start in range(0, max(1, queries), _ROWS)
        ]
        return torch.cat(counts, -1)

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat([first, second], -1)


def _count(problem: Problem, tile: Tile) -> Int[Tensor, "*batch heads queries"]:
    """How many keys each query of a tile sees."""
    rows, keys = tile.shape
    shape = (*problem.scores_shape[:-2], rows)
    intervals, rest = split(problem.mask, tile)
    if rest is None and not problem.biases:
        if intervals is None:
            return torch.full(shape, keys, device=tile.device)
        return (intervals.stops - intervals.starts)[..., 0].expand(shape)
    _, visible = problem.bias_and_visible(problem.mask, tile)
    if visible is None:
        return torch.full(shape, keys, device=tile.device)
    return visible.expand(*shape, keys).sum(-1)


# So that a number is the same before and after it was written down.
_DIGITS = 7


@dataclass(frozen=True, slots=True)
class HeadReading:
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


def readings_of(watched: Mapping[str, Watched], step: int) -> list[HeadReading]:
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
        HeadReading(step, name, head, *map(_rounded, numbers))
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


Kind = Literal["entropy_collapse", "maximum_logit"]

_REMEDY = "lower the learning rate, warm up for longer, or normalise queries and keys"


@dataclass(frozen=True, slots=True)
class Alarm:
    """A head beyond a threshold.

    Attributes:
        step: Of training.
        layer: The name of its attention.
        head: Its number, from 0.
        kind: "entropy_collapse" or "maximum_logit".
        value: Its normalized entropy, or its maximum score.
        threshold: What that fell below, or rose above.

    >>> print(Alarm(40, "blocks.0.attention", 2, "maximum_logit", 131.2, 100.0).sentence)
    step 40: the maximum score of head 2 in blocks.0.attention is 131, above 100: lower the learning
    rate, warm up for longer, or normalise queries and keys.
    """

    step: int
    layer: str
    head: int
    kind: Kind
    value: float
    threshold: float

    @property
    def sentence(self) -> str:
        """What it is, and what to do, for a person."""
        where = f"head {self.head} in {self.layer or 'the model'}"
        if self.kind == "entropy_collapse":
            said = (
                f"the entropy of {where} is {self.value:.2g} of what it can be, below "
                f"{self.threshold:.2g}"
            )
        else:
            said = f"the maximum score of {where} is {self.value:.3g}, above {self.threshold:.3g}"
        return f"step {self.step}: {said}: {_REMEDY}."


# Scores of 10⁴ and more go with divergence: Wortsman et al. 2023, section 3. Wherever a run begins,
# it is not to go there unnoticed.
_CEILING = 1e4
# Heads that look at one key were seen to be well with scores up to half of M.
_SHARP = 0.75


@dataclass
class _Head:
    """What is remembered of a head.

    Attributes:
        entropy, max_score: Of its first reading.
        beyond: How many readings in a row were beyond the threshold, by kind.
        raised: The kinds that were raised.
    """

    entropy: float
    max_score: float
    beyond: dict[str, int]
    raised: list[str]


class AlarmRule:
    """Says of readings which heads are about to let a training diverge, each kind once a head.

    With m = max_ij s_ij of a head, h = Σ_i H_i / Σ_i ln n_i its normalized entropy, and m₁, h₁
    those of its first reading:

    - maximum logit: m > min(max(M, g · m₁), 10⁴);
    - entropy collapse: h < min(η, h₁ / g) and m > 3/4 M.

    Either is to hold in `patience` readings, one after another. A head that has learned to look at
    one key has a low entropy as well, and is well: its scores need to differ by ln(n / ε) alone to
    leave ε of the weight to n others, 16 for a thousand keys and ε = 10⁻⁴, so that it stays
    below 3/4 M. What is not finite is passed over: the loss tells of it.

    Args:
        score: M, the largest score that is not yet an alarm.
        entropy: η, the normalized entropy below which a head has collapsed.
        growth: g, what a head may grow by that was beyond them from the beginning, as those of a
            trained model may be.
        patience: In how many readings, one after another, it is to be so.

    Errors: a ValueError or TypeError where one of them is no such number.

    Source: Zhai et al. 2023 (Stabilizing transformer training by preventing attention entropy
    collapse), section 3, of the entropy; Dehghani et al. 2023 (Scaling vision transformers to 22
    billion parameters), section 2, and Wortsman et al. 2023 (Small-scale proxies for large-scale
    transformer training instabilities), section 3.1, of the scores; M = 100 is the threshold of
    Kimi Team 2025 (Kimi K2), section 2.1. η, g, the patience and 3/4 M are ours.

    >>> rule = AlarmRule()
    >>> for step, score in ((1, 0.3), (10, 24.0), (20, 130.0), (30, 180.0), (40, 250.0)):
    ...     for alarm in rule.feed([HeadReading(step, "layers.3", 0, 1.2, 0.4, score)]):
    ...         print(alarm.step, alarm.kind, alarm.value, alarm.threshold)
    30 maximum_logit 180.0 100.0
    """

    def __init__(
        self,
        *,
        score: float = 100.0,
        entropy: float = 0.1,
        growth: float = 2.0,
        patience: int = 2,
    ) -> None:
        self.score, self.entropy = positive(score, "score"), positive(entropy, "entropy")
        self.growth = positive(growth, "growth")
        self.patience = whole_number(patience, "patience", least=1)
        if self.entropy > 1 or self.growth < 1:
            raise ValueError(
                f"AlarmRule takes an entropy up to 1 and a growth from 1, and got {self.entropy:g} "
                f"and {self.growth:g}: give a share, such as 0.1, and a factor, such as 2."
            )
        self._heads: dict[tuple[str, int], _Head] = {}

    def feed(self, readings: Iterable[HeadReading]) -> list[Alarm]:
        """The alarms of one step's readings; steps are fed in their order."""
        return [alarm for reading in readings for alarm in self._fed(reading)]

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as JSON has it."""
        return {
            "heads": [
                {"layer": layer, "head": head, **asdict(known)}
                for (layer, head), known in self._heads.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remember what another rule did."""
        self._heads = {
            (one["layer"], one["head"]): _Head(
                one["entropy"], one["max_score"], dict(one["beyond"]), list(one["raised"])
            )
            for one in state["heads"]
        }

    def _fed(self, reading: HeadReading) -> list[Alarm]:
        share, score = reading.normalized_entropy, reading.max_score
        if not (math.isfinite(share) and math.isfinite(score)):
            return []
        place = (reading.layer, reading.head)
        head = self._heads.setdefault(place, _Head(share, score, {}, []))
        highest = min(max(self.score, self.growth * head.max_score), _CEILING)
        lowest = min(self.entropy, head.entropy / self.growth)
        tried: tuple[tuple[Kind, bool, float, float], ...] = (
            ("entropy_collapse", share < lowest and score > _SHARP * self.score, share, lowest),
            ("maximum_logit", score > highest, score, highest),
        )
        alarms = []
        for kind, beyond, value, threshold in tried:
            head.beyond[kind] = head.beyond.get(kind, 0) + 1 if beyond else 0
            if head.beyond[kind] >= self.patience and kind not in head.raised:
                head.raised.append(kind)
                alarms.append(Alarm(reading.step, *place, kind, value, threshold))
        return alarms

"""The alarm rule: which readings of a head announce a divergence."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from glasshead.message import Message, _
from glasshead.recipe.problem import Problem, Trace, split
from glasshead.recipe.tile import Span, Tile
from glasshead.recipe.validation import in_float64, positive, whole_number
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import Reduction
from glasshead.watching.layer_record import Watched
from glasshead.watching.seen import Seen, heads_last

# Rows of a dense mask that are evaluated at once.
_ROWS = 256


@dataclass(frozen=True)
class VisibleKeys(Statistic):
    """n_i = Σ_j [key j is visible to query i], `[..., queries]`, the number of visible keys.

    ln n_i is the largest entropy that query i can have. Neither weights nor scores are computed: a
    mask that shows each query one range of keys takes two numbers per query.

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
    """Count the visible keys of each query of a tile."""
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


# Digits of a reading, so that it survives a round trip through text.
_DIGITS = 7


@dataclass(frozen=True, slots=True)
class HeadReading:
    """The readings of one head in one training step.

    Attributes:
        step: Training step, counted from 1; it is read before the step changes the weights.
        layer: Name of the attention.
        head: Head index, from 0.
        entropy: mean_i H_i, in nats, over the queries that see two keys or more.
        normalized_entropy: Σ_i H_i / Σ_i ln n_i over the same queries, n_i being the number of
            keys that query i sees: 1 for uniform weights, 0 if each query has a single key; 1
            where no query sees two.
        max_score: max_ij s_ij, the largest input of the softmax; -inf where nothing is visible.
    """

    step: int
    layer: str
    head: int
    entropy: float
    normalized_entropy: float
    max_score: float


def readings_of(watched: Mapping[str, Watched], step: int) -> list[HeadReading]:
    """Return the readings of a watch with `entropy`, `visible_keys` and `max_score`.

    >>> import glasshead as gh
    >>> from glasshead.watching.alarms import VisibleKeys
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 4)
    >>> with gh.watch(rule, [gh.Entropy(), VisibleKeys(), gh.MaxScore()]) as seen:
    ...     context = rule(x, x, x)
    >>> readings_of(seen, step=7)[1]         # (ln 2 + ln 3) / 2 nats: as much as there can be
    HeadReading(step=7, layer='', head=1, entropy=0.8958797, normalized_entropy=1.0, max_score=0.0)
    """
    return [
        HeadReading(step, name, head, *map(_rounded, numbers))
        for name, one in (watched.observed if isinstance(watched, Seen) else watched).items()
        for head, numbers in enumerate(_of_heads(one))
    ]


def _of_heads(watched: Watched) -> list[list[float]]:
    """Compute entropy, normalized entropy and maximum score of each head, over all calls."""
    entropies, most, queries, scores = [], [], [], []
    for call in watched:
        headed = len(call.shape) > 2
        seen = heads_last(in_float64(call.visible_keys), headed)
        counts = seen > 1
        if call.real is not None:
            counts &= call.real.reshape(-1, 1).to(counts.device)
            seen = seen.where(counts, 1.0)
        entropies.append(heads_last(in_float64(call.entropy), headed).where(counts, 0.0).sum(0))
        most.append(seen.clamp(min=1).log().sum(0))
        queries.append(counts.sum(0))
        score = in_float64(call.max_score)
        score = score.reshape(-1, score.shape[-1] if headed else 1)
        # The batch may be empty.
        scores.append(torch.cat([score, score.new_full((1, score.shape[1]), -torch.inf)]).amax(0))
    entropy, possible, count = (torch.stack(x).sum(0) for x in (entropies, most, queries))
    mean = entropy / count.clamp(min=1)
    share = (entropy / possible).where(possible > 0, 1.0)
    return torch.stack([mean, share, torch.stack(scores).amax(0)], -1).tolist()


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else number


Kind = Literal["entropy_collapse", "maximum_logit"]

_SENTENCES = {
    "entropy_collapse": _(
        "step {step}: the entropy of head {head} in {layer} is {value} of its maximum, below "
        "{threshold}. Lower the learning rate, warm up for longer, or normalize queries and keys."
    ),
    "maximum_logit": _(
        "step {step}: the maximum score of head {head} in {layer} is {value}, above {threshold}. "
        "Lower the learning rate, warm up for longer, or normalize queries and keys."
    ),
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm for a head beyond a threshold.

    Attributes:
        step: Training step.
        layer: Name of the attention.
        head: Head index, from 0.
        kind: "entropy_collapse" or "maximum_logit".
        value: Its normalized entropy, or its maximum score.
        threshold: The threshold that the value crossed.

    >>> print(Alarm(40, "blocks.0.attention", 2, "maximum_logit", 131.2, 100.0).sentence)
    step 40: the maximum score of head 2 in blocks.0.attention is 131, above 100. Lower the learning
    rate, warm up for longer, or normalize queries and keys.
    """

    step: int
    layer: str
    head: int
    kind: Kind
    value: float
    threshold: float

    @property
    def sentence(self) -> Message:
        """The alarm and a remedy in one sentence."""
        digits = ".2g" if self.kind == "entropy_collapse" else ".3g"
        return Message(
            _SENTENCES[self.kind],
            step=self.step,
            head=self.head,
            layer=self.layer or Message("the model"),
            value=format(self.value, digits),
            threshold=format(self.threshold, digits),
        )


# Scores of 10⁴ and more go with divergence (Wortsman et al. 2023, section 3), whatever the first
# reading was.
_CEILING = 1e4
# Healthy heads that attend to a single key were observed with scores up to half of M.
_SHARP = 0.75


@dataclass
class _Head:
    """The state of the rule for one head.

    Attributes:
        entropy, max_score: Normalized entropy and maximum score of its first reading.
        beyond: Number of consecutive readings beyond the threshold, by kind.
        raised: The kinds of alarms raised so far.
    """

    entropy: float
    max_score: float
    beyond: dict[str, int]
    raised: list[str]


class AlarmRule:
    """A rule that predicts from readings which heads are about to diverge, once per kind and head.

    With m = max_ij s_ij of a head, h = Σ_i H_i / Σ_i ln n_i its normalized entropy, and m₁, h₁ the
    values of its first reading:

    - maximum logit: m > min(max(M, g · m₁), 10⁴);
    - entropy collapse: h < min(η, h₁ / g) and m > 3/4 M.

    Either has to hold in `patience` consecutive readings. A healthy head that has learned to attend
    to a single key has a low entropy as well, but its scores need to differ only by ln(n / ε) to
    leave ε of the weight to n others, 16 for a thousand keys and ε = 10⁻⁴, so that it stays below
    3/4 M. Readings that are not finite are skipped: the loss shows them.

    Args:
        score: M, the threshold of the maximum score.
        entropy: η, the threshold of the normalized entropy.
        growth: g, the factor by which a head may grow that was beyond a threshold from the start,
            as in a trained model.
        patience: Number of consecutive readings beyond a threshold that raise an alarm.

    Errors: a ValueError or TypeError for an argument out of range.

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
                "AlarmRule must have an entropy of at most 1 and a growth of at least 1, got "
                f"{self.entropy:g} and {self.growth:g}. Give a share, such as 0.1, and a factor, "
                "such as 2."
            )
        self._heads: dict[tuple[str, int], _Head] = {}

    def feed(self, readings: Iterable[HeadReading]) -> list[Alarm]:
        """Process the readings of one step, and return its alarms; steps are fed in order."""
        return [alarm for reading in readings for alarm in self._fed(reading)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule as JSON-serializable data."""
        return {
            "heads": [
                {"layer": layer, "head": head, **asdict(known)}
                for (layer, head), known in self._heads.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a rule."""
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

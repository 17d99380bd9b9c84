"""The rule: which readings are alarms."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from glasshead.recipe.validation import positive, whole_number
from glasshead.watching.alarms.alarm import Alarm, Kind
from glasshead.watching.alarms.reading import Reading

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
    ...     for alarm in rule.feed([Reading(step, "layers.3", 0, 1.2, 0.4, score)]):
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

    def feed(self, readings: Iterable[Reading]) -> list[Alarm]:
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

    def _fed(self, reading: Reading) -> list[Alarm]:
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

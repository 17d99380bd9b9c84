"""Alarm: a head that does what it does before a training diverges."""

from dataclasses import dataclass
from typing import Literal

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

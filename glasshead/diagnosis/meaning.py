"""Meaning: what a mask says, in one convention."""

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.finding import Finding
from glasshead.diagnosis.hiding import Hiding


@dataclass(frozen=True, eq=False)
class Meaning:
    """What a mask says, in one convention.

    Attributes:
        convention: Its name, or None where it could not be decided.
        visible: Which cells are visible, in the mask's own axes; None where that is not decided.
        hiding: By what numbers it hides, where it is additive.
        shows: Of a mask of two values, whether the other than 0 shows.
        findings: What was found on the way.
    """

    convention: str | None
    visible: Bool[Tensor, "..."] | None
    hiding: Hiding | None = None
    shows: bool = True
    findings: tuple[Finding, ...] = ()

"""Finding: one thing that was found in a mask."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One thing that was found in a mask.

    Attributes:
        kind: What it is, such as "dead-rows" or "future".
        severity: "error": the attention is wrong; "warning": it is likely to be; "note": worth
            knowing, and no fault.
        sentence: What was found, where, and what to do.
        where: The first few places, as indices of the mask's own axes.
    """

    kind: str
    severity: Severity
    sentence: str
    where: tuple[tuple[int, ...], ...] = ()

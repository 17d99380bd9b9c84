"""Views: those of a report, and what holds the answers of each."""

from collections.abc import Callable

from glasshead.studio.report.answers import Answers
from glasshead.studio.report.holding.alignment import hold_alignment
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.atlas import hold_atlas
from glasshead.studio.report.holding.heads import hold_heads
from glasshead.studio.report.holding.steps import hold_steps

HOLDING: dict[str, Callable[[Answers, Asked], list[str]]] = {
    "steps": hold_steps,
    "heads": hold_heads,
    "alignment": hold_alignment,
    "atlas": hold_atlas,
}
"""Each view of a report: it holds its answers, and says what of the text is left out."""

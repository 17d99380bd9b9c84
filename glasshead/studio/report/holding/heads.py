"""Heads: every head as a small map, and as many whole maps as there is room for."""

from glasshead.studio.report.answers import Answers, key_of
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.telling import told
from glasshead.studio.views.heads import stored

# Of all whole maps together, before they are compressed: 13 of 256 tokens.
_BYTES = 3_500_000


def hold_heads(answers: Answers, asked: Asked) -> list[str]:
    """Hold the maps of as much of the text as the model and a file take.

    Errors: a `Refusal` where the text cannot be read, or the attention not be seen.
    """
    answers.hold_all(stored(asked.studio, asked.name, asked.work, _BYTES), asked.work)
    summary = answers.told[key_of("heads/reading", {"text": asked.name})]
    whole, of = summary["whole"], sum(summary["heads"])
    return [] if whole is None else told(asked, "heads", kept=len(whole), of=of)

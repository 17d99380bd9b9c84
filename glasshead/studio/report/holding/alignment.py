"""Alignment: the first sentences of the text, and what a translator makes of them."""

from glasshead.studio.report.answers import Answers
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.telling import told
from glasshead.studio.views.alignment import sentences_of, stored

_SENTENCES = 5


def hold_alignment(answers: Answers, asked: Asked) -> list[str]:
    """Hold the translations of the first sentences, with the weights of each.

    Errors: a `Refusal` where there is no sentence that can be translated.
    """
    subject, limits = asked.studio.subject, asked.studio.limits
    found = stored(subject.translator(), asked.text, limits, _SENTENCES)
    answers.hold_all(found, asked.work)
    count = len(answers.told["alignment/stored"]["sentences"])
    return [] if count == len(sentences_of(asked.text)) else told(asked, "sentences", count=count)

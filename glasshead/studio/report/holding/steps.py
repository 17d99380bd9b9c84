"""Steps: the first sentence of the text, as far as a report tells it."""

from glasshead.explanation.embeddings import composed, split
from glasshead.studio.refusals import Refusal
from glasshead.studio.report.answers import Answers
from glasshead.studio.report.holding.asked import Asked
from glasshead.studio.report.holding.telling import told
from glasshead.studio.views.alignment import sentences_of
from glasshead.studio.views.steps import MOST_WORDS, steps_stored

# Before they are compressed, some twentyfold.
_BYTES = 1_000_000


def hold_steps(answers: Answers, asked: Asked) -> list[str]:
    """Hold the matrices and the words of the text's first sentence, and of most choices.

    Errors: a `Refusal` where it has no word that can be told.
    """
    whole = [part for part in sentences_of(composed(asked.text)) if split(part)]
    if not whole:
        raise Refusal("a report takes a text of a word at least, and this has none: name another.")
    sentence = beginning(whole[0], MOST_WORDS)
    limits = asked.studio.limits
    answers.hold_all(steps_stored(sentence, asked.lang, limits, most=_BYTES), asked.work)
    if len(whole) == 1 and sentence == whole[0]:
        return []
    return told(asked, "sentence", count=len(split(sentence)))


def beginning(sentence: str, most: int) -> str:
    """A sentence up to the end of its last word or mark that there is room for.

    >>> beginning("The  sun, the moon.", 4)
    'The  sun, the'
    """
    end = 0
    for token in split(sentence)[:most]:
        end = sentence.index(token, end) + len(token)
    return sentence if len(split(sentence)) <= most else sentence[:end]

"""Pair: a sentence in two languages, and which of its words say the same."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from glasshead.tasks.sentences.grammar import SAME
from glasshead.tasks.sentences.inflecting import Persons, Phrase, Verb, Word
from glasshead.tasks.sentences.lexicon import VERBS, Frame

# A slot and the form that is asked of it, or a word or mark as it is.
_PIECE = re.compile(r"\{(\w+) ?(\w*)\}|(\w+|[^\w\s])")
_BEFORE_MARK = re.compile(r" (?=[^\w\s])")
_FULL_VERBS = VERBS.keys() - {"can", "have", "do"}


@dataclass(frozen=True, slots=True)
class Pair:
    r"""A German sentence and its English.

    Words are those of `re.findall(r"\w+|[^\w\s]", sentence)`, marks among them, counted from 0.

    Attributes:
        german, english: The sentences.
        alignment: Of each English word, the places of the German words that it translates: both
            parts of a verb that is parted, "zu" or the verb it stands in for "to", none for "do".
        verbs: The places of the English full verbs: not of "can", "must", "should", "have" and
            "do", nor of what follows a verb, as "up" in "tidy up".

    >>> from glasshead.tasks.sentences import HELD_OUT
    >>> HELD_OUT.german, HELD_OUT.english
    ('Kannst du mir helfen, diesen Satz zu übersetzen?',
     'Can you help me to translate this sentence?')
    >>> HELD_OUT.alignment
    ((0,), (1,), (3,), (2,), (7,), (8,), (5,), (6,), (9,))
    >>> HELD_OUT.verbs
    (2, 5)
    """

    german: str
    english: str
    alignment: tuple[tuple[int, ...], ...]
    verbs: tuple[int, ...]


def said(frame: Frame, filling: Mapping[str, Phrase | Verb], persons: Persons) -> Pair:
    """A frame with its slots filled, in both languages alike."""
    german = _words(frame.german, lambda slot, form: filling[slot].in_german(slot, form, persons))
    english = _words(
        frame.english, lambda slot, form: filling[slot].in_english(slot, form, persons)
    )
    # Of the words of a verb, such as "tidy up", the first is the verb itself.
    heads = {slot: place for place, word in reversed([*enumerate(english)]) for slot in word.says}
    return Pair(
        _sentence(german),
        _sentence(english),
        tuple(
            tuple(place for place, other in enumerate(german) if word.says & other.says)
            for word in english
        ),
        tuple(sorted(heads[slot] for slot in _FULL_VERBS & heads.keys())),
    )


def _words(line: str, filled: Callable[[str, str], list[Word]]) -> list[Word]:
    words = []
    for slot, form, text in _PIECE.findall(line):
        words += filled(slot, form) if slot else [Word(text, {SAME.get(text) or text})]
    return words


def _sentence(words: Sequence[Word]) -> str:
    text = _BEFORE_MARK.sub("", " ".join(word.text for word in words))
    return text[0].upper() + text[1:]

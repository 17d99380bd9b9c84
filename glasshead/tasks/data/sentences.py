"""Generated German sentences with their English translation and word alignment."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import NamedTuple
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.grammar import grammar, one_of

GRAMMAR = grammar("sentences")
# The meaning of "zu" with an infinitive, which may stand inside the verb.
_TO = "to"
# Rows of the grammar's persons that take the English third person singular.
_HE_AND_SHE = (2, 3)


class Word(NamedTuple):
    """A word and its meanings; words of two languages that share one are aligned."""

    text: str
    says: set[str]


class Persons(NamedTuple):
    """The subjects of the main clause and of a dependent one (`other`), as rows of the grammar."""

    subject: int
    other: int

    def of(self, form: str) -> int:
        return self.other if form == "last" else self.subject


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that translate one by one."""

    german: str
    english: str

    def in_german(self, slot: str, _form: str, _persons: Persons) -> list[Word]:
        return [Word(text, {f"{slot} {place}"}) for place, text in enumerate(self.german.split())]

    def in_english(self, slot: str, _form: str, _persons: Persons) -> list[Word]:
        return [Word(text, {f"{slot} {place}"}) for place, text in enumerate(self.english.split())]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: `present` has a form per person; `base` and `german` include its particle."""

    german: str
    present: tuple[str, ...]
    participle: str
    base: str
    third: str
    past: str

    @classmethod
    def of(cls, german: str, present: str, participle: str, english: str) -> "Verb":
        """Parse a row of the grammar's verbs."""
        ich, du, er, ihr = present.split()
        infinitive = german.rpartition("-")[2]
        base, *third, past = english.split()
        return cls(
            german,
            (ich, du, er, er, infinitive, ihr, infinitive),
            participle,
            base,
            third[0] if third else f"{base.split('-')[0]}s",
            past,
        )

    def in_german(self, slot: str, form: str, persons: Persons) -> list[Word]:
        prefix, _, infinitive = self.german.rpartition("-")
        present = self.present[persons.of(form)]
        if form == "zu" and prefix:
            return [Word(f"{prefix}zu{infinitive}", {slot, _TO})]
        if form == "zu":
            return [Word("zu", {_TO}), Word(infinitive, {slot})]
        forms = {
            "": present,
            "prefix": prefix,
            "last": prefix + present,
            "infinitive": prefix + infinitive,
            "participle": self.participle,
        }
        return [Word(forms[form], {slot})] if forms[form] else []

    def in_english(self, slot: str, form: str, persons: Persons) -> list[Word]:
        base, *particle = self.base.split("-")
        present = self.third if persons.of(form) in _HE_AND_SHE else base
        head = {"infinitive": base, "zu": base, "participle": self.past}.get(form, present)
        words = [Word(text, {slot}) for text in (head, *particle)]
        return [Word("to", {_TO}), *words] if form == "zu" else words


class Person(NamedTuple):
    """A row of the persons; `among` is the grammatical person, "1", "2" or "3"."""

    german: str
    german_dative: str
    english: str
    english_object: str
    among: str

    @property
    def who(self) -> Phrase:
        return Phrase(self.german, self.english)

    @property
    def whom(self) -> Phrase:
        return Phrase(self.german_dative, self.english_object)


class Noun(NamedTuple):
    """A row of the nouns, with the verbs that take it as object."""

    german: str
    english: str
    verbs: str


class Determiner(NamedTuple):
    """A row of the determiners."""

    der: str
    die: str
    das: str
    english: str

    def before(self, noun: Noun) -> Phrase:
        gender, german = noun.german.split()
        return Phrase(f"{getattr(self, gender)} {german}", f"{self.english} {noun.english}")


class Frame(NamedTuple):
    """A German sentence pattern and its English translation."""

    german: str
    english: str


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _frames(lines: str) -> list[Frame]:
    patterns = [line.strip() for line in lines.splitlines() if line.strip()]
    return [Frame(*pair) for pair in zip(patterns[::2], patterns[1::2], strict=True)]


PERSONS = [Person(*row) for row in _rows(GRAMMAR["persons"])]
DETERMINERS = [Determiner(*row) for row in _rows(GRAMMAR["determiners"])]
TIMES = [Phrase(*row) for row in _rows(GRAMMAR["times"])]
ADVERBS = [Phrase(*row) for row in _rows(GRAMMAR["adverbs"])]
FRAMES = {name: _frames(lines) for name, lines in GRAMMAR["frames"].items()}

# Verbs of each slot, by infinitive.
VERBS = {
    slot: {row[0]: Verb.of(*row) for row in _rows(table)}
    for slot, table in GRAMMAR["verbs"].items()
}
_NOUNS = [Noun(*row) for row in _rows(GRAMMAR["nouns"])]
# Objects of each verb.
OBJECTS = {verb: [noun for noun in _NOUNS if verb in noun.verbs.split()] for verb in VERBS["verb"]}


# A slot with the required form, or a literal word or mark.
_PIECE = re.compile(r"\{(\w+) ?(\w*)\}|(\w+|[^\w\s])")
_BEFORE_MARK = re.compile(r" (?=[^\w\s])")
_FULL_VERBS = VERBS.keys() - {"can", "have", "do"}


@dataclass(frozen=True, slots=True)
class Pair:
    r"""A German sentence with its English translation and word alignment.

    Words are counted from 0 in `re.findall(r"\w+|[^\w\s]", sentence)`, which includes marks.

    Attributes:
        german, english: The sentences.
        alignment: For each English word, the indices of the German words that it translates: both
            parts of a separable verb, "zu" or the verb that contains it for "to", none for "do".
        verbs: The indices of the English main verbs: not of "can", "must", "should", "have" and
            "do", nor of particles, as "up" in "tidy up".

    >>> from glasshead.tasks.data.sentences import HELD_OUT
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
    """Fill the slots of a frame in both languages and align the words."""
    german = _words(frame.german, lambda slot, form: filling[slot].in_german(slot, form, persons))
    english = _words(
        frame.english, lambda slot, form: filling[slot].in_english(slot, form, persons)
    )
    # The first word of a verb such as "tidy up" is its head.
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
        words += filled(slot, form) if slot else [Word(text, {GRAMMAR["same"].get(text) or text})]
    return words


def _sentence(words: Sequence[Word]) -> str:
    text = _BEFORE_MARK.sub("", " ".join(word.text for word in words))
    return text[0].upper() + text[1:]


# One in so many combinations of frame, verb and object is held out, and always this one.
_ONE_IN = 10
_KEPT = "help question, übersetzen, der Satz"
_SEVERAL = [Phrase("ihr", "you"), Phrase("euch", "you")]

HELD_OUT = said(
    FRAMES["help question"][0],
    {
        "can": VERBS["can"]["können"],
        "subject": Phrase("du", "you"),
        "help": VERBS["help"]["helfen"],
        "whom": Phrase("mir", "me"),
        "verb": VERBS["verb"]["übersetzen"],
        "object": Phrase("diesen Satz", "this sentence"),
    },
    Persons(1, 1),
)


def pairs(count: int, seed: int = 0) -> list[Pair]:
    """Generate German sentences with their English translation for training.

    The translation is a function of the German sentence. Pairs may repeat.

    Args:
        count: Number of pairs; a larger number with the same seed begins with the same ones.
        seed: Random seed.

    Errors: a ValueError or TypeError for an argument that is no whole number of at least 0.

    >>> for pair in pairs(3):
    ...     print(pair.german, "=", pair.english)
    Sie hilft euch, mein Licht auszumachen. = She helps you to turn off my light.
    Sie hoffen, den Apfel mitzubringen. = They hope to bring the apple.
    Ich warte, weil sie dieses Haus finden sollte. = I wait because she should find this house.
    """
    return list(islice(_generate(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[Pair]:
    """Generate sentences for validation that never occur in `pairs`.

    Each combines a verb and an object that training combines only in other sentence patterns.
    `HELD_OUT` is one of them.

    Args:
        count, seed: As for `pairs`.

    Errors: as for `pairs`.
    """
    return list(islice(_generate(seed, held_out=True), whole_number(count, "count")))


def _generate(seed: int, *, held_out: bool) -> Iterator[Pair]:
    random = Random(whole_number(seed, "seed"))  # noqa: S311 - nothing is to be kept secret
    while True:
        name, verb = one_of([*FRAMES], random), one_of([*OBJECTS], random)
        nouns = [n for n in OBJECTS[verb] if _is_held_out(name, verb, n.german) == held_out]
        if nouns:
            yield _pair(one_of(FRAMES[name], random), verb, one_of(nouns, random), random)


def _is_held_out(frame: str, verb: str, noun: str) -> bool:
    combination = f"{frame}, {verb}, {noun}"
    return crc32(combination.encode()) % _ONE_IN == 0 or combination == _KEPT


def _pair(frame: Frame, verb: str, noun: Noun, random: Random) -> Pair:
    subject, other = (one_of(range(len(PERSONS)), random) for _ in range(2))
    # Nobody helps a group that they belong to.
    among = PERSONS[subject].among
    whom = one_of([p for p in PERSONS if p.among == "3" or p.among != among], random)
    filling = {
        "subject": PERSONS[subject].who,
        "other": PERSONS[other].who,
        "whom": whom.whom,
        "time": one_of(TIMES, random),
        "adverb": one_of(ADVERBS, random),
        **{slot: one_of([*verbs.values()], random) for slot, verbs in VERBS.items()},
        "verb": VERBS["verb"][verb],
    }
    # "dein" does not fit where several are addressed.
    several = any(filling[slot] in _SEVERAL and f"{{{slot}}}" in frame.german for slot in filling)
    fitting = [row for row in DETERMINERS if not (several and row.english == "your")]
    filling["object"] = one_of(fitting, random).before(noun)
    return said(frame, filling, Persons(subject, other))

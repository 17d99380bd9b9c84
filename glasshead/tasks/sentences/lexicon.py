"""Lexicon: the tables of the grammar, read row by row."""

from typing import NamedTuple

from glasshead.tasks.sentences import grammar
from glasshead.tasks.sentences.inflecting import Phrase, Verb


class Person(NamedTuple):
    """A row of the persons; `among` tells those who speak, who are spoken to, and others apart."""

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
    """A row of the nouns, with all verbs that it is an object of."""

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
    """A line of German and the line of English that says the same."""

    german: str
    english: str


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _frames(lines: str) -> list[Frame]:
    told = [line.strip() for line in lines.splitlines() if line.strip()]
    return [Frame(*pair) for pair in zip(told[::2], told[1::2], strict=True)]


PERSONS = [Person(*row) for row in _rows(grammar.PERSONS)]
DETERMINERS = [Determiner(*row) for row in _rows(grammar.DETERMINERS)]
TIMES = [Phrase(*row) for row in _rows(grammar.TIMES)]
ADVERBS = [Phrase(*row) for row in _rows(grammar.ADVERBS)]
FRAMES = {name: _frames(lines) for name, lines in grammar.FRAMES.items()}

# Those of each slot, by their infinitives.
VERBS = {
    slot: {row[0]: Verb.of(*row) for row in _rows(table)} for slot, table in grammar.VERBS.items()
}
_NOUNS = [Noun(*row) for row in _rows(grammar.NOUNS)]
# Those that each verb takes.
OBJECTS = {verb: [noun for noun in _NOUNS if verb in noun.verbs.split()] for verb in VERBS["verb"]}

"""Inflecting: what a slot of a frame is in either language, and what each word of it says."""

from dataclasses import dataclass
from typing import NamedTuple

# The zu of an infinitive says this, and no verb, though it may stand inside of one.
_TO = "to"
# The rows of the grammar's persons with which English verbs end in an s.
_HE_AND_SHE = (2, 3)


class Word(NamedTuple):
    """A word, and what it says: words of two languages that share any of it say the same."""

    text: str
    says: set[str]


class Persons(NamedTuple):
    """Whom verbs agree with, as rows of the grammar's table: `other` in a clause that depends."""

    subject: int
    other: int

    def of(self, form: str) -> int:
        return self.other if form == "last" else self.subject


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that are the same in both languages, one by one."""

    german: str
    english: str

    def in_german(self, slot: str, _form: str, _persons: Persons) -> list[Word]:
        return [Word(text, {f"{slot} {place}"}) for place, text in enumerate(self.german.split())]

    def in_english(self, slot: str, _form: str, _persons: Persons) -> list[Word]:
        return [Word(text, {f"{slot} {place}"}) for place, text in enumerate(self.english.split())]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the grammar's tables: `present` has a form for each person, `base` its particle."""

    german: str
    present: tuple[str, ...]
    participle: str
    base: str
    third: str
    past: str

    @classmethod
    def of(cls, german: str, present: str, participle: str, english: str) -> "Verb":
        """The verb of a row."""
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

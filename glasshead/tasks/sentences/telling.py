"""Telling: pairs of sentences by the grammar, the same for the same seed."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.lots import one_of
from glasshead.tasks.sentences.inflecting import Persons, Phrase
from glasshead.tasks.sentences.lexicon import (
    ADVERBS,
    DETERMINERS,
    FRAMES,
    OBJECTS,
    PERSONS,
    TIMES,
    VERBS,
    Frame,
    Noun,
)
from glasshead.tasks.sentences.pair import Pair, said

# One in so many combinations of a frame, a verb and its object is held out, and this one for sure.
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
    """German sentences with their English, to train on.

    A German sentence always has the same English. A pair may come again.

    Args:
        count: How many; more of the same seed begin with the same ones.
        seed: Of what they say.

    Errors: a ValueError or TypeError for what is no whole number of at least 0.

    >>> for pair in pairs(3):
    ...     print(pair.german, "=", pair.english)
    Sie hilft euch, mein Licht auszumachen. = She helps you to turn off my light.
    Sie hoffen, den Apfel mitzubringen. = They hope to bring the apple.
    Ich warte, weil sie dieses Haus finden sollte. = I wait because she should find this house.
    """
    return list(islice(_told(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[Pair]:
    """Sentences of what is said in none of `pairs`, whatever its seed.

    Each has a verb with an object that training has together in sentences of other build alone.
    `HELD_OUT` is one of them.

    Args:
        count, seed: As for `pairs`.

    Errors: as for `pairs`.
    """
    return list(islice(_told(seed, held_out=True), whole_number(count, "count")))


def _told(seed: int, *, held_out: bool) -> Iterator[Pair]:
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
    # Nobody helps a group and is in it.
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
    # Where several are spoken to, "dein" would be nobody's.
    several = any(filling[slot] in _SEVERAL and f"{{{slot}}}" in frame.german for slot in filling)
    fitting = [row for row in DETERMINERS if not (several and row.english == "your")]
    filling["object"] = one_of(fitting, random).before(noun)
    return said(frame, filling, Persons(subject, other))

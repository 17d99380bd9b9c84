"""Telling: stories by the grammar, the same for the same seed."""

import re
from collections.abc import Iterator
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.lots import one_of
from glasshead.tasks.stories.grammar import BOYS, COLORS, GIRLS, PLACES, RULES, THINGS

_SHE = {"he": "she", "him": "her", "his": "her", "girl": "girl"}
_HE = {"he": "he", "him": "him", "his": "his", "girl": "boy"}
_LINES = {rule: [*map(str.strip, lines.strip().splitlines())] for rule, lines in RULES.items()}
_SLOT = re.compile(r"\{([^}]+)\}")

# Of so many things that may happen, one is kept for the stories that are held out.
_ONE_IN = 10


def stories(count: int, seed: int = 0) -> list[str]:
    """Little stories to train on.

    Args:
        count: How many; more of the same seed begin with the same ones.
        seed: Of what happens in them.

    Errors: a ValueError or TypeError for what is no whole number of at least 0.

    >>> print(stories(1)[0])
    One rainy day Oscar played in the forest with a yellow drum. But he lost it, and he
    was very sad. Oscar began to cry and looked near the river. At last he found it under
    the leaves. Oscar never lost the yellow drum in the forest again.
    """
    return list(islice(_told(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[str]:
    """Stories of what happens in none of `stories`, whatever its seed.

    There, that child has never lost that thing, of that color, in that place.

    Args:
        count, seed: As for `stories`.

    Errors: as for `stories`.
    """
    return list(islice(_told(seed, held_out=True), whole_number(count, "count")))


def _told(seed: int, *, held_out: bool) -> Iterator[str]:
    random = Random(whole_number(seed, "seed"))  # noqa: S311 - nothing is to be kept secret
    while True:
        facts = _facts(random)
        story = _expanded("story", facts, random)
        key = "{child}, {thing}, {place}".format(**facts)
        if (crc32(key.encode()) % _ONE_IN == 0) == held_out:
            yield story


def _facts(random: Random) -> dict[str, str]:
    """What a story is about."""
    girls, boys = GIRLS.split(), BOYS.split()
    child = one_of([*girls, *boys], random)
    friend = one_of([name for name in (*girls, *boys) if name != child], random)
    there = one_of([*PLACES], random)
    spots = PLACES[there].split(", ")
    spot = one_of(spots, random)
    noun = one_of(THINGS.split(), random)
    fitting = _SHE if child in girls else _HE
    return {
        "child": child,
        "friend": friend,
        "noun": noun,
        "thing": f"{one_of(COLORS.split(), random)} {noun}",
        "there": there,
        "place": there.split(maxsplit=1)[1],
        "spot": spot,
        "elsewhere": one_of([other for other in spots if other != spot], random),
        "He": fitting["he"].capitalize(),
        **fitting,
    }


def _expanded(rule: str, facts: dict[str, str], random: Random) -> str:
    """One line of a rule, with what its braces stand for."""

    def filled(slot: re.Match[str]) -> str:
        name = slot[1]
        return facts[name] if name in facts else _expanded(name, facts, random)

    return _SLOT.sub(filled, one_of(_LINES[rule], random))

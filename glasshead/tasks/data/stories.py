"""Generated short stories about lost things."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.grammar import expand, grammar, lines_of_rule, one_of

GRAMMAR = grammar("stories")
# Where a thing may be lost, and the spots where it may lie there.
PLACES = GRAMMAR["places"]

_SHE = {"he": "she", "him": "her", "his": "her", "girl": "girl"}
_HE = {"he": "he", "him": "him", "his": "his", "girl": "boy"}
_LINES = {rule: lines_of_rule(lines) for rule, lines in GRAMMAR["rules"].items()}

# One in so many events occurs in held-out stories only.
_ONE_IN = 10


def stories(count: int, seed: int = 0) -> list[str]:
    """Generate stories for training.

    Args:
        count: Number of stories; a larger number with the same seed begins with the same ones.
        seed: Random seed.

    Errors: a ValueError or TypeError for an argument that is no whole number of at least 0.

    >>> print(stories(1)[0])
    One rainy day Oscar played in the forest with a yellow drum. But he lost it, and he
    was very sad. Oscar began to cry and looked near the river. At last he found it under
    the leaves. Oscar never lost the yellow drum in the forest again.
    """
    return list(islice(_generate(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[str]:
    """Generate stories for validation, whose events never occur in `stories`.

    No seed of `stories` has the same child lose the same thing, of the same color, in that place.

    Args:
        count, seed: As for `stories`.

    Errors: as for `stories`.
    """
    return list(islice(_generate(seed, held_out=True), whole_number(count, "count")))


def _generate(seed: int, *, held_out: bool) -> Iterator[str]:
    random = Random(whole_number(seed, "seed"))  # noqa: S311 - nothing is to be kept secret
    while True:
        facts = _facts(random)
        story = expand("story", _LINES, facts, random)
        key = "{child}, {thing}, {place}".format(**facts)
        if (crc32(key.encode()) % _ONE_IN == 0) == held_out:
            yield story


def _facts(random: Random) -> dict[str, str]:
    """Draw the characters, the thing and the places of a story."""
    girls, boys = GRAMMAR["girls"].split(), GRAMMAR["boys"].split()
    child = one_of([*girls, *boys], random)
    friend = one_of([name for name in (*girls, *boys) if name != child], random)
    there = one_of([*PLACES], random)
    spots = PLACES[there].split(", ")
    spot = one_of(spots, random)
    noun = one_of(GRAMMAR["things"].split(), random)
    fitting = _SHE if child in girls else _HE
    return {
        "child": child,
        "friend": friend,
        "noun": noun,
        "thing": " ".join([one_of(GRAMMAR["colors"].split(), random), noun]),
        "there": there,
        "place": there.split(maxsplit=1)[1],
        "spot": spot,
        "elsewhere": one_of([other for other in spots if other != spot], random),
        "He": fitting["he"].capitalize(),
        **fitting,
    }

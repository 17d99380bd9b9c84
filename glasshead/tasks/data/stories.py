"""Generated short stories about lost things."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.grammar import expand, lines_of_rule, one_of

GIRLS = "Anna Clara Ella Emma Ida Lily Lucy Mia Nora Rosa Ruby Zoe"
BOYS = "Adam Ben Finn Hugo Jack Leo Max Noah Oscar Paul Sam Tom"

THINGS = "ball bell boat book cup doll drum hat kite key scarf train"
COLORS = "red blue green yellow white brown little big"

# Where a thing may be lost, and the spots where it may lie there.
PLACES = {
    "in the park": "under a bench, behind the tall tree, near the pond",
    "in the garden": "under the roses, behind the shed, near the gate",
    "in the kitchen": "under the table, behind the door, near the oven",
    "in the barn": "under the hay, behind the cart, near the old cow",
    "in the forest": "under the leaves, behind a log, near the river",
    "at the beach": "under the sand, behind a rock, near the water",
    "at the market": "under the apples, behind the bread, near the fish",
    "at the school": "under a chair, behind the piano, near the window",
    "at the farm": "under the wagon, behind the fence, near the ducks",
    "at the station": "under the stairs, behind a bag, near the clock",
}

RULES = {
    "story": """
        {opening} {losing} {finding} {ending}
        {opening} {losing} {searching} {finding} {ending}
        {beginning} {losing} {finding} {ending}
        {opening} {losing} {helping} {finding together} {ending together}
        {beginning} {losing} {helping} {finding together} {ending together}
        {opening} {losing} {searching} {helping} {finding together} {ending together}
    """,
    "beginning": """
        {child} had a {thing}. One {day} {he} took it to {place}.
        There was a {girl} named {child}, who had a {thing}. One {day} {he} played with it {there}.
    """,
    "opening": """
        One {day} {child} took {his} {thing} to {place}.
        One {day} {child} played {there} with a {thing}.
        {child} went to {place} with {his} {thing}.
        {child} loved {his} {thing} and took it to {place}.
    """,
    "day": """
        day
        sunny day
        rainy day
        cold morning
        warm evening
    """,
    "losing": """
        But soon the {noun} was gone!
        {He} put it down to eat a cake, and then {he} could not find it.
        When it was time to go home, the {noun} was not there.
        {He} ran and jumped, and then the {noun} was gone.
        But {he} lost it, and {he} was very sad.
    """,
    "searching": """
        {He} looked {elsewhere}, but there was no {noun}.
        First {child} looked {elsewhere}, but it was not there.
        {child} began to cry and looked {elsewhere}.
        "Where is my {noun}?" said {child}, and looked {elsewhere}.
    """,
    "helping": """
        {friend} saw {him} and came to help.
        "Do not cry," said {friend}, "I will help you."
        "What did you lose?" asked {friend}, and {child} said, "My {noun}!"
        {child} asked {friend} to help {him} look for the {noun}.
    """,
    "finding": """
        At last {he} found it {spot}.
        Then {he} looked {spot}, and there was the {thing}!
        And what was that {spot}? It was the {thing}!
    """,
    "finding together": """
        They looked {spot}, and there was the {thing}!
        {friend} looked {spot} and found the {thing}.
        At last {friend} found it {spot} and gave it to {child}.
    """,
    "ending": """
        {child} was happy and took {his} {thing} home from {place}.
        {child} laughed and played with the {thing} {there} for a long time.
        {child} never lost the {thing} {there} again.
    """,
    "ending together": """
        {child} thanked {friend} and took {his} {thing} home from {place}.
        Then {child} and {friend} played with the {thing} {there} for a long time.
        {child} hugged {friend} and never lost the {thing} {there} again.
    """,
}


_SHE = {"he": "she", "him": "her", "his": "her", "girl": "girl"}
_HE = {"he": "he", "him": "him", "his": "his", "girl": "boy"}
_LINES = {rule: lines_of_rule(lines) for rule, lines in RULES.items()}

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

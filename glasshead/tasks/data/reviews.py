"""Generated film reviews in which negation decides the label."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.grammar import SLOT, expand, lines_of_rule, one_of

FILMS = "film, movie, comedy, drama, sequel, remake"
PARTS = "plot, story, script, acting, ending, dialogue, music"

# Positive and negative words of each kind.
WORDS = {
    "adjective": (
        "good, funny, clever, charming, exciting, moving",
        "bad, boring, dull, silly, clumsy, tedious",
    ),
    "thing": (
        "success, delight, treat, masterpiece",
        "failure, mess, letdown, disappointment",
    ),
    "effect": (
        "impressed, amused, charmed, thrilled",
        "bored, annoyed, disappointed, irritated",
    ),
    "feeling": (
        "like, love, enjoy",
        "hate, dislike, detest",
    ),
    "advice": (
        "see, watch, try",
        "skip, avoid, ignore",
    ),
}

JUDGEMENTS = """
    {it} [is|*isn't*] {adjective}.
    {it} was [very {adjective}|*not* {adjective} at all].
    {it} was [quite|*far from*] {adjective}.
    {it} was [simply|*hardly*] {adjective}.
    {it} is [truly|*anything but*] {adjective}.
    I [must|*cannot*] say that {it} was {adjective}.
    I [would|*wouldn't*] say that {it} is {adjective}.
    I [did|did *not*] find {it} {adjective}.
    I [always|*never*] found {it} {adjective}.
    [most people would|*nobody* could] call {it} {adjective}.
    there was [something|*nothing*] {adjective} about {it}.
    I expected {it} to be {adjective}, [and it was|but it was *not*].
    my brother called {it} {adjective}, [and I agree|but I *don't* agree].
    was {it} {adjective}? [Yes|*No*].
    [everything|*nothing*] in {film} is {adjective}.
    there is [one {adjective} scene after another|*not* one {adjective} scene] in {film}.
    {film} passes [with one {adjective} moment after another|*without* a single {adjective} moment].
    {it} is [quite a|*no*] {thing}.
    {it} is in [every|*no*] way a {thing}.
    {it} was [certainly|*hardly*] a {thing}.
    {it} [was|was *far from* being] a {thing}.
    {it} [turned out|did *not* turn out] to be a {thing}.
    I would [always|*never*] call {it} a {thing}.
    the critics call {it} a {thing}, [and they are|but they are *not*] right.
    {it} [often|*never*] {effect} me.
    {it} {effect} [everybody|*nobody*] in the cinema.
    {it} has [really|*not*] {effect} me.
    I was [greatly|*hardly*] {effect} by {it}.
    [everything|*nothing*] about {it} {effect} me.
    I [really did|did *not*] {feeling} {it}.
    you [will|*won't*] {feeling} {it}.
    I could [only|*never*] {feeling} {it}.
    [everybody|*nobody*] seemed to {feeling} {it}.
    there is [every|*no*] reason to {feeling} {it}.
    you [should|should *not*] {advice} {film}.
    [do|*don't*] {advice} {film}.
    by [all|*no*] means {advice} {film}.
    [everybody|*nobody*] should {advice} {film}.
"""

RULES = {
    "review": """
        {judgement}
        {outing} {judgement}
        {judgement} {fact}
        {fact} {judgement} {outing}
        {outing} {judgement} {fact}
        {outing} {fact} {judgement}
        {judgement} {outing} {fact}
    """,
    "outing": """
        I saw it with my {relative} on {day}.
        My {relative} and I went to the cinema on {day}.
        My {relative} took me along on {day}.
        My {relative} had bought the tickets.
        I met my {relative} after the film.
        We had dinner before the film.
        We went there by bus on {day}.
        We sat in the second row.
        It rained when we walked home.
        The cinema was full on {day}.
        The cinema is near the station.
        We walked home with my {relative}.
        We did not eat before the film.
        My {relative} could not come on {day}.
        Nobody sat in front of us.
        Hardly anybody was in the cinema on {day}.
        We sat far from the screen.
        I had never been to that cinema before.
        I went there without my {relative}.
        There was nothing left to drink.
        There were no tickets left for {day}.
        The cinema isn't near my house.
        My {relative} wouldn't come along.
        My {relative} eats anything but popcorn.
    """,
    "fact": """
        The film is {time} long.
        The director is from {country}.
        It was made in {country}.
        It takes place in {country}.
        It is about a {hero} from {country}.
        It is about a {hero} and two children.
        A singer plays the {hero}.
        It is the second part of three.
        It is in black and white.
        The first part is {time} long.
        I had read the book.
        I did not know the director.
        I had not read the book.
        I cannot remember the name of the director.
        I won't tell you how it ends.
        I don't know who plays the {hero}.
        It has never been on television.
        Nobody in it speaks English.
        It takes place far from any town.
        There is no {hero} in the book.
        It was made without a studio.
        I had read nothing about it.
    """,
    "relative": """
        sister
        mother
        father
        cousin
        neighbor
    """,
    "day": """
        Monday
        Tuesday
        Friday
        Saturday
        Sunday
    """,
    "time": """
        two hours
        three hours
        ninety minutes
    """,
    "country": """
        France
        Italy
        Japan
        Brazil
        India
    """,
    "hero": """
        teacher
        doctor
        sailor
        farmer
        painter
    """,
}


_OPPOSITE = {"positive": "negative", "negative": "positive"}
_LINES = {rule: lines_of_rule(lines) for rule, lines in RULES.items()}
_JUDGEMENTS = lines_of_rule(JUDGEMENTS)
_FILMS = ["it", *(f"the {film}" for film in FILMS.split(", "))]
_JUDGED = [*_FILMS, *(f"the {part}" for part in PARTS.split(", "))]
_SIDES = re.compile(r"\[([^|]+)\|([^]]+)\]")
_WORD = re.compile(r"\w+|[^\w\s]")

# Two of five judgements are negated. With every second one, neither a word nor a negation would
# carry information by itself, and learning would hardly start.
_NEGATED = (False, True, False, True, False)

# One in so many judgements occurs in held-out reviews only.
_ONE_IN = 10


@dataclass(frozen=True, slots=True)
class Review:
    r"""A review with its label and its negations.

    Attributes:
        text: The review.
        label: "positive" or "negative".
        negation: Indices of the words that negate the judgement, counted from 0 in
            `re.findall(r"\w+|[^\w\s]", text)`; negations of something else are not included.
    """

    text: str
    label: str
    negation: tuple[int, ...]


def reviews(count: int, seed: int = 0) -> list[Review]:
    """Generate reviews for training.

    Args:
        count: Number of reviews; a larger number with the same seed begins with the same ones.
        seed: Random seed.

    Errors: a ValueError or TypeError for an argument that is no whole number of at least 0.

    >>> for review in reviews(2):
    ...     print(f"{review.label}: {review.text}")
    negative: We sat in the second row. I had read the book. Everybody seemed to dislike the
    sequel.
    positive: The cinema isn't near my house. I would never call the plot a disappointment.
    """
    return list(islice(_generate(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[Review]:
    """Generate reviews for validation, whose judgements never occur in `reviews`, nor negated.

    No seed of `reviews` combines the same word, part of a film and sentence.

    Args:
        count, seed: As for `reviews`.

    Errors: as for `reviews`.
    """
    return list(islice(_generate(seed, held_out=True), whole_number(count, "count")))


def _generate(seed: int, *, held_out: bool) -> Iterator[Review]:
    random = Random(whole_number(seed, "seed"))  # noqa: S311 - nothing is to be kept secret
    while True:
        meant, opposite, label = _judgement(random)
        negated = one_of(_NEGATED, random)
        judgement = _capitalized(opposite if negated else meant)
        starred = expand("review", _LINES, {"judgement": judgement}, random)
        if (crc32(meant.encode()) % _ONE_IN == 0) == held_out:
            yield _review(starred, _OPPOSITE[label] if negated else label)


def _judgement(random: Random) -> tuple[str, str, str]:
    """Draw a judgement; return it, its opposite, and the label of the first."""
    line = one_of(_JUDGEMENTS, random)
    kind = next(slot for slot in SLOT.findall(line) if slot in WORDS)
    label, words = one_of([*zip(_OPPOSITE, WORDS[kind], strict=True)], random)
    facts = {
        "it": one_of(_JUDGED, random),
        "film": one_of(_FILMS, random),
        kind: one_of(words.split(", "), random),
    }
    left, right = (_SIDES.sub(side, line).format(**facts) for side in (r"\1", r"\2"))
    return left, right, label


def _review(starred: str, label: str) -> Review:
    """Parse a review whose negations stand between stars."""
    negation, before = [], 0
    for place, part in enumerate(starred.split("*")):
        after = before + len(_WORD.findall(part))
        if place % 2:
            negation.extend(range(before, after))
        before = after
    return Review(starred.replace("*", ""), label, tuple(negation))


def _capitalized(sentence: str) -> str:
    return re.sub(r"\w", lambda letter: letter[0].upper(), sentence, count=1)

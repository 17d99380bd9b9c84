"""Generated film reviews in which negation decides the label."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.data.grammar import SLOT, expand, grammar, lines_of_rule, one_of

GRAMMAR = grammar("reviews")
# Positive and negative words of each kind.
WORDS = GRAMMAR["words"]

_OPPOSITE = {"positive": "negative", "negative": "positive"}
_LINES = {rule: lines_of_rule(lines) for rule, lines in GRAMMAR["rules"].items()}
_JUDGEMENTS = lines_of_rule(GRAMMAR["judgements"])
_FILMS = ["it", *(f"the {film}" for film in GRAMMAR["films"].split(", "))]
_JUDGED = [*_FILMS, *(f"the {part}" for part in GRAMMAR["parts"].split(", "))]
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

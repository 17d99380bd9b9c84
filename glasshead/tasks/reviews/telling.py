"""Telling: reviews by the grammar, the same for the same seed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from zlib import crc32

from glasshead.recipe.validation import whole_number
from glasshead.tasks.lots import one_of
from glasshead.tasks.reviews.grammar import FILMS, JUDGEMENTS, PARTS, RULES, WORDS

_OPPOSITE = {"positive": "negative", "negative": "positive"}
_LINES = {rule: [*map(str.strip, lines.strip().splitlines())] for rule, lines in RULES.items()}
_JUDGEMENTS = [*map(str.strip, JUDGEMENTS.strip().splitlines())]
_FILMS = ["it", *(f"the {film}" for film in FILMS.split(", "))]
_JUDGED = [*_FILMS, *(f"the {part}" for part in PARTS.split(", "))]
_SIDES = re.compile(r"\[([^|]+)\|([^]]+)\]")
_SLOT = re.compile(r"\{([^}]+)\}")
_WORD = re.compile(r"\w+|[^\w\s]")

# Two of five judgements are turned into their opposite. Were it every second one, a word would say
# nothing without its negation, nor a negation without its word, and learning would hardly begin.
_TURNED = (False, True, False, True, False)

# Of so many judgements, one is kept for the reviews that are held out.
_ONE_IN = 10


@dataclass(frozen=True, slots=True)
class Review:
    r"""A review and what it means.

    Attributes:
        text: What is written.
        label: "positive" or "negative".
        negation: The places of the words that turn the judgement into its opposite, none where
            there are none, counted from 0 in `re.findall(r"\w+|[^\w\s]", text)`. What negates
            something else is not among them.
    """

    text: str
    label: str
    negation: tuple[int, ...]


def reviews(count: int, seed: int = 0) -> list[Review]:
    """Little reviews to train on.

    Args:
        count: How many; more of the same seed begin with the same ones.
        seed: Of what is said in them.

    Errors: a ValueError or TypeError for what is no whole number of at least 0.

    >>> for review in reviews(2):
    ...     print(f"{review.label}: {review.text}")
    negative: We sat in the second row. I had read the book. Everybody seemed to dislike the
    sequel.
    positive: The cinema isn't near my house. I would never call the plot a disappointment.
    """
    return list(islice(_told(seed, held_out=False), whole_number(count, "count")))


def held_out(count: int, seed: int = 0) -> list[Review]:
    """Reviews whose judgement is in none of `reviews`, whatever its seed, nor is its opposite.

    There, that word has never been said of that part of a film in that way.

    Args:
        count, seed: As for `reviews`.

    Errors: as for `reviews`.
    """
    return list(islice(_told(seed, held_out=True), whole_number(count, "count")))


def _told(seed: int, *, held_out: bool) -> Iterator[Review]:
    random = Random(whole_number(seed, "seed"))  # noqa: S311 - nothing is to be kept secret
    while True:
        meant, opposite, label = _judgement(random)
        turned = one_of(_TURNED, random)
        judgement = _capitalized(opposite if turned else meant)
        starred = _expanded("review", {"judgement": judgement}, random)
        if (crc32(meant.encode()) % _ONE_IN == 0) == held_out:
            yield _review(starred, _OPPOSITE[label] if turned else label)


def _judgement(random: Random) -> tuple[str, str, str]:
    """A judgement, its opposite, and the label of the first."""
    line = one_of(_JUDGEMENTS, random)
    kind = next(slot for slot in _SLOT.findall(line) if slot in WORDS)
    label, words = one_of([*zip(_OPPOSITE, WORDS[kind], strict=True)], random)
    facts = {
        "it": one_of(_JUDGED, random),
        "film": one_of(_FILMS, random),
        kind: one_of(words.split(", "), random),
    }
    left, right = (_SIDES.sub(side, line).format(**facts) for side in (r"\1", r"\2"))
    return left, right, label


def _review(starred: str, label: str) -> Review:
    """The review, in which every second part between stars negates."""
    negation, before = [], 0
    for place, part in enumerate(starred.split("*")):
        after = before + len(_WORD.findall(part))
        if place % 2:
            negation.extend(range(before, after))
        before = after
    return Review(starred.replace("*", ""), label, tuple(negation))


def _expanded(rule: str, facts: dict[str, str], random: Random) -> str:
    """One line of a rule, with what its braces stand for."""

    def filled(slot: re.Match[str]) -> str:
        name = slot[1]
        return facts[name] if name in facts else _expanded(name, facts, random)

    return _SLOT.sub(filled, one_of(_LINES[rule], random))


def _capitalized(sentence: str) -> str:
    return re.sub(r"\w", lambda letter: letter[0].upper(), sentence, count=1)

"""Sentence: the words that are explained, and where their vectors come from."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from glasshead.cli.inputs.reading import shown
from glasshead.cli.inputs.vectors_file import read_vectors
from glasshead.cli.inputs.wording import listed, nearest, quoted
from glasshead.explanation.embeddings import MADE_UP_DIM, Embeddings, composed, split
from glasshead.ladder.worked_example import HELLO_SHINY_SUN, is_the_texts_own

_MOST_NUMBERS = 2**24


class Source(Enum):
    """Where the vectors come from."""

    TEXTS = "the worked example of the texts"
    MADE_UP = "made up from a seed"
    FILE = "the user's file"


@dataclass(frozen=True)
class Sentence:
    """A sentence with its vectors, and where they come from."""

    embeddings: Embeddings
    source: Source


def sentence_of(
    text: str | None, vectors: Path | None, *, dim: int | None, seed: int, most: int | None = None
) -> Sentence:
    """The sentence that the command line asks for.

    Args:
        text: A sentence; None: the rows of `vectors`, or else the worked example of the texts.
        vectors: A file of vectors; None: they are made up.
        dim: How wide made-up vectors are; 4 if not given.
        seed: What they are made up from.
        most: How many tokens can be explained, where that is known before they are.

    Errors: a ValueError where the text is empty, a word has no vector, or the file is malformed or
    has more rows than can be explained; an OSError where it cannot be read.
    """
    if vectors is None and is_the_texts_own(text):
        return Sentence(Embeddings.of_the_texts(HELLO_SHINY_SUN), Source.TEXTS)
    words = None if text is None else _words(text)
    if vectors is not None:
        known = read_vectors(vectors, most=most if words is None else None)
        return Sentence(known if words is None else _looked_up(known, words, vectors), Source.FILE)
    return Sentence(_made_up(words or [], dim or MADE_UP_DIM, seed), Source.MADE_UP)


def _words(text: str) -> list[str]:
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError("TEXT takes UTF-8, and got other bytes: set the terminal to UTF-8.")
    words = split(composed(text))
    if not words:
        raise ValueError(
            f"TEXT takes a sentence, and got {quoted(text)}, which has no word: write one, as in "
            f'"Hello shiny sun!", or leave TEXT out.'
        )
    return words


def _made_up(words: list[str], dim: int, seed: int) -> Embeddings:
    if len(words) * dim > _MOST_NUMBERS:
        raise ValueError(
            f"{len(words):,} tokens with {dim:,} made-up numbers each are too many: give at most "
            f"{_MOST_NUMBERS // dim:,} tokens, or a smaller --dim."
        )
    return Embeddings.made_up(words, dim=dim, seed=seed)


def _looked_up(known: Embeddings, words: list[str], path: Path) -> Embeddings:
    have = set(known.tokens)
    missing = [word for word in dict.fromkeys(words) if word not in have]
    if missing:
        alike = nearest(missing[0], known.tokens)
        hint = f"did you mean {quoted(alike)}? Or add" if alike else "add"
        rows = "a row for it" if len(missing) == 1 else "a row for each"
        raise ValueError(
            f"{shown(path)} has no vector for {listed(map(quoted, missing))}: {hint} {rows}."
        )
    try:
        return known.look_up(words)
    except ValueError as error:
        raise ValueError(f"{shown(path)}: {error}") from error

"""Sentences with a vector for each token: made up, read from a file, or the worked example."""

import re
from collections.abc import Sequence
from pathlib import Path

from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.messages import listed, quoted
from glasshead.cli.inputs.vectors import read_vectors
from glasshead.drawing.printable import nearest
from glasshead.explanation.embeddings import MADE_UP_DIM, Embeddings, composed, split
from glasshead.explanation.sentence import Sentence, VectorSource
from glasshead.ladder.worked_example import HELLO_SHINY_SUN, is_the_texts_own

_MAX_NUMBERS = 2**24


def sentence_of(
    text: str | None, vectors: Path | None, *, dim: int | None, seed: int, most: int | None = None
) -> Sentence:
    """Read a sentence and its vectors from the options of the command line.

    Args:
        text: A sentence; None: the rows of `vectors`, or else the worked example of the texts.
        vectors: A file of vectors; None: they are made up.
        dim: Dimension of made-up vectors; 4 if not given.
        seed: Random seed of made-up vectors.
        most: Maximum number of tokens, where it is known before the file is read.

    Errors: a ValueError where the text is empty, a word has no vector, or the file is malformed or
    has more rows than can be explained; an OSError where it cannot be read.
    """
    if vectors is None and is_the_texts_own(text):
        return Sentence(Embeddings.of_the_texts(HELLO_SHINY_SUN), VectorSource.TEXTS)
    words = None if text is None else _words(text)
    if vectors is not None:
        known = read_vectors(vectors, most=most if words is None else None)
        return Sentence(
            known if words is None else _looked_up(known, words, vectors), VectorSource.FILE
        )
    return Sentence(_made_up(words or [], dim or MADE_UP_DIM, seed), VectorSource.MADE_UP)


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
    if len(words) * dim > _MAX_NUMBERS:
        raise ValueError(
            f"{len(words):,} tokens with {dim:,} made-up numbers each are too many: give at most "
            f"{_MAX_NUMBERS // dim:,} tokens, or a smaller --dim."
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


_POSITION = re.compile(r"#([0-9]{1,9})")
# What is meant for a position and is none: #-1, #1.5, # 2.
_LIKE_A_POSITION = re.compile(r"#[-+ ]*[0-9][0-9.,]*")


def query_position(tokens: Sequence[str], asked: str) -> int:
    """Return the position of the query among the tokens, from 0.

    Args:
        tokens: The sentence.
        asked: A token, or "#2" for the second one.

    Errors: a ValueError where the token is not there or stands more than once, or the position is
    outside the sentence.

    >>> sentence = ["the", "sun", "and", "the", "moon", "!"]
    >>> query_position(sentence, "sun"), query_position(sentence, "#4")
    (1, 3)
    """
    position = _POSITION.fullmatch(asked)
    if position:
        return _at(tokens, int(position[1]))
    places = [place for place, token in enumerate(tokens) if token == asked]
    if not places and _LIKE_A_POSITION.fullmatch(asked):
        raise _outside(tokens, asked)
    if not places:
        raise ValueError(f"{quoted(asked)} is not in the sentence: {_hint(tokens, asked)}.")
    if len(places) > 1:
        named = listed(f"#{place + 1}" for place in places)
        raise ValueError(
            f"{quoted(asked)} stands {len(places)} times in the sentence, at {named}: "
            f"ask for one of them, as in --query '#{places[0] + 1}'."
        )
    return places[0]


def _at(tokens: Sequence[str], position: int) -> int:
    if not 1 <= position <= len(tokens):
        raise _outside(tokens, f"#{position}")
    return position - 1


def _outside(tokens: Sequence[str], asked: str) -> ValueError:
    return ValueError(
        f"positions go from #1 to #{len(tokens)}, and --query got {asked}: the sentence is "
        f"{listed(map(quoted, tokens))}."
    )


def _hint(tokens: Sequence[str], asked: str) -> str:
    parts = split(asked)
    if len(parts) > 1 and all(part in tokens for part in parts):
        return f"it is {len(parts)} tokens here, so ask for one of {listed(map(quoted, parts))}"
    if asked.isdecimal():
        return f"for a position, write --query '#{asked}'"
    alike = nearest(asked, tokens)
    question = f"did you mean {quoted(alike)}? It" if alike else "it"
    return f"{question} takes one of {listed(map(quoted, dict.fromkeys(tokens)))}"

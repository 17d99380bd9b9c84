"""Sentences with a vector for each token, and the place of the query in them."""

import re
from collections.abc import Sequence
from pathlib import Path

from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.settings import CommandSettings
from glasshead.cli.inputs.vectors import read_vectors
from glasshead.drawing.printable import nearest
from glasshead.explanation.choices import listed, quoted
from glasshead.explanation.embeddings import GENERATED_DIM, Embeddings, composed, split
from glasshead.explanation.explain_trace import Sentence, VectorSource
from glasshead.message import Message

_MAX_NUMBERS = 2**24


def sentence_of(settings: CommandSettings, *, most: int | None = None) -> Sentence:
    """Read the sentence of an explanation and its vectors.

    Args:
        settings: Its text, or the file of its vectors, or its worked example.
        most: Maximum number of tokens, if it is known before the file is read.

    Errors: a ValueError if the text is empty, a word has no vector, or the file is malformed or
    has more rows than can be explained; an OSError if it cannot be read.
    """
    if settings.worked is not None:
        return Sentence.of_the_texts(settings.worked)
    words = None if settings.text is None else _words(settings.text)
    if (vectors := settings.file("vectors")) is not None:
        known = read_vectors(vectors, most=most if words is None else None)
        return Sentence(
            known if words is None else _looked_up(known, words, vectors), VectorSource.FILE
        )
    generated = _generated(words or [], settings.dim or GENERATED_DIM, settings.seed)
    return Sentence(generated, VectorSource.GENERATED)


def _words(text: str) -> list[str]:
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise ValueError(Message("TEXT must be UTF-8, got other bytes. Set the terminal to UTF-8."))
    words = split(composed(text))
    if not words:
        raise ValueError(
            Message(
                'TEXT must be a sentence, got {text}, which has no word. Write one, as in "Hello '
                'shiny sun!", or omit TEXT.',
                text=quoted(text),
            )
        )
    return words


def _generated(words: list[str], dim: int, seed: int) -> Embeddings:
    if len(words) * dim > _MAX_NUMBERS:
        raise ValueError(
            Message(
                "{count:,} tokens with {dim:,} random numbers each are too many. Give at most "
                "{value:,} tokens, or a smaller --dim.",
                count=len(words),
                dim=dim,
                value=_MAX_NUMBERS // dim,
            )
        )
    return Embeddings.generated(words, dim=dim, seed=seed)


def _looked_up(known: Embeddings, words: list[str], path: Path) -> Embeddings:
    have = set(known.tokens)
    missing = [word for word in dict.fromkeys(words) if word not in have]
    if missing:
        alike = nearest(missing[0], known.tokens)
        hint = Message("Add a row for each.")
        if alike:
            hint = Message("Did you mean {name}? Or add a row for each.", name=quoted(alike))
        raise ValueError(
            Message(
                "{path} has no vector for {choices}. {hint}",
                path=shown(path),
                choices=listed(map(quoted, missing)),
                hint=hint,
            )
        )
    try:
        return known.look_up(words)
    except ValueError as error:
        raise ValueError(Message("{path}: {error}", path=shown(path), error=error)) from error


_POSITION = re.compile(r"#([0-9]{1,9})")
# What is meant for a position and is none: #-1, #1.5, # 2.
_LIKE_A_POSITION = re.compile(r"#[-+ ]*[0-9][0-9.,]*")


def query_position(tokens: Sequence[str], asked: str) -> int:
    """Return the position of the query among the tokens, from 0.

    Args:
        tokens: The sentence.
        asked: A token, or "#2" for the second one.

    Errors: a ValueError if the token is not there or stands more than once, or the position is
    outside the sentence.

    >>> sentence = ["the", "sun", "and", "the", "moon", "!"]
    >>> query_position(sentence, "sun"), query_position(sentence, "#4")
    (1, 3)
    """
    asked = composed(asked)
    position = _POSITION.fullmatch(asked)
    if position:
        return _at(tokens, int(position[1]))
    places = [place for place, token in enumerate(tokens) if token == asked]
    if not places and _LIKE_A_POSITION.fullmatch(asked):
        raise _outside(tokens, asked)
    if not places:
        raise ValueError(
            Message(
                "{asked} is not in the sentence. {hint}.",
                asked=quoted(asked),
                hint=_hint(tokens, asked),
            )
        )
    if len(places) > 1:
        named = listed(f"#{place + 1}" for place in places)
        raise ValueError(
            Message(
                "{asked} stands {count} times in the sentence, at {named}. Ask for one of them, "
                "as in --query '#{value}'.",
                asked=quoted(asked),
                count=len(places),
                named=named,
                value=places[0] + 1,
            )
        )
    return places[0]


def _at(tokens: Sequence[str], position: int) -> int:
    if not 1 <= position <= len(tokens):
        raise _outside(tokens, f"#{position}")
    return position - 1


def _outside(tokens: Sequence[str], asked: str) -> ValueError:
    return ValueError(
        Message(
            "--query must be from #1 to #{most}, got {asked}. The sentence is {words}.",
            most=len(tokens),
            asked=asked,
            words=listed(map(quoted, tokens)),
        )
    )


def _hint(tokens: Sequence[str], asked: str) -> str:
    parts = split(asked)
    if len(parts) > 1 and all(part in tokens for part in parts):
        return Message(
            "It is {count} tokens here, so ask for one of {words}",
            count=len(parts),
            words=listed(map(quoted, parts)),
        )
    if asked.isdecimal():
        return Message("For a position, write --query '#{asked}'", asked=asked)
    alike, words = nearest(asked, tokens), listed(map(quoted, dict.fromkeys(tokens)))
    if alike:
        return Message(
            "Did you mean {name}? Choose one of {words}", name=quoted(alike), words=words
        )
    return Message("Choose one of {words}", words=words)

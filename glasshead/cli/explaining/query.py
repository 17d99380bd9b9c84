"""Query: the word of the sentence whose attention is explained."""

import re
from collections.abc import Sequence

from glasshead.cli.inputs.wording import listed, nearest, quoted
from glasshead.explanation.embeddings import last_word, split

_POSITION = re.compile(r"#([0-9]{1,9})")
# What is meant for a position and is none: #-1, #1.5, # 2.
_LIKE_A_POSITION = re.compile(r"#[-+ ]*[0-9][0-9.,]*")


def query_position(tokens: Sequence[str], asked: str | None) -> int:
    """The place of the query among the tokens, counted from 0.

    Args:
        tokens: The sentence.
        asked: A token, or "#2" for the second one; None: the last that is a word.

    Errors: a ValueError where the token is not there or stands more than once, or the position is
    outside the sentence.

    >>> sentence = ["the", "sun", "and", "the", "moon", "!"]
    >>> query_position(sentence, None), query_position(sentence, "sun")
    (4, 1)
    >>> query_position(sentence, "#4")
    3
    """
    if asked is None:
        return last_word(tokens)
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
    alike = nearest(asked, tokens)
    question = f"did you mean {quoted(alike)}? It" if alike else "it"
    return f"{question} takes one of {listed(map(quoted, dict.fromkeys(tokens)))}"

"""Sentence: the words whose attention is computed, and their vectors."""

import torch

from glasshead.explanation.embeddings import Embeddings, composed
from glasshead.explanation.splitting import is_word, split
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.studio.limits import Limits
from glasshead.studio.refusals import Refusal, TooMuch
from glasshead.studio.views.steps.asked import StepsAsked

# Few enough to follow by hand, and 1, 2 or 4 heads can share them.
_DIM = 4
SEED = 123
"""What vectors of any sentence but the worked example are made up from."""


def sentence_of(asked: StepsAsked, limits: Limits) -> Embeddings:
    """The words and their vectors: those of the texts, or made-up ones.

    Errors: a `Refusal` where there is no word, or there are too many.

    >>> sentence_of(StepsAsked(text="Hello, sun!"), Limits()).tokens
    ('Hello', ',', 'sun', '!')
    """
    if asked.is_worked_example:
        example = HELLO_SHINY_SUN
        return Embeddings(example.tokens, torch.tensor(example.embeddings, dtype=torch.float64))
    words = _words(asked.text or "", limits)
    return Embeddings.made_up(words, dim=_DIM, seed=SEED)


def query_of(asked: StepsAsked, tokens: tuple[str, ...]) -> int:
    """The position of the word that is told of.

    Errors: a `Refusal` where the sentence has no such position.

    >>> query_of(StepsAsked(text="A sun!"), ("A", "sun", "!"))
    1
    """
    if asked.query is None:
        if asked.is_worked_example:
            return tokens.index(HELLO_SHINY_SUN.query)
        words = [place for place, token in enumerate(tokens) if is_word(token)]
        return words[-1] if words else len(tokens) - 1
    if not 0 <= asked.query < len(tokens):
        raise Refusal(
            f"query takes a position from 0 to {len(tokens) - 1}, and got {asked.query}: the "
            f"sentence has {len(tokens)} words."
        )
    return asked.query


def _words(text: str, limits: Limits) -> list[str]:
    if len(text) > limits.sentence:
        raise TooMuch(
            f"a sentence takes at most {limits.sentence:,} characters here, and this has "
            f"{len(text):,}: cut it."
        )
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise Refusal("a sentence takes whole characters, and this has halves of some: retype it.")
    words = split(composed(text))
    if not words:
        raise Refusal("a sentence takes a word at least, and this has none: write one.")
    if len(words) > limits.words:
        raise TooMuch(
            f"a sentence takes at most {limits.words} words and marks here, and this has "
            f"{len(words)}: cut it."
        )
    return words

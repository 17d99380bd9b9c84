"""Sentence: the words whose attention is computed, and their vectors."""

from glasshead.explanation.embeddings import Embeddings, composed, last_word, split
from glasshead.ladder.worked_example import HELLO_SHINY_SUN
from glasshead.studio.limits import Limits
from glasshead.studio.refusals import Refusal, TooMuch
from glasshead.studio.views.steps.asked import StepsAsked


def sentence_of(asked: StepsAsked, limits: Limits) -> Embeddings:
    """The words and their vectors: those of the texts, or made-up ones.

    Errors: a `Refusal` where there is no word, or there are too many.

    >>> sentence_of(StepsAsked(text="Hello, sun!"), Limits()).tokens
    ('Hello', ',', 'sun', '!')
    """
    if asked.is_worked_example:
        return Embeddings.of_the_texts(HELLO_SHINY_SUN)
    return Embeddings.made_up(_words(asked.text or "", limits))


def query_of(asked: StepsAsked, tokens: tuple[str, ...]) -> int:
    """The position of the word that is told of.

    Errors: a `Refusal` where the sentence has no such position.

    >>> query_of(StepsAsked(text="A sun!"), ("A", "sun", "!"))
    1
    """
    if asked.query is None:
        if asked.is_worked_example:
            return tokens.index(HELLO_SHINY_SUN.query)
        return last_word(tokens)
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

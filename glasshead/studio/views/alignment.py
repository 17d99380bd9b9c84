"""Alignment: the translations that a beam finds of a sentence, and what each word looked at."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing.printable import printable, visible
from glasshead.studio.studio import Limits
from glasshead.studio.work import Refusal, TooMuch, Work

if TYPE_CHECKING:
    from glasshead.tasks.translate import Candidate, TextTranslator

WIDTHS = range(1, 11)
"""How many texts a beam may keep open."""

USUAL_WIDTH = 5
_NAME = "this sentence"
_WORDLESS = "a translation takes a sentence, and this has no word: write one."
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")


def translations(
    translator: "TextTranslator",
    sentence: str,
    limits: Limits,
    width: int = USUAL_WIDTH,
    work: Work | None = None,
) -> dict[str, Any]:
    """The best translations that a beam of a width finds, as many as it keeps open.

    Args:
        translator: What translates.
        sentence: What is translated.
        limits: How long it may be.
        width: Of the beam.
        work: Is asked before each step of the model whether somebody still waits.

    Returns: `source`, the words of the sentence; `layers` and `heads`, how many the decoder has;
    `length_penalty`, the beam's; and the `candidates`, the best first: each with its `text`, the
    places in it of its `own` words, which the best one has not, its `target` words and `tokens`,
    `log_probability`, ln p, in nats, `score`, which is ln p divided by
    ((5 + tokens) / 6)^length_penalty, its end counted among the tokens, and `ended`, False where it
    was cut off.

    Errors: a `Refusal` where the sentence has no word or is too long, and a ValueError where it has
    more tokens than the model reads.
    """
    from glasshead.models.decoding import Beam
    from glasshead.tasks.tokenizers.tokenizer import whole_words
    from glasshead.tasks.translate.text_translator import SEARCH

    check_sentence(sentence, limits)
    penalty = SEARCH.length_penalty
    strategy = Beam(width, length_penalty=penalty, candidates=width)
    step = None if work is None else work.check
    found = translator.candidates([sentence], strategy, name=lambda _: _NAME, each_step=step)[0]
    if not found:
        raise Refusal(_WORDLESS)
    source = whole_words(translator.tokenizer, found[0].translation.source_tokens)
    return {
        "source": [*map(visible, source.words)],
        "layers": len(translator.model.decoder),
        "heads": translator.model.config.num_heads,
        "length_penalty": penalty,
        "candidates": [_told(translator, each, found[0]) for each in found],
    }


def weights(
    translator: "TextTranslator",
    sentence: str,
    tokens: Sequence[int],
    limits: Limits,
) -> Float[Tensor, "layers heads target source"]:
    """The cross-attention of each layer and head, of whole words, for a translation of a sentence.

    Args:
        translator: What translates.
        sentence: What was translated.
        tokens: Of the translation, as one of the `candidates` has them.
        limits: How long the sentence may be.

    Errors: as of `translations`, and a `Refusal` where the tokens are none of the model's.
    """
    from glasshead.tasks.translate import Translation, cross_attention

    check_sentence(sentence, limits)
    _check_tokens(translator, tokens)
    source = translator.tokenizer.encode(sentence)
    room = translator.model.config.context_length
    if len(source) > room:
        raise TooMuch(
            f"{_NAME} has {len(source)} tokens, and the model reads {room} at most: cut it into "
            "sentences."
        )
    return cross_attention(
        translator, Translation(sentence, "", tuple(source), tuple(tokens))
    ).weights


def stored_alignment(
    translator: "TextTranslator",
    text: str,
    limits: Limits,
    sentences: int = 1,
    width: int = USUAL_WIDTH,
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """What a report holds of the view: the path of each answer, its parameters, and itself.

    It is of the first sentences of a text that can be translated. `alignment/stored` says which
    these are, and how wide the beam was.

    Errors: a `Refusal` where there is no such sentence.
    """
    told: list[str] = []
    for sentence in sentences_of(text):
        try:
            found = translations(translator, sentence, limits, width)
        except ValueError:
            # Too long, or without a word: the next one may do.
            continue
        told.append(sentence)
        yield "alignment", {"sentence": sentence, "beam": width}, found
        for candidate in found["candidates"]:
            tokens = candidate["tokens"]
            asked = {"sentence": sentence, "tokens": ",".join(map(str, tokens))}
            yield "alignment/weights", asked, weights(translator, sentence, tokens, limits)
        if len(told) == sentences:
            break
    if not told:
        raise Refusal(
            f"the text is to begin with a sentence of at most {limits.words} words that the model "
            "can read, and has none: choose another."
        )
    yield "alignment/stored", {}, {"sentences": told, "beam": width}


def sentences_of(text: str) -> list[str]:
    r"""The sentences of a text, as marks and lines end them.

    >>> sentences_of("Ist das so? Ja.  Das ist\nein Satz.")
    ['Ist das so?', 'Ja.', 'Das ist', 'ein Satz.']
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def check_sentence(sentence: str, limits: Limits) -> None:
    """Raise a `Refusal` where a sentence has no word, or more of them than the limits allow."""
    if not sentence.strip():
        raise Refusal(_WORDLESS)
    for what, count, most in (
        ("characters", len(sentence), limits.sentence),
        ("words", len(sentence.split()), limits.words),
    ):
        if count > most:
            raise TooMuch(
                f"a sentence has at most {most} {what} here, and this has {count}: cut it."
            )


def _check_tokens(translator: "TextTranslator", tokens: Sequence[int]) -> None:
    config = translator.model.config
    if len(tokens) > config.context_length:
        raise TooMuch(
            f"a translation has at most {config.context_length} tokens, and this has "
            f"{len(tokens)}: take one of the candidates."
        )
    unknown = [token for token in tokens if not 0 <= token < config.vocab_size]
    if unknown:
        raise Refusal(
            f"tokens are numbers from 0 to {config.vocab_size - 1}, and one is {unknown[0]}: take "
            "those of one of the candidates."
        )


def _told(
    translator: "TextTranslator", candidate: "Candidate", best: "Candidate"
) -> dict[str, Any]:
    from glasshead.tasks.tokenizers.tokenizer import whole_words

    tokens = list(candidate.translation.tokens)
    words = whole_words(translator.tokenizer, tokens).words if tokens else ()
    return {
        "text": printable(candidate.translation.text),
        "own": _own(candidate.translation.text, best.translation.text),
        "target": [*map(visible, words)],
        "tokens": tokens,
        "score": candidate.score,
        "log_probability": candidate.log_probability,
        "ended": candidate.ended,
    }


def _own(text: str, best: str) -> list[int]:
    """The places of the words of a text that the best one does not have in their order.

    >>> _own("er liest das Buch", "er las das")
    [1, 3]
    """
    words = printable(text).split(" ")
    blocks = SequenceMatcher(None, printable(best).split(" "), words, autojunk=False)
    shared = {at for one in blocks.get_matching_blocks() for at in range(one.b, one.b + one.size)}
    return [at for at in range(len(words)) if at not in shared]

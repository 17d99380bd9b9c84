"""The view `alignment`: beam search translations of a sentence and their cross-attention."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Annotated, Any

from jaxtyping import Float
from torch import Tensor

from glasshead.drawing.printable import printable, visible
from glasshead.message import Message, _
from glasshead.studio.background_jobs import Refusal, TooMuch, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import text_limits, words_of
from glasshead.studio.stored_answers import ReportContent, StoredAnswers, report_note
from glasshead.studio.studio import Limits

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes
    from glasshead.tasks.translate import Candidate, TextTranslator


WORDS = {
    "alignment.title": _("Alignment"),
    "alignment.what": _(
        "This page shows which source words each word of a translation attends to."
    ),
    "alignment.none": _(
        "The alignment needs a translation model. Start the studio with a run folder of "
        "glasshead train translate."
    ),
    "alignment.sentence": _("A sentence to translate"),
    "alignment.translate": _("Translate"),
    "alignment.beam": _("Beam width"),
    "alignment.layer": _("Decoder layer"),
    "alignment.head": _("Head"),
    "alignment.mean": _("mean"),
    "alignment.candidates": _("Beam search candidates"),
    "alignment.candidate": _("Translation"),
    "alignment.score": _("Score"),
    "alignment.ln_p": _("ln p"),
    "alignment.ranked": _(
        "Sorted by score: ln p of the full translation, in nats, divided by ((5 + tokens) / "
        "6)^{penalty}. The end token counts as one of the tokens."
    ),
    "alignment.cut_off": _("cut off"),
    "alignment.empty": _("(nothing)"),
    "alignment.picture": _("Cross-attention of each word of the translation"),
    "alignment.source": _("Words of the sentence"),
    "alignment.target": _("Words of the translation"),
    "alignment.hint": _(
        "A line shows how much a word of the translation attends to a word of the sentence. The "
        "larger a weight, the wider its line. Weights below {least} have no line. Point at a word, "
        "or tap it, to read its weights."
    ),
    "alignment.keyboard": _("The arrow keys move among the words, and Esc clears the selection."),
    "alignment.gave": _("The attention of “{word}”: {weights}."),
    "alignment.took": _("“{word}” receives {weights}."),
    "alignment.to": _("{weight} to “{word}”"),
    "alignment.from": _("{weight} from “{word}”"),
    "alignment.rest.to": _("{weight} to {count} others"),
    "alignment.rest.from": _("{weight} from {count} others"),
    "alignment.table": _(
        "The weights, one row per word of the translation; each row sums to 1: {what}."
    ),
    "alignment.mean_of.layer": _("mean of all layers"),
    "alignment.mean_of.head": _("mean of all heads"),
    "alignment.one.layer": _("layer {layer}"),
    "alignment.one.head": _("head {head}"),
    "alignment.nothing": _(
        "This translation has no words, so there is no cross-attention to show."
    ),
}


WIDTHS = range(1, 11)
"""Allowed beam widths."""

USUAL_WIDTH = 5
_NAME = "this sentence"
_WORDLESS = Message("Enter at least one word.")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")


def translations(
    translator: "TextTranslator",
    sentence: str,
    limits: Limits,
    width: int = USUAL_WIDTH,
    work: Work | None = None,
) -> dict[str, Any]:
    """Translate a sentence by beam search and return as many candidates as the beam is wide.

    Args:
        translator: The translator.
        sentence: The source sentence.
        limits: Limits on its length.
        width: Beam width.
        work: Checked for cancellation before each decoding step.

    Returns: `source`, the words of the sentence; `layers` and `heads`, their numbers in the
    decoder; `length_penalty` of the beam; and the `candidates`, best first: each with its `text`,
    the positions of its `own` words, which the best candidate lacks, its `target` words and
    `tokens`, `log_probability`, ln p, in nats, `score`, which is ln p divided by
    ((5 + tokens) / 6)^length_penalty, counting the end token, and `ended`, False if it was
    truncated.

    Errors: a `Refusal` if the sentence has no word or is too long, and a ValueError if it has
    more tokens than the model reads.
    """
    from glasshead.models.decoding import Beam
    from glasshead.tasks.tokenizers.tokenizer import whole_words
    from glasshead.tasks.translate import SEARCH

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
        "candidates": [_candidate_data(translator, each, found[0]) for each in found],
    }


def weights(
    translator: "TextTranslator",
    sentence: str,
    tokens: Sequence[int],
    limits: Limits,
) -> Float[Tensor, "layers heads target source"]:
    """Compute the cross-attention of each layer and head between the words of a translation.

    Args:
        translator: The translator.
        sentence: The source sentence.
        tokens: Token ids of the translation, as in `candidates`.
        limits: Limits on the sentence's length.

    Errors: as of `translations`, and a `Refusal` if a token id is out of range.
    """
    from glasshead.tasks.translate import Translation, cross_attention

    check_sentence(sentence, limits)
    _check_tokens(translator, tokens)
    source = translator.tokenizer.encode(sentence)
    room = translator.model.config.context_length
    if len(source) > room:
        raise TooMuch(
            "this sentence must have at most the {room} tokens that the model reads, got {count}. "
            "Cut it into sentences.",
            count=len(source),
            room=room,
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
    """Generate the answers of the view for a report, as (path, parameters, answer).

    They cover the first sentences of a text that can be translated. `alignment/stored` lists
    these, and the beam width.

    Errors: a `Refusal` if there is no such sentence.
    """
    translated: list[str] = []
    for sentence in sentences_of(text):
        try:
            found = translations(translator, sentence, limits, width)
        except ValueError:
            # Too long, or without a word: try the next one.
            continue
        translated.append(sentence)
        yield "alignment", {"sentence": sentence, "beam": width}, found
        for candidate in found["candidates"]:
            tokens = candidate["tokens"]
            parameters = {"sentence": sentence, "tokens": ",".join(map(str, tokens))}
            yield "alignment/weights", parameters, weights(translator, sentence, tokens, limits)
        if len(translated) == sentences:
            break
    if not translated:
        raise Refusal(
            "the text must begin with a sentence of at most {most} words that the model can "
            "read. Choose another.",
            most=limits.words,
        )
    yield "alignment/stored", {}, {"sentences": translated, "beam": width}


def sentences_of(text: str) -> list[str]:
    r"""Split a text into sentences at end marks and line breaks.

    >>> sentences_of("Ist das so? Ja.  Das ist\nein Satz.")
    ['Ist das so?', 'Ja.', 'Das ist', 'ein Satz.']
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def check_sentence(sentence: str, limits: Limits) -> None:
    """Check that a sentence has a word and keeps within the limits.

    Errors: a `Refusal` if it has no word, `TooMuch` if it is too long.
    """
    if not sentence.strip():
        raise Refusal(_WORDLESS)
    if len(sentence) > limits.sentence:
        raise TooMuch(
            "A sentence must have at most {most:,} characters, got {count:,}. Choose a shorter "
            "one.",
            most=limits.sentence,
            count=len(sentence),
        )
    if (count := len(sentence.split())) > limits.words:
        raise TooMuch(
            "A sentence must have at most {most:,} words, got {count:,}. Choose a shorter one.",
            most=limits.words,
            count=count,
        )


def _check_tokens(translator: "TextTranslator", tokens: Sequence[int]) -> None:
    config = translator.model.config
    if len(tokens) > config.context_length:
        raise TooMuch(
            "a translation must have at most {most} tokens, got {count}. Use one of the "
            "candidates.",
            most=config.context_length,
            count=len(tokens),
        )
    unknown = [token for token in tokens if not 0 <= token < config.vocab_size]
    if unknown:
        raise Refusal(
            "tokens must be in 0..{most}, got {token}. Use the tokens of one of the candidates.",
            most=config.vocab_size - 1,
            token=unknown[0],
        )


def _candidate_data(
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
    """Return the positions of the words that a diff against the best text marks as new.

    >>> _own("er liest das Buch", "er las das")
    [1, 3]
    """
    words = printable(text).split(" ")
    blocks = SequenceMatcher(None, printable(best).split(" "), words, autojunk=False)
    matches = blocks.get_matching_blocks()
    shared = {at for match in matches for at in range(match.b, match.b + match.size)}
    return [at for at in range(len(words)) if at not in shared]


_SENTENCES = 5


def export_alignment(answers: StoredAnswers, content: ReportContent) -> list[str]:
    """Export the translations of the first sentences, with their cross-attention weights.

    Errors: a `Refusal` if there is no sentence that can be translated.
    """
    subject, limits = content.studio.subject, content.studio.limits
    found = stored_alignment(subject.translator(), content.text, limits, _SENTENCES)
    answers.hold_all(found, content.work)
    count = len(answers.by_key["alignment/stored"]["sentences"])
    return (
        []
        if count == len(sentences_of(content.text))
        else report_note(content, "sentences", count=count)
    )


# Characters of a list of token ids; translations are far shorter.
_LONGEST = 2**14
_Width = Annotated[int, {"ge": WIDTHS[0], "le": WIDTHS[-1]}]
_Tokens = Annotated[str, {"max_length": _LONGEST, "pattern": r"^([0-9]{1,9}(,[0-9]{1,9})*)?$"}]


def _add_routes(routes: "Routes") -> None:
    subject, limits = routes.studio.subject, routes.studio.limits
    some_words = text_limits(words_of(limits), limits.sentence)

    @routes.json()
    def candidates(
        work: Work, sentence: Annotated[str, some_words], beam: _Width = USUAL_WIDTH
    ) -> dict[str, Any]:
        """Return a sentence's words, and its translations by beam search, best first.

        400 or 413 if it has more tokens than the model reads, 404 if there is no translator.
        """
        return translations(subject.translator(), sentence, limits, beam, work)

    @routes.numbers("/weights")
    def cross_attention_weights(sentence: Annotated[str, some_words], tokens: _Tokens) -> Tensor:
        """Return the cross-attention weights [layers, heads, target, source] of a translation.

        400 if a token is out of range, 404 if there is no translator, 413 if there
        are more tokens than the model reads.
        """
        target = [int(token) for token in tokens.split(",") if token]
        return weights(subject.translator(), sentence, target, limits)


PANEL = Panel(words=WORDS, routes=_add_routes)

"""A trained translator with its tokenizer: translation, cross-attention and evaluation."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.extras import require
from glasshead.message import Message
from glasshead.models import Translator
from glasshead.models.decoding import Beam, Hypothesis, Steps, Strategy, generate
from glasshead.models.translator import TranslatorSteps
from glasshead.statistics import PooledMap
from glasshead.tasks.data.batches import in_order, pad
from glasshead.tasks.data.columns import check_columns
from glasshead.tasks.tokenizers.tokenizer import Tokenizer, WholeWords, whole_words
from glasshead.tasks.tokenizers.words_and_letters import without_spaces
from glasshead.tasks.train_translator import (
    PRESETS,
    TRANSLATE,
    Pairs,
    TranslateSettings,
    place_of,
    read_pairs,
)
from glasshead.watching import watch

__all__ = [
    "PRESETS",
    "TRANSLATE",
    "Alignment",
    "Candidate",
    "CrossAttention",
    "TextTranslator",
    "TranslateSettings",
    "Translation",
    "TranslationEvaluation",
    "align",
    "check_choice",
    "cross_attention",
    "evaluate",
]

# Beam search as in Vaswani et al. 2017, section 6.1, but with a beam of 5 and length penalty 1.
SEARCH = Beam(5, length_penalty=1.0)
# Source tokens of a batch; a beam multiplies them by its width.
_AT_ONCE = 1500
# The maximum length of a translation is rounded up to a multiple of this.
_STEP = 32


@dataclass(frozen=True)
class Translation:
    """A text with its translation.

    Attributes:
        source: The text.
        text: Its translation.
        source_tokens: Token ids of the text.
        tokens: Token ids of the translation, as generated.
    """

    source: str
    text: str
    source_tokens: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A candidate translation found by decoding.

    Attributes:
        translation: The translation.
        score: Ranking score: the log-probability, divided by the length penalty for a beam.
        log_probability: Σ ln p(token | preceding tokens, text), including the end token, in nats.
        ended: Whether it reached the end token, or was truncated.
    """

    translation: Translation
    score: float
    log_probability: float
    ended: bool


@dataclass(frozen=True, eq=False)
class TextTranslator:
    """A trained translator.

    Attributes:
        model: The model.
        tokenizer: The tokenizer of both languages.
        settings: The settings of its training run.
    """

    model: Translator
    tokenizer: Tokenizer
    settings: TranslateSettings

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the model of a run folder.

        Errors: an OSError if the folder is missing or incomplete; a ValueError if it is of
        another task, or its parts do not fit each other.
        """
        return cls(*TRANSLATE.load(folder))

    def translate(
        self,
        texts: Sequence[str],
        strategy: Strategy = SEARCH,
        progress: Callable[[int, int], None] | None = None,
        name: Callable[[int], str] = "text {}".format,
    ) -> list[Translation]:
        """Translate texts; the result of a text does not depend on the others.

        An empty text has an empty translation.

        Args:
            texts: Sentences, as in training.
            strategy: Decoding strategy.
            progress: Called with the number of texts done and in all.
            name: Returns the name of a text in error messages, given its number from 1.

        Errors: a ValueError if a text is longer than the model's context.
        """
        return [
            found[0].translation if found else Translation(text, "")
            for text, found in zip(
                texts, self.candidates(texts, strategy, progress, name), strict=True
            )
        ]

    def candidates(
        self,
        texts: Sequence[str],
        strategy: Strategy = SEARCH,
        progress: Callable[[int, int], None] | None = None,
        name: Callable[[int], str] = "text {}".format,
        each_step: Callable[[], None] | None = None,
    ) -> list[list[Candidate]]:
        """Return the candidate translations of each text, best first.

        There is one, or up to the number in `Beam(width, candidates=…)`. More candidates make a
        beam search longer: the score of the first is at least that of `translate`'s. An empty text
        has none.

        Args:
            texts, strategy, progress, name: As for `translate`.
            each_step: Called before each decoding step; an exception ends the search.

        Errors: as for `translate`.
        """
        sources = [
            tokens if text.strip() else []
            for text, tokens in zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        ]
        self._check_lengths(sources, name)
        candidates: list[list[Candidate]] = [[] for _ in texts]
        done = sources.count([])
        for places, most in self._batches(sources):
            some = [sources[place] for place in places]
            for place, found in zip(
                places, self._written(some, strategy, most, each_step), strict=True
            ):
                candidates[place] = [
                    self._candidate(texts[place], sources[place], each) for each in found
                ]
            done += len(places)
            if progress is not None:
                progress(done, len(texts))
        return candidates

    def _candidate(self, text: str, source: Sequence[int], found: Hypothesis) -> Candidate:
        written = " ".join(self.tokenizer.decode(found.tokens).split())
        translation = Translation(text, written, tuple(source), tuple(found.tokens))
        return Candidate(translation, found.score, found.log_probability, found.ended)

    def _batches(self, sources: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
        """Group texts by the maximum length of their translations, and then into batches.

        All texts of a batch have the same maximum, so that results do not depend on the batch.
        """
        by_most: dict[int, list[int]] = {}
        for place, source in enumerate(sources):
            if source:
                by_most.setdefault(self._most(len(source)), []).append(place)
        for most, places in by_most.items():
            lengths = [len(sources[place]) for place in places]
            for batch in in_order(lengths, _AT_ONCE):
                yield [places[at] for at in batch], most

    def _most(self, length: int) -> int:
        # A longer output is a repetition loop.
        steps = math.ceil((2 * length + 10) / _STEP)
        return min(steps * _STEP, self.model.config.context_length)

    def _written(
        self,
        sources: Sequence[Sequence[int]],
        strategy: Strategy,
        most: int,
        each_step: Callable[[], None] | None,
    ) -> list[list[Hypothesis]]:
        tokenizer = self.tokenizer
        lengths = torch.tensor([len(source) for source in sources])
        steps: Steps = TranslatorSteps(self.model, pad(sources, tokenizer.pad_id), lengths)
        return generate(
            steps if each_step is None else _NotifyingSteps(steps, each_step),
            torch.full((len(sources), 1), tokenizer.start_id),
            strategy,
            max_tokens=most,
            end=tokenizer.end_id,
            never=[tokenizer.pad_id, tokenizer.start_id],
        ).alternatives

    def _check_lengths(self, sources: Sequence[Sequence[int]], name: Callable[[int], str]) -> None:
        most = self.model.config.context_length
        for number, source in enumerate(sources, 1):
            if len(source) > most:
                raise ValueError(
                    Message(
                        "{name} must have at most the {most} tokens that the model reads, got "
                        "{count}. Cut it into sentences.",
                        name=name(number),
                        count=len(source),
                        most=most,
                    )
                )


class _NotifyingSteps:
    """Decoding steps that call a function before each.

    Args:
        steps: The model's steps.
        each: The function to call.
    """

    def __init__(self, steps: Steps, each: Callable[[], None]) -> None:
        self._steps, self._each = steps, each

    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        self._each()
        return self._steps.next(tokens)

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        self._steps.reorder(rows)


@dataclass(frozen=True)
class TranslationEvaluation:
    """Evaluation of a translator.

    Attributes:
        bleu: BLEU, 0 to 100.
        bleu_signature: sacreBLEU's signature of BLEU.
        chrf: chrF, 0 to 100.
        chrf_signature: sacreBLEU's signature of chrF.
        exact: Fraction of translations equal to the reference.
        texts: Number of texts.
        translations: The translations.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: float
    texts: int
    translations: tuple[Translation, ...]


def evaluate(
    translator: TextTranslator,
    files: Sequence[str] = (),
    strategy: Strategy = SEARCH,
    progress: Callable[[int, int], None] | None = None,
) -> TranslationEvaluation:
    """Compute BLEU and chrF by sacreBLEU on files, or on the held-out data.

    For a lowercase model the comparison is lowercase, as the signatures say (`case:lc`). BLEU
    splits references without spaces by their script, as Chinese and Thai (`tok:zh`, `tok:char`).

    Args:
        translator: The translator.
        files: Parallel texts, as for training; none: those that the run held out.
        strategy: Decoding strategy.
        progress: Called with the number of texts done and in all.

    Errors: an OSError or ValueError if a file cannot be read, or a text is longer than the
    model's context; a ValueError if the held-out data has changed.

    Source: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018 (a call for clarity in
    reporting BLEU scores), section 3, for the signatures.
    """
    require("evaluating a translator", "sacrebleu")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lowercase, tokenizer = translator.settings.data.lowercase, translator.tokenizer
    pairs = _pairs(translator, files)
    data = translator.settings.data
    name = "text {}".format
    if files:
        name = partial(place_of, files, source=data.source, target=data.target)
    translations = translator.translate([text for text, _ in pairs], strategy, progress, name)
    expected = [tokenizer.normalized(text) if lowercase else text for _, text in pairs]
    written = [translation.text for translation in translations]
    bleu = BLEU(lowercase=lowercase, tokenize=bleu_tokenizer(expected))
    chrf = CHRF(lowercase=lowercase)
    scores = [metric.corpus_score(written, [expected]).score for metric in (bleu, chrf)]
    return TranslationEvaluation(
        bleu=scores[0],
        bleu_signature=str(bleu.get_signature()),
        chrf=scores[1],
        chrf_signature=str(chrf.get_signature()),
        exact=sum(map(str.__eq__, written, expected)) / len(pairs),
        texts=len(pairs),
        translations=tuple(translations),
    )


def bleu_tokenizer(references: Sequence[str]) -> str:
    """Return the name of sacreBLEU's tokenizer for references, by their script.

    >>> bleu_tokenizer(["这部电影很好看。"]), bleu_tokenizer(["หนังดี"]), bleu_tokenizer(["a film"])
    ('zh', 'char', '13a')
    """
    match without_spaces(references):
        case None:
            return "13a"
        case "Chinese":
            return "zh"
        case "Japanese" if find_spec("MeCab") and find_spec("ipadic"):
            return "ja-mecab"
    return "char"


def _pairs(translator: TextTranslator, files: Sequence[str]) -> Pairs:
    data = translator.settings.data
    if files:
        check_columns(files, {"source": data.source, "target": data.target}, settable=False)
        return read_pairs(files, data.source, data.target)
    return TRANSLATE.held_out(data, remedy="Name files")


_NO_WORDS = WholeWords((), torch.zeros(0, dtype=torch.long))


@dataclass(frozen=True, eq=False)
class Alignment:
    """A soft alignment: attention weights between the words of a translation and its source.

    Attributes:
        source: Words of the source text.
        target: Words of the translation.
        weights: Rows are target words and sum to 1; columns are source words.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "target source"]

    def pairs(self) -> list[tuple[str, str, float]]:
        """Return each target word with the source word of the largest weight, and that weight."""
        if not self.target:
            return []
        most = self.weights.max(-1)
        return [
            (word, self.source[at], weight)
            for word, at, weight in zip(
                self.target, most.indices.tolist(), most.values.tolist(), strict=True
            )
        ]


@dataclass(frozen=True, eq=False)
class CrossAttention:
    """Cross-attention weights between the words of a translation and its source, in every head.

    Attributes:
        source: Words of the source text.
        target: Words of the translation.
        weights: Weights by decoder layer and head, each matrix as in `Alignment`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads target source"]

    def of(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """Return the alignment of a layer, by default the last, and a head, by default the mean."""
        chosen = self.weights[-1 if layer is None else layer]
        weights = chosen.mean(0) if head is None else chosen[head]
        return Alignment(self.source, self.target, weights)


@torch.inference_mode()
def cross_attention(translator: TextTranslator, translation: Translation) -> CrossAttention:
    """Compute the decoder's cross-attention between whole words, in every layer and head.

    A word's row is that of the query which predicts it, the token before it. Where a word is
    several tokens, its row is the mean of theirs, and its column their sum. The model runs once.

    Args:
        translator: The translator.
        translation: A translation by it; an empty one has no weights.

    Source: Bahdanau et al. 2015, section 5.2.1 and figure 3.
    """
    model, tokenizer = translator.model, translator.tokenizer
    source, target = list(translation.source_tokens), list(translation.tokens)
    columns, rows = (
        whole_words(tokenizer, tokens) if tokens else _NO_WORDS for tokens in (source, target)
    )
    if not source or not target:
        nothing = torch.zeros(
            len(model.decoder), model.config.num_heads, len(rows.words), len(columns.words)
        )
        return CrossAttention(columns.words, rows.words, nothing)
    inputs = torch.tensor([[tokenizer.start_id, *target[:-1]]])
    statistics = [PooledMap(len(target), len(source))]
    with watch(model.decoder, statistics, layers="*.cross_attention") as seen:
        model(torch.tensor([source]), torch.tensor([len(source)]), inputs)
    # Each is [1, heads, target tokens, source tokens], in the order of the layers.
    weights = torch.cat([each.pooled_map for each in seen.values()]).float()
    return CrossAttention(columns.words, rows.words, rows.mean(columns.sum(weights).mT).mT)


def align(
    translator: TextTranslator,
    translation: Translation,
    layer: int | None = None,
    head: int | None = None,
) -> Alignment:
    """Compute the alignment of a translation in one layer, of one head or the mean of all.

    Args:
        translator: The translator.
        translation: A translation by it.
        layer: Decoder layer, counted from 0; by default the last.
        head: Head, counted from 0; by default the mean of all.

    Errors: a ValueError if there is no such layer or head.
    """
    check_choice(translator, layer, head)
    if not translation.source_tokens or not translation.tokens:
        return Alignment((), (), torch.zeros(0, 0))
    return cross_attention(translator, translation).of(layer, head)


def check_choice(translator: TextTranslator, layer: int | None, head: int | None) -> None:
    """Check the indices of a decoder layer and a head.

    Errors: a ValueError if one is out of range.
    """
    model = translator.model
    for name, number, count in (
        (Message("layer"), layer, len(model.decoder)),
        (Message("head"), head, model.config.num_heads),
    ):
        if number is not None and not 0 <= number < count:
            raise ValueError(
                Message(
                    "{name} must be from 0 to {largest}, got {number}.",
                    name=name,
                    largest=count - 1,
                    number=number,
                )
            )

"""A trained translator with its tokenizer: translations, their alignment, their BLEU."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.models import Translator
from glasshead.models.decoding import Beam, Hypothesis, Steps, Strategy, generate
from glasshead.models.translator import TranslatorSteps
from glasshead.statistics import PooledMap
from glasshead.tasks.data.batches import in_order, pad
from glasshead.tasks.tokenizers.tokenizer import Tokenizer, WholeWords, whole_words
from glasshead.tasks.translate.data import Pairs, place_of, read_pairs
from glasshead.tasks.translate.train import TRANSLATE, TranslateSettings
from glasshead.watching import watch

# How Vaswani et al. 2017 search, section 6.1, but for one text more and a penalty of 1.
SEARCH = Beam(5, length_penalty=1.0)
# How many tokens of sources are translated at once; a beam has some times as many.
_AT_ONCE = 1500
# In which steps the most tokens of a translation grow with the text.
_STEP = 32


@dataclass(frozen=True)
class Translation:
    """What became of a text.

    Attributes:
        source: The text.
        text: Its translation.
        source_tokens: The text in tokens.
        tokens: The translation in tokens, as the model wrote them.
    """

    source: str
    text: str
    source_tokens: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One of the translations that a search found for a text.

    Attributes:
        translation: What it is.
        score: By which it was ranked: the log-probability, for a beam divided by its penalty of
            the length.
        log_probability: Σ ln p(token | those before, text), that of the end with it, in nats.
        ended: Whether it came to its end, or was cut off.
    """

    translation: Translation
    score: float
    log_probability: float
    ended: bool


@dataclass(frozen=True, eq=False)
class TextTranslator:
    """A translator of texts.

    Attributes:
        model: What translates.
        tokenizer: What makes tokens of a text, and text of tokens.
        settings: What it was trained on, and how.
    """

    model: Translator
    tokenizer: Tokenizer
    settings: TranslateSettings

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a run folder.

        Errors: an OSError where the folder is none, or not whole; a ValueError where it is another
        task's, or its parts do not fit each other.
        """
        return cls(*TRANSLATE.load(folder))

    def translate(
        self,
        texts: Sequence[str],
        strategy: Strategy = SEARCH,
        progress: Callable[[int, int], None] | None = None,
        name: Callable[[int], str] = "text {}".format,
    ) -> list[Translation]:
        """The translation of each text; the same for a text alone as among others.

        A text without a word has a translation without one.

        Args:
            texts: A sentence each, as in training.
            strategy: How the translation is searched for.
            progress: Is told how many texts are done, and of how many.
            name: What errors call a text, given its number, from 1.

        Errors: a ValueError where a text is longer than what the model reads.
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
        """The translations that were found for each text, the best first.

        There is one, or as many as `Beam(width, candidates=…)` asks for, or there are. The more are
        asked for, the longer a beam is searched: the first one has the score of `translate`'s at
        least. A text without a word has none.

        Args:
            texts, strategy, progress, name: As for `translate`.
            each_step: Is called before each step of the model; what it raises ends the search.

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
        """The places of texts with words, and how many tokens their translations may have.

        Those of a batch may have as many: a text is to be translated the same in any company.
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
        # Whoever has not ended by then goes round in circles.
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
            steps if each_step is None else _Told(steps, each_step),
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
                    f"{name(number)} has {len(source)} tokens, and the model reads {most} at most: "
                    f"cut it into sentences."
                )


class _Told:
    """Steps that tell of each before it is made.

    Args:
        steps: Those of the model.
        each: Is called.
    """

    def __init__(self, steps: Steps, each: Callable[[], None]) -> None:
        self._steps, self._each = steps, each

    def next(self, tokens: Int[Tensor, "rows new"]) -> Float[Tensor, "rows vocab"]:
        self._each()
        return self._steps.next(tokens)

    def reorder(self, rows: Int[Tensor, "rows"]) -> None:
        self._steps.reorder(rows)


@dataclass(frozen=True)
class TranslationEvaluation:
    """How well a translator does.

    Attributes:
        bleu: BLEU, 0 to 100.
        bleu_signature: How sacreBLEU counted it.
        chrf: chrF, 0 to 100.
        chrf_signature: How sacreBLEU counted that.
        exact: The share of translations that are just as expected.
        texts: How many there were.
        translations: What the model made of each text.
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
    """BLEU and chrF, as sacreBLEU counts them; over files, or over what was held out.

    A model of small letters is compared in small letters, as the signatures say (`case:lc`).

    Args:
        translator: What is evaluated.
        files: Texts and their translations, as for training; none: those that the run held out.
        strategy: How translations are searched for.
        progress: Is told how many texts are done, and of how many.

    Errors: an OSError or ValueError where a file cannot be read, or a text is longer than what the
    model reads; a ValueError where what was held out is not there any more.

    Source: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018 (a call for clarity in
    reporting BLEU scores), section 3, for the signatures.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lowercase = translator.settings.data.lowercase
    pairs = _pairs(translator, files)
    name = partial(place_of, files) if files else "text {}".format
    translations = translator.translate([text for text, _ in pairs], strategy, progress, name)
    expected = [text.lower() if lowercase else text for _, text in pairs]
    written = [translation.text for translation in translations]
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
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


def _pairs(translator: TextTranslator, files: Sequence[str]) -> Pairs:
    data = translator.settings.data
    if files:
        return read_pairs(files, data.source, data.target)
    return TRANSLATE.held_out(data, remedy="name files")


_NO_WORDS = WholeWords((), torch.zeros(0, 0))


@dataclass(frozen=True, eq=False)
class Alignment:
    """What each word of a translation took from each word of the text.

    Attributes:
        source: The words of the text.
        target: Those of the translation.
        weights: A row for each word of the translation, which sums to 1, a column for each of the
            text.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "target source"]

    def pairs(self) -> list[tuple[str, str, float]]:
        """Each word of the translation, the word that it looked at most, and how much."""
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
    """What each word of a translation took from each word of the text, in every head.

    Attributes:
        source: The words of the text.
        target: Those of the translation.
        weights: Of each layer of the decoder and each head, as those of an `Alignment`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layers heads target source"]

    def of(self, layer: int | None = None, head: int | None = None) -> Alignment:
        """One layer's, the last one's if not given; one head's, the mean of all if not given."""
        chosen = self.weights[-1 if layer is None else layer]
        weights = chosen.mean(0) if head is None else chosen[head]
        return Alignment(self.source, self.target, weights)


@torch.inference_mode()
def cross_attention(translator: TextTranslator, translation: Translation) -> CrossAttention:
    """The weights of the decoder's attention to the text, of whole words, in every head.

    A word's row is that of the moment at which it is written, when the query is the word before
    it. Where a word is several tokens, its row is the mean of theirs, and its column their sum.
    The model runs once.

    Args:
        translator: What translated.
        translation: What it made of a text; one without a word has no weights.

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
    shown = torch.tensor([[tokenizer.start_id, *target[:-1]]])
    statistics = [PooledMap(len(target), len(source))]
    with watch(model.decoder, statistics, layers="*.cross_attention") as seen:
        model(torch.tensor([source]), torch.tensor([len(source)]), shown)
    # Each is [1, heads, target tokens, source tokens], in the order of the layers.
    weights = torch.cat([each.pooled_map for each in seen.values()]).float()
    return CrossAttention(columns.words, rows.words, rows.mean @ weights @ columns.sum.T)


def align(
    translator: TextTranslator,
    translation: Translation,
    layer: int | None = None,
    head: int | None = None,
) -> Alignment:
    """One layer's `cross_attention`, of one head or the mean of all.

    Args:
        translator: What translated.
        translation: What it made of a text.
        layer: Of the decoder, counted from 0; the last one if not given.
        head: Counted from 0; the mean of all if not given.

    Errors: a ValueError where there is no such layer or head.
    """
    check_choice(translator, layer, head)
    if not translation.source_tokens or not translation.tokens:
        return Alignment((), (), torch.zeros(0, 0))
    return cross_attention(translator, translation).of(layer, head)


def check_choice(translator: TextTranslator, layer: int | None, head: int | None) -> None:
    """Raise a ValueError where there is no such layer of the decoder, or no such head."""
    model = translator.model
    for name, number, count in (
        ("layer", layer, len(model.decoder)),
        ("head", head, model.config.num_heads),
    ):
        if number is not None and not 0 <= number < count:
            raise ValueError(f"{name} takes one from 0 to {count - 1}, and got {number}.")

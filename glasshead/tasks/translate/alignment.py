"""Alignment: which words of a text each word of its translation looked at."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.statistics import PooledMap
from glasshead.tasks.tokenizers.whole_words import WholeWords, whole_words
from glasshead.tasks.translate.text_translator import TextTranslator, Translation
from glasshead.watching import watch

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

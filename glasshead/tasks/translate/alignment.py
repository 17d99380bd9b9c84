"""Alignment: which words of a text each word of its translation looked at."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.layers import DecoderBlock
from glasshead.statistics import PooledMap
from glasshead.tasks.tokenizing import whole_words
from glasshead.tasks.translate.text_translator import TextTranslator, Translation
from glasshead.watching import watch


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


@torch.inference_mode()
def align(
    translator: TextTranslator,
    translation: Translation,
    layer: int | None = None,
    head: int | None = None,
) -> Alignment:
    """The weights of the decoder's attention to the text, of whole words.

    A word's row is that of the moment at which it is written, when the query is the word before
    it. Where a word is several tokens, its row is the mean of theirs, and its column their sum.

    Args:
        translator: What translated.
        translation: What it made of a text.
        layer: Of the decoder, counted from 0; the last one if not given.
        head: Counted from 0; the mean of all if not given.

    Errors: a ValueError where there is no such layer or head.

    Source: Bahdanau et al. 2015, section 5.2.1 and figure 3.
    """
    model, tokenizer = translator.model, translator.tokenizer
    check_choice(translator, layer, head)
    layer = len(model.decoder) - 1 if layer is None else layer
    source, target = list(translation.source_tokens), list(translation.tokens)
    if not source or not target:
        return Alignment((), (), torch.zeros(0, 0))
    shown = torch.tensor([[tokenizer.start_id, *target[:-1]]])
    crossing = cast("DecoderBlock", model.decoder[layer]).cross_attention
    with watch(crossing, [PooledMap(len(target), len(source))]) as seen:
        model(torch.tensor([source]), torch.tensor([len(source)]), shown)
    weights = seen[""].pooled_map[0]  # [heads, target, source]
    chosen = weights.mean(0) if head is None else weights[head]
    columns, rows = (whole_words(tokenizer, tokens) for tokens in (source, target))
    return Alignment(
        columns.words,
        rows.words,
        rows.mean @ chosen.float() @ columns.sum.T,
    )


def check_choice(translator: TextTranslator, layer: int | None, head: int | None) -> None:
    """Raise a ValueError where there is no such layer of the decoder, or no such head."""
    model = translator.model
    for name, number, count in (
        ("layer", layer, len(model.decoder)),
        ("head", head, model.config.num_heads),
    ):
        if number is not None and not 0 <= number < count:
            raise ValueError(f"{name} takes one from 0 to {count - 1}, and got {number}.")

"""Of a translator: the encoder that `glasshead train translate` has left in a folder."""

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.tasks.opening.ours import reader_of
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.translate import TextTranslator


def reader_of_translator(folder: Path, device: torch.device) -> Reader:
    """The translator of a run, as it reads the text that it is to translate.

    Errors: as of `TextTranslator.load`.
    """
    translator = TextTranslator.load(folder)
    tokenizer, model = translator.tokenizer, translator.model.to(device)

    def read(tokens: Int[Tensor, "texts length"]) -> Float[Tensor, "texts length d_model"]:
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return model.encode(tokens, lengths)

    return reader_of(folder, tokenizer, model, read, model.config.context_length)

"""Of a run: the model that `glasshead train write` has left in a folder."""

from dataclasses import replace
from pathlib import Path

import torch

from glasshead.layers import MultiHeadAttention
from glasshead.tasks.opening.ours import reader_of
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.write import Writer


def reader_of_run(folder: Path, device: torch.device) -> Reader:
    """The language model of a run.

    Errors: as of `Writer.load`.
    """
    writer = Writer.load(folder)
    tokenizer, model = writer.tokenizer, writer.model.to(device)
    attentions = (x for x in model.modules() if isinstance(x, MultiHeadAttention))
    return replace(
        reader_of(folder, tokenizer, model, model.hidden, model.config.context_length),
        field=None if writer.settings is None else writer.settings.data.field,
        mask=next(attentions).attention.mask,
    )

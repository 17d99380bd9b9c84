"""Of a run: the model that `glasshead train write` has left in a folder."""

from pathlib import Path

import torch

from glasshead.layers import MultiHeadAttention
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.opening.vocabulary import ordinary, unknown
from glasshead.tasks.reading.files import shown
from glasshead.tasks.write import Writer


def reader_of_run(folder: Path, device: torch.device) -> Reader:
    """The language model of a run.

    Errors: as of `Writer.load`.
    """
    writer = Writer.load(folder)
    tokenizer, model = writer.tokenizer, writer.model.to(device)
    attentions = (x for x in model.modules() if isinstance(x, MultiHeadAttention))
    return Reader(
        name=shown(folder),
        kind="run",
        model=model,
        read=model.hidden,
        encode=tokenizer.encode_batch,
        token=tokenizer.token,
        ordinary=ordinary(tokenizer),
        ending=(tokenizer.end_id,),
        context=model.config.context_length,
        unknown=unknown(tokenizer),
        field=None if writer.settings is None else writer.settings.data.field,
        mask=next(attentions).attention.mask,
    )

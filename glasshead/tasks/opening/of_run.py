"""Of a run: the model that `glasshead train write` has left in a folder."""

from pathlib import Path

import torch

from glasshead.layers import MultiHeadAttention
from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.reading.files import shown
from glasshead.tasks.tokenizing import Tokenizer
from glasshead.tasks.write import Writer


def reader_of_run(folder: Path, device: torch.device) -> Reader:
    """The language model of a run.

    Errors: as of `Writer.load`.
    """
    writer = Writer.load(folder)
    tokenizer, model = writer.tokenizer, writer.model.to(device)
    attentions = (x for x in model.modules() if isinstance(x, MultiHeadAttention))
    # Where it knows all, another token stands in.
    unknown = None if tokenizer.unknown_id == tokenizer.end_id else tokenizer.unknown_id
    return Reader(
        name=shown(folder),
        kind="run",
        model=model,
        read=model.hidden,
        encode=tokenizer.encode_batch,
        token=tokenizer.token,
        ordinary=_ordinary(tokenizer),
        ending=(tokenizer.end_id,),
        context=model.config.context_length,
        unknown=unknown,
        field=None if writer.settings is None else writer.settings.data.field,
        mask=next(attentions).attention.mask,
    )


def _ordinary(tokenizer: Tokenizer) -> list[int]:
    """All tokens but those that are put in by number."""
    special = tokenizer.special
    put_in = {special.pad, special.unknown, special.start, *special.ends, *special.before}
    return sorted(set(tokenizer.inner.get_vocab().values()) - put_in)

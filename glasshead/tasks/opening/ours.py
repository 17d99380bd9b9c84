"""Ours: what the readers of all our own runs have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from glasshead.tasks.opening.reader import Reader
from glasshead.tasks.reading.files import shown
from glasshead.tasks.tokenizing import Tokenizer


def reader_of(
    folder: Path,
    tokenizer: Tokenizer,
    model: nn.Module,
    read: Callable[[Int[Tensor, "texts length"]], Any],
    context: int,
) -> Reader:
    """The model of a run of ours, with the tokenizer that stands beside it."""
    return Reader(
        name=shown(folder),
        kind="run",
        model=model,
        read=read,
        encode=tokenizer.encode_batch,
        token=tokenizer.token,
        ordinary=_ordinary(tokenizer),
        ending=(tokenizer.end_id,),
        context=context,
        unknown=_unknown(tokenizer),
    )


def _ordinary(tokenizer: Tokenizer) -> list[int]:
    """All tokens but those that are put in by number."""
    special = tokenizer.special
    put_in = {special.pad, special.unknown, special.start, *special.ends, *special.before}
    return sorted(set(tokenizer.inner.get_vocab().values()) - put_in)


def _unknown(tokenizer: Tokenizer) -> int | None:
    """What stands for all that is unknown; None where all is known and another token stands in."""
    return None if tokenizer.unknown_id == tokenizer.end_id else tokenizer.unknown_id

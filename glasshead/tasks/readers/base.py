"""A reader: a model that reads tokens, with the tokenizer of its texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jaxtyping import Int
from torch import Tensor, nn

from glasshead.tasks.data.files import shown
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from glasshead import Mask


Kind = Literal["run", "model"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """What is observed while it reads, a run of ours or a model of Hugging Face.

    Attributes:
        name: Of its folder.
        kind: Which of the two it is.
        model: What is watched.
        read: Runs it on tokens, each row a text of its own.
        encode: Makes tokens of texts.
        token: What a token is written as.
        ordinary: The tokens that texts are made of, without the special ones.
        ending: What ends each of several texts that follow each other.
        around: What stands before and after whatever the model reads.
        context: How many tokens it reads at most; None where nobody says.
        unknown: What stands for all that it does not know; None where it knows all.
        field: The column of a table that holds the text; None: "text", or the only one.
        mask: Which pairs see each other; None where nobody says.
        shorten: Which tokens of a text are read that is longer than the context; None: the first.
    """

    name: str
    kind: Kind
    model: nn.Module
    read: Callable[[Int[Tensor, "pieces length"]], Any]
    encode: Callable[[Sequence[str]], list[list[int]]]
    token: Callable[[int], str]
    ordinary: Sequence[int]
    ending: tuple[int, ...]
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    context: int | None
    unknown: int | None
    field: str | None = None
    mask: "Mask | None" = None
    shorten: Callable[[Sequence[int]], list[int]] | None = None


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

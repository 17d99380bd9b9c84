"""Readers: a model and its tokenizer behind one interface."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glasshead.tasks.tokenizers.chunks import check_length
from glasshead.tasks.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from glasshead import Mask

Kind = Literal["run", "model"]
Predicts = Literal["tokens", "blanks", "labels", "token_labels"]
"""Predictions of a head: the next token, masked tokens, or labels of a text or of each token."""


def _uncut(text: str) -> list[str]:
    return check_length([text])


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """A model and its tokenizer: a trained run or a Hugging Face model.

    Attributes:
        name: Name of the folder.
        kind: "run" or "model".
        model: The module to watch.
        read: Runs the model on token ids, one text per row.
        encode: Tokenizes texts.
        token: Returns the text of a token id.
        ordinary: Token ids of texts, without special tokens.
        ending: Token ids that end each of several concatenated texts.
        around: Special tokens before and after the model's input.
        context: Context length in tokens; None if it is unknown.
        unknown: The unknown token; None where every text can be encoded.
        field: The column of a table that holds the text; None: "text", or the only one.
        mask: The attention mask; None if it is unknown.
        cut: Splits a text where no token spans the cut; one piece if no place is known.
        shorten: Truncates a text longer than the context; None: the first tokens are taken.
        predicts: What the model's head predicts; None where it has none of these heads.
        labels: Names of the labels, in the order of their logits.
        blank: The mask token, in whose place a masked language model predicts a token.
    """

    name: str
    kind: Kind
    model: nn.Module
    read: Callable[[Int[Tensor, "texts length"]], Any]
    encode: Callable[[Sequence[str]], list[list[int]]]
    token: Callable[[int], str]
    ordinary: Sequence[int]
    ending: tuple[int, ...]
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    context: int | None
    unknown: int | None
    cut: Callable[[str], list[str]] = _uncut
    field: str | None = None
    mask: "Mask | None" = None
    shorten: Callable[[Sequence[int]], list[int]] | None = None
    predicts: Predicts | None = None
    labels: tuple[str, ...] = ()
    blank: int | None = None

    @property
    def device(self) -> torch.device:
        """Device of the model; that of its first weights that are not offloaded to disk."""
        devices = (one.device for one in self.model.parameters() if not one.is_meta)
        return next(devices, torch.device("cpu"))


def reader_of(
    name: str,
    tokenizer: Tokenizer,
    model: nn.Module,
    read: Callable[[Int[Tensor, "texts length"]], Any],
    context: int | None,
    kind: Kind = "run",
) -> Reader:
    """Create the reader of a model with a tokenizer of this library."""
    special = tokenizer.special
    put_in = {special.pad, special.unknown, special.start, *special.ends, *special.before}
    return Reader(
        name=name,
        kind=kind,
        model=model,
        read=read,
        encode=tokenizer.encode_batch,
        cut=tokenizer.cut,
        token=tokenizer.token,
        ordinary=sorted(set(tokenizer.inner.get_vocab().values()) - put_in),
        ending=(tokenizer.end_id,),
        context=context,
        # Where the end token stands in for it, all text is known.
        unknown=None if tokenizer.unknown_id == tokenizer.end_id else tokenizer.unknown_id,
    )

"""Text: what was seen of some documents that went through a layer together."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.watching.padding import check_mask
from glasshead.watching.seen import Seen
from glasshead.watching.watched import Call, Watched


@dataclass(frozen=True, eq=False)
class Padding:
    """Which tokens of a padded batch are real.

    Attributes:
        real: True where a token belongs to a document.
    """

    real: Bool[Tensor, "documents length"] = field(repr=False)

    @property
    def lengths(self) -> Int[Tensor, " documents"]:
        """Of each document."""
        return self.real.sum(-1)

    @cached_property
    def aside(self) -> bool:
        """Whether a document begins elsewhere than at the first place, or has holes."""
        return bool((self.real[:, 1:] & ~self.real[:, :-1]).any())

    @cached_property
    def order(self) -> Int[Tensor, "documents length"]:
        """The places of the real tokens, in order, and then those of the others."""
        return (~self.real).to(torch.uint8).argsort(dim=-1, stable=True)

    def as_if(self, other: "Padding") -> bool:
        """Whether the other says the same."""
        return torch.equal(self.real, other.real.to(self.real.device))


@dataclass(frozen=True, eq=False)
class Text:
    """The documents of a batch in a layer.

    Attributes:
        layer: Its name.
        call: What was seen, all calls of a growing text together.
        padding: Which of the tokens are real; None: all.
    """

    layer: str
    call: Call
    padding: Padding | None

    @property
    def heads(self) -> int:
        """How many there are; inputs without heads have one."""
        return self.call.shape[-2] if self._headed else 1

    @property
    def documents(self) -> int:
        """How many rows the batch has."""
        leading = self.call.shape[:-2] if self._headed else self.call.shape[:-1]
        return torch.Size(leading).numel()

    def rows(self, value: Any) -> Any:
        """A value as `[documents, heads, …]`; of several tensors, each."""
        if not isinstance(value, Tensor):
            return [self.rows(part) for part in value]
        leading = len(self.call.shape) - 1
        value = value.detach()
        # Apple's GPUs have no float64.
        value = value.cpu() if value.device.type == "mps" else value
        return value.reshape(self.documents, self.heads, *value.shape[leading:])

    @property
    def real_documents(self) -> int:
        """How many of them have a real token."""
        return self.documents if self.padding is None else int(self.padding.real.any(-1).sum())

    @property
    def lengths(self) -> tuple[int, int]:
        """How many queries and keys each has."""
        return self.call.queries, self.call.keys

    @property
    def left_out(self) -> bool:
        """Whether the watch has left the padding out of what it summed over queries."""
        real = self.call.real
        return real is not None and self.padding is not None and self.padding.as_if(Padding(real))

    @property
    def _headed(self) -> bool:
        return len(self.call.shape) > 2


def padding_of(attention_mask: Any) -> Padding | None:
    """What a mask of tokens says; None where there is none, or all tokens are real.

    Errors: a TypeError or ValueError where it is none.
    """
    real = check_mask(attention_mask)
    return None if real is None or real.all() else Padding(real)


def texts_of(seen: Any, padding: Padding | None) -> list[Text]:
    """What was seen, a text each, without those that hold no document.

    Errors: a TypeError for what is not seen; a ValueError where the padding is that of others.
    """
    if not isinstance(seen, Seen):
        raise TypeError(
            f"update takes what `gh.watch` has seen, and got {type(seen).__name__}: give that."
        )
    joined = [
        (name, Watched(name, calls).joined)
        for name, watched in seen.layers.items()
        for calls in watched.texts
    ]
    texts = [Text(name, call, padding or _padding_of_call(call)) for name, call in joined]
    if padding is not None:
        _check(texts, padding)
    return [text for text in texts if text.real_documents]


def _padding_of_call(call: Call) -> Padding | None:
    return None if call.real is None else Padding(call.real)


def _check(texts: list[Text], padding: Padding) -> None:
    shape = tuple(padding.real.shape)
    known: set[str] = set()
    for text in texts:
        if text.layer in known:
            raise ValueError(
                f"update takes an attention_mask with one text a watch, and {text.layer!r} saw "
                f"several: open a watch for each batch."
            )
        known.add(text.layer)
        if (text.documents, text.call.queries) != shape:
            raise ValueError(
                f"attention_mask tells of {list(shape)} tokens, and {text.layer!r} saw "
                f"{[text.documents, text.call.queries]}: give the mask of what the model read."
            )

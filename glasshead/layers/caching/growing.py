"""A tensor that grows at its end and is forgotten at its beginning."""

from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

_LEAST = 16


class Growing:
    """A tensor that grows along its last axis but one, in place, and may lose its beginning.

    Its memory is made anew, twice as long as what is held, when its end is reached: a token costs
    no copy of those before it, however long the text is.
    """

    def __init__(self) -> None:
        self._first = self._stop = 0
        self._buffer: Tensor | None = None

    @property
    def length(self) -> int:
        """How much is held."""
        return self._stop - self._first

    @property
    def memory(self) -> int:
        """The bytes that are taken."""
        return 0 if self._buffer is None else self._buffer.nbytes

    @property
    def held(self) -> Shaped[Tensor, "batch *heads length dim"]:
        """What was appended and not forgotten."""
        if self._buffer is None:
            raise ValueError("this cache is empty: run the attention with it first.")
        return self._buffer[..., self._first : self._stop, :]

    def append(self, new: Shaped[Tensor, "batch *heads new dim"]) -> None:
        """Put `new` behind what is held; it keeps numbers, not gradients."""
        buffer, stop = self._buffer, self._stop + new.shape[-2]
        if buffer is not None:
            check_fits(buffer, new)
        if buffer is None or stop > buffer.shape[-2]:
            buffer, stop = self._longer(new), self.length + new.shape[-2]
        buffer[..., stop - new.shape[-2] : stop, :] = new.detach()
        self._stop = stop

    def forget(self, count: int) -> None:
        """Let go of the first `count`."""
        self._first += count
        # What a long prompt took is given back.
        if self._buffer is not None and self._buffer.shape[-2] > max(4 * self.length, 2 * _LEAST):
            self._longer(self._buffer[..., :0, :])

    # What was made in inference mode would not take in the tokens of a later call outside it.
    @torch.inference_mode(False)
    @torch.no_grad()
    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was."""
        if self._buffer is not None:
            self._buffer = taken(self._buffer, rows)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _longer(self, new: Tensor) -> Tensor:
        """Memory with room for `new`, and for as much again, which holds what is held."""
        *leading, count, dim = new.shape
        larger = new.new_empty(*leading, max(_LEAST, 2 * (self.length + count)), dim)
        if self._buffer is not None:
            larger[..., : self.length, :] = self.held
        self._first, self._stop, self._buffer = 0, self.length, larger
        return larger


def check_fits(held: Tensor, new: Tensor) -> None:
    """Raise a ValueError where what is fed has other rows, heads or numbers than what is held."""
    check_rows(len(held), len(new))
    (*_, heads, _, width), (*_, fed, _, wide) = held.shape, new.shape
    if (heads, width) != (fed, wide):
        raise ValueError(
            f"a cache of {heads} heads of {width} numbers takes as many, and got {fed} of {wide}: "
            "begin a new cache for another model."
        )


def check_rows(held: int, new: int) -> None:
    """Raise a ValueError where texts are fed that are not as many as are held."""
    if held != new:
        raise ValueError(
            f"a cache of {held} rows takes as many, and got {new}: begin a new cache, or bring its "
            "rows in order by reorder()."
        )


def taken(tensor: Shaped[Tensor, "batch *rest"], rows: Any) -> Shaped[Tensor, "rows *rest"]:
    """Row i is what row `rows[i]` was.

    Errors: a TypeError or ValueError where `rows` are no rows of the tensor.
    """
    if not isinstance(rows, Tensor) or rows.dtype not in (torch.int64, torch.int32):
        got = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"reorder takes rows as a tensor of whole numbers, and got {got}.")
    try:
        return tensor.index_select(0, rows)
    except IndexError as error:
        raise ValueError(
            f"reorder takes rows of the {len(tensor)} that there are, and got {rows.tolist()}."
        ) from error

"""The key/value cache of one attention layer, and the positions of the keys it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from glasshead.attention import Attention
from glasshead.attention.followed_classes import CACHES, followed_as
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, as_mask, dense
from glasshead.recipe.problem import bias_values, visible_pairs
from glasshead.recipe.tile import Span, Tile, three_axes

_LEAST = 16


class GrowableBuffer:
    """Tensor that grows in place along its last axis but one, and can drop its beginning.

    When its memory is full, twice the held length is allocated, so that appending a token takes
    amortized constant time.
    """

    def __init__(self) -> None:
        self._first = self._stop = 0
        self._buffer: Tensor | None = None

    @property
    def length(self) -> int:
        """Return how many positions are held."""
        return self._stop - self._first

    @property
    def memory(self) -> int:
        """Return the allocated bytes."""
        return 0 if self._buffer is None else self._buffer.nbytes

    @property
    def held(self) -> Shaped[Tensor, "batch *heads length dim"]:
        """Return what was appended and not forgotten."""
        if self._buffer is None:
            raise ValueError("this cache is empty. Run the attention with it first.")
        return self._buffer[..., self._first : self._stop, :]

    def append(self, new: Shaped[Tensor, "batch *heads new dim"]) -> None:
        """Append `new`, without its gradient."""
        buffer, stop = self._buffer, self._stop + new.shape[-2]
        if buffer is not None:
            check_fits(buffer, new)
        if buffer is None or stop > buffer.shape[-2]:
            buffer, stop = self._longer(new), self.length + new.shape[-2]
        buffer[..., stop - new.shape[-2] : stop, :] = new.detach()
        self._stop = stop

    def forget(self, count: int) -> None:
        """Drop the first `count` positions."""
        self._first += count
        # Memory of a long prompt is freed.
        if self._buffer is not None and self._buffer.shape[-2] > max(4 * self.length, 2 * _LEAST):
            self._longer(self._buffer[..., :0, :])

    # A tensor made in inference mode could not be written to outside it later.
    @torch.inference_mode(False)
    @torch.no_grad()
    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the batch: row i becomes what row `rows[i]` was."""
        if self._buffer is not None:
            self._buffer = taken(self._buffer, rows)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _longer(self, new: Tensor) -> Tensor:
        """Allocate twice the needed memory, and copy what is held."""
        *leading, count, dim = new.shape
        larger = new.new_empty(*leading, max(_LEAST, 2 * (self.length + count)), dim)
        if self._buffer is not None:
            larger[..., : self.length, :] = self.held
        self._first, self._stop, self._buffer = 0, self.length, larger
        return larger


def check_fits(held: Tensor, new: Tensor) -> None:
    """Raise a ValueError if new rows, heads or widths differ from those held."""
    check_rows(len(held), len(new))
    (*_, heads, _, width), (*_, fed, _, wide) = held.shape, new.shape
    if (heads, width) != (fed, wide):
        raise ValueError(
            f"this cache needs keys of {heads} heads of width {width}, got {fed} of width {wide}. "
            "Create a new cache for another model."
        )


def check_rows(held: int, new: int) -> None:
    """Raise a ValueError if the number of new rows differs from that held."""
    if held != new:
        raise ValueError(
            f"this cache needs batches of {held} rows, got {new}. Create a new cache, or reorder "
            "its rows with reorder()."
        )


def taken(tensor: Shaped[Tensor, " batch *rest"], rows: Any) -> Shaped[Tensor, " rows *rest"]:
    """Select rows: row i of the result is row `rows[i]`.

    Errors: a TypeError or ValueError if `rows` are no rows of the tensor.
    """
    if not isinstance(rows, Tensor) or rows.dtype not in (torch.int64, torch.int32):
        got = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(f"the rows of reorder must be a tensor of whole numbers, got {got}.")
    try:
        return tensor.index_select(0, rows)
    except IndexError as error:
        raise ValueError(
            f"the rows of reorder must be from 0 to {len(tensor) - 1}, got {rows.tolist()}."
        ) from error


def lookback(rule: Attention) -> int | None:
    """Return how many keys before its own a query sees at most, or None if unbounded or unknown.

    Keys further back can be dropped where mask and bias depend on distance alone.

    >>> import glasshead as gh
    >>> lookback(gh.Attention(mask=gh.causal() & gh.window(before=255)))
    255
    """
    mask = as_mask(rule.mask)
    return mask.lookback if mask is not None and depends_on_distance_alone(rule) else None


def depends_on_distance_alone(rule: Attention) -> bool:
    """Return whether mask and bias depend on a pair's distance alone."""
    mask, bias = as_mask(rule.mask), rule.bias
    biased = bias is not None and not (isinstance(bias, Bias) and bias.by_distance)
    return not biased and (mask is None or mask.by_distance)


def hides_by_band(rule: Attention) -> bool:
    """Return whether an attention's own mask hides no key between its lookback and the query."""
    mask = as_mask(rule.mask)
    return mask is None or mask.is_band


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of the held keys in the text, and of the last tokens, which are the queries.

    Masks and biases number keys from the beginning of the text. They are evaluated there, and
    reduced to the keys that are left.

    Attributes:
        length: The number of tokens fed, the queries included.
        query: The heads of the queries.
        key: The keys that are held.
        positions: Their positions, per head and row; None: they are the last.
    """

    length: int
    query: Float[Tensor, "batch heads queries head_dim"]
    key: Float[Tensor, "batch kv_heads keys head_dim"]
    positions: Int[Tensor, "batch kv_heads keys"] | None = None

    def mask(self, mask: Mask) -> Mask:
        """Evaluate a mask at the keys that are held."""
        return dense(self._held(three_axes(visible_pairs(mask, self.tile()))))

    def bias(self, bias: Bias | Tensor) -> Float[Tensor, "*#batch heads queries keys"]:
        """Evaluate a bias at the keys that are held."""
        return self._held(three_axes(bias_values(bias, self.tile())))

    def moved(self, bias: Bias) -> Float[Tensor, "*#batch heads queries keys"]:
        """Compute the correction of a bias that takes the keys for the last of the text."""
        queries, keys = self.query.shape[-2], self.key.shape[-2]
        close = self._tile(Span(0, queries), Span(0, keys), keys - queries)
        return self.bias(bias) - bias_values(bias, close)

    def seen(self, mask: Mask | None) -> Bool[Tensor, "batch kv_heads keys"] | None:
        """Return which keys the last query sees, as later ones will, or None for all."""
        last = self.query.shape[-2] - 1
        tile = self.tile(Span(last, last + 1))
        mask = None if mask is None else mask.simplified(tile)
        if mask is None:
            return None
        visible = self._held(three_axes(visible_pairs(mask, tile)))
        heads, kv_heads = self.query.shape[-3], self.key.shape[-3]
        visible = visible[..., 0, :].expand(len(self.key), heads, self.key.shape[-2])
        return visible.unflatten(1, (kv_heads, -1)).any(2)

    def tile(self, queries: Span | None = None) -> Tile:
        """Return the tile of the queries and of the keys of the text that may be held."""
        count = self.query.shape[-2]
        first = self.length - self.key.shape[-2] if self.positions is None else 0
        queries = Span(0, count) if queries is None else queries
        return self._tile(queries, Span(first, self.length), self.length - count)

    def _tile(self, queries: Span, keys: Span, offset: int) -> Tile:
        dtype = torch.promote_types(self.query.dtype, torch.float32)
        return Tile(queries, keys, offset, device=self.query.device, dtype=dtype)

    def _held(self, pairs: Tensor) -> Tensor:
        """Select the held keys from one number per token of the text."""
        if self.positions is None or pairs.shape[-1] == 1:
            return pairs
        group = self.query.shape[-3] // self.key.shape[-3]
        places = self.positions.long().repeat_interleave(group, 1)[..., None, :]
        pairs = pairs if pairs.ndim == 4 else pairs[None]
        return torch.take_along_dim(pairs, places, -1)


KeysAndValues = tuple[
    Float[Tensor, "batch heads keys head_dim"], Float[Tensor, "batch heads keys head_dim"]
]


@followed_as(CACHES)
class KeyValueCache:
    """Key/value cache of one attention layer, for generation token by token.

    All are held; of an attention with a window, those that a later query can see, so that memory
    and time of a token do not grow with the text. Numbers are held, not gradients: what learns is
    run without a cache.

    >>> import torch
    >>> cache = KeyValueCache()
    >>> keys, values = cache.append(torch.rand(2, 3, 5, 7), torch.rand(2, 3, 5, 7))
    >>> keys, values = cache.append(torch.rand(2, 3, 1, 7), torch.rand(2, 3, 1, 7), reach=2)
    >>> keys.shape, cache.length, cache.count
    (torch.Size([2, 3, 6, 7]), 6, 2)
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys, self._values = GrowableBuffer(), GrowableBuffer()

    @property
    def count(self) -> int:
        """Return how many keys are held per row and head; `length` counts the tokens fed."""
        return self._keys.length

    @property
    def memory(self) -> int:
        """Return the allocated bytes."""
        return self._keys.memory + self._values.memory

    @property
    def held(self) -> KeysAndValues:
        """Return the keys and the values.

        Errors: a ValueError if there are none.
        """
        return self._keys.held, self._values.held

    def append(
        self,
        key: Float[Tensor, "batch heads new head_dim"],
        value: Float[Tensor, "batch heads new head_dim"],
        reach: int | None = None,
    ) -> KeysAndValues:
        """Append keys and values, and return all that the new queries may see, the new ones last.

        Args:
            key, value: Of the new tokens.
            reach: The most keys before its own that a query sees; None: all. Only that many older
                keys are held from now on.

        Errors: a ValueError if the new ones are of another number of rows.
        """
        self._keys.append(key)
        self._values.append(value)
        self.length += key.shape[-2]
        held = self.held
        if reach is not None and self.count > reach:
            for part in (self._keys, self._values):
                part.forget(part.length - reach)
        return held

    def attend(
        self,
        attention: Attention,
        heads: Sequence[Float[Tensor, "batch heads length head_dim"]],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "batch heads queries head_dim"]:
        """Attend from the new queries to the keys that `append` returned.

        Args:
            attention: The rule.
            heads: The new queries, and the keys and values.
            mask, bias: Of the call, of all tokens that were fed.
        """
        query, key, value = heads
        if key.shape[-2] < self.length and (mask is not None or bias is not None):
            places, mask = Places(self.length, query, key), as_mask(mask)
            mask = None if mask is None else places.mask(mask)
            bias = None if bias is None else places.bias(bias)
        return attention(query, key, value, mask=mask, bias=bias)

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the batch: row i becomes what row `rows[i]` was; rows may repeat or go."""
        self._keys.reorder(rows)
        self._values.reorder(rows)

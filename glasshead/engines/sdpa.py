"""Calls of `F.scaled_dot_product_attention`: heads in groups, keys by row, masks kept ready."""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.masks.base import Mask, visible_pairs
from glasshead.recipe.masks.kinds import LengthMask
from glasshead.recipe.tile import Span, Tile


class Direct(NamedTuple):
    """Attention by SDPA alone, on inputs as they are. It holds no tensor.

    Attributes:
        scale: The number that multiplies the products.
        grouped: Whether query heads share key heads.
        is_causal: Whether SDPA's own mask is the mask.
        added: The mask as a tensor, where it takes one.
        by_length: Whether the mask is one of lengths, which are read in each call.
    """

    scale: float
    grouped: bool
    is_causal: bool = False
    added: "AddedMask | None" = None
    by_length: bool = False

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys dim"],
        mask: object,
    ) -> Float[Tensor, "batch heads queries dim"] | None:
        """Compute the context; None where the lengths of the call's mask take a mask tensor."""
        scale, grouped, is_causal, added, by_length = self
        # Looked up in its module at each call, where others may have put a stand-in.
        attend = sdpa if grouped else F.scaled_dot_product_attention
        if by_length:
            spans = _spans_of_lengths(cast("LengthMask", mask), query, key)
            attend = partial(attend, scale=scale)
            return None if spans is None else by_spans(attend, query, key, value, spans)
        pairs = None if added is None else added.tensor()
        return attend(query, key, value, attn_mask=pairs, is_causal=is_causal, scale=scale)


def sdpa(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch kv_heads keys dim"],
    value: Float[Tensor, "batch kv_heads keys dim"],
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    **options: Any,
) -> Float[Tensor, "batch heads queries dim"]:
    """Call SDPA, whose heads may be grouped."""
    grouped = query.shape[-3] > key.shape[-3]
    if grouped and attn_mask is None and not is_causal and query.shape[-2] == 1:
        # Queries that share a key head form one block, so that no key is copied.
        block = query.reshape(*key.shape[:-2], -1, query.shape[-1])
        context = F.scaled_dot_product_attention(block, key, value, **options)
        return context.reshape(*query.shape[:-1], -1)
    if grouped:
        options["enable_gqa"] = True
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options
    )


# With fewer scores a batch row, calls of their own cost more than what they skip.
_FEW_A_ROW = 2**15


def pays_by_row(query: Tensor, key: Tensor) -> bool:
    """Return whether batch rows have so many scores that calls of their own pay."""
    return query.shape[-3] * query.shape[-2] * key.shape[-2] >= _FEW_A_ROW


def _spans_of_lengths(mask: LengthMask, query: Tensor, key: Tensor) -> list[Span] | None:
    """Return the keys that each batch row sees, or one span for all rows.

    None where a row sees none, or rows that see others are small.
    """
    lengths, keys = mask.lengths.tolist(), key.shape[-2]
    stops = [min(stop, keys) for stop in (lengths if isinstance(lengths, list) else [lengths])]
    least = min(stops, default=0)
    if least < 1:
        return None
    if max(stops) == least:
        return [Span(0, least)]
    return [Span(0, stop) for stop in stops] if pays_by_row(query, key) else None


def by_spans(
    attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, spans: list[Span]
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Compute the context of each batch row over its own span of keys, or of all over one."""
    if len(spans) == 1:
        return attend(query, _cut(key, spans[0]), _cut(value, spans[0]))
    # Whose gradients are put together again once, not added row by row.
    rows = (x.split_with_sizes([1] * len(spans)) for x in (query, key, value))
    return torch.cat(
        [
            attend(q, _cut(k, span), _cut(v, span))
            for q, k, v, span in zip(*rows, spans, strict=True)
        ]
    )


def _cut(x: Float[Tensor, "*leading keys dim"], span: Span) -> Float[Tensor, "*leading span dim"]:
    """Return the keys of a span, and the tensor itself where these are all."""
    return x if span == (0, x.shape[-2]) else x[..., span.start : span.stop, :]


class AddedMask:
    """Mask of positions in the numbers that SDPA adds, kept ready for the next calls.

    SDPA would convert booleans to these numbers in each call.
    """

    # Most pairs of a mask, and most bytes of all that are kept.
    most_pairs: ClassVar = 2**20
    _most_bytes: ClassVar = 2**23
    _kept: ClassVar[dict[tuple[object, ...], Tensor]] = {}
    _lock: ClassVar = Lock()

    def __init__(self, mask: Mask, tile: Tile, dtype: torch.dtype) -> None:
        self._mask, self._tile, self._dtype = mask, tile, dtype
        self._name = repr(mask), tile.offset, tile.shape, dtype

    def tensor(self) -> Float[Tensor, "queries keys"]:
        """Return the mask as a tensor, 0 where visible and -inf where hidden."""
        tensor = self._kept.get(self._name)
        return self._made() if tensor is None else tensor

    def _made(self) -> Tensor:
        """Make the tensor, and keep it in place of those that were made first."""
        # Autograd refuses tensors that were made in inference mode.
        with torch.inference_mode(mode=False):
            visible = visible_pairs(self._mask, self._tile)
            tensor = torch.zeros(visible.shape, dtype=self._dtype, device=self._tile.device)
            tensor.masked_fill_(~visible, -torch.inf)
        # While another mode traces, it is one of its own.
        if type(tensor) is Tensor:
            with self._lock:
                self._kept[self._name] = tensor
                while sum(kept.nbytes for kept in self._kept.values()) > self._most_bytes:
                    del self._kept[next(iter(self._kept))]
        return tensor

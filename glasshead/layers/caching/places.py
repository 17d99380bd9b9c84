"""Where the keys that are held stand in the text, and what masks and biases say of them there."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.recipe.biases import Bias, bias_values
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.problem import visible_pairs
from glasshead.recipe.tile import Span, Tile, three_axes


@dataclass(frozen=True, eq=False)
class Places:
    """Some of the tokens that were fed, whose keys are held, and the last of them, which ask.

    Masks and biases count keys from the beginning of the text. Here they are read at the places of
    those that are left.

    Attributes:
        length: How many tokens were fed, the asking ones among them.
        query: The heads of those that ask.
        key: The keys that are held.
        positions: Where these stand, for each head of each row; None: they are the last.
    """

    length: int
    query: Float[Tensor, "batch heads queries head_dim"]
    key: Float[Tensor, "batch kv_heads keys head_dim"]
    positions: Int[Tensor, "batch kv_heads keys"] | None = None

    def mask(self, mask: Mask) -> Mask:
        """What it says of the keys that are held."""
        return dense(self._held(three_axes(visible_pairs(mask, self.tile()))))

    def bias(self, bias: Bias | Tensor) -> Float[Tensor, "*#batch heads queries keys"]:
        """The numbers of the keys that are held."""
        return self._held(three_axes(bias_values(bias, self.tile())))

    def moved(self, bias: Bias) -> Float[Tensor, "*#batch heads queries keys"]:
        """What is to be added to a bias that takes the keys for the last of the text."""
        queries, keys = self.query.shape[-2], self.key.shape[-2]
        close = self._tile(Span(0, queries), Span(0, keys), keys - queries)
        return self.bias(bias) - bias_values(bias, close)

    def seen(self, mask: Mask | None) -> Bool[Tensor, "batch kv_heads keys"] | None:
        """Which keys the last query sees, as those after it will; None: all."""
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
        """The asking tokens and those of the text from the first on that may be held."""
        count = self.query.shape[-2]
        first = self.length - self.key.shape[-2] if self.positions is None else 0
        queries = Span(0, count) if queries is None else queries
        return self._tile(queries, Span(first, self.length), self.length - count)

    def _tile(self, queries: Span, keys: Span, offset: int) -> Tile:
        dtype = torch.promote_types(self.query.dtype, torch.float32)
        return Tile(queries, keys, offset, device=self.query.device, dtype=dtype)

    def _held(self, pairs: Tensor) -> Tensor:
        """Of numbers for each token of the text, those of the keys that are held."""
        if self.positions is None or pairs.shape[-1] == 1:
            return pairs
        group = self.query.shape[-3] // self.key.shape[-3]
        places = self.positions.long().repeat_interleave(group, 1)[..., None, :]
        pairs = pairs if pairs.ndim == 4 else pairs[None]
        return torch.take_along_dim(pairs, places, -1)

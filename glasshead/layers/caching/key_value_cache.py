"""The cache of one attention."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention import Attention
from glasshead.layers.caching.growing import Growing
from glasshead.layers.caching.places import Places
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, as_mask

KeysAndValues = tuple[
    Float[Tensor, "batch heads keys head_dim"], Float[Tensor, "batch heads keys head_dim"]
]


class KeyValueCache:
    """The keys and values that one attention has made, for generation token by token.

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
        self._keys, self._values = Growing(), Growing()

    @property
    def count(self) -> int:
        """How many keys are held, of a row and a head; `length` is how many tokens were fed."""
        return self._keys.length

    @property
    def memory(self) -> int:
        """The bytes that are taken."""
        return self._keys.memory + self._values.memory

    @property
    def held(self) -> KeysAndValues:
        """The keys and the values.

        Errors: a ValueError where there are none.
        """
        return self._keys.held, self._values.held

    def append(
        self,
        key: Float[Tensor, "batch heads new head_dim"],
        value: Float[Tensor, "batch heads new head_dim"],
        reach: int | None = None,
    ) -> KeysAndValues:
        """All keys and values that the new queries may see, the new ones last.

        Args:
            key, value: Of the new tokens.
            reach: How many keys before its own a query sees at most; None: all. Of older ones no
                more than that are held from now on.

        Errors: a ValueError where the new ones are of another number of rows.
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
        """What the new queries find among the keys that `append` gave.

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
        """Row i becomes what row `rows[i]` was; rows may be left out, or taken more than once."""
        self._keys.reorder(rows)
        self._values.reorder(rows)

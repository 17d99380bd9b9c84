"""Caches: the keys and values of the tokens so far, so that each is computed once."""

from jaxtyping import Float, Int
from torch import Tensor

_LEAST = 16


class Growing:
    """A tensor that grows along its last axis but one, in place.

    Its memory doubles when it is full, so that a token costs no copy of those before it.
    """

    def __init__(self) -> None:
        self.length = 0
        self._buffer: Tensor | None = None

    @property
    def held(self) -> Float[Tensor, "batch heads length dim"]:
        """What was appended so far."""
        if self._buffer is None:
            raise ValueError("this cache is empty: run the attention with it first.")
        return self._buffer[..., : self.length, :]

    def append(self, new: Float[Tensor, "batch heads new dim"]) -> None:
        """Put `new` behind what is held; it keeps numbers, not gradients."""
        length = self.length + new.shape[-2]
        if self._buffer is not None and len(new) != len(self._buffer):
            raise ValueError(
                f"a cache of {len(self._buffer)} rows takes as many, and got {len(new)}: begin a "
                "new cache, or bring its rows in order by reorder()."
            )
        if self._buffer is None or length > self._buffer.shape[-2]:
            *leading, _, dim = new.shape
            larger = new.new_empty(*leading, max(_LEAST, 2 * length), dim)
            if self._buffer is not None:
                larger[..., : self.length, :] = self.held
            self._buffer = larger
        self._buffer[..., self.length : length, :] = new.detach()
        self.length = length

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was."""
        if self._buffer is not None:
            self._buffer = self._buffer.index_select(0, rows)


class KeyValueCache:
    """The keys and values that one attention has made, for generation token by token.

    >>> import torch
    >>> cache = KeyValueCache()
    >>> keys, values = cache.append(torch.rand(2, 3, 5, 7), torch.rand(2, 3, 5, 7))
    >>> keys, values = cache.append(torch.rand(2, 3, 1, 7), torch.rand(2, 3, 1, 7))
    >>> cache.length, keys.shape
    (6, torch.Size([2, 3, 6, 7]))
    """

    def __init__(self) -> None:
        self._keys, self._values = Growing(), Growing()

    @property
    def length(self) -> int:
        """How many keys are held."""
        return self._keys.length

    @property
    def held(
        self,
    ) -> tuple[
        Float[Tensor, "batch heads length head_dim"], Float[Tensor, "batch heads length head_dim"]
    ]:
        """All keys and all values.

        Errors: a ValueError where there are none.
        """
        return self._keys.held, self._values.held

    def append(
        self,
        key: Float[Tensor, "batch heads new head_dim"],
        value: Float[Tensor, "batch heads new head_dim"],
    ) -> tuple[
        Float[Tensor, "batch heads length head_dim"], Float[Tensor, "batch heads length head_dim"]
    ]:
        """All keys and all values, the new ones last.

        Errors: a ValueError where the new ones are of another number of rows.
        """
        self._keys.append(key)
        self._values.append(value)
        return self.held

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was; rows may be left out, or taken more than once."""
        self._keys.reorder(rows)
        self._values.reorder(rows)


class Cache:
    """The caches of a model's layers: one for each self-attention, and one for each cross.

    >>> cache = Cache(3)
    >>> len(cache.own), cache.length
    (3, 0)
    """

    def __init__(self, layers: int) -> None:
        self.own = tuple(KeyValueCache() for _ in range(layers))
        self.crossed = tuple(KeyValueCache() for _ in range(layers))

    @property
    def length(self) -> int:
        """How many tokens were fed so far."""
        return self.own[0].length

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was; rows may be left out, or taken more than once."""
        for cache in (*self.own, *self.crossed):
            cache.reorder(rows)

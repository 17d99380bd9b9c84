"""The cache of a model."""

from collections import defaultdict

from jaxtyping import Int
from torch import Tensor

from glasshead.layers.caching.evicting_cache import EvictingCache
from glasshead.layers.caching.key_value_cache import KeyValueCache
from glasshead.layers.caching.policy import Policy


class KVCache:
    """The caches of a model's layers: one for each self-attention, and one for each cross.

    They are made as the layers ask for them. Numbers are held, not gradients: what learns is run
    without a cache.

    Args:
        policy: Which keys of each self-attention are kept, for each layer, row and key head by
            itself: `H2O`, `SnapKV`, `TOVA` or `Sinks`. None: all that a later query can see.

    Errors: a TypeError where the policy is none.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=8, num_heads=2, num_layers=3)
    >>> model, cache = gh.LanguageModel(config), gh.KVCache(policy=gh.TOVA(budget=4))
    >>> logits = model(torch.tensor([[3, 1, 4, 1, 5, 9]]), cache=cache)
    >>> cache.length, cache.count
    (6, 4)

    Attributes:
        own: The caches of self-attentions, by layer.
        crossed: Those of cross-attentions, which keep all of the source.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        if not isinstance(policy, Policy | None):
            raise TypeError(
                f"KVCache(policy=…) takes a policy such as TOVA(budget=256), and got {policy!r}."
            )
        self.policy = policy
        self.own: defaultdict[int, KeyValueCache] = defaultdict(self._new)
        self.crossed: defaultdict[int, KeyValueCache] = defaultdict(KeyValueCache)

    @property
    def length(self) -> int:
        """How many tokens were fed so far."""
        first = next(iter(self.own.values()), None)
        return 0 if first is None else first.length

    @property
    def count(self) -> int:
        """The most keys that a self-attention holds, of a row and a key head."""
        return max((cache.count for cache in self.own.values()), default=0)

    @property
    def memory(self) -> int:
        """The bytes that are taken, of all layers."""
        return sum(cache.memory for cache in self._all())

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row `rows[i]` was; rows may be left out, or taken more than once."""
        for cache in self._all():
            cache.reorder(rows)

    def _new(self) -> KeyValueCache:
        return KeyValueCache() if self.policy is None else EvictingCache(self.policy)

    def _all(self) -> list[KeyValueCache]:
        return [*self.own.values(), *self.crossed.values()]

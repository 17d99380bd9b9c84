"""The key/value cache of a model, and layer caches that evict keys by a policy."""

from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention import Attention
from glasshead.attention.followed_classes import CACHES, VOTING, followed_as
from glasshead.layers.eviction import Policy
from glasshead.layers.layer_cache import (
    KeysAndValues,
    KeyValueCache,
    Places,
    check_fits,
    depends_on_distance_alone,
    hides_by_band,
    taken,
)
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, as_mask, combined


@followed_as(CACHES, VOTING)
class EvictingCache(KeyValueCache):
    """Key/value cache of one attention layer that keeps the keys a policy chooses.

    A call attends to all held keys and its own, on the engine that the attention runs anyway; the
    votes of the policy are computed separately. Keys that no later query can see, such as padding,
    are evicted first. Each key keeps its position in the text.

    Args:
        policy: Chooses the keys that stay.

    >>> import glasshead as gh
    >>> layer = gh.MultiHeadAttention(6, num_heads=3, attention=gh.Attention(mask=gh.causal()))
    >>> cache = EvictingCache(gh.Sinks(first=1, window=2))
    >>> layer(torch.rand(1, 5, 6), cache=cache).shape, cache.length, cache.count
    (torch.Size([1, 5, 6]), 5, 3)
    >>> cache.positions[0, 0]
    tensor([0, 3, 4])
    """

    def __init__(self, policy: Policy) -> None:
        self.length = 0
        self.policy = policy
        self._held: KeysAndValues | None = None
        self._positions: Tensor | None = None
        self._votes: Tensor | None = None

    @property
    def count(self) -> int:
        return 0 if self._held is None else self._held[0].shape[-2]

    @property
    def memory(self) -> int:
        """Return the allocated bytes, those of positions and votes included."""
        parts = (*(self._held or ()), self._positions, self._votes)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def held(self) -> KeysAndValues:
        """Return the keys and the values, in the order of the text.

        Errors: a ValueError if there are none.
        """
        if self._held is None:
            raise ValueError("this cache is empty. Run the attention with it first.")
        return self._held

    @property
    def positions(self) -> Int[Tensor, "batch heads count"]:
        """Return the positions in the text of the held keys."""
        if self._positions is not None:
            return self._positions
        keys, _ = self.held
        return torch.arange(self.length, device=keys.device).expand(keys.shape[:-1])

    def append(
        self,
        key: Float[Tensor, "batch heads new head_dim"],
        value: Float[Tensor, "batch heads new head_dim"],
        reach: int | None = None,
    ) -> KeysAndValues:
        """Append keys and values, and return all that are held; `attend` evicts afterwards.

        Keys out of `reach` are not seen, and are evicted first.
        """
        key, value = key.detach(), value.detach()
        if self._held is not None:
            check_fits(self._held[0], key)
        start, self.length = self.length, self.length + key.shape[-2]
        if self._positions is not None:
            added = torch.arange(start, self.length, device=key.device).expand(key.shape[:-1])
            self._positions = torch.cat([self._positions, added], -1)
        if self._held is not None:
            keys, values = self._held
            key, value = torch.cat([keys, key], -2), torch.cat([values, value], -2)
        self._held = key, value
        return key, value

    def attend(
        self,
        attention: Attention,
        heads: Sequence[Float[Tensor, "batch heads length head_dim"]],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "batch heads queries head_dim"]:
        """Attend from the new queries to the held keys, then evict by the policy.

        Errors: a ValueError if the attention's own mask is no intersection of bands or its own
        bias depends on more than distance, and cannot be evaluated at the key's position.
        """
        _check(attention)
        query, key, value = heads
        places = Places(self.length, query, key, self._positions)
        whole = combined([as_mask(attention.mask), as_mask(mask)])
        if self._positions is not None:
            mask = _remap_mask(places, whole)
            bias = _remap_bias(places, attention.bias, bias)
        context = attention(query, key, value, mask=mask, bias=bias)
        with torch.no_grad():
            if query.shape[-2]:
                self._vote(attention, (query, key, value), mask, bias)
            if self.count > self.policy.most:
                self._evict(places, whole)
        return context

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the batch, votes included: row i becomes what row `rows[i]` was."""
        if self._held is not None:
            keys, values = self._held
            self._held = taken(keys, rows), taken(values, rows)
        if self._positions is not None:
            self._positions = self._positions.index_select(0, rows)
        if self._votes is not None:
            self._votes = self._votes.index_select(0, rows)

    def _vote(
        self,
        attention: Attention,
        heads: tuple[Tensor, Tensor, Tensor],
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
    ) -> None:
        problem = attention.problem(*heads, mask, bias).detached()
        # A copy, as a watch takes the model's own modules for its attention.
        problem = replace(problem, normalizer=copy(problem.normalizer))
        new = self.policy.votes(problem)
        if new is not None and self._votes is not None:
            new = self.policy.joined(self._votes, new)
        self._votes = new

    def _evict(self, places: Places, mask: Mask | None) -> None:
        keys, values = self.held
        seen = places.seen(mask)
        if seen is None:
            seen = torch.ones(keys.shape[:-1], dtype=torch.bool, device=keys.device)
        scores = self.policy.scores(self._votes, seen).masked_fill(~seen, -torch.inf)
        # Ties keep the first keys; the order is that of the text.
        best = scores.sort(dim=-1, descending=True, stable=True).indices
        kept = best[..., : self.policy.most].sort(-1).values
        self._positions = self.positions.gather(-1, kept)
        keys, values = (part.take_along_dim(kept[..., None], -2) for part in (keys, values))
        self._held = keys, values
        if self._votes is not None:
            self._votes = self._votes.take_along_dim(kept[..., None, :], -1)


def _check(rule: Attention) -> None:
    if not (depends_on_distance_alone(rule) and hides_by_band(rule)):
        raise ValueError(
            "the attention of a cache that evicts must have a mask that is an intersection of "
            "causal() and window(), and a bias that depends on distance alone, such as "
            f"ALiBi(heads), got {rule.extra_repr()}. Pass others with each call."
        )


def _remap_mask(places: Places, whole: Mask | None) -> Mask | None:
    """Return the mask still needed beside the attention's own, which takes keys for the last.

    As they are in order, a causal mask hides none of them; a window hides too few.
    """
    simple = None if whole is None else whole.simplified(places.tile())
    if simple is None or (simple.is_band and simple.lookback is None):
        return None
    return places.mask(simple)


def _remap_bias(
    places: Places, own: Bias | Tensor | None, given: Bias | Tensor | None
) -> Tensor | None:
    """Return the call's bias at the held keys, plus the correction of the attention's own."""
    parts = [] if given is None else [places.bias(given)]
    if isinstance(own, Bias):
        parts.append(places.moved(own))
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]


@followed_as(CACHES)
class KVCache:
    """Key/value cache of a model: one for each self-attention and each cross-attention.

    Layer caches are created on first use. Values are held without gradients: train without a
    cache.

    Args:
        policy: Which keys of each self-attention are kept, for each layer, row and key head by
            itself: `H2O`, `SnapKV`, `TOVA` or `Sinks`. None: all that a later query can see.

    Errors: a TypeError if the policy is not an eviction policy.

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=8, num_heads=2, num_layers=3)
    >>> model, cache = gh.LanguageModel(config), gh.KVCache(policy=gh.TOVA(budget=4))
    >>> logits = model(torch.tensor([[3, 1, 4, 1, 5, 9]]), cache=cache)
    >>> cache.length, cache.count
    (6, 4)

    Attributes:
        own: The caches of self-attentions, by layer.
        crossed: The caches of cross-attentions, which keep all of the source.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        if not isinstance(policy, Policy | None):
            raise TypeError(
                f"KVCache(policy=…) must be a policy such as TOVA(budget=256), got {policy!r}."
            )
        self.policy = policy
        self.own: defaultdict[int, KeyValueCache] = defaultdict(self._new)
        self.crossed: defaultdict[int, KeyValueCache] = defaultdict(KeyValueCache)

    @property
    def length(self) -> int:
        """Return how many tokens were fed so far."""
        first = next(iter(self.own.values()), None)
        return 0 if first is None else first.length

    @property
    def count(self) -> int:
        """Return the most keys that a self-attention holds, per row and key head."""
        return max((cache.count for cache in self.own.values()), default=0)

    @property
    def memory(self) -> int:
        """Return the allocated bytes of all layers."""
        return sum(cache.memory for cache in self._all())

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the batch: row i becomes what row `rows[i]` was; rows may repeat or go."""
        for cache in self._all():
            cache.reorder(rows)

    def _new(self) -> KeyValueCache:
        return KeyValueCache() if self.policy is None else EvictingCache(self.policy)

    def _all(self) -> list[KeyValueCache]:
        return [*self.own.values(), *self.crossed.values()]

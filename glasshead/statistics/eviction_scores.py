"""Scores by which caches evict keys, from the attention weights that the keys received."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.validation import one_of, whole_number

_POOLS = {"mean": F.avg_pool1d, "max": F.max_pool1d}


def h2o_scores(
    received: Float[Tensor, "*batch heads keys"], kv_heads: int
) -> Float[Tensor, "*batch kv_heads keys"]:
    """H2O scores: Σ_i P_ij over all queries so far, averaged over the heads of a group.

    Beside the heavy hitters, the policy keeps the most recent keys; these scores do not say so.

    Args:
        received: The weight that each key has received, as of `Received()`.
        kv_heads: The number of key heads; query head i reads key head i // (heads / kv_heads).

    Errors: a ValueError if the heads are not a multiple of the key heads.

    Source: Zhang et al. 2023 (H2O), section 4, algorithm 1.

    >>> h2o_scores(torch.tensor([[1.0, 0.5], [2.0, 0.0]]), kv_heads=1)
    tensor([[1.5000, 0.2500]])
    """
    return _mean_of_groups(received, kv_heads)


def snapkv_scores(
    received: Float[Tensor, "*batch heads keys"],
    kv_heads: int,
    *,
    window: int,
    kernel: int = 5,
    pooling: str = "mean",
) -> Float[Tensor, "*batch kv_heads keys"]:
    """SnapKV scores: pool_j Σ_{i in window} P_ij of the keys before the window; inf within it.

    Keys of the window are kept whatever their score. Pooling keeps the neighbors of a key that is
    kept, so that retrieved passages stay whole; the ends are padded with 0.

    Args:
        received: The weight that each key has received from the last `window` queries, as
            of `Received(last=window)`.
        kv_heads: The number of key heads.
        window: The number of last queries that vote (the observation window).
        kernel: The pooling width, an odd number; 1: no pooling.
        pooling: "mean" or "max".

    Errors: a TypeError or ValueError if window or kernel are not whole numbers of at least 1 or
    the kernel is even, if pooling is another word, and if the heads do not fit.

    Source: Li et al. 2024 (SnapKV), section 4 and listing 1; the mean of 5 is that of the authors'
    code, the maximum of 7 one of section 5.

    >>> snapkv_scores(torch.tensor([[0.0, 0.3, 0.0, 0.0, 0.7]]), 1, window=1, kernel=3)
    tensor([[0.1000, 0.1000, 0.1000, 0.0000,    inf]])
    """
    window = whole_number(window, "SnapKV(window=…)", least=1)
    kernel = whole_number(kernel, "SnapKV(kernel=…)", least=1)
    if kernel % 2 == 0:
        raise ValueError(f"SnapKV(kernel=…) must be an odd number of keys, got {kernel}.")
    one_of(pooling, "SnapKV(pooling=…)", _POOLS)
    before = max(received.shape[-1] - window, 0)
    scores = received.new_full(received.shape, torch.inf)
    if before:
        flat = received[..., :before].reshape(-1, 1, before)
        pooled = _POOLS[pooling](flat, kernel, stride=1, padding=kernel // 2)
        scores[..., :before] = pooled.reshape(*received.shape[:-1], before)
    return _mean_of_groups(scores, kv_heads)


def tova_scores(
    last: Float[Tensor, "*batch heads keys"], kv_heads: int
) -> Float[Tensor, "*batch kv_heads keys"]:
    """TOVA scores: P_ij of the last query i, averaged over all heads of the layer.

    All heads keep the same keys, so that each key head is given the same scores.

    Args:
        last: The weights of the last query, as of `Received(last=1)`.
        kv_heads: The number of key heads.

    Errors: a ValueError if the heads are not a multiple of the key heads.

    Source: Oren et al. 2024 (Transformers are multi-state RNNs), section 3.3.

    >>> tova_scores(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), kv_heads=2)
    tensor([[0.7500, 0.2500],
            [0.7500, 0.2500]])
    """
    groups = _mean_of_groups(last, kv_heads)
    return groups.mean(-2, keepdim=True).expand(groups.shape)


def _mean_of_groups(
    scores: Float[Tensor, "*batch heads keys"], kv_heads: int
) -> Float[Tensor, "*batch kv_heads keys"]:
    """Average over the query heads of each key head."""
    kv_heads = whole_number(kv_heads, "kv_heads", least=1)
    if scores.shape[-2] % kv_heads:
        raise ValueError(
            "the heads of eviction scores must be a multiple of the key heads, got "
            f"{scores.shape[-2]} for {kv_heads}."
        )
    return scores.unflatten(-2, (kv_heads, -1)).mean(-2)

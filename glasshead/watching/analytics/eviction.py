"""Eviction scores of watched attention, by which caches choose the keys to drop."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import whole_number
from glasshead.statistics import Received
from glasshead.statistics.eviction_scores import h2o_scores, snapkv_scores, tova_scores
from glasshead.watching.analytics.stacks import check_one_text, chosen, per_row
from glasshead.watching.errors import BudgetError
from glasshead.watching.layer_record import Watched
from glasshead.watching.padding import last_real
from glasshead.watching.seen import Seen

_METHODS = ("h2o", "snapkv", "tova")


@torch.no_grad()
def eviction_scores(
    seen: Seen,
    method: str,
    *,
    layers: str | Sequence[str] | None = None,
    kv_heads: int | None = None,
    window: int = 32,
    kernel: int = 5,
    pooling: str = "mean",
) -> dict[str, Float[Tensor, "*batch kv_heads keys"]]:
    """Compute the scores by which a cache evicts keys, per layer; the lowest is evicted first.

    - "h2o": Σ_i P_ij over all queries, the mean of the query heads that share a key head.
    - "snapkv": Σ_i P_ij over the last `window` queries, pooled along keys, the same mean; inf
      within the window, which is kept.
    - "tova": P_ij of the last query i, the mean of all heads; each key head has the same.

    They are computed as `Wᵀ·L` from the lazy weights, if these were kept, over prefill and
    decoding steps. Statistics suffice as well: `Received()` for H2O, `Received(last=window)` for
    SnapKV, `Received(last=1)` for TOVA.

    Args:
        seen: The result of a watch; the last text counts.
        method: "h2o", "snapkv" or "tova".
        layers: Patterns of names, as of `watch`; None: all.
        kv_heads: Number of key heads, if only statistics were kept; None: the number in the
            weights, else one per query head.
        window, kernel, pooling: Parameters of SnapKV: the number of observing queries, the pooling
            width, and "mean" or "max".

    Errors: a TypeError or ValueError if an argument is invalid, and a ValueError if the
    needed weights or statistics were not kept, or only for some heads.

    Source: Zhang et al. 2023 (H2O), section 4; Li et al. 2024 (SnapKV), section 4; Oren et al. 2024
    (Transformers are multi-state RNNs), section 3, TOVA.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 5)
    >>> with gh.watch(rule, [gh.Received()]) as seen:
    ...     context = rule(x, x, x)
    >>> gh.eviction_scores(seen, "h2o", kv_heads=1)[""]         # 1 + 1/2 + 1/3, 1/2 + 1/3, 1/3
    tensor([[[1.8333, 0.8333, 0.3333]]])
    """
    if method not in _METHODS:
        raise ValueError(
            f"the method of eviction_scores must be 'h2o', 'snapkv' or 'tova', got {method!r}."
        )
    window = whole_number(window, "window", least=1)
    scores = {}
    for name, watched in chosen(seen, layers, "eviction_scores").items():
        check_one_text(name, watched, "eviction_scores")
        if method == "snapkv" and watched.real is not None and not watched.real[:, -1].all():
            raise ValueError(
                f"SnapKV keeps the last tokens, but the texts of {name!r} are padded at the "
                "right. Pad them at the left."
            )
        last = {"h2o": None, "snapkv": window, "tova": 1}[method]
        received = _received(watched, last)
        heads = _key_heads(watched) or received.shape[-2]
        heads = heads if kv_heads is None else kv_heads
        if method == "h2o":
            scores[name] = h2o_scores(received, heads)
        elif method == "tova":
            scores[name] = tova_scores(received, heads)
        else:
            pools = {"window": window, "kernel": kernel, "pooling": pooling}
            scores[name] = snapkv_scores(received, heads, **pools)
    return scores


def _received(watched: Watched, last: int | None) -> Float[Tensor, "*batch heads keys"]:
    """Sum the mass that each key receives from the last queries; inputs without heads have one.

    Errors: a ValueError if neither the weights nor the statistic were kept.
    """
    calls = watched.last_text
    if all(call.has_weights for call in calls):
        W, real = watched.weights, watched.real
        queries = W.shape[-2]
        if real is None:
            real = torch.ones(1, queries, dtype=torch.bool)
        counted = per_row(last_real(real, queries if last is None else last), W).to(W.logsumexp)
        received, headed = (W.T @ counted)[..., 0], len(W.shape) > 3
    else:
        received, headed = _statistic(watched, last), len(calls[-1].shape) > 2
    return received if headed else received.unsqueeze(-2)


def _statistic(watched: Watched, last: int | None) -> Float[Tensor, "... keys"]:
    """Return the mass that each key receives, from the statistic `Received`."""
    statistic, (*before, call) = Received(last), watched.last_text
    # The last queries of a text that grew with a cache may lie in several calls.
    within = last is None or not before or call.queries >= last
    if statistic not in call.statistics.values() or not within:
        if call.missing:
            raise BudgetError(call.missing)
        raise ValueError(
            f"these scores of {watched.name!r} follow from {statistic!r} of one call, or from the "
            f"weights. Watch with that statistic, or with keep='weights'."
        )
    if call.heads is not None:
        raise ValueError(
            f"eviction scores need all heads, but {watched.name!r} was watched with "
            f"heads={list(call.heads)}. Omit heads."
        )
    return watched[statistic] if last is None else call[statistic]


def _key_heads(watched: Watched) -> int | None:
    """Return the number of key heads of kept weights; None without weights."""
    call = watched.last_text[-1]
    weights = call.weights if call.has_weights else None
    if weights is None:
        return None
    return weights.key_heads if len(weights.shape) > 3 else 1

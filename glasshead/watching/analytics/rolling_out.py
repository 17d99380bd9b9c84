"""Rollout: how much of each input token reaches a token of the last layer."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import probability, whole_number
from glasshead.watching.analytics.stacks import (
    Kept,
    mean_of_heads,
    places_in_texts,
    stack_of,
    zeros,
)
from glasshead.watching.seen import Seen


@torch.no_grad()
def rollout(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    layers: str | Sequence[str] | None = None,
    residual: float = 0.5,
    budget: int = 2**31,
) -> Float[Tensor, "*batch rows keys"]:
    """Attention rollout: rows of Ã_L · … · Ã_1, where Ã_l = ½ mean_heads W_l + ½ I. A weight.

    The rows are multiplied from the last layer down, `Wᵀ·L` of the lazy weights, so that no matrix
    of tokens × tokens is ever there: memory grows with heads · tokens · rows. Text that has grown
    with a cache is one text, prefill and steps together.

    A row sums to 1, unless a query sees nothing on the way, such as padding, or looks at a sink
    that is no key: then less reaches it. Rows below 0 are counted from the last token of each text
    of a padded batch, others from the first place of its row, padding included.

    Args:
        seen: By a watch with `keep="weights"`; of the last text, each layer once.
        rows: Tokens of the last layer, from the end of each text where negative.
        layers: Patterns of names, as of `watch`; None: all, where they are of one stack.
        residual: What passes by the attention, ½ in the paper.
        budget: How many bytes may be held on the way.

    Errors: a TypeError or ValueError where an argument is wrong, where the weights were not kept,
    where a layer is not of a text to itself, such as one that crosses, or is of another text than
    the others, and where the rows would take more than the budget.

    Source: Abnar & Zuidema 2020 (Quantifying attention flow in transformers), section 3, attention
    rollout.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 5)
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(x, x, x)
    >>> gh.rollout(seen, rows=[0, -1])                          # ½ · ⅓, ½ · ⅓, ½ · ⅓ + ½
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.1667, 0.1667, 0.6667]]])
    """
    stack, real = stack_of(seen, layers, "rollout")
    residual, budget = probability(residual, "residual"), whole_number(budget, "budget")
    places = places_in_texts(rows, stack, real)
    _check_budget(stack, places.shape[-1], budget)
    reached = zeros(stack[-1], *places.shape[:-1], stack[0].shape[-1], places.shape[-1])
    reached.scatter_(-2, places.unsqueeze(-2).to(reached.device), 1.0)
    for W in reversed(stack):
        reached = reached.to(W.logsumexp.device)
        # The same for each head.
        left = reached.unsqueeze(-3) if reached.ndim > 2 and len(W.shape) > 3 else reached
        reached = residual * reached + (1 - residual) * mean_of_heads(W.T @ left)
    return reached.transpose(-1, -2)


def _check_budget(stack: Sequence[Kept], rows: int, budget: int) -> None:
    """Raise where a product of one layer, and the factor beside it, would take too much."""
    needed = max(2 * W.shape[:-1].numel() * rows * W.logsumexp.itemsize for W in stack)
    if needed > budget:
        raise ValueError(
            f"rollout takes at most budget={budget} bytes, and {rows} rows would need {needed}: "
            f"ask for fewer at once, or raise budget=."
        )

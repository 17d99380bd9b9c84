"""Attention rollout and flow: how much of each input token reaches the last layer."""

from collections.abc import Sequence
from typing import Any

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


# Flows of whole numbers come to an end, and those of rounded ones may not.
_UNITS = 2**40


@torch.no_grad()
def flow(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    layers: str | Sequence[str] | None = None,
    residual: float = 0.5,
    most_pairs: int = 20_000,
) -> Float[Tensor, "*batch rows keys"]:
    """Attention flow: the maximum flow from each input token to a token of the last layer.

    The tokens of all layers are a graph. From token j below a layer l to token i above it goes a
    pipe of capacity Ã_l[i, j], where Ã_l = ½ mean_heads W_l + ½ I. Of an input token, value j is
    the most that can flow from it alone to the asked one, through all the pipes at once; each input
    token has them to itself. Values are weights from 0 to 1, and do not sum to 1.

    Args:
        seen: By a watch with `keep="weights"`; of the last text, each layer once.
        rows: Tokens of the last layer, as of `rollout`.
        layers: Patterns of names, as of `watch`; None: all, where they are of one stack.
        residual: What passes by the attention, ½ in the paper.
        most_pairs: How many pipes a text may have, layers · tokens². 10,000 take one to
            three seconds a row, and time grows faster than they do.

    Errors: as of `rollout`; a ValueError where there are more pipes than `most_pairs`, and an
    ImportError where there is no networkx.

    Source: Abnar & Zuidema 2020 (Quantifying attention flow in transformers), section 3, attention
    flow.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 5)
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(x, x, x)
    >>> gh.flow(seen, rows=[0, -1])                 # of one layer, it is the rollout
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.1667, 0.1667, 0.6667]]])
    """
    stack, real = stack_of(seen, layers, "flow")
    residual = probability(residual, "residual")
    *_, length = stack[0].shape
    places = places_in_texts(rows, stack, real)
    pairs = len(stack) * length**2
    if pairs > whole_number(most_pairs, "most_pairs"):
        raise ValueError(
            f"flow takes at most most_pairs={most_pairs} of layers · tokens², and {len(stack)} "
            f"layers of {length} tokens have {pairs}: take a shorter text, or rollout."
        )
    passed = residual * torch.eye(length, dtype=torch.double)
    given = [mean_of_heads(W.dense()).double().cpu() for W in stack]
    capacities = torch.stack([(1 - residual) * one + passed for one in given], -3)
    texts = capacities.reshape(-1, *capacities.shape[-3:])
    shape = *capacities.shape[:-3], places.shape[-1]
    own = places.expand(shape).reshape(len(texts), -1).tolist()
    found = torch.tensor(
        [_of_text(text, asked) for text, asked in zip(texts, own, strict=True)], dtype=torch.double
    )
    return found.reshape(*shape, length).to(stack[0].logsumexp)


def _of_text(
    capacities: Float[Tensor, "layers tokens tokens"], places: Sequence[int]
) -> list[list[float]]:
    """The flow from each input token to each of the places in the last layer."""
    nx = _networkx()
    layers, length, _ = capacities.shape
    graph = nx.DiGraph()
    graph.add_nodes_from((layer, token) for layer in range(layers + 1) for token in range(length))
    units = (capacities * _UNITS).round().long().tolist()
    for layer, matrix in enumerate(units):
        for above, row in enumerate(matrix):
            for below, capacity in enumerate(row):
                if capacity:
                    graph.add_edge((layer, below), (layer + 1, above), capacity=capacity)
    network = nx.algorithms.flow.build_residual_network(graph, "capacity")

    def value(token: int, place: int) -> float:
        ends = (0, token), (layers, place)
        solved = nx.algorithms.flow.preflow_push(graph, *ends, residual=network, value_only=True)
        return solved.graph["flow_value"] / _UNITS

    return [[value(token, place) for token in range(length)] for place in places]


def _networkx() -> Any:
    try:
        import networkx as nx
    except ImportError:
        raise ImportError("flow takes networkx: pip install networkx.") from None
    return nx

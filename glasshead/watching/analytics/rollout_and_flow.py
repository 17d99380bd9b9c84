"""Attention rollout and flow: how much of each input token reaches the last layer."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import probability, whole_number
from glasshead.watching.analytics.stacks import (
    LazyWeights,
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
    without: Sequence[int] = (),
    budget: int = 2**31,
) -> Float[Tensor, "*batch rows keys"]:
    """Compute attention rollout: rows of Ã_L · … · Ã_1, where Ã_l = ½ mean_heads W_l + ½ I.

    The rows are multiplied from the last layer down, as `Wᵀ·L` of the lazy weights, so that no
    matrix of tokens × tokens is built: memory grows with heads · tokens · rows. A text that grew
    with a cache is one text, prefill and decoding steps together.

    A row sums to 1, unless a query on the way sees no key, such as padding, or attends to a sink
    that is no key: then it sums to less. Negative rows are counted from the last token of each text
    of a padded batch, others from the start of its row, padding included.

    Args:
        seen: The result of a watch with `keep="weights"`; the last text, each layer once.
        rows: Tokens of the last layer, from the end of each text where negative.
        layers: Patterns of names, as of `watch`; None: all, which must be of one stack.
        residual: Weight of the residual connection, ½ in the paper.
        without: Keys that no layer attends to, such as registers or sinks, counted from 0. The
            weights of other keys are scaled to the row's sum without them.
        budget: Memory for intermediate results in bytes.

    Errors: a TypeError or ValueError where an argument is invalid, the weights were not kept, a
    layer is no self-attention or of another text than the others, and where the rows would take
    more than the budget.

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
    kept = _kept(without, stack[0]) if without else None
    for W in reversed(stack):
        reached = reached.to(W.logsumexp.device)
        # Broadcast over heads.
        left = reached.unsqueeze(-3) if reached.ndim > 2 and len(W.shape) > 3 else reached
        passed = mean_of_heads(W.T @ left) if kept is None else _without(W, left, kept)
        reached = residual * reached + (1 - residual) * passed
    return reached.transpose(-1, -2)


def _kept(without: Any, W: LazyWeights) -> Float[Tensor, "keys 1"]:
    """Return 1 for each key that stays, and 0 for the others.

    Errors: a TypeError or ValueError for a key that is not there.
    """
    if not isinstance(without, list | tuple | range):
        raise TypeError(f"without takes a list of keys such as [0], and got {without!r}.")
    kept = zeros(W, W.shape[-1], 1) + 1
    for key in (whole_number(one, "without") for one in without):
        if key >= len(kept):
            raise ValueError(
                f"without takes keys of the {len(kept)} that there are, and got {key}."
            )
        kept[key] = 0
    return kept


def _without(
    W: LazyWeights, left: Float[Tensor, "... queries rows"], kept: Float[Tensor, "keys 1"]
) -> Float[Tensor, "*batch keys rows"]:
    """Compute mean_heads Wᵀ·L for weights without some keys, each row divided by what it keeps."""
    kept = kept.to(W.device, W.dtype)
    # A row that looks at removed keys alone passes nothing on.
    sums = W @ kept
    shares = torch.where(sums > 0, 1 / sums, 0.0)
    return mean_of_heads((W.T @ (left * shares)) * kept)


def _check_budget(stack: Sequence[LazyWeights], rows: int, budget: int) -> None:
    """Raise a ValueError where a product of one layer, and its factor, exceed the budget."""
    needed = max(2 * W.shape[:-1].numel() * rows * W.logsumexp.itemsize for W in stack)
    if needed > budget:
        raise ValueError(
            f"rollout takes at most budget={budget} bytes, and {rows} rows would need {needed}: "
            f"ask for fewer at once, or raise budget=."
        )


# Capacities are scaled to whole numbers: with floating-point ones the algorithm may not terminate.
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
    """Compute attention flow: the maximum flow from each input token to a token of the last layer.

    The tokens of all layers form a graph. An edge from token j below layer l to token i above it
    has capacity Ã_l[i, j], where Ã_l = ½ mean_heads W_l + ½ I. Value j is the maximum flow from
    input token j alone to the requested token. Values are from 0 to 1, and do not sum to 1.

    Args:
        seen: The result of a watch with `keep="weights"`; the last text, each layer once.
        rows: Tokens of the last layer, as of `rollout`.
        layers: Patterns of names, as of `watch`; None: all, which must be of one stack.
        residual: Weight of the residual connection, ½ in the paper.
        most_pairs: Largest number of edges of a text, layers · tokens². 10,000 take one to three
            seconds per row, and time grows faster than linearly.

    Errors: as of `rollout`; a ValueError for more edges than `most_pairs`, and an ImportError
    without networkx.

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
        [_of_text(text, ends) for text, ends in zip(texts, own, strict=True)], dtype=torch.double
    )
    return found.reshape(*shape, length).to(stack[0].logsumexp)


def _of_text(
    capacities: Float[Tensor, "layers tokens tokens"], places: Sequence[int]
) -> list[list[float]]:
    """Compute the flow from each input token to each requested token of the last layer."""
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

"""Flow: how much of each input token a token of the last layer could be given at most."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.recipe.validation import probability, whole_number
from glasshead.watching.analytics.stacks import mean_of_heads, places_in_texts, stack_of
from glasshead.watching.seen import Seen

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

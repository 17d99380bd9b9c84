"""Rollout and flow: how much of each input token reaches the last layer, or a loss."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention import Elementwise
from glasshead.attention.lazy_matrix import LazyMatrix
from glasshead.extras import missing
from glasshead.recipe.validation import probability, whole_number
from glasshead.watching.analytics.stacks import (
    LazyWeights,
    check_one_text,
    chosen,
    mean_of_heads,
    places_in_texts,
    stack_of,
    zeros,
)
from glasshead.watching.layer_record import Watched
from glasshead.watching.recorded_call import ATTENTION
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

    Of a layer that mixes tokens without attention, which `mixers=True` observes, W_l has the
    magnitudes of its implied weights as shares of each row, |W_ts| / Σ_s |W_ts|, which takes time
    that grows with queries · keys. `rollout_factors` lists what is multiplied.

    A row sums to 1, unless a query on the way sees no key, such as padding, or attends to a sink
    that is not a key: then it sums to less. Negative rows are counted from the last token of each
    text of a padded batch, others from the start of its row, padding included.

    Args:
        seen: The result of a watch with `keep="weights"`; the last text, each layer once.
        rows: Tokens of the last layer, negative ones from the end of each text.
        layers: Patterns of names, as of `watch`; None: all, which must be of one stack.
        residual: Weight of the residual connection, ½ in the paper.
        without: Keys that no layer attends to, such as registers or sinks, counted from 0. The
            weights of other keys are scaled to the row's sum without them.
        budget: Memory for intermediate results in bytes.

    Errors: a TypeError or ValueError if an argument is invalid, the weights were not kept, a
    layer is not self-attention or of another text than the others, and if the rows would take
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
    _check_budget("rollout", stack, places.shape[-1], budget)
    kept = _kept(without, stack[0]) if without else None
    reached = _chosen_rows(stack, places)
    for W in reversed(stack):
        reached = reached.to(W.device)
        passed = _product(W.T, reached) if kept is None else _without(W, reached, kept)
        reached = residual * reached + (1 - residual) * passed
    return reached.transpose(-1, -2)


def rollout_factors(seen: Seen, *, layers: str | Sequence[str] | None = None) -> dict[str, str]:
    """Return what `rollout` and `flow` multiply for each layer, in words, the first layer first.

    Args:
        seen: The result of a watch with `keep="weights"`.
        layers: Patterns of names, as of `rollout`.

    Errors: as of `rollout`.

    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.causal()), torch.zeros(1, 2, 3, 5)
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(x, x, x)
    >>> gh.rollout_factors(seen)
    {'': 'attention: the mean over 2 heads of W'}
    """
    stack_of(seen, layers, "rollout_factors")
    return {each: _in_words(one) for each, one in chosen(seen, layers, "rollout_factors").items()}


def _in_words(watched: Watched) -> str:
    call = watched.last_text[-1]
    many = call.shape[-2] if len(call.shape) > 2 else 1
    parts = "channel" if call.channels else "head"
    of = "W" if watched.kind == ATTENTION else "|W| / Σ|W|"
    return f"{watched.kind}: the mean over {many} {parts}{'s' if many > 1 else ''} of {of}"


def _kept(without: Any, W: LazyWeights) -> Float[Tensor, "keys 1"]:
    """Return 1 for each key that stays, and 0 for the others.

    Errors: a TypeError or ValueError for a key that is not there.
    """
    if not isinstance(without, list | tuple | range):
        raise TypeError(f"without must be a list of keys such as [0], got {without!r}.")
    kept = zeros(W, W.shape[-1], 1) + 1
    for key in (whole_number(one, "without") for one in without):
        if key >= len(kept):
            raise ValueError(f"without must be in 0..{len(kept) - 1}, got {key}.")
        kept[key] = 0
    return kept


def _without(
    W: LazyWeights, left: Float[Tensor, "*batch queries rows"], kept: Float[Tensor, "keys 1"]
) -> Float[Tensor, "*batch keys rows"]:
    """Compute mean_heads Wᵀ·L for weights without some keys, each row divided by what it keeps."""
    kept = kept.to(W.device, W.dtype)
    # A row that looks at removed keys alone passes nothing on.
    sums = W @ kept
    shares = torch.where(sums > 0, 1 / sums, 0.0)
    return mean_of_heads((W.T @ (_for_heads(left, W) * shares)) * kept)


def _check_budget(name: str, stack: Sequence[LazyMatrix], rows: int, budget: int) -> None:
    """Raise a ValueError if a product of one layer, and its factor, exceed the budget."""
    needed = max(2 * W.shape[:-1].numel() * rows * W.dtype.itemsize for W in stack)
    if needed > budget:
        raise ValueError(
            f"{name} may use at most budget={budget} bytes, but {rows} rows need {needed}. Ask "
            "for fewer at once, or raise budget=."
        )


def _chosen_rows(
    stack: Sequence[LazyWeights], places: Int[Tensor, "*batch rows"]
) -> Float[Tensor, "*batch tokens rows"]:
    """Return the rows of the identity at these places, as columns."""
    rows = zeros(stack[-1], *places.shape[:-1], stack[0].shape[-1], places.shape[-1])
    return rows.scatter_(-2, places.unsqueeze(-2).to(rows.device), 1.0)


def _product(W: LazyMatrix, x: Float[Tensor, "*batch columns n"]) -> Float[Tensor, "*batch rows n"]:
    """Compute the mean over heads of W·x."""
    return mean_of_heads(W @ _for_heads(x.to(W.device), W))


def _for_heads(x: Tensor, W: LazyMatrix) -> Tensor:
    """Add the axis of the heads of W, over which it is broadcast."""
    return x.unsqueeze(-3) if x.ndim > 2 and len(W.shape) > 3 else x


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
            f"flow may use at most most_pairs={most_pairs} of layers · tokens², but {len(stack)} "
            f"layers of {length} tokens have {pairs}. Use a shorter text, or rollout."
        )
    passed = residual * torch.eye(length, dtype=torch.double)
    given = [mean_of_heads(W.dense()).cpu().double() for W in stack]
    capacities = torch.stack([(1 - residual) * one + passed for one in given], -3)
    texts = capacities.reshape(-1, *capacities.shape[-3:])
    shape = *capacities.shape[:-3], places.shape[-1]
    own = places.expand(shape).reshape(len(texts), -1).tolist()
    found = torch.tensor(
        [_of_text(text, ends) for text, ends in zip(texts, own, strict=True)], dtype=torch.double
    )
    return found.reshape(*shape, length).to(stack[0].device, stack[0].dtype)


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
    except ModuleNotFoundError as error:
        raise missing("flow", ["networkx"]) from error
    return nx


@torch.no_grad()
def gradient_rollout(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    layers: str | Sequence[str] | None = None,
    budget: int = 2**31,
) -> Float[Tensor, "*batch rows keys"]:
    """Compute gradient-weighted rollout: rows of R = (I + Ā_L) · … · (I + Ā_1).

    Ā = mean_heads max(∇A ⊙ A, 0) takes the weights A of a layer by the gradient ∇A of a loss, such
    as the logit of a class or of a token, so that heads and tokens count that raise it. Column j of
    row i is the relevance of token j to what token i holds at the end, 1 of its own included.

    The rows are multiplied from the last layer down, tile by tile, so that no matrix of tokens ×
    tokens is built: memory grows with heads · tokens · rows. Negative rows are counted from the
    last token of each text of a padded batch, others from the start of its row, padding included.

    Args:
        seen: The result of a watch with `keep="gradients"`, after a backward pass; the last text,
            each layer once.
        rows: Tokens of the last layer, negative ones from the end of each text: the token whose
            logit the loss is, or the class token.
        layers: Patterns of names, as of `watch`; None: all, which must be of one stack.
        budget: Memory for intermediate results in bytes.

    Errors: a TypeError or ValueError if an argument is invalid, gradients were not kept or have
    not arrived, a layer is not self-attention or of another text than the others, and if the rows
    would take more than the budget.

    Source: Chefer, Gur & Wolf 2021 (Generic attention-model explainability), equations 5 and 6.

    >>> import torch
    >>> import glasshead as gh
    >>> rule = gh.Attention()
    >>> x, value = torch.zeros(1, 1, 2, 1, requires_grad=True), torch.tensor([[[[4.0], [-2.0]]]])
    >>> with gh.watch(rule, keep="gradients") as seen:
    ...     rule(x, x, value)[0, 0, 1].sum().backward()
    >>> gh.gradient_rollout(seen, rows=[0, 1])                 # ½ · 4, and 1 of its own
    tensor([[[1., 0.],
             [2., 1.]]])
    """
    name = "gradient_rollout"
    stack, real = stack_of(seen, layers, name)
    weighted = [_weighted(one) for one in chosen(seen, layers, name).values()]
    places = places_in_texts(rows, stack, real)
    _check_budget(name, weighted, places.shape[-1], whole_number(budget, "budget"))
    return _before(weighted, _chosen_rows(stack, places)).transpose(-1, -2)


@torch.no_grad()
def cross_gradient_rollout(
    seen: Seen,
    rows: Sequence[int] = (-1,),
    *,
    encoder: str | Sequence[str],
    decoder: str | Sequence[str],
    cross: str | Sequence[str],
) -> Float[Tensor, "*batch rows source_keys"]:
    """Compute the gradient-weighted relevance of source tokens to tokens of a decoder.

    With Ā as of `gradient_rollout`, R_ss and R_qq of the decoder's and the encoder's own attention,
    and R̄ = (R - I) / its row sums + I, each cross-attention adds R̄_ssᵀ Ā R̄_qq to R_sq, and each
    later self-attention of the decoder Ā R_sq. A row whose R - I is 0 adds nothing.

    Args:
        seen: The result of a watch with `keep="gradients"`, after a backward pass.
        rows: Tokens of the decoder; negative ones from the end of each text.
        encoder, decoder: Patterns of names of the self-attention of either, as of `watch`.
        cross: Patterns of names of the cross-attention of the decoder, one for each of its layers.

    Errors: as of `gradient_rollout`, and a ValueError if there is not one cross-attention for
    each self-attention of the decoder.

    Source: Chefer, Gur & Wolf 2021 (Generic attention-model explainability), equations 5 to 10.
    """
    name = "cross_gradient_rollout"
    own = stack_of(seen, decoder, name)
    # For its checks.
    stack_of(seen, encoder, name)
    crossing = chosen(seen, cross, name)
    for each, one in crossing.items():
        check_one_text(each, one, name)
        if not all(call.crossing for call in one.last_text):
            raise ValueError(
                f"{name} needs cross-attention in cross=, but {each!r} attends to its own text. "
                "Choose others."
            )
    if len(crossing) != len(own[0]):
        raise ValueError(
            f"{name} needs one cross-attention for each layer of the decoder, but there are "
            f"{len(crossing)} for {len(own[0])}. Choose with cross= and decoder=."
        )
    selves, source, across = (
        [_weighted(one) for one in chosen(seen, each, name).values()]
        for each in (decoder, encoder, cross)
    )
    places = places_in_texts(rows, *own)
    reached = _chosen_rows(own[0], places)
    total = zeros(own[0][-1], *places.shape[:-1], across[0].shape[-1], places.shape[-1])
    for layer in range(len(selves) - 1, -1, -1):
        total = total + _product(across[layer].T, _normalized(selves[: layer + 1], reached))
        reached = reached + _product(selves[layer].T, reached)
    return _normalized_transposed(source, total).transpose(-1, -2)


def _weighted(watched: Watched) -> LazyMatrix:
    """Return max(∇A ⊙ A, 0) of each head."""
    return Elementwise(watched.weights, watched.gradients).relu()


def _after(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute (R - I)·x, of R = (I + Ā_l) · … · (I + Ā_1)."""
    made = x
    for W in stack:
        made = made + _product(W, made)
    return made - x


def _before(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute Rᵀ·x, of R = (I + Ā_l) · … · (I + Ā_1), whose layers may lie on several devices."""
    for W in reversed(stack):
        x = x.to(W.device) + _product(W.T, x)
    return x


def _row_sums(stack: Sequence[LazyMatrix], x: Tensor) -> Float[Tensor, "*batch tokens 1"]:
    """Return the row sums of R - I, with 1 where a row is 0."""
    sums = _after(stack, x.new_ones(*x.shape[:-1], 1))
    return torch.where(sums == 0, 1.0, sums)


def _normalized(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute R̄·x, of R̄ = (R - I) / its row sums + I."""
    return _after(stack, x) / _row_sums(stack, x) + x


def _normalized_transposed(stack: Sequence[LazyMatrix], x: Tensor) -> Tensor:
    """Compute R̄ᵀ·x."""
    divided = x / _row_sums(stack, x)
    return _before(stack, divided) - divided + x

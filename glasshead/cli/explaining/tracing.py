"""Tracing: every number of the attention, unless there would be too many."""

from dataclasses import dataclass

from glasshead.cli.explaining.recipe import Recipe
from glasshead.cli.inputs.wording import listed
from glasshead.explanation.embeddings import Embeddings
from glasshead.explanation.projection import Projection, head_counts, in_heads
from glasshead.recipe.trace import Trace

# For each pair of words, as measured: the steps and what is drawn of them; as JSON, lists and text.
_BYTES_A_PAIR, _BYTES_A_PAIR_AS_JSON = 110, 650
_MOST_BYTES = 2**31
# These two subtract or add each query and each key, number by number, and keep it twice.
_PAIRWISE = ("gaussian", "additive")


@dataclass(frozen=True, eq=False)
class Traced:
    """An attention's trace, and which head of it is told."""

    trace: Trace
    index: tuple[int, ...] | None


def traced(
    embeddings: Embeddings,
    projection: Projection | None,
    recipe: Recipe,
    *,
    seed: int,
    head: int,
    json: bool,
) -> Traced:
    """The trace of the embeddings' self-attention.

    Args:
        embeddings: The sentence.
        projection: What makes queries, keys and values of them; None: they are the embeddings.
        recipe: The attention.
        seed: What learned parameters are made up from.
        head: Which head is told, from 0.
        json: Whether every number will be written out, which takes more memory.

    Errors: a ValueError where the heads do not divide the widths, the trace would not fit into 2
    GiB, or numbers overflow.
    """
    inputs = (embeddings.vectors,) * 3
    if projection is not None:
        inputs = (projection.queries, projection.keys, projection.values)
    for vectors in inputs:
        _check_heads(vectors.shape[-1], recipe.heads)
    dim = inputs[0].shape[-1] // recipe.heads
    _check_size(len(embeddings.tokens), recipe, dim, json=json)
    attention = recipe.attention(dim, seed)
    trace = attention.trace(*(in_heads(x, recipe.heads) for x in inputs))
    if not (trace.scaled.isfinite().all() and trace.context.isfinite().all()):
        raise ValueError(
            "the scores grow beyond all numbers: take smaller vectors, or a smaller --beta."
        )
    index = None if recipe.heads == 1 else (0, head)
    return Traced(trace, index)


def most_tokens(recipe: Recipe, *, json: bool, dim: int = 0) -> int:
    """How many tokens can be explained; no fewer where `dim`, how wide a head is, is not given."""
    return int((_MOST_BYTES / _bytes_a_pair(recipe, dim, json=json)) ** 0.5)


def _bytes_a_pair(recipe: Recipe, dim: int, *, json: bool) -> int:
    in_a_head = _BYTES_A_PAIR_AS_JSON if json else _BYTES_A_PAIR
    in_a_head += 2 * 8 * dim if recipe.score in _PAIRWISE else 0
    return in_a_head * recipe.heads


def _check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise ValueError(
            f"--heads {heads} does not divide vectors of {width} numbers into equal parts: "
            f"take one of {listed(map(str, head_counts(width)))}."
        )


def _check_size(tokens: int, recipe: Recipe, dim: int, *, json: bool) -> None:
    needed = _bytes_a_pair(recipe, dim, json=json) * tokens**2
    if needed > _MOST_BYTES:
        most = most_tokens(recipe, json=json, dim=dim)
        raise ValueError(
            f"{tokens:,} tokens are too many to explain in full (about {needed / 2**30:.1f} GiB "
            f"with these options): give at most {most:,}."
        )

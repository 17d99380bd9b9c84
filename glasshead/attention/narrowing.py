"""One head of one batch row of a problem, as a problem of its own."""

from dataclasses import replace

import torch
from jaxtyping import Shaped
from torch import Tensor

from glasshead.attention.narrowed_biases import narrowed_bias
from glasshead.attention.narrowed_masks import narrowed_mask
from glasshead.attention.place import Place
from glasshead.recipe.normalizers import Normalizer, Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import Additive, Cosine, Dot, Gaussian, ScaledDot, Score

_SCORES = (Cosine, Dot, Gaussian, ScaledDot)


def narrowed(problem: Problem, batch: tuple[int, ...], head: int) -> Problem | None:
    """The attention of one head, `[queries, dim]`, which has its parts of β, biases, mask and sink.

    Query head i reads key head i // (query heads / key heads). Queries and keys are views. None
    where the score or the normalizer is of a user's own, which may read across heads.

    Args:
        problem: Of any layout.
        batch: A place along each batch axis.
        head: Which query head.

    >>> import torch
    >>> import glasshead as gh
    >>> q, k = torch.randn(2, 6, 5, 3), torch.randn(2, 2, 7, 3)
    >>> attention = gh.Attention(score=gh.Dot(beta=torch.arange(6.0)), bias=gh.ALiBi(6))
    >>> one = narrowed(attention.problem(q, k, k), (1,), 4)
    >>> one.scores_shape, one.score, one.key[0].equal(k[1, 1])
    ((1, 5, 7), Dot(beta=4), True)
    """
    score = _score(problem.score, head)
    normalizer = _normalizer(problem.normalizer, head)
    if score is None or normalizer is None:
        return None
    place = Place(problem, batch, head)
    query = problem.query[(*batch, slice(head, head + 1))]
    of = head // problem.group
    key, value = (x[(*batch, slice(of, of + 1))] for x in (problem.key, problem.value))
    return replace(
        problem,
        query=query,
        key=key,
        value=value,
        score=score,
        biases=tuple(narrowed_bias(bias, place) for bias in problem.biases),
        mask=None if problem.mask is None else narrowed_mask(problem.mask, place),
        normalizer=normalizer,
        offset=place.offset,
        axes=2,
    )


def _score(score: Score, head: int) -> Score | None:
    """The score with the β of one head."""
    if type(score) not in (*_SCORES, Additive):
        return None
    if not isinstance(score.beta, Tensor) or not score.beta.ndim:
        return score
    beta = _number(score.beta, head)
    if isinstance(score, Additive):
        return _additive(score, beta)
    return type(score)(beta=beta)  # type: ignore[call-arg] - those of products take no other


def _additive(score: Additive, beta: float) -> Additive:
    """The score with the same network, and another β."""
    # Parameters that are not there yet take no numbers from a generator.
    with torch.device("meta"):
        one = Additive(score.dim, len(score.v), beta)
    one.W_query, one.W_key, one.v = score.W_query, score.W_key, score.v
    return one


def _normalizer(normalizer: Normalizer, head: int) -> Normalizer | None:
    """The normalizer with the sink of one head."""
    if type(normalizer) is Softmax:
        return normalizer
    if type(normalizer) is not SoftmaxOne:
        return None
    sink = normalizer.sink
    if not isinstance(sink, Tensor) or not sink.ndim:
        return normalizer
    return SoftmaxOne(_number(sink, head))


def _number(per_head: Shaped[Tensor, " heads"], head: int) -> float:
    return float(per_head.detach()[head])

"""Rules of our own: `Attention` objects in a model, met with their whole recipe."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from glasshead.attention import Attention
from glasshead.layers import MultiHeadAttention
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.masks.kinds import Dense, Keys, KeysBelow
from glasshead.watching.ablater import without_heads
from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.replacing import Replaced
from glasshead.watching.met import Met


def rules() -> list[Replaced]:
    """What is replaced while anybody watches or removes heads."""
    return [
        Replaced(Attention, "forward", _forward),
        Replaced(MultiHeadAttention, "forward", _layer),
    ]


def _forward(
    original: Callable[..., Tensor], rule: Attention, *inputs: Tensor, **asked: Any
) -> Tensor:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(rule, *inputs, **asked)
    with ACTIVE.running():
        output = original(rule, *inputs, **asked)
    ACTIVE.saw(None, partial(_met, rule, *inputs, **asked), output)
    heads = output.shape[-3] if output.ndim > 3 else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _layer(
    original: Callable[..., Tensor],
    layer: MultiHeadAttention,
    /,
    query: Tensor,
    key: Tensor | None = None,
    *inputs: Tensor,
    **asked: Any,
) -> Tensor:
    with ACTIVE.within(lambda: key is not None and key is not query):
        return original(layer, query, key, *inputs, **asked)


def _met(rule: Attention, *inputs: Tensor, **asked: Any) -> Met:
    problem = replace(rule.problem(*inputs, **asked).detached(), dropout=0.0)
    queries, keys = problem.scores_shape[-2:]
    compares = _compares(problem.mask) or any(isinstance(bias, Bias) for bias in problem.biases)
    return Met(problem, crossing=(queries != keys or ACTIVE.crosses()) and not compares)


def _compares(mask: Mask | None) -> bool:
    """Whether it may compare positions, which are those of one text then."""
    if isinstance(mask, AllOf | AnyOf):
        return any(_compares(one) for one in mask.masks)
    if isinstance(mask, Not):
        return _compares(mask.mask)
    return not isinstance(mask, Dense | Keys | KeysBelow | None)

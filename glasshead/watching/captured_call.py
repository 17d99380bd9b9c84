"""A captured attention call: inputs, mask, scale and output, and snapshots of them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.engines import REFERENCE
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.normalizers import Softmax, SoftmaxOne
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import ScaledDot
from glasshead.recipe.tile import Span


def position_among(
    queries: int, keys: int, visible: Bool[Tensor, "... #queries #keys"] | None
) -> int:
    """The position of query 0 among the keys, as the mask of a causal attention tells it.

    A query of a growing text sees no key after its own, so that the last one visible is its own,
    unless the text is shorter than others of its batch. Where a cache has room for keys to come,
    fewer than keys - queries stand before the first query; never more do.

    >>> position_among(1, 7, None)
    6
    >>> position_among(1, 7, torch.tensor([[True, True, True, True, False, False, False]]))
    3
    """
    last = keys - queries
    if visible is None or last <= 0:
        return max(last, 0)
    visible = visible.expand(*visible.shape[:-2], queries, keys)
    places = torch.arange(keys, device=visible.device)
    own = torch.where(visible, places, -1).amax(-1) - torch.arange(queries, device=visible.device)
    return max(0, min(last, int(own.max())))


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """What an attention was given, and what it made of it.

    Attributes:
        problem: What was computed, without dropout.
        position: Of the first query in the text, where a cache tells it.
        sliding: Whether the keys are the last of those that its module was given so far, as a
            cache with a window hands them on.
        crossing: Whether the keys belong to another text than the queries, where the model tells.
        logsumexp: Of each row, where the kernel told it, `[*batch, heads, queries]`.
        output: What the model's own code made, which ours is compared with; None where dropout or
            a projection stands between.
    """

    problem: Problem
    position: int | None = None
    sliding: bool = False
    crossing: bool = False
    logsumexp: Float[Tensor, "*batch heads queries"] | None = None
    output: Float[Tensor, "*batch heads queries value_dim"] | None = None

    @property
    def queries(self) -> int:
        """How many there are."""
        return self.problem.scores_shape[-2]

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes before those of heads and queries."""
        return self.problem.scores_shape[:-3]


def problem_from_inputs(
    query: Float[Tensor, "... queries dim"],
    key: Float[Tensor, "... keys dim"],
    value: Float[Tensor, "... keys value_dim"],
    *,
    scale: float | None,
    offset: int,
    mask: Mask | None = None,
    bias: Bias | Tensor | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, " heads"] | None = None,
) -> Problem:
    """A softmax attention of another library as one of ours, with heads.

    Args:
        query, key, value: Of two axes or more; batch axes broadcast.
        scale: What multiplies the scores; 1/√dim if not given.
        offset: The position of query 0 among the keys.
        mask, bias, softcap, sinks: As of a recipe.
    """
    query, key, value = (x.detach() for x in (query, key, value))
    while query.ndim < 4:
        query, key, value = (x.unsqueeze(0 if x.ndim < 3 else -3) for x in (query, key, value))
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    query, key, value = (x.expand(*batch, *x.shape[-3:]) for x in (query, key, value))
    problem = Problem(
        query=query,
        key=key,
        value=value,
        score=ScaledDot(None if scale is None else float(scale)),
        softcap=softcap,
        biases=() if bias is None else (bias.detach() if isinstance(bias, Tensor) else bias,),
        mask=mask,
        normalizer=Softmax() if sinks is None else SoftmaxOne(sinks.detach()),
        dropout=0.0,
        offset=offset,
        axes=max(4, query.ndim),
    )
    problem.check()
    return problem


def first_keys(problem: Problem, count: int) -> Problem:
    """The same problem with its first keys alone, where all others are hidden."""
    if count >= problem.scores_shape[-1]:
        return problem
    mask, biases = problem.mask, problem.biases
    if mask is not None:
        visible = mask.visible(problem.tile())
        mask = dense(visible[..., :count] if visible.shape[-1] > 1 else visible)
    cut = tuple(
        bias[..., :count] if isinstance(bias, Tensor) and bias.shape[-1] > 1 else bias
        for bias in biases
    )
    key, value = (x[..., :count, :] for x in (problem.key, problem.value))
    return replace(problem, key=key, value=value, mask=mask, biases=cut)


def keys_before(problem: Problem, count: int) -> Problem:
    """The same problem with hidden keys before its own, so that these are numbered as in the text.

    Such are the keys that a sliding cache has let go.
    """
    if not count:
        return problem
    key, value = (F.pad(x, (0, 0, count, 0)) for x in (problem.key, problem.value))
    queries, keys = problem.scores_shape[-2:]
    shown = torch.ones(queries, keys, dtype=torch.bool, device=problem.query.device)
    if problem.mask is not None:
        shown = shown & problem.mask.visible(problem.tile())
    biases = tuple(
        F.pad(bias.expand(*bias.shape[:-1], keys), (count, 0))
        for bias in problem.biases
        if isinstance(bias, Tensor)
    )
    return replace(
        problem,
        key=key,
        value=value,
        mask=dense(F.pad(shown, (count, 0))),
        biases=biases,
        offset=problem.offset + count,
    )


# What numbers of a model may differ by, as a share of the largest value.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 1e-2}
_COARSE = 4e-2


def output_mismatch(met: CapturedCall) -> bool:
    """Whether the model's own output is another than the one that its inputs should give.

    Two rows tell: a mask, a scale or a bias that was misunderstood changes the first or the last of
    them. Rows that see nothing are passed over, as libraries fill them in different ways.
    """
    if met.output is None or 0 in met.problem.scores_shape:
        return False
    problem, output = met.problem, met.output
    tolerance = _TOLERANCES.get(output.dtype, _COARSE)
    for row in sorted({0, met.queries - 1}):
        ours, sees, largest = _row(problem, row)
        theirs = output[..., row, :].to(ours.dtype)
        wrong = (ours - theirs).abs().amax(-1) > tolerance * largest
        # What is not finite is the model's own affair, and compares as not above.
        if bool((wrong & sees).any()):
            return True
    return False


def _row(problem: Problem, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """What one query should give.

    Returns: its context, `[*batch, heads, value_dim]`, whether it sees any key, and the largest
    number of the values that it may see, `[*batch, heads]`.
    """
    tile = replace(problem.tile(), queries=Span(row, row + 1))
    if problem.mask is not None:
        seen = problem.mask.key_range(tile)
        tile = replace(tile, keys=Span(seen.start, max(seen.stop, seen.start + 1)))
    rows = REFERENCE.part(problem, tile)
    value = problem.value[..., tile.keys.start : tile.keys.stop, :].to(rows.weights.dtype)
    largest = torch.linalg.vector_norm(value, torch.inf, (-2, -1))
    if not largest.isfinite().all():
        # A hidden value may be anything, and 0 · NaN is NaN.
        value = value.nan_to_num(0.0, 0.0, 0.0)
        largest = torch.linalg.vector_norm(value, torch.inf, (-2, -1))
    if problem.group > 1:
        value = value.repeat_interleave(problem.group, -3)
        largest = largest.repeat_interleave(problem.group, -1)
    return (rows.weights @ value)[..., 0, :], ~rows.empty()[..., 0], largest


# Copies of one shape that a tensor is compared with, as a model may take turns with a few masks.
_RECENT = 4


class Snapshots:
    """Copies the masks, biases and parameters of recipes, once for all that have the same numbers.

    Layers of a model share a mask, and a model may refill it between two calls, in ways that leave
    no trace, such as by `.data`: so it is compared with what was copied, number by number.
    """

    def __init__(self) -> None:
        self._charge: Callable[[int], None] = _free
        self._copies: dict[tuple[Any, ...], list[Tensor]] = {}
        self._inside: set[int] = set()

    def of(self, problem: Problem, charge: Callable[[int], None]) -> Problem:
        """The same problem, with a recipe that nobody else writes to.

        Args:
            problem: Its queries, keys and values stay as they are.
            charge: Is told the bytes of each copy before it is made, and may refuse.
        """
        self._charge = charge
        return replace(
            problem,
            score=self._part(problem.score),
            biases=tuple(self._part(bias) for bias in problem.biases),
            mask=None if problem.mask is None else self._mask(problem.mask, problem),
            normalizer=self._part(problem.normalizer),
            offset=self._part(problem.offset),
        )

    def _mask(self, mask: Mask, problem: Problem) -> Mask:
        if isinstance(mask, AllOf | AnyOf):
            return type(mask)(tuple(self._mask(one, problem) for one in mask.masks))
        if isinstance(mask, Not):
            return Not(self._mask(mask.mask, problem))
        held = getattr(mask, "__dict__", {}).values()
        if any(callable(value) and not isinstance(value, nn.Module) for value in held):
            # What a function reads, such as a tensor of its model, is not to be seen from here.
            return dense(self._tensor(mask.visible(problem.tile())))
        return self._part(mask)

    def _part(self, value: Any) -> Any:
        """A tensor's copy, or a part of a recipe with copies in place of its tensors."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if type(value) in (tuple, list):
            return type(value)(self._part(one) for one in value)
        if type(value) is dict:
            return {name: self._part(one) for name, one in value.items()}
        own = getattr(value, "__dict__", {})
        if not isinstance(value, Mask | nn.Module) or id(value) in self._inside:
            return value
        # A module may lead back to itself.
        self._inside.add(id(value))
        try:
            changed = {name: self._part(one) for name, one in own.items()}
        finally:
            self._inside.discard(id(value))
        if all(_same(changed[name], one) for name, one in own.items()):
            return value
        twin = copy.copy(value)
        # A mask is frozen, and a module would take a tensor for a parameter.
        vars(twin).update(changed)
        return twin

    def _tensor(self, tensor: Tensor) -> Tensor:
        # Axes that were expanded hold one number for all.
        one = tensor.detach()
        for axis, stride in enumerate(one.stride()):
            if stride == 0 and one.shape[axis] > 1:
                one = one.narrow(axis, 0, 1)
        key = (tuple(one.shape), one.dtype, one.device, isinstance(tensor, nn.Parameter))
        recent = self._copies.setdefault(key, [])
        found = next((known for known in recent if torch.equal(known, one)), None)
        if found is None:
            self._charge(one.numel() * one.itemsize)
            found = one.clone(memory_format=torch.contiguous_format)
            if isinstance(tensor, nn.Parameter):
                # PyTorch may multiply in another order by what requires a gradient.
                found = nn.Parameter(found, tensor.requires_grad)
            recent[:] = [found, *recent[: _RECENT - 1]]
        return found if found.shape == tensor.shape else found.expand(tensor.shape)


def _free(needed: int) -> None:
    """Charge nothing."""
    del needed


def _same(changed: Any, value: Any) -> bool:
    """Whether there was no tensor in a value."""
    if isinstance(value, tuple | list):
        return all(_same(*both) for both in zip(changed, value, strict=True))
    if isinstance(value, dict):
        return all(_same(changed[name], one) for name, one in value.items())
    return changed is value

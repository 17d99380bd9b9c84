"""Copies of what the recipe of a kept attention holds, which a model may write to afterwards."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.masks.base import AllOf, AnyOf, Not
from glasshead.recipe.problem import Problem

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

"""Keep tensors of each call in addition to its statistics, within a budget of memory."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.shared_keys import KeyStore
from glasshead.attention.weight_gradients import WeightGradients
from glasshead.attention.weights import Weights
from glasshead.engines import REFERENCE
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.problem import STEPS, Problem, Trace
from glasshead.recipe.validation import UnfitError
from glasshead.watching.captured_call import AttentionCall, CapturedCall, with_own_context
from glasshead.watching.errors import BudgetError, UnfollowedError
from glasshead.watching.mask_rows import MaskRows


class Keeper:
    """Keeper of weights, their gradients, contexts, steps or parts.

    Args:
        keep: "weights", "gradients", "context", "trace" or "parts", as of `watch`.
        budget: The most bytes that it takes.

    Attributes:
        spent: Why nothing more is kept; None while the budget suffices.
        split: Follows the parts of a call.
    """

    def __init__(self, keep: str, budget: int) -> None:
        self.keep, self._budget, self._bytes = keep, budget, 0
        self.spent: str | None = None
        self.split: Callable[..., Any] = _nothing_split
        self._snapshots = Snapshots()
        self._stores: dict[tuple[str, int], KeyStore] = {}

    def of_call(self, call: AttentionCall, problem: Problem) -> dict[str, Any]:
        """Return what a call keeps, by the names of `Call`; beyond the budget, why it does not.

        Args:
            call: The call.
            problem: Its computation, at its position in its text.

        Errors: an `UnfitError` if it has not what is to be kept.
        """
        if self.spent is not None:
            return {"missing": self.spent}
        try:
            return self._kept_by_kind(call, problem)
        except BudgetError as error:
            # A watch does not break a model, which may have run for hours.
            self.spent = str(error)
            return {"missing": self.spent}

    def _kept_by_kind(self, call: AttentionCall, problem: Problem) -> dict[str, Any]:
        keep, (name, captured, *_) = self.keep, call
        if keep == "trace":
            return {keep: self._trace(name, captured, problem)}
        if keep == "context":
            return {keep: self._context(name, captured)}
        kept: dict[str, Any] = {"weights": self._weights(call, problem)}
        if keep == "parts":
            kept["parts"] = self._parts(name, captured)
        if keep == "gradients":
            kept["arrived"] = self._gradients(name, captured, problem)
        return kept

    def _weights(self, call: AttentionCall, problem: Problem) -> Weights:
        """Build the lazy weights, within the budget."""
        name, captured, _, run = call
        if not problem.normalizer.exponential:
            raise UnfitError(
                f"keep='weights' needs attention with a softmax, but {name!r} has "
                f"{type(problem.normalizer).__name__}. Omit it with layers=."
            )
        charge = partial(self.charge, name)
        store = self._stores.setdefault((name, run.repeat), KeyStore())
        shared = self._snapshots.of(problem, charge)
        return store.weights(shared, _logsumexp(captured, problem), charge)

    def _gradients(
        self, name: str, captured: CapturedCall, problem: Problem
    ) -> Callable[[], WeightGradients | None]:
        """Keep the values, and the gradient of the output once it arrives, within the budget.

        Returns: a function that returns the gradients of the weights; None before they arrive.
        """
        source = captured.gradient
        if source is None:
            raise UnfitError(
                "keep='gradients' needs attention whose output autograd shows, but it does not "
                f"show the output of {name!r}. Call F.scaled_dot_product_attention there, or omit "
                "it with layers=."
            )
        if source.drops:
            raise UnfitError(
                f"keep='gradients' needs attention without dropout, but {name or 'the model'!r} "
                "drops weights. Call model.eval() before, or omit it with layers=."
            )
        if not source.output.requires_grad:
            raise UnfitError(
                "keep='gradients' needs a forward pass with gradients, but the output of "
                f"{name!r} has none. Run it without torch.no_grad(), reentrant checkpointing and "
                "torch.compile, through F.scaled_dot_product_attention by its own name, or omit "
                "it with layers=."
            )
        values = source.values().detach()
        output = source.output
        self.charge(name, values.numel() * values.itemsize + output.numel() * output.itemsize)
        # A cache may be written to.
        values = problem.as_given(values).clone(memory_format=torch.contiguous_format)
        # The output would not be freed while its own hook knows it.
        of_heads, headless = source.of_heads, problem.query.ndim - 3 if problem.axes < 4 else None
        arrived: list[Tensor] = []

        def receive(gradient: Tensor) -> None:
            found = of_heads(gradient.detach())
            # Autograd may add other gradients to this one in place.
            arrived[:] = [(found if headless is None else found.squeeze(headless)).clone()]

        output.register_hook(receive)
        return lambda: WeightGradients(values, arrived[0]) if arrived else None

    def _parts(self, name: str, captured: CapturedCall) -> Any:
        """Follow the queries, the keys and the output of the heads, within the budget."""
        if captured.context is None:
            raise UnfitError(
                "keep='parts' needs attention whose output shows before it is projected, but "
                f"that of {name!r} does not. Omit it with layers=."
            )
        return self.split(name, captured, captured.context)

    def _context(self, name: str, captured: CapturedCall) -> Tensor:
        """Copy the output of the heads, within the budget."""
        if captured.context is None:
            raise UnfitError(
                "keep='context' needs attention whose output shows before it is projected, but "
                f"the output of {name!r} does not. Omit it with layers=."
            )
        context = captured.context().detach()
        self.charge(name, context.numel() * context.itemsize)
        # The model may write to it.
        return context.clone(memory_format=torch.contiguous_format)

    def _trace(self, name: str, captured: CapturedCall, problem: Problem) -> Trace:
        """Compute the steps of an attention, by hand or of a function's inputs, within the budget.

        Those of a function are followed to its own output, so that no step is shown that the model
        has not taken.
        """
        explicit, source = captured.trace, captured.gradient
        if explicit is None and source is not None and source.drops:
            raise UnfitError(
                f"keep='trace' needs attention without dropout, but {name or 'the model'!r} drops "
                "weights. Call model.eval() first."
            )
        if explicit is None and (captured.by_hand or source is None):
            raise UnfitError(
                "keep='trace' needs attention whose queries, keys, values and output show, "
                f"without dropout, but those tensors of {name!r} do not. Write it as a product, a "
                "softmax and a product, call F.scaled_dot_product_attention, use keep='weights', "
                "or narrow layers=."
            )
        # Steps from the scores to what dropout leaves, and the vectors around them.
        numbers = 6 * prod(problem.scores_shape) + 4 * problem.value.numel()
        if explicit is None:
            numbers += problem.query.numel() + problem.key.numel()
        self.charge(name, numbers * problem.dtype.itemsize)
        if explicit is None:
            return steps_of(captured, self._snapshots.of(problem, lambda _: None), name)
        try:
            return explicit()
        except UnfollowedError as error:
            raise UnfitError(
                "keep='trace' needs scores that are products, scaled, with biases and masks "
                f"added, but {name!r} {error}. Use keep='weights', or narrow layers=."
            ) from error

    def charge_or_stop(self, name: str, needed: int) -> None:
        """Charge bytes that are kept between calls; nothing more is kept if they are too many.

        Errors: a `BudgetError` if the total exceeds the budget.
        """
        try:
            self.charge(name, needed)
        except BudgetError as error:
            self.spent = str(error)
            raise

    def charge(self, name: str, needed: int) -> None:
        """Charge bytes of kept weights or steps to the budget.

        Errors: a `BudgetError` if the total exceeds it.
        """
        self._bytes += needed
        if self._bytes > self._budget:
            raise BudgetError(
                f"keep={self.keep!r} may use at most budget={self._budget} bytes, but needs "
                f"{self._bytes} with {name!r}. Raise budget=, or narrow layers=."
            )


def _nothing_split(*_: Any) -> None:
    return None


@torch.no_grad()
def steps_of(captured: CapturedCall, problem: Problem, name: str) -> Trace:
    """Compute the steps of a call of a function from its inputs, in their layout.

    Errors: a ValueError if its output is another.
    """
    # A cache may be written to.
    inputs = {
        part: getattr(problem, part).detach().clone(memory_format=torch.contiguous_format)
        for part in ("query", "key", "value")
    }
    problem = replace(problem, **inputs, dropout=0.0)
    made = None if captured.context is None else captured.context().detach()
    trace = with_own_context(REFERENCE.trace(problem), made)
    if trace is None:
        raise UnfitError(
            "keep='trace' needs attention that follows from its queries, keys and values, but "
            f"{name!r} computes it otherwise. Use keep='weights', or narrow layers=."
        )
    steps = {each: problem.as_given(step) for each, step in trace.steps()}
    return Trace(*(steps[each] for each in STEPS), problem=problem)


def _logsumexp(captured: CapturedCall, problem: Problem) -> Tensor | None:
    """Return the kernel's logsumexp of each row, with -inf for empty rows, where kernels give 0."""
    if captured.logsumexp is None:
        return None
    known = captured.logsumexp.to(problem.dtype)
    if problem.mask is None or problem.mask.shows_own_key:
        return known
    _, visible = problem.bias_and_visible(problem.mask, problem.tile())
    return known if visible is None else known.masked_fill(~visible.any(-1), -torch.inf)


# Copies of one shape that a tensor is compared with, as a model may alternate between a few masks.
_RECENT = 4


class Snapshots:
    """Copies of the masks, biases and parameters of recipes, one for all that are equal.

    Layers of a model share a mask, and a model may write to it between two calls, even through
    `.data`, which leaves no trace: so it is compared with the copies by value.
    """

    def __init__(self) -> None:
        self._copies: dict[tuple[Any, ...], list[Tensor]] = {}
        self._rows = MaskRows()
        self._inside: set[int] = set()

    def of(self, problem: Problem, charge: Callable[[int], None]) -> Problem:
        """Return the problem with copies of its recipe's tensors.

        Args:
            problem: The problem; its queries, keys and values are not copied.
            charge: Called with the bytes of each copy before it is made; it may raise.
        """
        self._charge, self._tile = charge, problem.tile()
        return replace(
            problem,
            score=self._part(problem.score),
            biases=tuple(self._part(bias) for bias in problem.biases),
            mask=self._part(problem.mask),
            normalizer=self._part(problem.normalizer),
            offset=self._part(problem.offset),
        )

    def _part(self, value: Any) -> Any:
        """Return a copy of a tensor, or a part of a recipe with copies of its tensors."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if type(value) in (tuple, list):
            return type(value)(self._part(one) for one in value)
        if type(value) is dict:
            return {name: self._part(one) for name, one in value.items()}
        if isinstance(value, Mask | nn.Module) and id(value) not in self._inside:
            return self._copied(value)
        return value

    def _copied(self, part: Mask | nn.Module) -> Any:
        """Return a part of a recipe with copies of its tensors; itself where it has none."""
        own = getattr(part, "__dict__", {})
        if isinstance(part, Mask) and any(
            callable(one) and not isinstance(one, nn.Module) for one in own.values()
        ):
            # A function may read anything, such as a tensor of its model, which cannot be copied.
            return dense(self._tensor(part.visible(self._tile)))
        # A module may contain itself.
        self._inside.add(id(part))
        try:
            changed = {name: self._part(one) for name, one in own.items()}
        finally:
            self._inside.discard(id(part))
        if all(_same(changed[name], one) for name, one in own.items()):
            return part
        twin = copy.copy(part)
        # A mask is frozen, and a module would register a tensor as a parameter.
        vars(twin).update(changed)
        return twin

    def _tensor(self, tensor: Tensor) -> Tensor:
        # Expanded axes hold one number for all indices.
        one = tensor.detach()
        for axis, stride in enumerate(one.stride()):
            if stride == 0 and one.shape[axis] > 1:
                one = one.narrow(axis, 0, 1)
        if one.ndim > 1 and one.shape[-2] == 1 < one.shape[-1] and type(tensor) is Tensor:
            found = self._rows.of(one, self._charge)
            return found if found.shape == tensor.shape else found.expand(tensor.shape)
        key = (tuple(one.shape), one.dtype, one.device, isinstance(tensor, nn.Parameter))
        recent = self._copies.setdefault(key, [])
        found = next((known for known in recent if torch.equal(known, one)), None)
        if found is None:
            self._charge(one.numel() * one.itemsize)
            found = one.clone(memory_format=torch.contiguous_format)
            if isinstance(tensor, nn.Parameter):
                # PyTorch may multiply in another order by a tensor that requires a gradient.
                found = nn.Parameter(found, tensor.requires_grad)
            recent[:] = [found, *recent[: _RECENT - 1]]
        return found if found.shape == tensor.shape else found.expand(tensor.shape)


def _same(changed: Any, value: Any) -> bool:
    """Return whether a value contained no tensor, so that nothing was copied."""
    if isinstance(value, tuple | list):
        return all(_same(*both) for both in zip(changed, value, strict=True))
    if isinstance(value, dict):
        return all(_same(changed[name], one) for name, one in value.items())
    return changed is value

"""Places of attention in compiled code, and what is captured of a call there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from glasshead.recipe.masks import Mask, dense
from glasshead.watching.captured_call import CapturedCall, SiteCall, problem_from_inputs
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.torch_attention import capture_sdpa
from glasshead.watching.interception.torch_layers import by_name, capture_multi_head, crosses
from glasshead.watching.interception.transformers_models import RuleMask, slides

SDPA = "scaled_dot_product_attention"
STREAMING = "glasshead::streaming"
# Its first arguments, by position.
_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
# Libraries whose own attention functions and layers a watch reads.
READING = ("transformers", "glasshead")

# The modules that call an attention, outermost first: a key that is unique to the call, and the
# place where the code finds the module, such as L['self'].layers.0.attention.
Stack = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Slot:
    """A place in the arguments of a call that is filled as it runs.

    Attributes:
        kind: What fills it: "inputs", "sizes" or "numbers".
        index: The index among these.
    """

    kind: str
    index: int


@dataclass(frozen=True, eq=False)
class Site:
    """A call of attention in a graph.

    Attributes:
        stack: The modules that call it.
        function: Name of the function.
        given: Its arguments and keyword arguments, with slots.
        crosses: Whether queries and keys come from different inputs of the module.
    """

    stack: Stack
    function: str
    given: tuple[Any, Any]
    crosses: bool

    def call(self, values: Mapping[str, Sequence[Any]]) -> SiteCall | None:
        """Return a call by its tensors; None if anything else of it may change.

        Args:
            values: What fills the slots.
        """
        if self._tensors is None:
            return None
        filled = values["inputs"]
        *vectors, mask = self._tensors
        query, key, value = (filled[slot.index] for slot in vectors)
        return SiteCall(self, query, key, value, None if mask is None else filled[mask.index])

    @cached_property
    def _tensors(self) -> tuple[Any, ...] | None:
        """The slots of query, key, value and mask; None if another argument may change."""
        inputs, named = self.given
        given = {**dict(zip(_ARGUMENTS, inputs, strict=False)), **named}
        slots = [given.pop(name, None) for name in ("query", "key", "value", "attn_mask")]
        filled = all(isinstance(one, Slot) and one.kind == "inputs" for one in slots[:3])
        mask = slots[3]
        if (
            self.function != SDPA
            or not filled
            or not (mask is None or (isinstance(mask, Slot) and mask.kind == "inputs"))
            or any(isinstance(one, Slot) for one in given.values())
            or given.get("dropout_p")
            or given.get("is_causal")
        ):
            return None
        return tuple(slots)

    def capture(
        self,
        values: Mapping[str, Sequence[Any]],
        context: CallContext,
        module: nn.Module | None,
    ) -> CapturedCall:
        """Capture a call.

        Args:
            values: What fills the slots.
            context: What else is known of the call.
            module: The module that calls it.
        """

        def filled(one: Any) -> Any:
            return values[one.kind][one.index] if isinstance(one, Slot) else one

        inputs, named = map_aggregate(self.given, filled)  # type: ignore[misc] - as it was given
        if self.function == "multi_head_attention_forward":
            given = by_name(*inputs, **named)
            context = CallContext(context.masks, lambda: self.crosses and crosses(given))
            return capture_multi_head(given, context)
        library = library_of(module)
        # Of other modules no layer around the call knows it, compiled or not.
        known = self.crosses and library in READING
        context = context._replace(crosses=lambda: known)
        if self.function == STREAMING:
            return _capture_streaming(inputs, context)
        captured = capture_sdpa(*inputs, **named, context=context)
        sliding = library == "transformers" and slides(module)
        return replace(captured, sliding=sliding, site=self.call(values))


class Passed(NamedTuple):
    """A softmax or an attention of a graph that is not recorded, reported in each of its runs.

    Attributes:
        stack: The modules that call it.
        axes: Number of axes of a softmax.
        why: Why an attention cannot be seen.
    """

    stack: Stack
    axes: int = 0
    why: str | None = None


def library_of(module: Any) -> str:
    """Return the name of the library that a module's class belongs to."""
    return type(module).__module__.partition(".")[0]


def _capture_streaming(inputs: Sequence[Any], context: CallContext) -> CapturedCall:
    """Capture a call of our streaming operator, by the tensors of a lowered problem.

    Args:
        inputs: Its operands.
        context: What else is known of the call.
    """
    query, key, value, bounds, offsets, visible, bias, table, sink, _, scale, softcap, *_ = inputs
    batch, queries, keys = len(query), query.shape[-2], key.shape[-2]
    # A tensor of pairs tells no positions.
    compares = table is not None or not bool((bounds == bounds[..., :1]).all())
    first, last = bounds.expand(batch, -1, -1).unbind(1)

    def within(row: Tensor, head: Any, i: Tensor, j: Tensor) -> Tensor:
        del head
        return (j >= first[row, i]) & (j < last[row, i])

    mask: Mask = RuleMask(within, batch)
    if visible is not None:
        mask = mask & dense(visible)
    if table is not None:
        # Pair (i, j) reads place queries - 1 - i + j.
        rows = torch.arange(queries - 1, -1, -1, device=table.device)
        along = table[..., rows[:, None] + torch.arange(keys, device=table.device)]
        bias = along if bias is None else bias + along
    same = bool((offsets == offsets[0]).all())
    problem = problem_from_inputs(
        query,
        key,
        key if value is None else value,
        scale=scale,
        offset=int(offsets[0]) if same else offsets,
        mask=mask,
        bias=bias,
        softcap=softcap or None,
        sinks=sink,
    )
    crossing = (queries != keys or context.crosses()) and not compares
    made = None if value is None or context.output is None else context.output.detach()
    return CapturedCall(problem, crossing=crossing, output=made)

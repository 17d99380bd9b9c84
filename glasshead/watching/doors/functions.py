"""Functions of PyTorch that models call, and code of its compiler: met where they are looked up."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glasshead.watching.ablater import without_heads
from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.any_name import AnyName
from glasshead.watching.doors.multi_head import (
    by_name,
    crosses,
    met_multi_head,
    projecting_without,
    shows_itself,
)
from glasshead.watching.doors.replacing import Replaced
from glasshead.watching.doors.sdpa import met_sdpa
from glasshead.watching.refusing import COMPILED

_Function = Callable[..., Any]
# What it is, whatever it has been replaced by.
_SDPA = torch._C._nn.scaled_dot_product_attention  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def functions() -> list[Replaced]:
    """What is replaced while anybody watches or removes heads.

    The kernels below would do, but where PyTorch takes the long way, of matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    replaced = [
        Replaced(F, "scaled_dot_product_attention", _sdpa, kernels=True),
        Replaced(F, "multi_head_attention_forward", _multi_head),
    ]
    if "torch._dynamo" in sys.modules:
        # Nothing is compiled without it, and to import it takes seconds.
        from torch._inductor.output_code import CompiledFxGraph

        replaced.append(Replaced(CompiledFxGraph, "__call__", _compiled))
    return replaced


def by_any_name() -> AnyName:
    """What meets the one that leaves heads their own context, where a model has imported it."""
    return AnyName(_SDPA, _sdpa)


def _sdpa(original: _Function, *inputs: Any, **named: Any) -> Tensor:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(*inputs, **named)
    with ACTIVE.running() as told:
        output = original(*inputs, **named)
    ACTIVE.saw(None, partial(met_sdpa, *inputs, **named, output=output, told=told), output)
    # Of packed texts, whose axes have no sizes, it cannot be told.
    heads = output.shape[-3] if output.ndim > 3 and not output.is_nested else None
    return without_heads(output, ACTIVE.removed(None, heads), -3)


def _compiled(original: _Function, graph: Any, *inputs: Any, **named: Any) -> Any:
    """Run what the compiler made of a function; it calls kernels that are seen, and makes others.

    Its source names the operators that it was made of.
    """
    if ACTIVE.watchers and ACTIVE.looking:
        source = graph.source_code or ""
        if "flex_attention" in source or ("scaled_dot_product" in source and "_softmax" in source):
            ACTIVE.missed(COMPILED)
        elif "_softmax" in source:
            ACTIVE.computed_a_softmax(2)
    return original(graph, *inputs, **named)


def _multi_head(original: _Function, *inputs: Any, **named: Any) -> Any:
    if not ACTIVE.looking:
        ACTIVE.overheard()
        return original(*inputs, **named)
    given = by_name(*inputs, **named)
    with ACTIVE.within(partial(crosses, given)):
        return _multi_head_of(original, given)


def _multi_head_of(original: _Function, given: dict[str, Any]) -> Any:
    if shows_itself(given):
        return original(**given)
    if removed := ACTIVE.removed(None, given["num_heads"]):
        given = projecting_without(removed, given)
    with ACTIVE.running():
        output = original(**given)
    ACTIVE.saw(None, partial(met_multi_head, given), output[0])
    return output

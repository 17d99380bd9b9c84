"""Higher-order operators, such as `torch.cond`: passed on, and looked at on the inside."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import (
    _math_attention_inner,
    flex_attention,
)
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule

from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.sdpa import met_scores
from glasshead.watching.met import Met

# Those that run functions which they are given, as they are, and as often as it takes.
_RUNNING = {
    "cond",
    "hints_wrapper",
    "invoke_subgraph",
    "local_map_hop",
    "map_impl",
    "scan",
    "strict_mode",
    "while_loop",
    "while_loop_stack_output",
}
_INFRASTRUCTURE = tuple(torch._C._TorchDispatchModeKey.__members__.values())  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def run_higher_order(
    mode: AbstractContextManager[Any],
    func: HigherOrderOperator,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run an operator that takes functions, and look at the operators that these run.

    Args:
        mode: What looks; it is left while an operator runs.
        func, args, kwargs: The operator and what it is given.
    """
    if func is flex_attention:
        output = func(*args, **kwargs)
        if ACTIVE.looking:
            ACTIVE.saw(None, partial(met_flex, *args, **kwargs, output=output[0]), output[0])
        return output
    if func.name() in _RUNNING and not _traced():
        args = [_within(mode, one) for one in args]
        kwargs = {name: _within(mode, one) for name, one in kwargs.items()}
    return func(*args, **kwargs)


def met_flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *others: Any,
    output: Tensor,
    **named: Any,
) -> Met:
    """A call of FlexAttention that is not compiled, with its scores after `score_mod` and mask."""
    groups = query.shape[1] // key.shape[1]
    key, value = (
        x.detach().repeat_interleave(groups, 1).expand(len(query), -1, -1, -1) for x in (key, value)
    )
    _, scores = _math_attention_inner(query.detach(), key, value, *others, **named)
    return met_scores(scores, value=value, output=output)


def _traced() -> bool:
    """Whether what runs is being traced, and functions are not run but written down."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _INFRASTRUCTURE)  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def _within(mode: AbstractContextManager[Any], one: Any) -> Any:
    """A function as it is, that lets the mode see what it runs; anything else as it is."""
    if isinstance(one, Tensor) or not callable(one):
        return one

    def run(*inputs: Any, **named: Any) -> Any:
        with mode:
            return called(*inputs, **named)

    if not isinstance(one, GraphModule):
        called: Callable[..., Any] = one
        run.__dict__.update(vars(one) if hasattr(one, "_boxed_call") else {})
        return run
    # Operators ask for its kind, so that it is a second face of the same graph.
    called = one.forward
    face = object.__new__(type(one))
    face.__dict__ = one.__dict__ | {"forward": run}
    return face

"""PyTorch's attention operators and higher-order operators, whatever Python calls them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import (
    _math_attention_inner,
    flex_attention,
)
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from glasshead.watching.active import ACTIVE
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.interception.patches import OneThread
from glasshead.watching.interception.torch_attention import FAST_PATHS, met_scores, met_sdpa

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
) -> CapturedCall:
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


_aten = torch.ops.aten
_C: Any = torch._C  # noqa: SLF001 - it has no other name
# Each gives the logsumexp of its rows after the context.
_TELLING = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_fused_attention_overrideable.default,  # noqa: SLF001
}
# In inference mode, operators arrive before they are taken apart.
_WHOLE = {
    _aten.scaled_dot_product_attention.default,
    _aten._scaled_dot_product_attention_math.default,  # noqa: SLF001
}
# PyTorch's attention alone has this one, where it takes the long way.
_SAFE_SOFTMAX = _aten._safe_softmax.default  # noqa: SLF001
_SOFTMAXES = {_aten._softmax.default, _aten.softmax.int}  # noqa: SLF001
_LOOKED_AT = {*_TELLING, *_WHOLE, _SAFE_SOFTMAX, *_SOFTMAXES, *FAST_PATHS}
_NAMES = {"attn_bias": "attn_mask"}


class OperatorInterceptMode(OneThread, TorchDispatchMode):
    """Sees every operator that this thread runs, lets it run, and looks at those of attention."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """What is compiled stays compiled, as attention by FlexAttention is."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if ACTIVE.waiting:
            ACTIVE.noticed()
        if type(func) is not OpOverload and isinstance(func, HigherOrderOperator):
            return run_higher_order(self, func, args, kwargs or {})
        output = _run(func, types, args, kwargs or {})
        if func in _TELLING:
            ACTIVE.told(output[1])
        if func in _LOOKED_AT and ACTIVE.looking:
            _look(func, args, kwargs, output)
        return output


def _look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, output: Any) -> None:
    """Let who watches see an operator of attention, which has run."""
    if func in _SOFTMAXES:
        ACTIVE.computed_a_softmax(output.ndim)
        return
    context = output if isinstance(output, Tensor) else output[0]
    if func is _SAFE_SOFTMAX:
        met = partial(met_scores, args[0])
    elif func in FAST_PATHS:
        met = partial(FAST_PATHS[func], **_named(func, args, kwargs))
    else:
        told = [output[1]] if func in _TELLING else []
        met = partial(met_sdpa, **_named(func, args, kwargs), output=context, told=told)
    ACTIVE.saw(None, met, context)


def _run(func: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator gives when nobody watches, to the bit.

    In inference mode operators arrive that have yet to be taken apart. Below us their parts would
    not know which inputs have gradients, and multiply matrices out in another order: so what was
    switched off on the way to us is switched on again for them.
    """
    if types or not torch.is_inference_mode_enabled() or not _has_parts(func):
        return func(*args, **kwargs)
    with _C._RestorePythonTLSSnapshot(), _C._DisableTorchDispatch():  # noqa: SLF001 - they have no other names
        return func(*args, **kwargs)


@cache
def _has_parts(func: Any) -> bool:
    """Whether an operator is made of others; views are marked as such on the way to us."""
    marked = _C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView")  # noqa: SLF001
    return func._can_decompose() and not marked  # noqa: SLF001


def _named(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> dict[str, Tensor | Any]:
    """The arguments by their names in the operator's schema."""
    names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001
    named = dict(zip(names, args, strict=False)) | (kwargs or {})
    return {_NAMES.get(name, name): value for name, value in named.items()}

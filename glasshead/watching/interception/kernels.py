"""PyTorch's attention operators and higher-order operators, intercepted on dispatch."""

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

from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.interception.session import THREADS, CallContext, OneThread, Session
from glasshead.watching.interception.torch_attention import FAST_PATHS, capture_scores, capture_sdpa

# Higher-order operators that run their functions unchanged, any number of times.
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
    session: Session,
    mode: AbstractContextManager[Any],
    func: HigherOrderOperator,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run a higher-order operator, and intercept the operators that its functions run.

    Args:
        session: The session of this thread.
        mode: The intercepting mode, which PyTorch leaves while an operator runs.
        func, args, kwargs: The operator and its arguments.
    """
    if func is flex_attention:
        output = func(*args, **kwargs)
        if session.enabled:
            capture = partial(capture_flex, session.context(output[0]), *args, **kwargs)
            session.observe(None, capture, output[0])
        return output
    if func.name() in _RUNNING and not _traced():
        args = [_within(mode, one) for one in args]
        kwargs = {name: _within(mode, one) for name, one in kwargs.items()}
    return func(*args, **kwargs)


def capture_flex(
    context: CallContext,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *others: Any,
    **named: Any,
) -> CapturedCall:
    """Capture a call of eager FlexAttention, with its scores after `score_mod` and mask."""
    groups = query.shape[1] // key.shape[1]
    key, value = (
        x.detach().repeat_interleave(groups, 1).expand(len(query), -1, -1, -1) for x in (key, value)
    )
    _, scores = _math_attention_inner(query.detach(), key, value, *others, **named)
    return capture_scores(scores, context, value=value)


def _traced() -> bool:
    """Return whether operators are being traced, so that functions do not run."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _INFRASTRUCTURE)  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def _within(mode: AbstractContextManager[Any], one: Any) -> Any:
    """Wrap a function so that it runs within the mode; return anything else unchanged."""
    if isinstance(one, Tensor) or not callable(one):
        return one

    def run(*inputs: Any, **named: Any) -> Any:
        with mode:
            return called(*inputs, **named)

    if not isinstance(one, GraphModule):
        called: Callable[..., Any] = one
        run.__dict__.update(vars(one) if hasattr(one, "_boxed_call") else {})
        return run
    # Operators check the type, so make a shallow copy of the graph module.
    called = one.forward
    wrapped = object.__new__(type(one))
    wrapped.__dict__ = one.__dict__ | {"forward": run}
    return wrapped


_aten = torch.ops.aten
_C: Any = torch._C  # noqa: SLF001 - it has no other name
# Operators that return the logsumexp of their rows after the context.
_TELLING = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_fused_attention_overrideable.default,  # noqa: SLF001
}
# In inference mode, composite operators arrive before they are decomposed.
_WHOLE = {
    _aten.scaled_dot_product_attention.default,
    _aten._scaled_dot_product_attention_math.default,  # noqa: SLF001
}
# Only the math fallback of PyTorch's attention calls this one.
_SAFE_SOFTMAX = _aten._safe_softmax.default  # noqa: SLF001
_SOFTMAXES = {_aten._softmax.default, _aten.softmax.int}  # noqa: SLF001
_LOOKED_AT = {*_TELLING, *_WHOLE, _SAFE_SOFTMAX, *_SOFTMAXES, *FAST_PATHS}
_NAMES = {"attn_bias": "attn_mask"}


class OperatorInterceptMode(OneThread, TorchDispatchMode):
    """A mode that runs every operator of this thread and observes those of attention."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave compiled code compiled, such as FlexAttention."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        session = THREADS.session
        if session.pending:
            session.update_running()
        if type(func) is not OpOverload and isinstance(func, HigherOrderOperator):
            return run_higher_order(session, self, func, args, kwargs or {})
        output = _run(func, types, args, kwargs or {})
        if func in _TELLING:
            session.record_logsumexp(output[1])
        if func in _LOOKED_AT and session.enabled:
            _look(session, func, args, kwargs or {}, output)
        return output


def _look(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    """Report an attention operator that has run to the watchers."""
    if func in _SOFTMAXES:
        session.record_softmax(output.ndim)
        return
    made = output if isinstance(output, Tensor) else output[0]
    if func is _SAFE_SOFTMAX:
        capture = partial(capture_scores, args[0], CallContext(session.masks, session.crosses))
    elif func in FAST_PATHS:
        capture = partial(FAST_PATHS[func], **_named(func, args, kwargs))
    else:
        known = session.context(made, [output[1]] if func in _TELLING else [])
        capture = partial(capture_sdpa, **_named(func, args, kwargs), context=known)
    session.observe(None, capture, made)


def _run(func: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator so that its result is bit for bit that of an unwatched run.

    In inference mode composite operators arrive. Decomposed below this mode they would not know
    which inputs require gradients, and multiply matrices in another order: so the dispatch keys
    that were excluded on the way to the mode are restored for them.
    """
    if types or not torch.is_inference_mode_enabled() or not _has_parts(func):
        return func(*args, **kwargs)
    with _C._RestorePythonTLSSnapshot(), _C._DisableTorchDispatch():  # noqa: SLF001 - they have no other names
        return func(*args, **kwargs)


@cache
def _has_parts(func: Any) -> bool:
    """Return whether an operator is a composite one, other than a view."""
    marked = _C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView")  # noqa: SLF001
    return func._can_decompose() and not marked  # noqa: SLF001


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by their names in the operator's schema."""
    names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001
    named = dict(zip(names, args, strict=False)) | kwargs
    return {_NAMES.get(name, name): value for name, value in named.items()}

"""PyTorch's attention operators and higher-order operators, intercepted on dispatch."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from glasshead.engines.fused import LOGSUMEXP_KERNELS
from glasshead.private_names import lacking, private
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import UnseenError, unknown_operator
from glasshead.watching.interception.by_hand import HandFollower
from glasshead.watching.interception.by_hand_capture import observe_by_hand
from glasshead.watching.interception.by_hand_operators import operator_of
from glasshead.watching.interception.session import THREADS, CallContext, OneThread, Session
from glasshead.watching.interception.torch_attention import capture_scores, capture_sdpa
from glasshead.watching.interception.torch_layers import FAST_PATHS

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
_FLEX_SCORES = "torch._higher_order_ops.flex_attention._math_attention_inner"
_MODE_KEYS = "torch._C._TorchDispatchModeKey.__members__"
_MODE_OF_KEY = "torch._C._get_dispatch_mode"


def run_higher_order(
    session: Session,
    mode: AbstractContextManager[Any],
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """Run a higher-order operator, and intercept the operators that its functions run.

    Args:
        session: The session of this thread.
        mode: The intercepting mode, which PyTorch leaves while an operator runs.
        func, args, kwargs: The operator and its arguments.
    """
    if func.name() == "flex_attention":
        output = func(*args, **kwargs)
        if session.enabled and private(_FLEX_SCORES) is None:
            session.record_unseen(
                lacking(
                    "watch cannot see eager FlexAttention",
                    _FLEX_SCORES,
                    "call F.scaled_dot_product_attention in {module}, or leave it out by layers=",
                )
            )
        elif session.enabled:
            capture = partial(capture_flex, session.context(output[0]), *args, **kwargs)
            session.observe(None, capture, output[0])
        return output
    if func.name() in _RUNNING:
        missing = next((name for name in (_MODE_KEYS, _MODE_OF_KEY) if private(name) is None), None)
        if missing is not None:
            session.record_unseen(
                lacking(
                    "watch cannot see attention within torch.cond and other higher-order operators",
                    missing,
                    "call none in {module}, or leave it out by layers=",
                )
            )
        elif not _traced():
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
    _, scores = private(_FLEX_SCORES)(query.detach(), key, value, *others, **named)
    return capture_scores(scores, context, value=value)


def _traced() -> bool:
    """Return whether operators are being traced, so that functions do not run."""
    keys = private(_MODE_KEYS).values()
    return any(private(_MODE_OF_KEY)(key) is not None for key in keys)


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


# Operators by name, so that none of them has to be there.
# In inference mode, composite operators arrive before they are decomposed.
_WHOLE = {"aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"}
# Only the math fallback of PyTorch's attention calls this one.
_SAFE_SOFTMAX = "aten::_safe_softmax"
# An operator of PyTorch with such a name attends, and one that is not known cannot be observed.
_ATTENDING = re.compile(
    r"(aten|torch_attn)::(?!\w*backward)\w*(attention|attn|transformer_encoder)"
)
_SOFTMAX = re.compile(r"aten::(?!\w*(log_softmax|backward))\w*softmax")
_NAMES = {"attn_bias": "attn_mask"}


class _Role(Enum):
    """Part of an attention that an operator computes."""

    TELLING = auto()
    WHOLE = auto()
    FAST_PATH = auto()
    SCORES = auto()
    SOFTMAX = auto()
    UNKNOWN = auto()


@cache
def _role(func: Any) -> _Role | None:
    """Return what an operator has to do with attention, by its name; None: nothing."""
    name = func.name()
    known = {
        _Role.TELLING: LOGSUMEXP_KERNELS,
        _Role.WHOLE: _WHOLE,
        _Role.FAST_PATH: FAST_PATHS,
        _Role.SCORES: {_SAFE_SOFTMAX},
    }
    for role, names in known.items():
        if name in names:
            return role
    if _ATTENDING.match(name):
        return _Role.UNKNOWN
    return _Role.SOFTMAX if _SOFTMAX.match(name) else None


@cache
def _is_passed_over(func: Any) -> bool:
    """Return whether an operator computes nothing: a view of a tensor, or memory for one."""
    operator = operator_of(func)
    return _role(func) is None and not operator.product and (operator.view or operator.empty)


_MODE = "torch.utils._python_dispatch.TorchDispatchMode"
# A class of PyTorch, or none.
_Mode: Any = private(_MODE) or object
_Operator = type(torch.ops.aten.mm.default)


def observing_operators() -> "OperatorInterceptMode":
    """Return a mode that observes operators.

    Errors: an `UnseenError` where this version of PyTorch has no such modes.
    """
    if _Mode is object:
        raise UnseenError(
            lacking("watch cannot see operators", _MODE, "take PyTorch 2.8 to 2.15 instead")
        )
    if not hasattr(_Mode, "supports_higher_order_operators"):
        # In PyTorch 2.8 each operator that takes functions has a rule for each class of modes.
        for func in (private("torch._ops._higher_order_ops") or {}).values():
            if OperatorInterceptMode not in func.python_key_table:
                func.py_impl(OperatorInterceptMode)(partial(_by_rule, func))
    return OperatorInterceptMode()


def _by_rule(func: Any, mode: "OperatorInterceptMode", *args: Any, **kwargs: Any) -> Any:
    return run_higher_order(THREADS.session, mode, func, args, kwargs)


class OperatorInterceptMode(OneThread, _Mode):
    """A mode that runs every operator of this thread and observes those of attention."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self._follower = HandFollower()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        # Higher-order operators enter it once more.
        if self not in THREADS.session.modes:
            self._follower.stop()

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
        if not isinstance(func, _Operator):
            return run_higher_order(session, self, func, args, kwargs or {})
        output = _run(func, types, args, kwargs or {})
        if _is_passed_over(func):
            return output
        role = _role(func)
        if role is _Role.TELLING:
            session.record_kernel(*output[:2])
        if session.enabled:
            if role is None or role is _Role.SOFTMAX:
                self._follow(session, role, func, args, kwargs or {}, output)
            else:
                _look(session, role, func, args, kwargs or {}, output)
        return output

    def _follow(
        self,
        session: Session,
        role: _Role | None,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        """Follow an operator that may be a part of attention written by hand."""
        taken = None
        try:
            if role is _Role.SOFTMAX:
                self._follower.softmax(session, func, args, output)
            else:
                taken = self._follower.follow(session, func, args, kwargs, output)
        except Exception as error:  # noqa: BLE001 - the model runs on
            self._follower.stop(f"cannot be followed there ({type(error).__name__}: {error})")
            if role is _Role.SOFTMAX:
                session.record_softmax(output.ndim)
        if taken is not None:
            observe_by_hand(session, taken)


def _look(
    session: Session,
    role: _Role,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> None:
    """Report an operator that has run to the watchers."""
    made = output if isinstance(output, Tensor) else output[0]
    if role is _Role.SCORES:
        capture = partial(capture_scores, args[0], CallContext(session.masks, session.crosses))
        session.observe(None, capture, made)
        return
    named = None if role is _Role.UNKNOWN else _named(func, args, kwargs)
    if named is None:
        session.record_unseen(unknown_operator(func.name()))
        return
    if role is _Role.FAST_PATH:
        capture = partial(FAST_PATHS[func.name()], **named)
    else:
        known = session.context(made, [output[1]] if role is _Role.TELLING else [])
        capture = partial(capture_sdpa, **named, context=known)
    session.observe(None, capture, made)


def _run(func: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator so that its result is bit for bit that of an unwatched run.

    In inference mode composite operators arrive. Decomposed below this mode they would not know
    which inputs require gradients, and multiply matrices in another order: so the dispatch keys
    that were excluded on the way to the mode are restored for them.
    """
    if types or not torch.is_inference_mode_enabled():
        return func(*args, **kwargs)
    missing = next((name for name in _BELOW if private(name) is None), None)
    if missing is not None:
        raise UnseenError(
            lacking(
                "watch cannot keep the results of torch.inference_mode bit for bit",
                missing,
                "run the model under torch.no_grad()",
            )
        )
    if not _has_parts(func):
        return func(*args, **kwargs)
    with private(_RESTORED)(), private(_NO_MODE)():
        return func(*args, **kwargs)


_RESTORED, _NO_MODE = "torch._C._RestorePythonTLSSnapshot", "torch._C._DisableTorchDispatch"
_HAS_KERNEL = "torch._C._dispatch_has_kernel_for_dispatch_key"
_DECOMPOSES = "torch._ops.OpOverload._can_decompose"
_BELOW = _RESTORED, _NO_MODE, _HAS_KERNEL, _DECOMPOSES


@cache
def _has_parts(func: Any) -> bool:
    """Return whether an operator is a composite one, other than a view."""
    marked = private(_HAS_KERNEL)(func.name(), "ADInplaceOrView")
    return private(_DECOMPOSES)(func) and not marked


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments by their names in the operator's schema; None where it tells none."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    names = [argument.name for argument in schema.arguments]
    named = dict(zip(names, args, strict=False)) | kwargs
    return {_NAMES.get(name, name): value for name, value in named.items()}

"""The mode in which operators are intercepted as PyTorch dispatches them.

At first every operator of the thread arrives here once it has run: kernels of attention, which are
observed, and all others, which may be parts of attention written by hand (`explicit_follower.py`).
Once a pass has shown that functions compute all attention of a model, the mode steps aside, and
only `_select`ed operators arrive. One that may begin an attention by hand calls the mode back.

    all operators ──a later pass, nothing followed by hand──▶ selected operators
         ▲                                                           │
         └──a softmax, an unknown kernel, code that knows modes ◀────┘  `step_back`

Compiled code calls it back, too, and restores the keys of its thread as it returns. So the mode
steps aside after each compiled pass, where the frame of that code has returned.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache, partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from glasshead.engines.fused import LOGSUMEXP_KERNELS
from glasshead.private_names import lacking, private
from glasshead.watching.errors import MEANT, UnseenError, unknown_operator, unreadable
from glasshead.watching.interception.circumstances import in_backward
from glasshead.watching.interception.explicit_capture import capture_scores, observe_explicit
from glasshead.watching.interception.explicit_follower import HandFollower
from glasshead.watching.interception.explicit_operators import is_exponential, operator_of
from glasshead.watching.interception.higher_order import run_higher_order
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.selected_operators import (
    begin,
    can_select,
    end,
    select,
)
from glasshead.watching.interception.session import THREADS, Patch, Session
from glasshead.watching.interception.thread_modes import ThreadMode
from glasshead.watching.interception.torch_attention import capture_sdpa
from glasshead.watching.interception.torch_layers import FAST_PATHS
from glasshead.watching.module_calls import calling, is_within_call

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

    WITH_LOGSUMEXP = auto()
    WHOLE = auto()
    FAST_PATH = auto()
    SCORES = auto()
    SOFTMAX = auto()
    UNKNOWN = auto()


@cache
def _role(func: Any) -> _Role | None:
    """Return what an operator has to do with attention; None: nothing."""
    return _role_by_name(func.name())


def _role_by_name(name: str) -> _Role | None:
    """Return what an operator of a name has to do with attention; None: nothing."""
    known = {
        _Role.WITH_LOGSUMEXP: LOGSUMEXP_KERNELS,
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


@cache
def _select() -> None:
    """Select the operators that tell whether a model attends otherwise than in its first pass."""
    for name in private(_ALL_OPERATORS)():
        library, _, rest = name.partition("::")
        role = _role_by_name(name)
        # PyTorch has 3,000 operators, and looking up each of them takes longer than most passes.
        if library not in ("aten", "torch_attn") or (role is None and not is_exponential(name)):
            continue
        packet, _, overload = rest.partition(".")
        func = getattr(getattr(getattr(torch.ops, library), packet), overload or "default")
        if not _has_parts(func):
            select(func, gives_logsumexp=role is _Role.WITH_LOGSUMEXP)


_ALL_OPERATORS = "torch._C._dispatch_get_all_op_names"
_PYTHON_DISPATCH = "torch.utils._python_dispatch"
_STACK = f"{_PYTHON_DISPATCH}._get_current_dispatch_mode_stack"
_POP, _PUSH = f"{_PYTHON_DISPATCH}._pop_mode", f"{_PYTHON_DISPATCH}._push_mode"
_MODE = "torch.utils._python_dispatch.TorchDispatchMode"
# Higher-order operators, and what each compiled function calls before it looks at the keys.
_CALLING_BACK = (
    "torch._ops.HigherOrderOperator.__call__",
    "torch._dynamo.eval_frame._is_skip_guard_eval_unsafe_stance",
)
# By one of these, the function that runs compiled code restores the dispatch keys of its thread.
_KEEPING_KEYS = {"_ForceDispatchKeyGuard", "_dynamo_save_local_dispatch_key_set"}
# Calls and returns of functions from the end of a compiled pass until its code has returned: some
# 50 to 800.
_MOST_EVENTS = 2000
# What restores all dispatch keys of a thread when it ends, those of a mode that has left, too.
_RESTORING = ("__enter__", "__exit__")
# A class of PyTorch, or none.
_Mode: Any = private(_MODE) or object
_Operator = type(torch.ops.aten.mm.default)


def observing_operators() -> "OperatorInterceptMode":
    """Return a mode that observes operators.

    Errors: an `UnseenError` if this version of PyTorch has no such modes.
    """
    if _Mode is object:
        raise UnseenError(
            lacking("watch cannot see operators", _MODE, "Install PyTorch 2.8 to 2.15 instead")
        )
    if not hasattr(_Mode, "supports_higher_order_operators"):
        # In PyTorch 2.8 each operator that takes functions has a rule for each class of modes.
        for func in (private("torch._ops._higher_order_ops") or {}).values():
            if OperatorInterceptMode not in func.python_key_table:
                func.py_impl(OperatorInterceptMode)(partial(_by_rule, func))
    # Tried before the mode sees what is tried.
    can_select()
    return OperatorInterceptMode()


def calling_back() -> list[Patch]:
    """Return the patches by which what knows dispatch keys by itself calls the mode back.

    These are higher-order operators, which have no kernels for keys of ours; what was compiled,
    which is known by the keys of its thread, and restores those that it was called with; and the
    inference mode, which restores them too, so that the mode steps aside within it again.
    """
    homes = (name.rpartition(".") for name in _CALLING_BACK if private(name) is not None)
    return [
        *(_CallingBack(private(home), name, run_higher_order) for home, _, name in homes),
        *(_CallingBackShortly(torch.inference_mode, name, run_higher_order) for name in _RESTORING),
    ]


def _by_rule(func: Any, mode: "OperatorInterceptMode", *args: Any, **kwargs: Any) -> Any:
    return run_higher_order(THREADS.session, mode, func, args, kwargs)


class _CallingBack(Patch):
    """A patch of a function that calls the mode back before it runs."""

    _stays = True

    def standing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        stays = self._stays

        def standing(*inputs: Any, **named: Any) -> Any:
            session = THREADS.session
            for mode in session.modes:
                mode.step_back(late=session.enabled, stays=stays)
            end()
            return original(*inputs, **named)

        return standing


class _CallingBackShortly(_CallingBack):
    """A patch of a function that calls the mode back, which may step aside once more."""

    _stays = False


class CompilerCallback(Patch):
    """A patch of the function that returns the compiler's callback for what is about to run.

    PyTorch asks that function around each operator that the mode sees.
    """

    def standing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def standing(callback: Any) -> Any:
            # Around an operator there is none.
            if callback is None and original(None) is None:
                return None
            session = THREADS.session
            if not session.recompiles:
                return original(callback)
            return self.stand_in(session, original, callback)

        return standing


class OperatorInterceptMode(ThreadMode, _Mode):
    """A mode that runs every operator of this thread and observes those of attention.

    Once a whole pass of each watched model has shown that functions compute all of its attention,
    the mode steps aside, and only the operators of `_selected` are intercepted. One that may begin
    an attention by hand calls it back.
    """

    supports_higher_order_operators = True
    _stack = _STACK, _POP, _PUSH

    def __init__(self) -> None:
        super().__init__()
        self._follower = HandFollower()
        self.is_aside, self._stays, self._is_compiled_by_pass = False, False, True
        # What PyTorch knows of the modes in use, which an interrupt may keep it from restoring.
        known = vars(private(_PYTHON_DISPATCH) or object)
        self._flags = {name: known[name] for name in known if name.startswith("_is_in_")}

    def leave(self) -> None:
        if self.is_aside:
            end()
            self.is_aside = False
        super().leave()
        home = private(_PYTHON_DISPATCH)
        if home is not None:
            vars(home).update(self._flags)
        self._follower.stop()

    def may_step_aside(self, device: torch.device | None) -> None:
        """Step aside, where a pass has shown that selected operators suffice.

        Args:
            device: Where an attention of a later pass ran; None: unknown.
        """
        session = THREADS.session
        if not self._stays and self._suffices(session, device):
            self._step_aside(session)

    def _suffices(self, session: Session, device: torch.device | None) -> bool:
        """Return whether selected operators may suffice, as far as this mode knows."""
        return not (
            self.is_aside
            or any(private(name) is None for name in _CALLING_BACK)
            or not self._follower.idle
            or session.changes
            # A backward pass restores the keys that its thread had.
            or in_backward()
            or device is None
            or device.type not in ("cpu", "cuda")
        )

    def step_aside_between(self, device: torch.device | None) -> None:
        """Step aside once compiled code has returned, which calls the mode back as it begins.

        That code restores the keys with which it was called, so the mode is there until then.

        Args:
            device: Where its attention ran; None: unknown.
        """
        session = THREADS.session
        frame = _running_compiled_code()
        if (
            frame is None
            or not self._is_compiled_by_pass
            or sys.getprofile() is not None
            or not self._suffices(session, device)
        ):
            return
        if any(is_within_call(frame, one.names) for one in session.watches.every):
            # The rest of the pass is not compiled, and is followed.
            return

        left = _MOST_EVENTS

        def step_aside(ended: FrameType, event: str, value: Any) -> None:
            nonlocal left
            del value
            left -= 1
            if event == "return" and ended is frame:
                sys.setprofile(None)
                if not self.closed:
                    self._step_aside(session)
            elif not left:
                # That code is more than a pass, such as a whole training.
                sys.setprofile(None)
                self._is_compiled_by_pass = False

        # The compiler, which still works for this thread, would compile it.
        uncompiled: Any = torch.compiler.disable(step_aside)
        sys.setprofile(uncompiled)

    def _step_aside(self, session: Session) -> None:
        lacks = any(private(name) is None for name in (_STACK, _POP, _PUSH))
        if session.modes != [self] or lacks or not can_select():
            return
        stack = private(_STACK)
        if stack()[-1:] == [self]:
            _select()
            self._place, self.is_aside = len(stack()) - 1, True
            # Not by `__exit__`: other modes may be entered and left before it is back.
            private(_POP)()
            begin(self._intercept, session)

    def step_back(self, *, late: bool = False, stays: bool = False) -> None:
        """Intercept all operators again.

        Args:
            late: Whether a pass is in progress that was not followed from its beginning.
            stays: Whether the mode does not step aside again.
        """
        self._stays |= stays
        if not self.is_aside:
            return
        end()
        if late:
            self._follower.follow_late(THREADS.session)
        # Modes that were entered since are left before this one.
        pop, push, stack = private(_POP), private(_PUSH), private(_STACK)
        above = [pop() for _ in range(len(stack()) - self._place)]
        for one in (self, *reversed(above)):
            push(one)
        self.is_aside = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Intercept nothing but attention for a while, as in compiled code that is observed."""
        before = self.is_aside
        if not before:
            self._step_aside(THREADS.session)
        try:
            yield
        finally:
            if self.is_aside and not before:
                self.step_back()

    def _intercept(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a selected operator."""
        if self.closed:
            end()
            return func(*args, **kwargs)
        session, role = THREADS.session, _role(func)
        if session.enabled and not in_backward() and self._concerns(session, role):
            self.step_back(late=True, stays=True)
        return func(*args, **kwargs)

    def _concerns(self, session: Session, role: _Role | None) -> bool:
        """Return whether an operator may be a part of attention that functions do not show."""
        if role is None:
            return not self._follower.passes_over_exponentials(session)
        return any(calling(one.names) is not None for one in session.watchers)

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
        if self.closed:
            self.leave_soon()
            return _run(func, types, args, kwargs or {})
        if session.pending:
            session.update_running()
        if not isinstance(func, _Operator):
            self._stays = True
            return run_higher_order(session, self, func, args, kwargs or {})
        output = _run(func, types, args, kwargs or {})
        try:
            self._take(session, func, args, kwargs or {}, output)
        except MEANT:
            raise
        except Exception as error:  # noqa: BLE001 - the model runs on
            session.record_unobserved(unreadable(error))
        return output

    def _take(
        self,
        session: Session,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
    ) -> None:
        """Observe or follow an operator that has run."""
        if _is_passed_over(func):
            return
        role = _role(func)
        if role is _Role.WITH_LOGSUMEXP:
            session.record_kernel(*output[:2])
        if session.enabled:
            if role is None or role is _Role.SOFTMAX:
                self._follow(session, role, func, args, kwargs, output)
            else:
                _look(session, role, func, args, kwargs, output)

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
            why = f"cannot be followed there ({type(error).__name__}: {error})"
            self._follower.stop(why)
            if role is _Role.SOFTMAX:
                session.record_softmax(output.ndim, why)
        if taken is not None:
            observe_explicit(session, taken)


def _running_compiled_code() -> FrameType | None:
    """Return the outermost frame on the stack that runs compiled code; None if there is none."""
    frame, found = sys._getframe(1), None  # noqa: SLF001 - it has no other name
    while frame is not None:
        if not _KEEPING_KEYS.isdisjoint(frame.f_code.co_names):
            found = frame
        frame = frame.f_back
    return found


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
        session.record_unobserved(unknown_operator(func.name()))
        return
    if role is _Role.FAST_PATH:
        capture = partial(FAST_PATHS[func.name()], **named)
    else:
        known = session.context(made, [output[1]] if role is _Role.WITH_LOGSUMEXP else [])
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
                "Run the model under torch.no_grad()",
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
    """Return the arguments by their names in the operator's schema; None if it tells none."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    names = [argument.name for argument in schema.arguments]
    named = dict(zip(names, args, strict=False)) | kwargs
    return {_NAMES.get(name, name): value for name, value in named.items()}

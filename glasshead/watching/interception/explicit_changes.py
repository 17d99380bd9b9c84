"""Interventions on attention written by hand, above autograd: at its softmax and its product.

Function by function the weights of a softmax are followed to the product with values. Whether these
are attention of tokens to tokens, in these heads, is for an open watch to say, which follows every
operator below: what it does not follow is refused.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from glasshead.watching.errors import EXPLICIT
from glasshead.watching.interception.explicit_capture import capture_scores, count_heads, headed
from glasshead.watching.interception.interfaces import CallContext
from glasshead.watching.interception.session import THREADS, Session
from glasshead.watching.interception.thread_modes import ThreadMode
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.module_calls import ModuleCall

_SOFTMAXES = {F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
_PRODUCTS = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
# Functions that leave queries and keys the last axes, in their order.
_KEEPING = {
    "bfloat16",
    "clone",
    "contiguous",
    "double",
    "dropout",
    "float",
    "half",
    "masked_fill",
    "nan_to_num",
    "reshape",
    "to",
    "type_as",
    "view",
}


@dataclass(eq=False)
class _Weights:
    """Weights of a softmax that is changed.

    Attributes:
        tensor: The tensor that holds them.
        change: The interventions.
        shape: Their shape `[*batch, heads, queries, keys]`.
    """

    tensor: "weakref.ref[Tensor]"
    change: AttentionChange
    shape: torch.Size


class InterveneMode(ThreadMode, TorchFunctionMode):
    """A mode that replaces calls of a function, above autograd, and changes attention by hand.

    It also sees calls by names that cannot be patched, as those of `from … import`. While it is
    open, PyTorch's own layers leave their fast paths, in which heads have no separate context.

    Args:
        function: The function to intercept.
        stand_in: The replacement, called with the function before the arguments.
    """

    _stack = (
        "torch.overrides._get_current_function_mode_stack",
        "torch.overrides._pop_mode",
        "torch.overrides._push_mode",
    )

    def __init__(self, function: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
        super().__init__()
        self._function, self._stand_in = function, stand_in
        self._weights: dict[int, _Weights] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if self.closed:
            self.leave_soon()
            return func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            if func is self._function or func in _SOFTMAXES:
                _record_compiled()
            return func(*args, **(kwargs or {}))
        if func is self._function:
            return self._stand_in(func, *args, **(kwargs or {}))
        if func in _SOFTMAXES:
            return self._softmax(THREADS.session, func, args, kwargs or {})
        weights = self._known(_first(func, args)) if self._weights and args else None
        if weights is not None and (func in _PRODUCTS or func is torch.einsum):
            return self._product(THREADS.session, weights, func, args, kwargs or {})
        output = func(*args, **(kwargs or {}))
        if weights is not None and getattr(func, "__name__", "") in _KEEPING:
            self._remember(output, weights.change, weights.shape)
        return output

    def _known(self, tensor: Any) -> _Weights | None:
        weights = self._weights.get(id(tensor))
        return weights if weights is not None and weights.tensor() is tensor else None

    def _remember(self, tensor: Any, change: AttentionChange, shape: torch.Size) -> None:
        if isinstance(tensor, Tensor) and tensor.shape[-2:] == shape[-2:]:
            gone = partial(self._forget, id(tensor))
            self._weights[id(tensor)] = _Weights(weakref.ref(tensor, gone), change, shape)

    def _forget(self, place: int, gone: Any) -> None:
        if place in self._weights and self._weights[place].tensor is gone:
            del self._weights[place]

    def _softmax(
        self, session: Session, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Tensor:
        """Run a softmax, with interventions where it may be one of attention."""
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        of_keys = isinstance(scores, Tensor) and scores.ndim > 1 and axis in (-1, scores.ndim - 1)
        calls = _calls(session) if of_keys else ()
        if not calls or not isinstance(scores, Tensor):
            return func(*args, **kwargs)
        session.check_not_again()
        heads = count_heads(calls, scores.shape) if scores.ndim == 3 else None
        apart = headed(scores.detach(), heads)
        known = CallContext(session.masks, session.crosses)
        capture = partial(capture_scores, apart, known, lowest=scores.dtype)
        change = session.change(None, apart.shape[-3], capture)
        if change is None:
            return func(*args, **kwargs)
        if change.rekeys:
            raise ValueError(
                "PatchPart needs attention whose queries and keys are given to a function, but "
                f"{change.name!r} is explicit. Load the model with attn_implementation='sdpa'."
            )
        if change.scales:
            raise ValueError(
                "ScaleBeta needs attention whose queries are given to a function, but "
                f"{change.name!r} is explicit, with biases in its scores. Scale its queries."
            )
        if change.hides:
            if change.empties:
                raise ValueError(
                    "ForbidKeys and ForceKeys must leave each query of explicit attention some "
                    f"key, but one of {change.name!r} sees none any more. Choose with queries=."
                )
            visible = change.visible(scores.shape[-1]).expand(apart.shape).reshape(scores.shape)
            scores = scores.masked_fill(~visible, -torch.inf)
        rest = {name: value for name, value in kwargs.items() if name != "input"}
        weights = func(scores, *args[1:], **rest)
        _record(session, change.name, done=False)
        self._remember(weights, change, apart.shape)
        return weights

    def _product(
        self,
        session: Session,
        weights: _Weights,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Tensor:
        """Run a product of weights with values, and change its result.

        Errors: a ValueError if no watch has followed it.
        """
        # Set by the watch that follows operators, while the product runs.
        session.followed = None
        output = func(*args, **kwargs)
        change, shape = weights.change, weights.shape
        order = _order(args[0]) if func is torch.einsum else list(range(output.ndim))
        if order is None or session.followed != shape[:-1]:
            raise ValueError(
                f"{EXPLICIT}, but it did not follow the attention of {change.name!r} as one of "
                "tokens to tokens. Omit it, or let layers= of the watch name it."
            )
        _record(session, change.name, done=True)
        ordered = output.permute(order)
        context = change.context(ordered.reshape(*shape[:-1], ordered.shape[-1]))
        back = sorted(range(len(order)), key=order.__getitem__)
        return context.reshape(ordered.shape).permute(back)


def _calls(session: Session) -> Sequence[ModuleCall]:
    """Return the module calls in progress, where a softmax may belong to a changed attention.

    Without a watcher that could follow it, it is recorded instead.
    """
    for one in session.changing if session.enabled else ():
        if calls := one.concerned_calls():
            if session.watchers:
                return calls
            one.record_explicit(None, done=False)
    return ()


def _record(session: Session, name: str, *, done: bool) -> None:
    """Record in the interveners a changed softmax, or that a product took its weights."""
    for one in session.changing:
        one.record_explicit(name, done=done)


@torch.compiler.assume_constant_result
def _record_compiled() -> bool:
    """Record, while the compiler traces, that attention may be compiled that is to be changed."""
    if not torch.compiler.is_exporting():
        THREADS.session.record_compiled(seen=True)
    return True


def _first(func: Any, args: Sequence[Any]) -> Any:
    """Return the first operand of a function."""
    if func is not torch.einsum:
        return args[0]
    operands = args[1] if isinstance(args[1], list | tuple) else args[1:]
    return operands[0] if operands else None


def _order(equation: Any) -> list[int] | None:
    """Return the order of an equation's result in which the axes of its first operand come first.

    >>> _order("bhij,bhjd->bihd"), _order("ij,jd->id"), _order("bhij,bhjd->bid")
    ([0, 2, 1, 3], [0, 1], None)
    """
    terms, _, result = str(equation).replace(" ", "").partition("->")
    kept = terms.partition(",")[0][:-1]
    rest = [one for one in result if one not in kept]
    if "." in terms or len(rest) != 1 or len(result) != len(kept) + 1:
        return None
    return [result.index(one) for one in (*kept, *rest)]

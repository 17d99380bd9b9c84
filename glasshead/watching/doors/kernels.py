"""Kernels: PyTorch's own attention operators, whatever Python leads to them."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.fast_paths import FAST_PATHS
from glasshead.watching.doors.higher_order import run_higher_order
from glasshead.watching.doors.one_thread import OneThread
from glasshead.watching.doors.sdpa import met_scores, met_sdpa

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


class Kernels(OneThread, TorchDispatchMode):
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

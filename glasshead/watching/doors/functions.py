"""Functions of `torch.nn.functional` that models call: met where they are looked up."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from glasshead.watching.active import ACTIVE
from glasshead.watching.doors.multi_head import by_name, met_multi_head, shows_itself
from glasshead.watching.doors.replacing import Replaced
from glasshead.watching.doors.sdpa import met_sdpa

_Function = Callable[..., Any]


def functions() -> list[Replaced]:
    """What is replaced while a watch is open.

    The kernels below would do, but where PyTorch takes the long way, of matrix products and a
    softmax: with dropout, three axes, or unequal widths.
    """
    return [
        Replaced(F, "scaled_dot_product_attention", _sdpa),
        Replaced(F, "multi_head_attention_forward", _multi_head),
    ]


def _sdpa(original: _Function, *inputs: Any, **named: Any) -> Tensor:
    if not ACTIVE.looking:
        return original(*inputs, **named)
    with ACTIVE.running() as told:
        output = original(*inputs, **named)
    ACTIVE.saw(None, partial(met_sdpa, *inputs, **named, output=output, told=told))
    return output


def _multi_head(original: _Function, *inputs: Any, **named: Any) -> Any:
    if not ACTIVE.looking or shows_itself(given := by_name(*inputs, **named)):
        return original(*inputs, **named)
    with ACTIVE.running():
        output = original(*inputs, **named)
    ACTIVE.saw(None, partial(met_multi_head, given))
    return output

"""Keys of two texts in one attention: its own, and after them those of an encoder."""

from typing import Any

from torch import Tensor

from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.module_calls import ModuleCall

_OTHERS = "encoder_hidden_states"


def merged_position(captured: CapturedCall, own: ModuleCall) -> int | None:
    """Return the position of the first query of merged self- and cross-attention.

    Its keys are more than the module was given of another text, by those of its own.

    Args:
        captured: The call.
        own: The module call that the attention belongs to.

    Returns: the position; None for attention of another kind.
    """
    others: Any = own.arguments.get(_OTHERS)
    if not isinstance(others, Tensor) or others.ndim != 3:
        return None
    position = captured.problem.scores_shape[-1] - others.shape[1] - captured.queries
    return position if position >= 0 else None

"""Explanation: an attention trace explained step by step, in five languages.

Names are imported lazily, so that a language can be checked without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glasshead.explanation.explain_trace import explain
    from glasshead.explanation.explanation import Explanation, Step

__all__ = ["Explanation", "Step", "explain"]
_HOMES = {"Explanation": "explanation", "Step": "explanation", "explain": "explain_trace"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

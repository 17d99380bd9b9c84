"""Private names of libraries, looked up where they are used, as another version may lack them."""

import importlib
import sys
from functools import cache
from typing import Any

import torch


@cache
def private(name: str) -> Any:
    """Return what a dotted name of a library stands for; None where this version lacks it.

    Whoever uses one says what is lost without it, by `lacking`, and loses nothing else.

    >>> private("torch.softmax") is torch.softmax, private("torch._C._nothing.at_all")
    (True, None)
    """
    found, *parts = name.split(".")
    try:
        value: Any = importlib.import_module(found)
    except ImportError:
        return None
    for part in parts:
        found = f"{found}.{part}"
        try:
            # A module first: `torch._higher_order_ops` has a function by the name of one.
            value = importlib.import_module(found)
        except ImportError:
            if not hasattr(value, part):
                return None
            value = getattr(value, part)
    return value


def lacking(what: str, name: str, advice: str) -> str:
    """Return the message for what cannot be done without a private name.

    Args:
        what: What cannot be done.
        name: The name that this version of PyTorch lacks.
        advice: What to do instead, a sentence without its full stop.
    """
    return f"{what} on PyTorch {torch.__version__}, which has no {name}. {advice}."


def runs_code_of(*places: str) -> bool:
    """Return whether a function of these source files or folders is in progress in this thread.

    It takes the place of some private names, and is slower.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        if frame.f_code.co_filename.startswith(places):
            return True
        frame = frame.f_back
    return False

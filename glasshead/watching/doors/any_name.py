"""Any name: a function of PyTorch met by whatever name a model has for it."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from glasshead.watching.doors.one_thread import OneThread


class AnyName(OneThread, TorchFunctionMode):
    """Lets a stand-in run where a function is called, above what computes gradients.

    Who has imported a function has it under a name that nobody can replace. And while a mode as
    this one is open, PyTorch's own layers leave their fast paths, in which heads have no context of
    their own.

    Args:
        function: What is called.
        stand_in: Called instead, with the function before the arguments.
    """

    def __init__(self, function: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
        super().__init__()
        self._function, self._stand_in = function, stand_in

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        if func is self._function:
            return self._stand_in(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

"""Modes of PyTorch that blocks share, which each thread has on a stack of its own."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Self

import torch

from glasshead.private_names import private
from glasshead.watching.interception.session import THREADS


class ThreadMode:
    """Mixin for a mode of PyTorch that one thread enters, and that leaves it in any state.

    A mode that is closed in another thread is still on the stack of its own, and leaves it there
    with the next operator.

    Attributes:
        closed: Whether the last block that used it is closed.
        is_aside: Whether it does less than it could.
    """

    # The private names of the stack of modes, of what pops its last, and of what pushes one.
    _stack: ClassVar[tuple[str, str, str]]

    closed = is_aside = False

    def may_step_aside(self, device: torch.device | None) -> None:
        """Do less, where an earlier pass has shown that less suffices.

        Args:
            device: Where an attention of a later pass ran; None: unknown.
        """

    def step_aside_between(self, device: torch.device | None) -> None:
        """Do less once the compiled code in progress has returned, until more of it is called.

        Args:
            device: Where its attention ran; None: unknown.
        """

    def step_back(self, *, late: bool = False, stays: bool = False) -> None:
        """Do again all that there is to do.

        Args:
            late: Whether a pass is in progress that was not followed from its beginning.
            stays: Whether to do no less any more.
        """

    def aside(self) -> AbstractContextManager[None]:
        """Return a block in which only kernels of attention are intercepted."""
        return nullcontext()

    def __enter__(self) -> Self:
        THREADS.session.modes.append(self)
        return super().__enter__()  # type: ignore[misc] - the mode's

    def __exit__(self, *error: object) -> None:
        # Thread ids are reused once a thread has ended; its session is not.
        if self in THREADS.session.modes:
            THREADS.session.modes.remove(self)
            super().__exit__(*error)  # type: ignore[misc] - the mode's

    def leave(self) -> None:
        """Leave the stack of this thread, in whatever state an interrupt has left it.

        What was left stays so; modes of other libraries above this one stay on the stack.
        """
        self.closed = True
        modes, functions = THREADS.session.modes, [private(name) for name in self._stack]
        if None in functions:
            while self in modes:
                self.__exit__(None, None, None)
            return
        stack, pop, push = functions
        above: list[Any] = []
        try:
            while any(one is self for one in stack()):
                above.append(pop())
        finally:
            while above:
                one = above.pop()
                if one is not self:
                    push(one)
        while self in modes:
            modes.remove(self)

    def leave_soon(self) -> None:
        """Leave once the operator in progress is over, after which PyTorch puts the mode back."""
        if sys.getprofile() is None:
            sys.setprofile(self._leave_now)

    def _leave_now(self, *event: Any) -> None:
        del event
        stack = private(self._stack[0])
        if stack is None or any(one is self for one in stack()):
            sys.setprofile(None)
            self.leave()

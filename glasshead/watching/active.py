"""Active: who watches or removes heads in this thread, and whether an attention is met already."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from glasshead.watching.ablater import Ablater
from glasshead.watching.met import Met
from glasshead.watching.refusing import UnseenError
from glasshead.watching.watcher import Watcher

_functorch: Any = torch._C._functorch  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


# Those of all threads.
_ANYWHERE: list[Ablater] = []


class Active(threading.local):
    """Who watches in this thread. Modes of PyTorch belong to a thread, and so does a watch.

    Attributes:
        watchers: The open ones, in the order in which they were opened.
        ablaters: Those that remove heads, which they do after the watchers have looked.
        watching, ablating: What closes the doors again when the last of either has left.
        crosses: Whether the layer that is at work was given the keys of another text.
    """

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.ablaters: list[Ablater] = []
        self.watching, self.ablating = ExitStack(), ExitStack()
        self.crosses: Callable[[], bool] = _stays
        self._inside = 0
        self._told: list[Tensor] = []

    @property
    def looking(self) -> bool:
        """Whether what is called now is to be looked at, or to lose heads.

        What an attention calls that is being looked at already, and what we call ourselves, is not.
        """
        return bool(self.watchers or self.removing) and not self._inside

    @property
    def removing(self) -> list[Ablater]:
        """Who removes heads of what is called now.

        PyTorch may run a backward pass in threads of its own, as it does for a GPU: what gradient
        checkpointing computes again there is to lose the heads that it lost before.
        """
        return self.ablaters or ([*_ANYWHERE] if _ANYWHERE and _in_backward() else [])

    @contextmanager
    def running(self) -> Iterator[list[Tensor]]:
        """While the model's own attention runs; gives the logsumexps that kernels tell in it."""
        outer, self._told = self._told, []
        self._inside += 1
        try:
            yield self._told
        finally:
            self._inside -= 1
            self._told = outer

    @contextmanager
    def within(self, crosses: Callable[[], bool]) -> Iterator[None]:
        """While a layer runs that knows whether its keys are of another text; asked when met."""
        outer, self.crosses = self.crosses, crosses
        try:
            yield
        finally:
            self.crosses = outer

    def told(self, logsumexp: Tensor) -> None:
        """A kernel has told the logsumexp of its rows."""
        if self._inside:
            self._told.append(logsumexp)

    def saw(self, module: nn.Module | None, met: Callable[[], Met]) -> None:
        """Let each watcher observe what has run; of none the module, that which is being called.

        What runs in a backward pass has been seen: there gradient checkpointing runs the forward
        pass again.

        Errors: an `UnseenError` under vmap, where a tensor stands for many.
        """
        if not self.watchers or _in_backward():
            return
        if _under_vmap():
            raise UnseenError(
                "watch sees a model as it runs, and not under torch.vmap: give the model the batch "
                "itself."
            )
        one: list[Met] = []

        def once() -> Met:
            if not one:
                one.append(met())
            return one[0]

        # Our own operators are nobody's business, be it this watch or somebody who counts them.
        with self.running(), _disable_current_modes():
            for watcher in self.watchers:
                watcher.saw(module, once)

    def computed_a_softmax(self, *, surely: bool) -> None:
        """Let each watcher take note of a softmax outside of any attention that it knows.

        Args:
            surely: Whether it is one of attention, whatever its module is called.
        """
        for watcher in self.watchers if not _in_backward() else ():
            watcher.computed_a_softmax(surely=surely)

    def removed(self, module: nn.Module | None, count: int | None) -> list[int]:
        """Which heads are removed from what has run; of none the module, as for `saw`.

        In a backward pass, too, as what runs again there is to be what it was.

        Args:
            module: Whose they are.
            count: How many it has; None: it was given no axis of heads.

        Errors: a ValueError where a head is not there.
        """
        return sorted({head for one in self.removing for head in one.removed(module, count)})

    @contextmanager
    def anywhere(self, ablater: Ablater) -> Iterator[None]:
        """While a block that removes heads lasts, let backward passes in other threads know it."""
        _ANYWHERE.append(ablater)
        try:
            yield
        finally:
            _ANYWHERE.remove(ablater)

    def is_compiled(self) -> None:
        """Let each watcher take note that a part of what runs is being compiled."""
        for one in (*self.watchers, *self.ablaters):
            one.compiled = True


def _stays() -> bool:
    return False


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def _under_vmap() -> bool:
    transforms = _functorch.get_interpreter_stack() or ()
    return any(one.key() == _functorch.TransformType.Vmap for one in transforms)


ACTIVE = Active()

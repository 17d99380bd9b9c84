"""The watches, or interventions, that are open in a thread, as the task that runs there sees them.

A block belongs to the task of asyncio that opened it, and to the tasks that this one starts, as
context variables do. Outside of tasks it belongs to its thread.
"""

import sys
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar
from weakref import ref

_Entry = TypeVar("_Entry", bound=Hashable)


class _Block:
    """A block that was opened.

    Attributes:
        open: Whether it still is.
        task: The task that opened it, weakly; None: it was opened outside of tasks.
    """

    __slots__ = ("open", "task")

    def __init__(self) -> None:
        task = _running_task()
        self.open, self.task = True, None if task is None else ref(task)

    @property
    def ownerless(self) -> bool:
        """Whether the task that opened it has ended, as that of a notebook's cell."""
        task = None if self.task is None else self.task()
        return self.task is not None and (task is None or task.done())


# The blocks that the running task, or thread, sees; closed ones stay until it opens the next.
_HERE: ContextVar[tuple[_Block, ...]] = ContextVar("glasshead_open_blocks", default=())


class OpenBlocks(Generic[_Entry]):
    """The open blocks of one kind in a thread, by what observes or intervenes in them.

    Nothing here takes a lock, as the garbage collector may close a block at any place.

    Attributes:
        mode: The mode that they share; None: there is none.
    """

    def __init__(self) -> None:
        self.mode: Any = None
        self._blocks: dict[_Entry, _Block] = {}
        self._state = object()
        self._known: tuple[Any, Any, tuple[_Entry, ...]] = (None, None, ())

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def every(self) -> tuple[_Entry, ...]:
        """Those of all tasks of the thread, in order of opening."""
        return (*self._blocks,)

    def here(self) -> tuple[_Entry, ...]:
        """Return those of the running task, in order of opening."""
        if not self._blocks:
            return ()
        visible, state = _HERE.get(), self._state
        known = self._known
        if known[0] is visible and known[1] is state:
            return known[2]
        blocks = [*self._blocks.items()]
        own = [block in visible for _, block in blocks]
        if all(own):
            found = tuple(entry for entry, _ in blocks)
            self._known = visible, state, found
            return found
        # A generator that another context resumes, outside of tasks, sees what its thread has.
        adrift = not any(own) and _running_task() is None
        return tuple(
            entry
            for (entry, block), mine in zip(blocks, own, strict=True)
            if mine or block.ownerless or (adrift and block.task is None)
        )

    def add(self, entry: _Entry) -> None:
        """Open a block."""
        block = self._blocks[entry] = _Block()
        _HERE.set((*(one for one in _HERE.get() if one.open), block))
        self._state = object()

    def remove(self, entry: _Entry) -> None:
        """Close a block, in this thread or another; one that is closed stays so."""
        block = self._blocks.get(entry)
        if block is not None:
            block.open = False
        self._blocks.pop(entry, None)
        self._state = object()
        _HERE.set(tuple(one for one in _HERE.get() if one.open))


def _running_task() -> Any:
    asyncio = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        # There is no event loop in this thread.
        return None

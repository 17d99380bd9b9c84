"""The circumstances of a call: the blocks that its task sees, a backward pass, tracing, modes.

A block belongs to the task of asyncio that opened it, and to the tasks that this one starts, as
context variables do. Outside of tasks it belongs to its thread. All else is asked as far as PyTorch
shows it.
"""

import sys
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import ref

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from glasshead.private_names import lacking, private, runs_code_of
from glasshead.recipe.validation import is_transformed
from glasshead.watching.errors import NUMBERLESS, UNDER_VMAP

_BACKWARD = "torch._C._current_graph_task_id"
_TRACING = "torch._C._is_tracing"
_TRANSFORMS = "torch._C._functorch.get_interpreter_stack"
_VMAP = "torch._C._functorch.TransformType.Vmap"
_IS_FAKE = "torch._subclasses.fake_tensor.is_fake"
_HIDE = "torch.utils._python_dispatch._disable_current_modes"
_MODES = "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
_COMPILES_FOR_OPERATOR = "torch._higher_order_ops.utils._in_hop_compile"
# Code below which a forward pass may run for a second time.
_RECOMPUTING = torch.utils.checkpoint.__file__, torch.autograd.__file__


def unsupported_reason(output: Any, modes: Sequence[Any]) -> str | None:
    """Return why the attention in progress cannot be observed; None if it can.

    Args:
        output: Its output.
        modes: Our own modes that are open in this thread.
    """
    under_vmap, numberless = _under_vmap(), _has_no_numbers(output)
    if under_vmap or numberless:
        return UNDER_VMAP if under_vmap else NUMBERLESS
    if under_vmap is None:
        return lacking(
            "watch cannot distinguish torch.vmap from other transforms of torch.func",
            _TRANSFORMS if private(_TRANSFORMS) is None else _VMAP,
            "Run {module} without them, or exclude it with layers=",
        )
    if numberless is None:
        return lacking(
            "watch cannot determine which subclasses of Tensor have numbers",
            _IS_FAKE,
            "Give {module} plain tensors, or exclude it with layers=",
        )
    if private(_BACKWARD) is None and runs_code_of(*_RECOMPUTING):
        return lacking(
            "watch cannot distinguish a forward pass from one that gradient checkpointing runs "
            "again",
            _BACKWARD,
            "Run {module} without it, or exclude it with layers=",
        )
    if private(_HIDE) is None and others_open(modes):
        return lacking(
            "watch cannot hide what it computes from other modes, such as an operator counter,",
            _HIDE,
            "Run {module} without them, or exclude it with layers=",
        )
    return None


def _under_vmap() -> bool | None:
    """Return whether this is under vmap; None if it may be."""
    kind, transforms = private(_VMAP), private(_TRANSFORMS)
    if kind is None or transforms is None:
        return None if is_transformed() else False
    return any(one.key() == kind for one in transforms() or ())


def _has_no_numbers(output: Any) -> bool | None:
    """Return whether a tensor has a shape and no numbers; None if that may be."""
    if not isinstance(output, Tensor) or output.is_meta:
        return isinstance(output, Tensor)
    if type(output) in (Tensor, nn.Parameter) and not is_transformed():
        return False
    is_fake = private(_IS_FAKE)
    return None if is_fake is None else is_fake(output)


def others_open(modes: Sequence[Any]) -> bool:
    """Return whether other modes are open in this thread, or may be."""
    opened = private(_MODES)
    return opened is None or any(one not in modes for one in opened())


def modes_open() -> bool:
    """Return whether a mode is open in this thread, or may be: ours or an operator counter's."""
    opened = private(_MODES)
    return opened is None or bool(opened())


def hidden_from_modes() -> AbstractContextManager[Any]:
    """Return a context that hides operators from every mode, ours or an operator counter's."""
    if not modes_open():
        return nullcontext()
    return (private(_HIDE) or nullcontext)()


def in_backward() -> bool:
    """Return whether this is a backward pass, as far as PyTorch shows."""
    task = private(_BACKWARD)
    return task is not None and task() != -1


def traced() -> bool:
    """Return whether `torch.jit.trace` runs this, and records what operators compute."""
    tracing = private(_TRACING)
    return tracing is not None and tracing()


def checkpointing() -> bool:
    """Return whether gradient checkpointing runs this, and will run it again."""
    return runs_code_of(torch.utils.checkpoint.__file__)


def intervention_elsewhere() -> str | None:
    """Return why an intervention may miss what runs in another thread; None if it cannot.

    It may be the backward pass of the model, in which gradient checkpointing recomputes.
    """
    if private(_BACKWARD) is not None:
        return None
    return lacking(
        "intervene cannot determine whether what ran in another thread belongs to its model's "
        "backward pass",
        _BACKWARD,
        "Run the model in the thread of the block only, without gradient checkpointing",
    )


def compiles_for_operator() -> bool:
    """Return whether what compiles is an eager higher-order operator, which then runs kernels."""
    compiles = private(_COMPILES_FOR_OPERATOR)
    if compiles is not None:
        return compiles()
    return runs_code_of(str(Path(torch.cond.__code__.co_filename).parent))


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
        # The last one known here would keep a watched model alive.
        self._state, self._known = object(), (None, None, ())
        _HERE.set(tuple(one for one in _HERE.get() if one.open))


def _running_task() -> Any:
    asyncio = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        # There is no event loop in this thread.
        return None

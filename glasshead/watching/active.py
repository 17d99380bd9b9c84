"""The active watches and ablations of this thread, and whether interception is suspended."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import _disable_current_modes

from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import (
    NUMBERLESS,
    UNDER_VMAP,
    BudgetError,
    UnseenError,
    unreadable,
)
from glasshead.watching.module_calls import calling, names_of
from glasshead.watching.watcher import Watcher


def without_heads(x: Tensor, heads: Sequence[int], axis: int) -> Tensor:
    """Set some heads to 0 along an axis; no gradient flows through them.

    >>> without_heads(torch.ones(2, 3), [0, 2], axis=-1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if not heads:
        return x
    return x.index_fill(axis, torch.tensor(heads, device=x.device), 0.0)


class Ablater:
    """The heads to ablate in each attention of a model, and a record of the attentions reached.

    Args:
        model: The model to run.
        heads: Head indices by module name.

    Attributes:
        compiled: Whether a module with heads to ablate was compiled meanwhile.

    Errors: a ValueError for an unknown module name.
    """

    def __init__(self, model: nn.Module, heads: Mapping[str, Sequence[int]]) -> None:
        self._kind, self._names, self._heads = type(model).__name__, names_of(model), heads
        self._reached: dict[str, None] = {}
        self.compiled = False
        known = list(self._names.values())
        for name in heads:
            if name not in known:
                near = get_close_matches(name, known, n=3, cutoff=0.0)
                raise ValueError(
                    f"ablate takes names of modules that attend, as watch gives them, and got "
                    f"{name!r}, which names none: did you mean one of {_listed(near)}?"
                )

    def removed(self, module: nn.Module | None, count: int | None) -> Sequence[int]:
        """Return the heads to ablate in an attention that has run.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            count: Its number of heads; None: its inputs have no head axis.

        Errors: a ValueError for a head out of range.
        """
        if module is None or module not in self._names:
            module = calling(self._names)
        if module is None:
            return ()
        name = self._names[module]
        self._reached[name] = None
        heads = self._heads.get(name, ())
        if heads and count is None:
            raise ValueError(
                f"ablate takes attention with an axis of heads, and {name!r} was given none: leave "
                f"it out."
            )
        if count is not None and max(heads, default=-1) >= count:
            raise ValueError(
                f"ablate takes heads that are there, and {name!r} has {count}, counted from 0, and "
                f"not {max(heads)}: name others."
            )
        return heads

    def record_compiled(self) -> None:
        """Record that a module is being compiled, where it has heads to ablate."""
        module = calling(self._names)
        # A model compiled as a whole calls none of its modules.
        name = "" if module is None else self._names[module]
        if any(not name or f"{one}.".startswith(f"{name}.") for one in self._heads):
            self.compiled = True

    def check_complete(self) -> None:
        """Check that every named attention was reached.

        Errors: a RuntimeError where one was not, or a module was compiled.
        """
        if self.compiled:
            raise RuntimeError(
                "ablate removes heads of what is not compiled, and a part of what ran was compiled "
                "on the way: run it as it was before torch.compile, and give generate "
                "disable_compile=True."
            )
        missed = [name for name in self._heads if name not in self._reached]
        if missed and self._reached:
            raise RuntimeError(
                f"ablate met no attention at {_listed(missed)}, only at {_listed(self._reached)}: "
                f"take such names; what computes its attention by code of its own cannot be "
                f"ablated."
            )
        if missed:
            raise RuntimeError(
                f"ablate met no attention of {self._kind}: run the model inside the block and in "
                f"the thread that opened it; attention that goes neither through "
                f"F.scaled_dot_product_attention nor the attention interface of transformers "
                f"cannot be ablated."
            )


def _listed(names: Sequence[str] | Mapping[str, None]) -> str:
    """Quote the first three names."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")


_functorch: Any = torch._C._functorch  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


# The ablaters and watchers of all threads.
_ANYWHERE: list[Ablater] = []
_WATCHERS: list[Watcher] = []
# Operators without any module of a watched model after which nobody looks for it any more.
_PATIENCE = 4096


class Active(threading.local):
    """The active watchers and ablaters of this thread; PyTorch's modes are per thread, too.

    Attributes:
        watchers: The open watchers, in order of opening.
        ablaters: The open ablaters; they apply after the watchers have observed.
        watch_stack, ablate_stack: What to close when the last watcher or ablater has left.
        is_cross_attention: Whether the keys of the running layer belong to another text.
        pending: Number of operators for which to check whether a watched model runs.
    """

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.ablaters: list[Ablater] = []
        self.watch_stack, self.ablate_stack = ExitStack(), ExitStack()
        self.is_cross_attention: Callable[[], bool] = _never
        self.pending = 0
        self._inside = 0
        self._logsumexps: list[Tensor] = []

    @property
    def enabled(self) -> bool:
        """Whether calls are to be observed or ablated.

        False within an attention that is being observed already, and within our own computations.
        """
        return bool(self.watchers or self.removing) and not self._inside

    @property
    def removing(self) -> list[Ablater]:
        """The ablaters that apply to the current call.

        PyTorch may run the backward pass in threads of its own, as it does for a GPU: gradient
        checkpointing recomputes there, and has to ablate the same heads.
        """
        return self.ablaters or ([*_ANYWHERE] if _ANYWHERE and _in_backward() else [])

    @contextmanager
    def suspended(self) -> Iterator[list[Tensor]]:
        """Suspend interception while the model's own attention runs; yield its logsumexps."""
        outer, self._logsumexps = self._logsumexps, []
        self._inside += 1
        try:
            yield self._logsumexps
        finally:
            self._inside -= 1
            self._logsumexps = outer

    @contextmanager
    def in_layer(self, crosses: Callable[[], bool]) -> Iterator[None]:
        """Set `is_cross_attention` while a layer runs that knows; it is called on capture."""
        outer, self.is_cross_attention = self.is_cross_attention, crosses
        try:
            yield
        finally:
            self.is_cross_attention = outer

    def record_logsumexp(self, logsumexp: Tensor) -> None:
        """Record the logsumexp of the rows of a kernel."""
        if self._inside:
            self._logsumexps.append(logsumexp)

    def observe(
        self, module: nn.Module | None, capture: Callable[[], CapturedCall], output: Any
    ) -> None:
        """Let each watcher observe an attention that has run.

        Calls in a backward pass are skipped: gradient checkpointing recomputes the forward pass
        there. Calls that cannot be observed, as under vmap, are reported at the end of the block,
        so that the model runs on.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            capture: Returns the captured call.
            output: Its output.

        Errors: a ValueError and an `UnseenError` as of `Watcher.observe`.
        """
        if not self.watchers or _in_backward():
            return
        if why := _unsupported_reason(output):
            self.record_unseen(why, module)
            return
        calls: list[CapturedCall] = []

        def once() -> CapturedCall:
            if not calls:
                calls.append(capture())
            return calls[0]

        # Hide our own operators from every mode, this watch's or that of an operator counter.
        with self.suspended(), _disable_current_modes():
            for watcher in self.watchers:
                try:
                    watcher.observe(module, once)
                except (UnseenError, BudgetError):
                    raise
                except Exception as error:
                    if calls and not isinstance(error, RuntimeError):
                        raise
                    # Unusual inputs of an attention are no reason to end the model's run.
                    watcher.record_unseen(unreadable(error), module)

    def record_unseen(self, why: str, module: nn.Module | None = None) -> None:
        """Record in each watcher an attention that cannot be observed.

        Args:
            why: The reason, as of `Watcher.record_unseen`.
            module: The module of the attention; None: the innermost module in progress.
        """
        for watcher in self.watchers if not _in_backward() else ():
            watcher.record_unseen(why, module)

    def record_softmax(self, axes: int) -> None:
        """Record in each watcher a softmax outside of any known attention.

        Args:
            axes: Number of axes of its output.
        """
        for watcher in self.watchers if not _in_backward() else ():
            watcher.record_softmax(axes)

    @contextmanager
    def listening(self, watcher: Watcher) -> Iterator[None]:
        """Register an open watcher, to learn whether its model runs in this thread or another."""
        self.pending = _PATIENCE
        _WATCHERS.append(watcher)
        try:
            yield
        finally:
            _WATCHERS.remove(watcher)

    def update_running(self) -> None:
        """Update, after an operator, which watched models are running."""
        runs = [watcher.update_running() for watcher in self.watchers]
        self.pending = 0 if all(runs) else self.pending - 1

    def notify_other_threads(self) -> None:
        """Tell the watchers of other threads that an unobserved attention has run here."""
        if not (self.watchers or self._inside):
            for watcher in [*_WATCHERS]:
                watcher.update_running(elsewhere=True)

    def removed(self, module: nn.Module | None, count: int | None) -> list[int]:
        """Return the heads to ablate in an attention that has run.

        In a backward pass, too, where gradient checkpointing recomputes the forward pass.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            count: Its number of heads; None: its inputs have no head axis.

        Errors: a ValueError for a head out of range.
        """
        return sorted({head for one in self.removing for head in one.removed(module, count)})

    @contextmanager
    def ablating_backward(self, ablater: Ablater) -> Iterator[None]:
        """Register an open ablater for backward passes in other threads."""
        _ANYWHERE.append(ablater)
        try:
            yield
        finally:
            _ANYWHERE.remove(ablater)

    def record_compiled(self, *, seen: bool) -> None:
        """Record in watchers and ablaters that a module is being compiled.

        Args:
            seen: Whether watchers still see it, through the kernels that it runs.
        """
        for watcher in self.watchers if not seen else ():
            watcher.record_compiled()
        for ablater in self.ablaters:
            ablater.record_compiled()


def _never() -> bool:
    return False


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def _under_vmap() -> bool:
    transforms = _functorch.get_interpreter_stack() or ()
    return any(one.key() == _functorch.TransformType.Vmap for one in transforms)


def _unsupported_reason(output: Any) -> str | None:
    """Return why an attention with this output cannot be observed; None where it can."""
    if _under_vmap():
        return UNDER_VMAP
    if isinstance(output, Tensor) and (output.is_meta or is_fake(output)):
        return NUMBERLESS
    return None


ACTIVE = Active()

"""Who watches or ablates in this thread, and whether an attention is being captured already."""

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
    """The same numbers, but 0 for those of some heads, which have no gradient then.

    >>> without_heads(torch.ones(2, 3), [0, 2], axis=-1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if not heads:
        return x
    return x.index_fill(axis, torch.tensor(heads, device=x.device), 0.0)


class Ablater:
    """Knows which heads each attention of a model loses, and which attentions it met.

    Args:
        model: What runs.
        heads: Which, by the names of their modules.

    Attributes:
        compiled: Whether a part of what ran, and may lose heads, was compiled meanwhile.

    Errors: a ValueError for a name that no module has.
    """

    def __init__(self, model: nn.Module, heads: Mapping[str, Sequence[int]]) -> None:
        self._kind, self._names, self._heads = type(model).__name__, names_of(model), heads
        self._met: dict[str, None] = {}
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
        """Which heads an attention loses that has run.

        Args:
            module: Whose it is; None: that of the innermost module that is being called.
            count: How many heads it has; None: it was given no axis of heads.

        Errors: a ValueError where a head is not there.
        """
        if module is None or module not in self._names:
            module = calling(self._names)
        if module is None:
            return ()
        name = self._names[module]
        self._met[name] = None
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

    def is_compiled(self) -> None:
        """Take note that a part of what runs is being compiled, where it may lose heads."""
        module = calling(self._names)
        # Of a model that is compiled as a whole no module is called any more.
        name = "" if module is None else self._names[module]
        if any(not name or f"{one}.".startswith(f"{name}.") for one in self._heads):
            self.compiled = True

    def check_met(self) -> None:
        """Say loudly which attention has kept its heads, as it was never met.

        Errors: a RuntimeError where there is one.
        """
        if self.compiled:
            raise RuntimeError(
                "ablate removes heads of what is not compiled, and a part of what ran was compiled "
                "on the way: run it as it was before torch.compile, and give generate "
                "disable_compile=True."
            )
        missed = [name for name in self._heads if name not in self._met]
        if missed and self._met:
            raise RuntimeError(
                f"ablate met no attention at {_listed(missed)}, only at {_listed(self._met)}: take "
                f"such names; what computes its attention by code of its own cannot be ablated."
            )
        if missed:
            raise RuntimeError(
                f"ablate met no attention of {self._kind}: run the model inside the block and in "
                f"the thread that opened it; attention that goes neither through "
                f"F.scaled_dot_product_attention nor the attention interface of transformers "
                f"cannot be ablated."
            )


def _listed(names: Sequence[str] | Mapping[str, None]) -> str:
    """A few of them."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")


_functorch: Any = torch._C._functorch  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


# Those of all threads.
_ANYWHERE: list[Ablater] = []
_WATCHERS: list[Watcher] = []
# After so many operators in which no module of a watched model is at work, nobody looks for it.
_PATIENCE = 4096


class Active(threading.local):
    """Who watches in this thread. Modes of PyTorch belong to a thread, and so does a watch.

    Attributes:
        watchers: The open ones, in the order in which they were opened.
        ablaters: Those that remove heads, which they do after the watchers have looked.
        watching, ablating: What closes the doors again when the last of either has left.
        crosses: Whether the layer that is at work was given the keys of another text.
        waiting: For how many more operators somebody wants to know whether a model has run.
    """

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.ablaters: list[Ablater] = []
        self.watching, self.ablating = ExitStack(), ExitStack()
        self.crosses: Callable[[], bool] = _stays
        self.waiting = 0
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

    def saw(self, module: nn.Module | None, met: Callable[[], CapturedCall], output: Any) -> None:
        """Let each watcher observe what has run; of none the module, that which is being called.

        What runs in a backward pass has been seen: there gradient checkpointing runs the forward
        pass again. What cannot be observed, as under vmap, where a tensor stands for many, is
        refused at the end of the block, so that the model runs on.

        Args:
            module: Whose attention it is.
            met: Tells what it was.
            output: What it gave.

        Errors: a ValueError and an `UnseenError` as of `Watcher.saw`.
        """
        if not self.watchers or _in_backward():
            return
        if why := _hindrance(output):
            self.missed(why, module)
            return
        one: list[CapturedCall] = []

        def once() -> CapturedCall:
            if not one:
                one.append(met())
            return one[0]

        # Our own operators are nobody's business, be it this watch or somebody who counts them.
        with self.running(), _disable_current_modes():
            for watcher in self.watchers:
                try:
                    watcher.saw(module, once)
                except (UnseenError, BudgetError):
                    raise
                except Exception as error:
                    if one and not isinstance(error, RuntimeError):
                        raise
                    # Whatever a model may hand to its attention is no reason to end its run.
                    watcher.missed(unreadable(error), module)

    def missed(self, why: str, module: nn.Module | None = None) -> None:
        """Let each watcher take note of attention that has run and cannot be observed.

        Args:
            why: As `Watcher.missed` takes it.
            module: Whose attention it is; None: that of the innermost module being called.
        """
        for watcher in self.watchers if not _in_backward() else ():
            watcher.missed(why, module)

    def computed_a_softmax(self, axes: int) -> None:
        """Let each watcher take note of a softmax outside of any attention that it knows.

        Args:
            axes: How many axes it has.
        """
        for watcher in self.watchers if not _in_backward() else ():
            watcher.computed_a_softmax(axes)

    @contextmanager
    def everywhere(self, watcher: Watcher) -> Iterator[None]:
        """While a watcher is open, learn whether its model runs, in this thread or another."""
        self.waiting = _PATIENCE
        _WATCHERS.append(watcher)
        try:
            yield
        finally:
            _WATCHERS.remove(watcher)

    def noticed(self) -> None:
        """An operator has run: learn whose models are at work."""
        runs = [watcher.runs() for watcher in self.watchers]
        self.waiting = 0 if all(runs) else self.waiting - 1

    def overheard(self) -> None:
        """Attention has run that nobody looks at: tell other threads' watchers that wait for it."""
        if not (self.watchers or self._inside):
            for watcher in [*_WATCHERS]:
                watcher.runs(elsewhere=True)

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

    def is_compiled(self, *, seen: bool) -> None:
        """Let all take note that a part of what runs is being compiled.

        Args:
            seen: Whether watchers see it all the same, by the kernels that it runs.
        """
        for watcher in self.watchers if not seen else ():
            watcher.is_compiled()
        for ablater in self.ablaters:
            ablater.is_compiled()


def _stays() -> bool:
    return False


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - it has no other name


def _under_vmap() -> bool:
    transforms = _functorch.get_interpreter_stack() or ()
    return any(one.key() == _functorch.TransformType.Vmap for one in transforms)


def _hindrance(output: Any) -> str | None:
    """Why attention cannot be observed that gave this; None where it can."""
    if _under_vmap():
        return UNDER_VMAP
    if isinstance(output, Tensor) and (output.is_meta or is_fake(output)):
        return NUMBERLESS
    return None


ACTIVE = Active()

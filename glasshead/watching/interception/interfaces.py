"""Interfaces of what a session knows, in whatever file it is: what is open, and what runs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from glasshead.watching.captured_call import CapturedCall, MaskReader
from glasshead.watching.interventions import ChangedCall, Intervention
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.sequences import SequenceLedger


class CallContext(NamedTuple):
    """The context of an attention call: its mask conversions, output and logsumexps.

    Attributes:
        masks: The conversions of mask tensors.
        crosses: Whether the layer around it knows it for cross-attention.
        output: Its output.
        logsumexps: The logsumexps of the kernels that it ran.
    """

    masks: MaskReader
    crosses: Callable[[], bool]
    output: Tensor | None = None
    logsumexps: Sequence[Tensor] = ()


class Intervening(Protocol):
    """Interface of an open intervention to its session.

    Attributes:
        sequences: The texts that its model reads.
    """

    sequences: SequenceLedger

    def change(
        self, module: nn.Module | None, heads: int | None, capture: Callable[[], CapturedCall]
    ) -> Sequence[tuple[ChangedCall, Intervention]]:
        """Return the interventions of an attention that is about to run."""
        ...

    def concerned_calls(self) -> Sequence[ModuleCall]:
        """Return the module calls in progress, where the innermost one has interventions."""
        ...

    def record_explicit(self, name: str | None, *, done: bool) -> None:
        """Record a softmax whose weights are to be followed, or a product that took them."""
        ...

    def record_compiled(self) -> None:
        """Record that a module is being compiled."""
        ...

    def record_elsewhere(self, why: str) -> None:
        """Record an attention in another thread that may be one of a backward pass."""
        ...


class BandRun(Protocol):
    """Interface of a module that attends within a band to its session."""

    def softmax(self, scores: Tensor, weights: Tensor) -> None:
        """Record a softmax that has run."""
        ...

    def follow(self, name: str, args: Sequence[Any]) -> None:
        """Record any other operator that has run."""
        ...


class GraphRun(Protocol):
    """Interface of a run of compiled code to its session.

    Attributes:
        tells_all: Whether its graph has no softmax but those of the attentions that it records.
        device: Where its last attention ran; None: it recorded none.
    """

    tells_all: bool
    device: torch.device | None

    def record(self, index: int, output: Tensor, **values: Sequence[Any]) -> None:
        """Let the watchers observe an attention that has run."""
        ...

    def record_kernel(self, output: Tensor, logsumexp: Tensor) -> None:
        """Record that a kernel of attention has run."""
        ...

    def finish(self) -> None:
        """Report kernels that belong to no recorded attention."""
        ...


class SharedMode(Protocol):
    """Interface of a mode of PyTorch that the blocks of a thread share to their session.

    Attributes:
        closed: Whether the last block that used it is closed.
        is_aside: Whether it does less than it could.
    """

    closed: bool
    is_aside: bool

    def __enter__(self) -> Any: ...

    def leave(self) -> None:
        """Leave the stack of this thread, in whatever state an interrupt has left it."""
        ...

    def step_back(self, *, late: bool = False, stays: bool = False) -> None:
        """Do again all that there is to do."""
        ...

    def may_step_aside(self, device: torch.device | None) -> None:
        """Do less, where an earlier pass has shown that less suffices."""
        ...

    def step_aside_between(self, device: torch.device | None) -> None:
        """Do less between passes of compiled code."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Return a block in which only kernels of attention are intercepted."""
        ...

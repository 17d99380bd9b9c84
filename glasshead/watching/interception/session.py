"""The session: what the watches and interventions of a thread change, restore and see."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from glasshead.watching.captured_call import CapturedCall, MaskReader, SiteCall
from glasshead.watching.errors import MEANT, TRACED, unreadable
from glasshead.watching.interception.circumstances import (
    checkpointing,
    compiles_for_operator,
    hidden_from_modes,
    in_backward,
    intervention_elsewhere,
    modes_open,
    traced,
    unsupported_reason,
)
from glasshead.watching.interception.open_blocks import OpenBlocks
from glasshead.watching.interception.replaced_functions import ReplacedFunction
from glasshead.watching.interception.selected_operators import end, hidden
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.interventions import ChangedCall, Intervention
from glasshead.watching.module_calls import ModuleCall, calling
from glasshead.watching.sequences import SequenceLedger
from glasshead.watching.watcher import HandSoftmax, Watcher

# Operators without any module of a watched model after which nobody looks for it any more.
_PATIENCE = 4096


def _never() -> bool:
    return False


class _Suspended:
    """A block without interception; a class, as a generator takes twice the time of each call."""

    __slots__ = ("_outer", "_session")

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __enter__(self) -> list[Tensor]:
        logsumexps: list[Tensor] = []
        self._outer = self._session.enter(logsumexps)
        return logsumexps

    def __exit__(self, *error: object) -> None:
        self._session.leave(self._outer)


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

    def record_by_hand(self, name: str | None, *, done: bool) -> None:
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
    """Interface of a run of compiled code to its session."""

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
    """Interface of a mode of PyTorch that the blocks of a thread share to their session."""

    closed: bool

    def __enter__(self) -> Any: ...

    def leave(self) -> None:
        """Leave the stack of this thread, in whatever state an interrupt has left it."""
        ...

    def step_back(self, *, late: bool = False, stays: bool = False) -> None:
        """Do again all that there is to do."""
        ...

    def may_step_aside(self, output: Any) -> None:
        """Do less, where an earlier pass has shown that less suffices."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Return a block in which only kernels of attention are intercepted."""
        ...


class Session:
    """The open watches and interventions of one thread, what they patch, and the call in progress.

    The first watch and the first intervention enter a mode, the last ones leave it and restore what
    was patched, on every way out of their blocks. Blocks may be nested, and closed in any order.

    Attributes:
        watches, interventions: The open blocks of all tasks of the thread.
        masks: The conversions of mask tensors.
        modes: The modes that were entered in this thread.
        crosses: Whether the keys of the running layer belong to another text; called on capture.
        followed: Batch, heads and queries of the last attention by hand that a watcher captured.
        band: The module in progress that attends within a band; None: there is none.
        graph: The run of compiled code in progress; None: there is none.
        pending: Number of operators for which to check whether a watched model runs.
        begun: Number of calls of the model's own functions that replacements have begun.
    """

    def __init__(self) -> None:
        self.watches: OpenBlocks[Watcher] = OpenBlocks()
        self.interventions: OpenBlocks[Any] = OpenBlocks()
        self.masks = MaskReader()
        self.modes: list[SharedMode] = []
        self.crosses: Callable[[], bool] = _never
        self.followed: torch.Size | None = None
        self.band: BandRun | None = None
        self.graph: GraphRun | None = None
        self.pending = self.begun = 0
        self._inside = False
        self._retraces = 0
        self._logsumexps: list[Tensor] = []

    @contextmanager
    def watching(
        self, watcher: Watcher, patches: Sequence["Patch"], mode: "SharedMode"
    ) -> Iterator[None]:
        """Open a watcher; each sees every call.

        Args:
            watcher: The watcher.
            patches: What it installs, unless it is installed already.
            mode: What the first watcher enters.
        """
        self.pending = _PATIENCE
        watcher.singles.undisturbed = self.undisturbed
        with self._among(self.watches, watcher, patches, mode):
            yield

    @contextmanager
    def intervening(
        self, intervener: Intervening, patches: Sequence["Patch"], mode: "SharedMode"
    ) -> Iterator[None]:
        """Open an intervener, as `watching` opens a watcher."""
        with self._among(self.interventions, intervener, patches, mode):
            yield

    @contextmanager
    def _among(
        self,
        blocks: OpenBlocks[Any],
        entry: Any,
        patches: Sequence["Patch"],
        mode: "SharedMode",
    ) -> Iterator[None]:
        """Open a block; the last one restores what was there before.

        It is closed twice, as an interrupt may end the first closing at any line. What is closed
        already stays closed.
        """
        try:
            try:
                self._open(blocks, entry, patches, mode)
                yield
            finally:
                self._close(blocks, entry)
        finally:
            self._close(blocks, entry)

    def _open(
        self,
        blocks: OpenBlocks[Any],
        entry: Any,
        patches: Sequence["Patch"],
        mode: "SharedMode",
    ) -> None:
        running = any(calling(one.names) is not None for one in self.watches.every)
        if not running:
            # What an interrupt has left of a call, in this block or an earlier one.
            self._forget_calls()
        if not (self.watches or self.interventions):
            self._leave_modes()
        for one in self.modes:
            one.step_back(late=running)
        THREADS.opened[entry] = self
        blocks.add(entry)
        THREADS.install(patches)
        if blocks.mode is None:
            blocks.mode = mode
            mode.__enter__()

    def _close(self, blocks: OpenBlocks[Any], entry: Any) -> None:
        """Close a block, in this thread or in another; one that is closed stays so."""
        blocks.remove(entry)
        THREADS.opened.pop(entry, None)
        THREADS.restore()
        mode = blocks.mode
        if mode is not None and not blocks:
            mode.closed = True
            if THREADS.session is self:
                mode.leave()
            blocks.mode = None
        if not self.watches:
            self.masks.forget()
        if THREADS.session is self and not (self.watches or self.interventions):
            self._forget_calls()
            self._leave_modes()

    def _forget_calls(self) -> None:
        """Forget the calls in progress, which an interrupt may have ended at any line."""
        self._inside, self._retraces, self._logsumexps = False, 0, []
        self.crosses, self.band, self.graph = _never, None, None

    def _leave_modes(self) -> None:
        """Leave the modes of blocks that were closed in another thread, or interrupted."""
        for one in [*self.modes]:
            one.leave()
        end()

    @property
    def watchers(self) -> Sequence[Watcher]:
        """The open watchers of the running task, in order of opening."""
        return self.watches.here()

    @property
    def interveners(self) -> Sequence[Intervening]:
        """The open interveners of the running task; watchers see what they change."""
        return self.interventions.here()

    @property
    def enabled(self) -> bool:
        """Whether calls are to be observed or changed.

        False within an attention that is being observed already, and within our own computations.
        """
        return not self._inside and bool(self.watchers or self._changing)

    def calls_by_hand(self) -> Sequence[ModuleCall]:
        """Return the module calls in progress, where a softmax may belong to a changed attention.

        Without a watcher that could follow it, it is recorded instead.
        """
        if not self.enabled:
            return ()
        for one in self._changing:
            if calls := one.concerned_calls():
                if self.watchers:
                    return calls
                one.record_by_hand(None, done=False)
        return ()

    def check_not_again(self) -> None:
        """Check that what a mode has intercepted to be changed does not run again unseen.

        The functions of a backward pass are not intercepted by a mode, as `backward` is one itself.

        Errors: a ValueError under gradient checkpointing.
        """
        if not checkpointing():
            return
        for one in self._changing:
            if one.concerned_calls():
                raise ValueError(
                    "intervene changes attention by hand, and F.scaled_dot_product_attention by "
                    "another name, in the forward pass, and gradient checkpointing runs it again "
                    "in the backward pass: leave checkpointing out, or call it by that name."
                )

    def check_unchanged(self, why: str) -> None:
        """Check that there are no interventions on the attention in progress.

        Args:
            why: Why it takes none, the message.

        Errors: a ValueError where there are some.
        """
        if any(one.concerned_calls() for one in self._changing):
            raise ValueError(why)

    def record_by_hand(self, name: str, *, done: bool) -> None:
        """Record in the interveners a changed softmax, or that a product took its weights."""
        for one in self._changing:
            one.record_by_hand(name, done=done)

    @property
    def changes(self) -> bool:
        """Whether there are interventions that may apply to the current call."""
        return bool(self._changing)

    @property
    def compiles_anew(self) -> bool:
        """Whether code is to be compiled anew for the watchers."""
        return bool(self.watchers) and not self._inside

    @property
    def _changing(self) -> Sequence[Intervening]:
        """The interveners that apply to the current call.

        PyTorch may run the backward pass in threads of its own, as it does for a GPU: gradient
        checkpointing recomputes there, and has to change the same heads.
        """
        own = self.interveners
        if own:
            return own
        others = [
            one
            for session in THREADS.sessions()
            if session is not self
            for one in session.interventions.every
        ]
        if not others:
            return ()
        if why := intervention_elsewhere():
            for one in others:
                one.record_elsewhere(why)
        return others if in_backward() else ()

    def suspended(self) -> AbstractContextManager[list[Tensor]]:
        """Suspend interception while the model's own attention runs; yield its logsumexps."""
        return _Suspended(self)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Hide our own operators from every mode, this watch's or that of an operator counter."""
        if THREADS.session is not self:
            # Modes are those of a thread.
            yield
            return
        with self.suspended(), hidden_from_modes(), hidden():
            yield

    def enter(self, logsumexps: list[Tensor]) -> tuple[bool, list[Tensor]]:
        """Suspend interception, and return what `leave` restores."""
        outer = self._inside, self._logsumexps
        self._inside, self._logsumexps = True, logsumexps
        self.begun += 1
        return outer

    def leave(self, outer: tuple[bool, list[Tensor]]) -> None:
        """Restore whether interception was suspended before, and where logsumexps were kept."""
        self._inside, self._logsumexps = outer

    @contextmanager
    def in_graph(self, run: GraphRun, *, higher_order: bool) -> Iterator[None]:
        """Set the run of compiled code, whose attentions are recorded by its own operators.

        Args:
            run: The run.
            higher_order: Whether it may run higher-order operators.
        """
        outer, self.graph = self.graph, run
        alone = len(self.modes) == 1 and not higher_order
        aside = self.modes[0].aside() if alone else nullcontext()
        try:
            with self.suspended(), aside:
                yield
                run.finish()
        finally:
            self.graph = outer

    @contextmanager
    def retracing(self) -> Iterator[None]:
        """Suspend interception while code is compiled for the watchers."""
        self._retraces += 1
        try:
            with self.suspended():
                yield
        finally:
            self._retraces -= 1

    @contextmanager
    def in_band(self, run: BandRun) -> Iterator[None]:
        """Set the module in progress that attends within a band, which is told its operators."""
        outer, self.band = self.band, run
        self.begun += 1
        try:
            yield
        finally:
            self.band = outer

    @contextmanager
    def in_layer(self, crosses: Callable[[], bool]) -> Iterator[None]:
        """Set `crosses` while a layer runs that knows it."""
        outer, self.crosses = self.crosses, crosses
        self.begun += 1
        try:
            yield
        finally:
            self.crosses = outer

    def context(self, output: Tensor | None, logsumexps: Sequence[Tensor] = ()) -> CallContext:
        """Return the context of a call that has run."""
        return CallContext(self.masks, self.crosses, output, logsumexps)

    def record_kernel(self, output: Tensor, logsumexp: Tensor) -> None:
        """Record the output of a kernel, and the logsumexp of its rows."""
        if self.graph is not None:
            self.graph.record_kernel(output, logsumexp)
        elif self._inside:
            self._logsumexps.append(logsumexp)

    def observe(
        self,
        module: nn.Module | None,
        capture: Callable[[], CapturedCall],
        output: Any,
        *,
        at_once: bool = False,
    ) -> None:
        """Let each watcher observe an attention that has run.

        Calls in a backward pass are skipped: gradient checkpointing recomputes the forward pass
        there. Calls that cannot be observed, as under vmap, are reported at the end of the block,
        so that the model runs on.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            capture: Returns the captured call.
            output: Its output.
            at_once: Whether it cannot be captured later, as its memory will be written to.

        Errors: those of `Watcher.observe` that are meant for its caller.
        """
        if not self.watchers or in_backward():
            return
        try:
            if why := TRACED if traced() else unsupported_reason(output, self.modes):
                self.record_unseen(why, module)
            else:
                self._observe(module, capture, at_once=at_once)
                self._may_step_aside(output)
        except MEANT:
            raise
        except Exception as error:  # noqa: BLE001 - the model runs on
            self.record_unseen(unreadable(error), module)

    def _observe(
        self, module: nn.Module | None, capture: Callable[[], CapturedCall], *, at_once: bool
    ) -> None:
        calls: list[CapturedCall] = []

        def once() -> CapturedCall:
            if not calls:
                calls.append(capture())
            return calls[0]

        with self.undisturbed():
            for watcher in self.watchers:
                try:
                    if at_once:
                        once()
                    watcher.observe(module, once)
                except MEANT:
                    raise
                except Exception as error:  # noqa: BLE001 - the other watchers see it
                    watcher.record_unseen(unreadable(error), module)

    def observe_alike(self, site: SiteCall) -> bool:
        """Let the only watcher observe an attention of compiled code as one of its pass.

        Return whether it did; what hinders it is looked at once, with the first of the pass.

        Args:
            site: The call.
        """
        if len(self.watchers) != 1 or in_backward() or modes_open():
            return False
        return self.watchers[0].observe_alike(site, self.masks)

    def _may_step_aside(self, output: Any) -> None:
        """Let modes do less, where each watcher has seen a whole pass of what runs."""
        if self.graph is None and all(one.runs_again for one in self.watches.every):
            for mode in self.modes:
                mode.may_step_aside(output)

    def record_unseen(
        self, why: str, module: nn.Module | None = None, *, within: bool = False
    ) -> None:
        """Record in each watcher an attention that cannot be observed.

        Args:
            why: The reason, as of `Watcher.record_unseen`.
            module: The module of the attention; None: the innermost module in progress.
            within: Whether it may be one of a module within that one.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.record_unseen(why, module, within=within)

    def record_softmax(self, axes: int, found: HandSoftmax | str) -> None:
        """Record in each watcher a softmax outside of any known attention.

        Args:
            axes, found: As of `Watcher.record_softmax`.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.record_softmax(axes, found)

    def record_without_softmax(self, words: str) -> None:
        """Record in each watcher values that are weighed without a softmax.

        Args:
            words: The steps from the queries to the values.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.record_without_softmax(words)

    def record_mixing(self) -> None:
        """Record in each watcher that the module in progress has mixed tokens."""
        for watcher in self.watchers:
            watcher.record_mixing()

    def record_compiled(self, *, seen: bool) -> None:
        """Record in watchers and interveners that a module is being compiled.

        Args:
            seen: Whether watchers still see it, through the kernels that it runs.
        """
        seen = seen or self._retraces > 0
        for one in (*(() if seen else self.watchers), *self.interveners):
            one.record_compiled()

    def update_running(self) -> None:
        """Update, after an operator, which watched models are running."""
        runs = [watcher.update_running() for watcher in self.watchers]
        self.pending = 0 if all(runs) else self.pending - 1

    def notify_other_threads(self) -> None:
        """Tell the watchers of other threads that an unobserved attention has run here."""
        if not (self.watchers or self._inside):
            for session in THREADS.sessions():
                for watcher in session.watches.every:
                    watcher.update_running(elsewhere=True)

    def change(
        self, module: nn.Module | None, heads: int | None, capture: Callable[[], CapturedCall]
    ) -> AttentionChange | None:
        """Return what the interventions change of an attention that is about to run, if anything.

        In a backward pass, too, where gradient checkpointing recomputes the forward pass.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            heads: Its number of heads; None: its inputs have no head axis.
            capture: Returns the captured call.

        Errors: a ValueError for a head out of range, or a position that is not known.
        """
        changing = self._changing
        if not changing:
            return None

        @cache
        def quiet() -> CapturedCall:
            with self.suspended(), hidden_from_modes(), torch.no_grad():
                return capture()

        parts = [part for one in changing for part in one.change(module, heads, quiet)]
        return AttentionChange(parts, quiet) if parts else None


class Patch(ReplacedFunction):
    """A monkey patch of a function in a module or class.

    Args:
        home: The module or class.
        name: The name of the function.
        stand_in: The replacement, called with the session and the original before the arguments.
        kernels: Whether compiled code is observed through the kernels that it runs.
    """

    def __init__(
        self, home: Any, name: str, stand_in: Callable[..., Any], *, kernels: bool = False
    ) -> None:
        super().__init__(home, name)
        self.stand_in, self.kernels = stand_in, kernels

    def standing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        stand_in, kernels = self.stand_in, self.kernels

        def standing(*inputs: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                _record_compiled(kernels)
                return original(*inputs, **named)
            if not THREADS.opened:
                self.close()
            return intercepted(stand_in, original, *inputs, **named)

        return standing


class _Threads(threading.local):
    """The session of each thread, and what all of them share: the patches of the process.

    There is no lock, for which a block that the garbage collector closes could wait for ever.
    Opening a block comes before its patches, and closing them looks for open blocks before each.

    Attributes:
        session: The session of this thread.
        opened: The open watchers and interveners of all threads, and their sessions.
        patches: The installed patches, which only report to the session of the calling thread.
    """

    opened: ClassVar[dict[Any, Session]] = {}
    patches: ClassVar[list[Patch]] = []

    def __init__(self) -> None:
        self.session = Session()

    def sessions(self) -> list[Session]:
        """Return the sessions with an open watch or intervention, of all threads."""
        return list(dict.fromkeys([*self.opened.values()]))

    def install(self, patches: Sequence[Patch]) -> None:
        """Patch the functions that models call until the last block is closed."""
        known = {one.place: one for one in [*self.patches]}
        for one in patches:
            if one.place not in known:
                self.patches.append(one)
            known.get(one.place, one).open()

    @contextmanager
    def originals(self) -> Iterator[None]:
        """Restore the functions that models call for the moment in which a compiler reads them."""
        patches = [*self.patches]
        try:
            for one in patches:
                one.close()
            yield
        finally:
            for one in patches if self.opened else ():
                one.open()

    def restore(self) -> None:
        """Restore the functions that models call, unless a block is open."""
        for one in [*self.patches]:
            if not self.opened:
                one.close()
        if not self.opened:
            self.patches.clear()


THREADS = _Threads()


def intercepted(
    stand_in: Callable[..., Any], original: Callable[..., Any], *inputs: Any, **named: Any
) -> Any:
    """Call a replacement where calls are to be observed or changed, else the original.

    What the replacement cannot read of a call is no reason to end the model's run.
    """
    session = THREADS.session
    if not session.enabled:
        session.notify_other_threads()
        return original(*inputs, **named)
    begun = session.begun
    try:
        if not traced() or session.changes:
            return stand_in(session, original, *inputs, **named)
        why = TRACED
    except Exception as error:
        if session.begun != begun or session.changes or isinstance(error, MEANT):
            raise
        why = unreadable(error)
    session.record_unseen(why)
    with session.suspended():
        return original(*inputs, **named)


@torch.compiler.assume_constant_result
def _record_compiled(kernels: bool) -> bool:
    """Record, while the compiler traces, that a call is being compiled.

    Higher-order operators have their functions traced, too, and run them unchanged, kernel by
    kernel. Exported code does not run.
    """
    if not torch.compiler.is_exporting():
        THREADS.session.record_compiled(seen=kernels and compiles_for_operator())
    return True

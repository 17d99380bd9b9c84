"""The session of a thread: what its watches see, and what its interventions change."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial, wraps
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glasshead.watching.captured_call import CapturedCall, CapturedOnce, MaskReader, SiteCall
from glasshead.watching.errors import MEANT, TRACED, unreadable
from glasshead.watching.interception.circumstances import (
    OpenBlocks,
    checkpointing,
    compiles_for_operator,
    hidden_from_modes,
    in_backward,
    intervention_elsewhere,
    modes_open,
    traced,
    unsupported_reason,
)
from glasshead.watching.interception.interfaces import (
    BandRun,
    CallContext,
    GraphRun,
    Intervening,
    SharedMode,
)
from glasshead.watching.interception.replaced_functions import ReplacedFunction
from glasshead.watching.interception.selected_operators import end, hidden
from glasshead.watching.intervener import AttentionChange
from glasshead.watching.missed import HandSoftmax
from glasshead.watching.one_pass import OnePass
from glasshead.watching.watcher import Watcher

# Operators without any module of a watched model after which nobody looks for it any more.
PATIENCE = 4096


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


class Session:
    """The open watches and interventions of one thread, and the call in progress.

    What runs asks here whether it is observed or changed, and reports here what it has done.
    Interception is suspended within an attention that is observed already, and within our own
    computations.

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
        inside: Whether interception is suspended, so that kernels belong to the call in progress.
        allows_other_bits: Whether an open watch allows faster kernels than the model's own.
        one_pass: The statistics that were computed with the output of the attention in progress.
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
        self.inside = self.allows_other_bits = False
        self.one_pass: OnePass | None = None
        self._retraces = 0
        self._logsumexps: list[Tensor] = []

    def forget_calls(self) -> None:
        """Forget the calls in progress, which an interrupt may have ended at any line."""
        self.inside, self._retraces, self._logsumexps = False, 0, []
        self.one_pass = None
        self.crosses, self.band, self.graph = _never, None, None

    def leave_modes(self) -> None:
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
        return not self.inside and bool(self.watchers or self.changing)

    def check_not_again(self) -> None:
        """Check that what a mode has intercepted to be changed does not run again unseen.

        The functions of a backward pass are not intercepted by a mode, as `backward` is one itself.

        Errors: a ValueError under gradient checkpointing.
        """
        if not checkpointing():
            return
        for one in self.changing:
            if one.concerned_calls():
                raise ValueError(
                    "intervene changes explicit attention, and F.scaled_dot_product_attention by "
                    "another name, in the forward pass, but gradient checkpointing runs it again "
                    "in the backward pass. Disable checkpointing, or call it by that name."
                )

    def check_unchanged(self, why: str) -> None:
        """Check that there are no interventions on the attention in progress.

        Args:
            why: Why it takes none, the message.

        Errors: a ValueError if there are some.
        """
        if any(one.concerned_calls() for one in self.changing):
            raise ValueError(why)

    @property
    def changes(self) -> bool:
        """Whether there are interventions that may apply to the current call."""
        return bool(self.changing)

    @property
    def recompiles(self) -> bool:
        """Whether code is to be compiled again for the watchers."""
        return bool(self.watchers) and not self.inside

    @property
    def changing(self) -> Sequence[Intervening]:
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
        aside = any(mode.is_aside for mode in self.modes)
        with self.suspended(), hidden_from_modes(), hidden() if aside else nullcontext():
            yield

    def enter(self, logsumexps: list[Tensor]) -> tuple[bool, list[Tensor]]:
        """Suspend interception, and return what `leave` restores."""
        outer = self.inside, self._logsumexps
        self.inside, self._logsumexps = True, logsumexps
        self.begun += 1
        return outer

    def leave(self, outer: tuple[bool, list[Tensor]]) -> None:
        """Restore whether interception was suspended before, and where logsumexps were kept."""
        self.inside, self._logsumexps = outer

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
        if alone and run.tells_all and self._runs_again():
            self.modes[0].step_aside_between(run.device)

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
        elif self.inside:
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
        one_pass, self.one_pass = self.one_pass, None
        if not self.watchers or in_backward():
            return
        if one_pass is not None:
            capture = partial(_with_pass, capture, one_pass)
        try:
            if why := TRACED if traced() else unsupported_reason(output, self.modes):
                self.record_unobserved(why, module)
            else:
                self._observe(module, capture, at_once=at_once)
                self._may_step_aside(output)
        except MEANT:
            raise
        except Exception as error:  # noqa: BLE001 - the model runs on
            self.record_unobserved(unreadable(error), module)

    def _observe(
        self, module: nn.Module | None, capture: Callable[[], CapturedCall], *, at_once: bool
    ) -> None:
        once = CapturedOnce(capture)
        with self.undisturbed():
            for watcher in self.watchers:
                try:
                    if at_once:
                        once()
                    watcher.observe(module, once)
                except MEANT:
                    raise
                except Exception as error:  # noqa: BLE001 - the other watchers see it
                    watcher.missed.record_unobserved(unreadable(error), module)

    def observe_mixer(self, observe: Callable[[Watcher], None], output: Any) -> None:
        """Let each watcher observe a layer that mixes tokens without attention, and has run.

        Args:
            observe: Observes it for a watcher.
            output: Its output.

        Errors: those of a watcher that are meant for its caller.
        """
        why = TRACED if traced() else unsupported_reason(output, self.modes)
        if why:
            self.record_unobserved(why)
            return
        with self.undisturbed():
            for watcher in self.watchers:
                try:
                    observe(watcher)
                except MEANT:
                    raise
                except Exception as error:  # noqa: BLE001 - the other watchers see it
                    watcher.missed.record_unobserved(unreadable(error), None)

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
        for mode in self.modes if self.graph is None else ():
            if not mode.is_aside and self._runs_again():
                mode.may_step_aside(output.device if isinstance(output, Tensor) else None)

    def _runs_again(self) -> bool:
        """Return whether each watcher has seen a whole earlier pass of what runs."""
        return all(one.runs_again for one in self.watches.every)

    def record_unobserved(
        self, why: str, module: nn.Module | None = None, *, within: bool = False
    ) -> None:
        """Record in each watcher an attention that cannot be observed.

        Args:
            why: The reason, as of `MissedAttention.record_unobserved`.
            module: The module of the attention; None: the innermost module in progress.
            within: Whether it may be one of a module within that one.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.missed.record_unobserved(why, module, within=within)

    def record_softmax(self, axes: int, found: HandSoftmax | str) -> None:
        """Record in each watcher a softmax outside of any known attention.

        Args:
            axes, found: As of `MissedAttention.record_softmax`.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.missed.record_softmax(axes, found)

    def record_without_softmax(self, words: str) -> None:
        """Record in each watcher values that are weighed without a softmax.

        Args:
            words: The steps from the queries to the values.
        """
        for watcher in self.watchers if not in_backward() else ():
            watcher.missed.record_without_softmax(words)

    def record_mixing(self) -> None:
        """Record in each watcher that the module in progress has mixed tokens."""
        for watcher in self.watchers:
            watcher.missed.record_mixing()

    def record_compiled(self, *, seen: bool) -> None:
        """Record in watchers and interveners that a module is being compiled.

        Args:
            seen: Whether watchers still see it, through the kernels that it runs.
        """
        seen = seen or self._retraces > 0
        for watcher in () if seen else self.watchers:
            watcher.missed.record_compiled()
        for intervener in self.interveners:
            intervener.record_compiled()

    def update_running(self) -> None:
        """Update, after an operator, which watched models are running."""
        runs = [watcher.missed.update_running() for watcher in self.watchers]
        self.pending = 0 if all(runs) else self.pending - 1

    def notify_other_threads(self) -> None:
        """Tell the watchers of other threads that an unobserved attention has run here."""
        if not (self.inside or self.watchers):
            for session in THREADS.sessions():
                for watcher in session.watches.every:
                    watcher.missed.update_running(elsewhere=True)

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
        changing = self.changing
        if not changing:
            return None

        @cache
        def quiet() -> CapturedCall:
            with self.suspended(), hidden_from_modes(), torch.no_grad():
                return capture()

        parts = [part for one in changing for part in one.change(module, heads, quiet)]
        return AttentionChange(parts, quiet) if parts else None


def _with_pass(capture: Callable[[], CapturedCall], one_pass: OnePass) -> CapturedCall:
    return replace(capture(), one_pass=one_pass)


class Patch(ReplacedFunction):
    """A monkey patch of a function in a module or class.

    Args:
        home: The module or class.
        name: The name of the function.
        stand_in: The replacement, called with the session and the original before the arguments.
        kernels: Whether compiled code is observed through the kernels that it runs.
        run: Runs the original, which it is given before the arguments, if a watch allows other
            bits; None: it runs as it is.
    """

    def __init__(
        self,
        home: Any,
        name: str,
        stand_in: Callable[..., Any],
        *,
        kernels: bool = False,
        run: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(home, name)
        self.stand_in, self.kernels, self.run = stand_in, kernels, run

    def standing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        stand_in, kernels = self.stand_in, self.kernels
        other = original if self.run is None else wraps(original)(partial(self.run, original))

        def standing(*inputs: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                _record_compiled(kernels)
                return original(*inputs, **named)
            if not THREADS.opened:
                self.close()
            running = other if THREADS.session.allows_other_bits else original
            return intercepted(stand_in, running, *inputs, **named)

        return standing


class _Threads(threading.local):
    """The session of each thread.

    Attributes:
        session: The session of this thread.
        opened: The open watchers and interveners of all threads, and their sessions.
    """

    opened: ClassVar[dict[Any, Session]] = {}

    def __init__(self) -> None:
        self.session = Session()

    def sessions(self) -> list[Session]:
        """Return the sessions with an open watch or intervention, of all threads."""
        return list(dict.fromkeys([*self.opened.values()]))


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
    session.record_unobserved(why)
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

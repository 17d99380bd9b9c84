"""Watcher: what one `watch` asks of each attention that its model meets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from glasshead.attention.observe import StatisticRequest
from glasshead.attention.weights import Weights
from glasshead.engines import reductions_of
from glasshead.engines.base import without_autocast
from glasshead.recipe.masks import Band
from glasshead.recipe.normalizers import exponential
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic
from glasshead.watching.captured_call import CapturedCall, Snapshots, keys_before, output_mismatch
from glasshead.watching.errors import (
    NUMBERLESS,
    BudgetError,
    UnseenError,
    attends,
    described,
    is_a_head,
    not_run,
    softmax_of,
    way_out,
    without_attention,
)
from glasshead.watching.layer_record import Call, CallInfo, Watched
from glasshead.watching.module_calls import (
    Layers,
    ModuleCall,
    SequenceTracker,
    calling,
    calls_in_progress,
    names_of,
)
from glasshead.watching.padding import PaddingFinder, of_real, without_padding


@dataclass(frozen=True)
class Choice:
    """What is asked of each attention.

    Attributes:
        statistics: By name.
        heads: Whose; None: of all.
        keep: Whether its lazy weights are kept.
        budget: How many bytes these may take, of all calls together.
        attention_mask: True where a token that the model reads is real; None: as the model is
            called.
    """

    statistics: dict[str, Statistic]
    heads: tuple[int, ...] | None = None
    keep: bool = False
    budget: int = 2**31
    attention_mask: Bool[Tensor, "batch tokens"] | None = None


class _Pass:
    """Tell forward passes of a model apart, and the runs of one module within a pass.

    Attributes:
        number: Of the present pass.
    """

    def __init__(self) -> None:
        self.number = 0
        self._identity: object = None
        self._runs: dict[str, tuple[object, int]] = {}
        self._previous: str | None = None

    def run(self, name: str, calls: Sequence[ModuleCall], own: ModuleCall) -> tuple[int, bool]:
        """Return which run of its module a call is, and whether other attention ran since the last.

        Args:
            name: Of the attention.
            calls: The modules that are being called, innermost first.
            own: The one of them whose attention it is.
        """
        if calls[-1].identity is not self._identity:
            self._identity, self._runs, self._previous = calls[-1].identity, {}, None
            self.number += 1
        identity, run = self._runs.get(name, (None, -1))
        again = identity is not None and identity is not own.identity
        apart = again and self._previous != name
        if identity is not own.identity:
            run += 1
        self._runs[name] = own.identity, run
        self._previous = name
        return run, apart


class Watcher:
    """Observes each attention that is met in a model, and keeps what was seen.

    Attributes:
        watched: The attentions that were seen, by name, in the order in which they ran.
        ran: Whether a module of the model was called in this thread.
    """

    def __init__(
        self, model: nn.Module, layers: str | Sequence[str] | None, choice: Choice
    ) -> None:
        self.model, self.choice = model, choice
        self.names = names_of(model)
        self.layers = Layers(layers, self.names.values())
        self.watched: dict[str, Watched] = {}
        self.ran = False
        self._elsewhere = False
        self._others: dict[str, None] = {}
        self._softmaxes: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._missed: dict[str, str] = {}
        self._compiled: dict[str, None] = {}
        self._kept = 0
        self._snapshots = Snapshots()
        self._tracker, self._pass = SequenceTracker(), _Pass()
        known = any(hasattr(one, "padding") for one in choice.statistics.values())
        self._padding = PaddingFinder(choice.attention_mask, self.names.values(), known=known)

    def saw(self, module: nn.Module | None, met: Callable[[], CapturedCall]) -> None:
        """Observe an attention, where its layer is asked for.

        Args:
            module: Whose it is; None: that of the innermost module that is being called.
            met: Tells what it was.

        Errors: a ValueError for a statistic that does not fit, a `BudgetError` where what is kept
        takes more than the budget, an `UnseenError` where the attention is not what it was taken
        for.
        """
        calls = calls_in_progress(self.names)
        if not calls:
            return
        own = next((call for call in calls if call.module is module), calls[0])
        name = self._name(own.module)
        run, apart = self._pass.run(name, calls, own)
        if name not in self.layers:
            self._others[name] = None
            self._tracker.passed(met, self._pass.number)
            return
        one = met()
        with torch.no_grad(), without_autocast(one.problem.query.device):
            if name not in self.watched and output_mismatch(one):
                raise UnseenError(
                    f"watch takes attention that follows from its queries, keys and mask, and that "
                    f"of {name!r} gave another output: leave it out by layers=."
                )
            seen = self._call(name, one, calls, run, apart=apart)
            self.watched.setdefault(name, Watched(name)).add(seen)

    def _name(self, module: nn.Module) -> str:
        """Return the name of the attention that a module computes."""
        if isinstance(module, nn.TransformerEncoderLayer):
            # It is one operator from end to end where it does not call this.
            module = module.self_attn
        return self.names[module]

    def runs(self, *, elsewhere: bool = False) -> bool:
        """Take note of whether a module of the model is being called; whether one ever was.

        Args:
            elsewhere: Whether this is another thread than that of the block.
        """
        if not self.ran and calling(self.names) is not None:
            self.ran, self._elsewhere = not elsewhere, self._elsewhere or elsewhere
        return self.ran

    def missed(self, why: str, module: nn.Module | None) -> None:
        """Take note of attention that has run and cannot be observed, for the end of the block.

        Args:
            why: The sentence, with {module} for its class and name.
            module: Whose it is; None: that of the innermost module that is being called.
        """
        module = module if module in self.names else calling(self.names)
        if module is not None and (name := self._name(module)) in self.layers:
            self._missed.setdefault(name, why)

    def is_compiled(self) -> None:
        """Take note that a part of what runs is being compiled."""
        module = calling(self.names)
        # Of a model that is compiled as a whole no module is called any more.
        name = "" if module is None else self.names[module]
        if self.layers.touch(name):
            self._compiled[name] = None

    def computed_a_softmax(self, axes: int) -> None:
        """Take note of a module that computes weights by itself, where nothing can be seen.

        Args:
            axes: How many the softmax has. With two or more it is one of attention where the name
                of the module says so, its class's, or that of the class whose heads it is one of.
        """
        module = calling(self.names)
        if module is None:
            return
        name, kind = self.names[module], type(module).__name__
        self._softmaxes.setdefault(name, kind)
        if axes > 1 and (attends(f"{name} {kind}") or is_a_head(self.model, name)):
            self._own[name] = kind

    def check_seen(self) -> None:
        """Say loudly what was not seen.

        Errors: an `UnseenError` where there was no attention at all, none in what a pattern names,
        or one that cannot be seen.
        """
        if self._compiled:
            raise UnseenError(
                f"watch sees what is not compiled, and a part of what ran was compiled on the way, "
                f"in {described(self.model, [*self._compiled])}: watch it as it was before "
                f"torch.compile, and give generate disable_compile=True."
            )
        hidden = [n for n in self._own if n in self.layers and not self._saw(n)]
        if hidden:
            raise UnseenError(
                f"watch sees attention that goes through scaled_dot_product_attention or the "
                f"attention interface of transformers, and {described(self.model, hidden)} "
                f"computes its own: {way_out(self.model, hidden[0])}, or leave these out by "
                f"layers=."
            )
        for name, why in self._missed.items():
            if why == NUMBERLESS and self._saw(name):
                # A trace of a model that ran as well.
                continue
            raise UnseenError(why.format(module=described(self.model, [name])))
        softmaxes = [name for name in self._softmaxes if name in self.layers]
        self.layers.check_seen(
            self.watched, self._others, softmax_of(self.model, softmaxes) if softmaxes else ""
        )
        self._padding.check(list(self.watched))
        if not self.watched:
            raise UnseenError(
                without_attention(self.model, softmaxes)
                if self.ran
                else not_run(self.model, elsewhere=self._elsewhere)
            )

    def _saw(self, name: str) -> bool:
        """Whether it was seen at work: within, or as a part of what was."""
        return any(
            f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in self.watched
        )

    def _call(
        self, name: str, met: CapturedCall, calls: Sequence[ModuleCall], run: int, *, apart: bool
    ) -> Call:
        """One call, observed."""
        last = self._last(name, None if met.crossing else run)
        position, first_key, offset = self._tracker.place(name, met, last, self._pass.number)
        if met.crossing and position and last is not None and last.forward == self._pass.number:
            # A step of a decoder that has no self-attention, and not a layer further up.
            run, apart = last.run, last.interleaved
        problem = met.problem if offset is None else replace(met.problem, offset=offset)
        whole = keys_before(problem, first_key)
        real = self._padding.real(name, met, position, calls, self._pass.number)
        values = self._values(whole, real)
        shape = tuple(whole.as_given(whole.query).shape[:-1])
        if self.choice.heads is not None:
            heads, axis = self._heads(name, problem), problem.query.ndim - 3
            values = {n: _of_heads(value, heads, axis) for n, value in values.items()}
            shape = (*shape[:-2], len(heads), shape[-1])
        info = CallInfo(
            position=position,
            first_key=first_key,
            keys=whole.scores_shape[-1],
            crossing=met.crossing,
            heads=self.choice.heads,
            real=real,
            forward=self._pass.number,
            run=run,
            interleaved=apart,
        )
        weights = self._weights(name, met, problem) if self.choice.keep else None
        return Call(shape, self.choice.statistics, values, info, weights)

    def _last(self, name: str, run: int | None) -> Call | None:
        """Return the last call of a run of a module, or of any run; None where there is none."""
        calls = reversed(self.watched.get(name, ()))
        return next((call for call in calls if run in (None, call.run)), None)

    def _values(self, problem: Problem, real: Tensor | None) -> dict[str, Any]:
        """Compute the statistics; those that sum over queries leave out padding."""
        statistics = self.choice.statistics
        if real is None:
            return _observed(problem, statistics)
        own = {n: one for n, one in statistics.items() if one.axes[:1] == ("query",)}
        sums = {n: of_real(one, real) for n, one in statistics.items() if n not in own}
        found = _observed(problem, own) | _observed(without_padding(problem, real), sums)
        return {name: found[name] for name in statistics}

    def _heads(self, name: str, problem: Problem) -> list[int]:
        """The heads that are asked for.

        Errors: a ValueError where one is not there.
        """
        heads, count = list(self.choice.heads or ()), problem.query.shape[-3]
        if problem.axes < 4:
            raise ValueError(
                f"heads takes attention that has some, and {name or 'the model'!r} was given "
                f"{problem.axes} axes, without heads: leave heads out, or narrow layers=."
            )
        if max(heads) >= count:
            raise ValueError(
                f"heads takes heads that are there, and {name!r} has {count}, counted from 0, and "
                f"not {max(heads)}: name others, or narrow layers=."
            )
        return heads

    def _weights(self, name: str, met: CapturedCall, problem: Problem) -> Weights:
        """The lazy weights, where there is still room for them."""
        if not exponential(problem.normalizer):
            raise ValueError(
                f"keep='weights' takes attention with a softmax, and {name!r} has "
                f"{type(problem.normalizer).__name__}: leave it out by layers=."
            )
        logsumexp = _logsumexp(met, problem)
        # The largest score and weight of each row beside it, where no kernel has told it.
        numbers = problem.query.shape[:-1].numel() * (3 if logsumexp is None else 1)
        vectors = sum(x.numel() * x.itemsize for x in (problem.query, problem.key))
        self._charge(vectors + numbers * problem.dtype.itemsize, name)
        snapshots = self._snapshots.of(problem, lambda needed: self._charge(needed, name))
        return Weights(snapshots, logsumexp)

    def _charge(self, needed: int, name: str) -> None:
        """Count bytes that are to be kept.

        Errors: a `BudgetError` where all of them are more than the budget.
        """
        self._kept += needed
        if self._kept > self.choice.budget:
            raise BudgetError(
                f"keep='weights' takes at most budget={self.choice.budget} bytes, and would need "
                f"{self._kept} by {name!r}: raise budget=, or narrow layers=."
            )


def _observed(problem: Problem, statistics: dict[str, Statistic]) -> dict[str, Any]:
    """Compute statistics of a problem, each by its name."""
    if not statistics:
        return {}
    asked = StatisticRequest(problem, statistics)
    return asked.finished(reductions_of(problem, asked.reductions))


def _logsumexp(met: CapturedCall, problem: Problem) -> Tensor | None:
    """What the kernel told of each row, and -inf of an empty one, of which kernels say 0."""
    if met.logsumexp is None:
        return None
    known = met.logsumexp.to(problem.dtype)
    # A band that hides the future alone shows each query something.
    if problem.mask is None or isinstance(problem.mask, Band):
        return known
    _, visible = problem.bias_and_visible(problem.mask, problem.tile())
    return known if visible is None else known.masked_fill(~visible.any(-1), -torch.inf)


def _of_heads(value: Any, heads: list[int], axis: int) -> Any:
    """Some heads of a statistic's value."""
    if isinstance(value, Tensor):
        return value.index_select(axis, torch.tensor(heads, device=value.device))
    parts = [_of_heads(part, heads, axis) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)

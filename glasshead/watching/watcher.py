"""Watcher: the observer of one `watch`, which records each attention call of its model."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from glasshead.attention.observe import StatisticRequest
from glasshead.engines import reductions_of
from glasshead.recipe.masks import Mask
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import UnfitError, without_autocast
from glasshead.statistics import Statistic
from glasshead.watching.alike_layers import AlikeLayers, ObservedStep
from glasshead.watching.captured_call import (
    CapturedCall,
    MaskReader,
    SiteCall,
    keys_before,
    output_mismatch,
)
from glasshead.watching.ends import EndFinder, Ends
from glasshead.watching.errors import (
    NOT_TAKEN,
    NUMBERLESS,
    OF_A_PROJECTION,
    SHARDED,
    TRACED,
    LoneSoftmax,
    UnseenError,
    attends,
    described,
    is_a_head,
    lone_softmax,
    not_run,
    own_names,
    uncompiled,
    unfollowed,
    without_attention,
    without_softmax,
)
from glasshead.watching.image_finder import ImageFinder
from glasshead.watching.keeping import Keeper
from glasshead.watching.key_content import keys_at
from glasshead.watching.layer_record import Watched, last_call
from glasshead.watching.mask_checks import MaskChecks
from glasshead.watching.merged_keys import merged_position
from glasshead.watching.module_calls import (
    Layers,
    ModuleCall,
    calling,
    calls_in_progress,
    names_of,
    within_traced,
)
from glasshead.watching.other_mixers import OtherMixers, Unobserved
from glasshead.watching.padding import PaddingFinder, of_real, without_padding
from glasshead.watching.recorded_call import Call, CallInfo, names_keys
from glasshead.watching.sequences import CallPosition, SequenceLedger
from glasshead.watching.sharding import Shard, ShardError, head_shard
from glasshead.watching.single_query import QueryBatch, single_query


@dataclass(frozen=True)
class WatchChoices:
    """The options of a watch.

    Attributes:
        statistics: Statistics by name.
        heads: Head indices; None: all.
        keep: "weights" to keep lazy weights, "gradients" those and the gradients of the loss with
            respect to them, "context" the output of heads, "trace" the steps of attention by hand.
        budget: Memory for these in bytes, over all calls.
        attention_mask: True for real tokens; None: the mask given to the model.
        expect: Masks that are stated, by patterns of module names.
        ended: What ends a text; None: the model's own ids.
    """

    statistics: dict[str, Statistic]
    heads: tuple[int, ...] | None = None
    keep: str | None = None
    budget: int = 2**31
    attention_mask: Bool[Tensor, "batch tokens"] | None = None
    expect: Mapping[str, Mask | None] | None = None
    ended: Ends | None = None


@dataclass(eq=False)
class HandSoftmax:
    """A softmax of a product, which may belong to attention written by hand.

    Attributes:
        waits: Whether a product may still take its weights.
        taken: Whether one did, so that it was observed.
        why: Why one that took them could not be observed, a clause.
    """

    waits: bool = True
    taken: bool = False
    why: str | None = None


class ForwardPass:
    """The current forward pass of a model, and the runs of each module within it.

    Attributes:
        number: Number of the current pass.
        again: Whether an earlier pass ran the same outermost module from beginning to end.
        repeated: Whether the module of the last attention has attended in the same call before.
    """

    def __init__(self) -> None:
        self.number, self.again, self.repeated = 0, False, False
        self._outermost: list[nn.Module] = []
        self._identity: object = None
        self._runs: dict[str, tuple[object, int]] = {}
        self._previous: str | None = None

    def begins(self, calls: Sequence[ModuleCall]) -> bool:
        """Return whether a call is the first of another pass.

        Args:
            calls: The module calls in progress, innermost first.
        """
        return calls[-1].identity is not self._identity

    def run(self, name: str, calls: Sequence[ModuleCall], own: ModuleCall) -> tuple[int, bool]:
        """Return the run index of a call, and whether other attention ran since the last run.

        Args:
            name: Name of the attention.
            calls: The module calls in progress, innermost first.
            own: The one of them that the attention belongs to.
        """
        if self.begins(calls):
            self._identity, self._runs, self._previous = calls[-1].identity, {}, None
            self.number += 1
            outermost = calls[-1].module
            self.again = any(one is outermost for one in self._outermost)
            if not self.again:
                self._outermost.append(outermost)
        identity, run = self._runs.get(name, (None, -1))
        again = identity is not None and identity is not own.identity
        apart = again and self._previous != name
        self.repeated = identity is own.identity
        if not self.repeated:
            run += 1
        self._runs[name] = own.identity, run
        self._previous = name
        return run, apart

    def another(self, name: str) -> int:
        """Begin another run within the same call of a module, and return its index."""
        identity, run = self._runs[name]
        self._runs[name] = identity, run + 1
        return run + 1


class Watcher:
    """Observer of the attention calls of a model.

    Attributes:
        watched: The records of the observed attentions, by name, in order of execution.
        ran: Whether a module of the model was called in this thread.
        singles: The single queries of the current pass whose statistics wait for one another.
        sequences: The texts that the model reads.
        masks: The checks of the masks by which the model ran.
    """

    def __init__(
        self, model: nn.Module, layers: str | Sequence[str] | None, choice: WatchChoices
    ) -> None:
        self.model, self.choice = uncompiled(model), choice
        self.names = names_of(model)
        self.layers = Layers(layers, self.names.values())
        self.watched: dict[str, Watched] = {}
        self.ran = False
        self._elsewhere = False
        self._others: dict[str, None] = {}
        self._softmaxes: dict[str, LoneSoftmax] = {}
        self._without_softmax: dict[str, str] = {}
        self._own: dict[str, LoneSoftmax] = {}
        self._waiting: list[tuple[str, int, HandSoftmax, bool]] = []
        self._unfollowed: dict[str, LoneSoftmax] = {}
        self._missed: dict[str, str] = {}
        self._compiled: dict[str, None] = {}
        self._keeper = Keeper(choice.keep, choice.budget)
        self._previous_key: Tensor | None = None
        self.singles = QueryBatch(choice.statistics)
        self.sequences, self._pass = SequenceLedger(), ForwardPass()
        known = any(hasattr(one, "padding") for one in choice.statistics.values())
        self._padding = PaddingFinder(
            choice.attention_mask,
            self.names.values(),
            ends=EndFinder(self.model, choice.ended),
            known=known,
        )
        self._images = ImageFinder(self.names)
        self._alike = AlikeLayers()
        self.masks = MaskChecks(choice.expect, self.names.values())
        self._mixers = OtherMixers(self.names)

    def observe(self, module: nn.Module | None, capture: Callable[[], CapturedCall]) -> None:
        """Observe an attention call, if its layer is selected.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            capture: Returns the captured call.

        Errors: a ValueError for a statistic that does not fit, an `UnseenError` where the output
        does not follow from the inputs, which is raised at the end of the block.
        """
        calls = calls_in_progress(self.names)
        if not calls:
            return
        self.ran = True
        own = next((call for call in calls if call.module is module), calls[0])
        name = self._name(own.module)
        run, apart = self._pass.run(name, calls, own)
        self._images.note(calls)
        if name not in self.layers:
            self._others[name] = None
            try:
                self.sequences.passed(partial(_among, calls, capture), self._pass.number)
            except UnseenError as error:
                # It is one of the cross-attention before this one, which was selected.
                self._missed.setdefault(name, str(error))
            return
        captured = capture()
        try:
            shards = captured.shards or self._shards(calls, own, captured.problem)
        except ShardError:
            self.record_unseen(SHARDED, own.module)
            return
        if shards != captured.shards:
            captured = replace(captured, shards=shards)
        with torch.no_grad(), without_autocast(captured.problem.query.device):
            if name not in self.watched and (other := output_mismatch(captured)):
                raise UnseenError(
                    f"watch takes attention that follows from its queries, keys and mask, and that "
                    f"of {name!r} gave {other}: leave it out by layers=."
                )
            self.record(name, self._call(name, captured, calls, run, apart=apart), calls)

    def observe_alike(self, site: SiteCall, masks: MaskReader) -> bool:
        """Observe an attention call by what it shares with one of its pass, if it does.

        Args:
            site: The call.
            masks: The conversions of mask tensors.
        """
        calls = calls_in_progress(self.names)
        first = self._alike.first(site, calls)
        if first is None:
            captured = self._alike.captured_again(site, masks, calls)
            if captured is None:
                return False
            self.observe(None, lambda: captured)
            return True
        with torch.no_grad(), without_autocast(site.query.device):
            row = first.row(site, masks)
        if row is None:
            return False
        own, info = calls[0], first.info
        name = self._name(own.module)
        run, apart = self._pass.run(name, calls, own)
        if run or apart:
            info = info._replace(run=run, interleaved=apart)
        self.sequences.placed(self._pass.number, info.position, 1)
        values: dict[str, Any] = {}
        self.singles.add_row(row, info.real, values)
        self.record(name, Call(first.shape, self.choice.statistics, values, info), calls)
        return True

    def record(self, name: str, call: Call, calls: Sequence[ModuleCall]) -> None:
        """Add a call to the record of its attention.

        Args:
            name: Name of the attention.
            call: The call.
            calls: The module calls in progress, innermost first.
        """
        del calls
        if name not in self.watched:
            self.watched[name] = Watched(name, settle=self.singles.settle)
        self.watched[name].add(call)

    def cropped(self, cache: Any, count: int | None) -> None:
        """Record that the last tokens of a cache were removed, as `SequenceLedger.cropped` does."""
        for name, (text, left) in self.sequences.cropped(cache, count).items():
            if name in self.watched:
                self.watched[name].crop(text, left)

    @property
    def runs_again(self) -> bool:
        """Whether the current pass is of a module that a whole earlier pass was of."""
        return self._pass.again

    def _name(self, module: nn.Module) -> str:
        """Return the name of the attention that a module computes."""
        if isinstance(module, nn.TransformerEncoderLayer):
            # Its fused operator does not call the attention module.
            module = module.self_attn
        return self.names[module]

    def update_running(self, *, elsewhere: bool = False) -> bool:
        """Update whether a module of the model was called, and return it.

        Args:
            elsewhere: Whether this is another thread than that of the block.
        """
        if not self.ran and calling(self.names) is not None:
            self.ran, self._elsewhere = not elsewhere, self._elsewhere or elsewhere
        return self.ran

    def record_unseen(self, why: str, module: nn.Module | None, *, within: bool = False) -> None:
        """Record an attention that cannot be observed, to report it at the end of the block.

        Args:
            why: The message, with {module} for its class and name.
            module: The module of the attention; None: the innermost module in progress.
            within: Whether it may be one of a module within that one.
        """
        module = module if module in self.names else calling(self.names)
        if module is None:
            return
        name = self._name(module)
        if name in self.layers or (within and self.layers.touch(name)):
            self._missed.setdefault(name, why)

    def record_mixing(self) -> None:
        """Record that the module in progress has mixed tokens by a product or a sum."""
        module = calling(self.names)
        if module is not None:
            self._mixers.record(self.names[module])

    def unobserved(self) -> dict[str, Unobserved]:
        """Return the layers that mix tokens by other means than attention, by their names."""
        found = self._mixers.found([*self.watched, *self._others])
        return {name: Unobserved(kind, name in self.layers) for name, kind in found.items()}

    def record_compiled(self) -> None:
        """Record that a module is being compiled."""
        module = calling(self.names)
        # A model compiled as a whole calls none of its modules.
        name = "" if module is None else self.names[module]
        if self.layers.touch(name):
            self._compiled[name] = None

    def record_softmax(self, axes: int, found: HandSoftmax | str) -> None:
        """Record a module that computes a softmax by hand.

        Args:
            axes: Number of axes of the softmax. With two or more it is taken for attention if the
                name of the module, of its class, or of the class that lists it as a head says so.
            found: What becomes of it, where it may be observed yet; else why it is not, a clause.
        """
        module = calling(self.names)
        if module is None:
            return
        name = self.names[module]
        calls = calls_in_progress(self.names)
        asked = any(call.arguments.get("output_attentions") is True for call in calls)
        if isinstance(found, str):
            self._record_unobserved(name, axes, LoneSoftmax(found, asked))
            return
        self._settle(at_end=False)
        self._waiting.append((name, axes, found, asked))

    def record_without_softmax(self, words: str) -> None:
        """Record that a module weighs values by scores without a softmax.

        Args:
            words: The steps from the queries to the values.
        """
        module = calling(self.names)
        if module is not None:
            self._without_softmax.setdefault(self.names[module], words)

    def _settle(self, *, at_end: bool) -> None:
        """Record the softmaxes that were not observed and will not be."""
        waiting, self._waiting = self._waiting, []
        for name, axes, found, asked in waiting:
            if found.waits and not at_end:
                self._waiting.append((name, axes, found, asked))
            elif not found.taken:
                softmax = LoneSoftmax(found.why or NOT_TAKEN, asked, found.why is not None)
                self._record_unobserved(name, axes, softmax)
                if found.why is not None:
                    self._unfollowed.setdefault(name, softmax)

    def _record_unobserved(self, name: str, axes: int, softmax: LoneSoftmax) -> None:
        self._softmaxes.setdefault(name, softmax)
        # A gate of an attention takes the softmax of a projection, too.
        named = attends(own_names(self.model, name, within=softmax.why != OF_A_PROJECTION))
        if axes > 1 and (named or is_a_head(self.model, name)):
            self._own.setdefault(name, softmax)

    def check_seen(self) -> None:
        """Check that nothing was missed.

        Errors: an `UnseenError` where there was no attention at all, none within a pattern, or one
        that cannot be seen.
        """
        if self._compiled:
            raise UnseenError(
                f"watch sees what is not compiled, and a part of what ran was compiled on the way, "
                f"in {described(self.model, [*self._compiled])}: watch it as it was before "
                f"torch.compile, and give generate disable_compile=True."
            )
        self._settle(at_end=True)
        for name in self._unfollowed:
            if name in self.layers:
                raise UnseenError(unfollowed(self.model, name, self._unfollowed[name]))
        hidden = [
            n
            for n in self._own
            if n in self.layers and not (self._saw(n) or _is_within(n, self._missed))
        ]
        if hidden:
            raise UnseenError(
                f"watch sees attention that goes through scaled_dot_product_attention or the "
                f"attention interface of transformers, or by hand through two products with a "
                f"softmax between, and {lone_softmax(self.model, hidden, self._own)}leave these "
                f"out by layers=."
            )
        for name, why in self._missed.items():
            if why in (NUMBERLESS, TRACED) and self._saw(name):
                # The model was also traced, and ran for real besides.
                continue
            raise UnseenError(why.format(module=described(self.model, [name])))
        bare = {name: one for name, one in self._without_softmax.items() if name in self.layers}
        if bare and not self.watched:
            raise UnseenError(without_softmax(self.model, bare))
        softmaxes = {name: one for name, one in self._softmaxes.items() if name in self.layers}
        why = lone_softmax(self.model, [*softmaxes], softmaxes) if softmaxes else ""
        self.layers.check_seen(self.watched, self._others, why)
        self._padding.check(list(self.watched))
        if self._keeper.spent is not None:
            warnings.warn(f"watch stopped keeping on the way: {self._keeper.spent}", stacklevel=4)
        self.masks.warn()
        if not self.watched:
            raise UnseenError(
                without_attention(self.model, softmaxes)
                if self.ran
                else not_run(self.model, elsewhere=self._elsewhere)
            )

    def _saw(self, name: str) -> bool:
        """Return whether a module was observed, itself, within it, or as a part of another."""
        return any(
            f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in self.watched
        )

    def _call(
        self,
        name: str,
        captured: CapturedCall,
        calls: Sequence[ModuleCall],
        run: int,
        *,
        apart: bool,
    ) -> Call:
        """Observe one call."""
        if captured.over_features:
            self._check_without_positions(name)
        known = self.watched.get(name)
        place, (run, apart, beside) = self._placed(name, captured, calls, run, apart=apart)
        merged = merged_position(captured, calls[0])
        if merged is not None:
            place = place._replace(position=merged, first_key=0, offset=merged, places=None)
        position, first_key, offset = place.position, place.first_key, place.offset
        problem = captured.problem if offset is None else replace(captured.problem, offset=offset)
        if place.places is None:
            whole = keys_before(problem, first_key)
        else:
            problem = whole = keys_at(problem, place.places, position)
        real = None
        if not captured.over_features:
            real = self._padding.real(name, captured, position, calls, self._pass.number)
        values: dict[str, Any] = {}
        # The first call shows whether the statistics fit at all.
        untold = place.unplaced or place.far
        waits = known is not None and self.choice.heads is None and untold is None
        rule = self.singles.add(whole, real, values) if waits else None
        if rule is None:
            values = self._values(whole, real, captured.logsumexp)
        if untold is not None:
            lost = names_keys if place.unplaced else _reads_positions
            values = {n: one for n, one in values.items() if not lost(self.choice.statistics[n])}
        shape = tuple(whole.as_given(whole.query).shape[:-1])
        heads, numbers = self._heads(name, problem, captured.shards)
        if self.choice.heads is not None:
            axis = problem.query.ndim - 3
            values = {n: _of_heads(value, heads, axis) for n, value in values.items()}
            shape = (*shape[:-2], len(heads), shape[-1])
        info = CallInfo(
            position=position,
            first_key=first_key,
            keys=whole.scores_shape[-1],
            crossing=captured.crossing,
            compressed=captured.compressed,
            heads=numbers,
            real=real,
            forward=self._pass.number,
            run=run,
            interleaved=apart,
            beside=beside,
            merged=merged is not None,
            by_hand=captured.by_hand,
            images=self._images.images(captured, calls),
            shards=captured.shards,
            text=place.text,
            rows=place.rows,
            apart=place.apart,
            untold=untold,
        )
        self.masks.check(name, whole, info)
        if rule is not None and self.choice.keep is None and not self.masks.compares:
            self._alike.learn(ObservedStep(captured, rule, info, shape), calls)
        kept = {} if place.unplaced else self._keeper.of_call(name, captured, problem, run)
        return Call(shape, self.choice.statistics, values, info, **kept)

    def _placed(
        self,
        name: str,
        captured: CapturedCall,
        calls: Sequence[ModuleCall],
        run: int,
        *,
        apart: bool,
    ) -> tuple[CallPosition, tuple[int, bool, bool]]:
        """Return the place of a call in its text, and what a `CallInfo` says of its run."""
        known, place, beside = self.watched.get(name), None, False
        last = None if known is None else last_call(known, None if captured.crossing else run)
        if captured.crossing:
            place = self.sequences.place(name, run, captured, calls, self._pass.number)
        if (
            place is not None
            and last is not None
            and 0 < place.position == last.end
            and last.forward == self._pass.number
        ):
            # A step of a decoder without self-attention, not another layer.
            run, apart = last.run, last.interleaved
        elif self._pass.repeated and not captured.shards and not self._goes_on(captured, last):
            run, apart, beside = self._pass.another(name), False, True
        if place is None:
            place = self.sequences.place(name, run, captured, calls, self._pass.number)
        self._previous_key = captured.problem.key
        return place, (run, apart, beside)

    def _goes_on(self, captured: CapturedCall, last: Call | None) -> bool:
        """Return whether a call continues the text of the last one within a call of its module."""
        before, key = self._previous_key, captured.problem.key
        offset = captured.problem.offset if captured.position is None else captured.position
        return (
            last is not None
            and not captured.crossing
            and isinstance(offset, int)
            and 0 < offset == last.end
            and before is not None
            and before.shape[-2] <= key.shape[-2]
            and torch.equal(before, key[..., : before.shape[-2], :])
        )

    def _check_without_positions(self, name: str) -> None:
        """Check that no statistic reads the positions of tokens, as features have none.

        Errors: a ValueError where one does.
        """
        for one in self.choice.statistics.values():
            if one.reads_positions:
                raise UnfitError(
                    f"{one!r} takes attention to tokens, whose positions it reads, and {name!r} "
                    f"weighs features by its softmax: leave {name!r} out by layers=."
                )

    def _values(
        self, problem: Problem, real: Tensor | None, logsumexp: Tensor | None
    ) -> dict[str, Any]:
        """Compute the statistics; sums over queries leave out padding.

        Args:
            problem: The call.
            real: Which queries are no padding; None: all.
            logsumexp: Of each row, where the call's kernel returned it.
        """
        statistics = self.choice.statistics
        if real is None:
            return _observed(problem, statistics, logsumexp)
        own = {n: one for n, one in statistics.items() if one.axes[:1] == ("query",)}
        sums = {n: of_real(one, real) for n, one in statistics.items() if n not in own}
        found = _observed(problem, own, logsumexp)
        if logsumexp is not None:
            *batch, _, queries = logsumexp.shape
            logsumexp = logsumexp.masked_fill(~real.reshape(*batch, 1, queries), -torch.inf)
        found |= _observed(without_padding(problem, real), sums, logsumexp)
        return {name: found[name] for name in statistics}

    def _shards(
        self, calls: Sequence[ModuleCall], own: ModuleCall, problem: Problem
    ) -> tuple[Shard, ...]:
        """Return which heads this rank computes, where ranks share them.

        Errors: a `ShardError` where that is not known.
        """
        modules = [call.module for call in calls[calls.index(own) :]]
        shard = head_shard(modules, problem)
        return () if shard is None else (replace(shard, requested=self.choice.heads),)

    def _heads(
        self, name: str, problem: Problem, shards: Sequence[Shard]
    ) -> tuple[list[int], tuple[int, ...] | None]:
        """Return the requested heads by their places on this rank, and by their numbers.

        The numbers are None where all heads are requested, and this rank computes all.

        Errors: a ValueError for a head out of range.
        """
        requested, own = self.choice.heads, problem.query.shape[-3]
        shard = next((one for one in shards if one.axis == "heads"), None)
        first, count = (0, own) if shard is None else (shard.first, shard.total)
        if requested is None:
            return [*range(own)], None if shard is None else tuple(range(first, first + own))
        if problem.axes < 4:
            raise UnfitError(
                f"heads takes attention that has some, and {name or 'the model'!r} was given "
                f"{problem.axes} axes, without heads: leave heads out, or narrow layers=."
            )
        if max(requested) >= count:
            raise UnfitError(
                f"heads takes heads that are there, and {name!r} has {count}, counted from 0, and "
                f"not {max(requested)}: name others, or narrow layers=."
            )
        here = [head for head in requested if first <= head < first + own]
        return [head - first for head in here], tuple(here)


def _is_within(name: str, others: Iterable[str]) -> bool:
    """Return whether a module is one of others, or a part of one."""
    return any(name == one or name.startswith(f"{one}.") for one in others)


def _among(calls: Sequence[ModuleCall], capture: Callable[[], CapturedCall]) -> CapturedCall:
    """Capture a call later, among the module calls in which it ran."""
    with within_traced(calls, ()):
        return capture()


def _observed(
    problem: Problem, statistics: dict[str, Statistic], logsumexp: Tensor | None
) -> dict[str, Any]:
    """Compute the statistics of a problem, by name."""
    if not statistics:
        return {}
    found = single_query(problem, statistics)
    if found is not None:
        return found
    request = StatisticRequest(problem, statistics)
    return request.finished(reductions_of(problem, request.reductions, logsumexp))


def _reads_positions(statistic: Statistic) -> bool:
    return statistic.reads_positions


def _of_heads(value: Any, heads: list[int], axis: int) -> Any:
    """Select heads of a statistic's value."""
    if isinstance(value, Tensor):
        index = torch.tensor(heads, dtype=torch.long, device=value.device)
        return value.index_select(axis, index)
    parts = [_of_heads(part, heads, axis) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)

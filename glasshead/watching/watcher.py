"""Watcher: what one `watch` does with each attention call of a model, in five stages.

    intercept   interception/       Session      A function of a library, a module or an operator of
                                                 attention runs as ever, and is reported with a
                                                 function that captures it.
    capture     captured_call.py    CapturedCall Its inputs, mask and output, whatever library they
                                                 are of, as one `Problem`.
    place       placing.py          Placer       Which text it continues, and where.
    observe     observing.py        Observer     Its statistics, without padding.
    record      recording.py        Recorder     What is known of it and what is kept, in the
                                                 `Watched` of its layer.

Before a call is captured, `Watcher.observe` finds its layer, and which run of it this is. A layer
that is not selected is not captured.

Errors leave in two places. An `UnfitError`, for a request that does not fit, such as a head out of
range, is raised in the model's run. Any other error ends in `MissedAttention`: the model runs on,
and the end of the block raises an `UnseenError`.

In a step of generation, a layer with the arguments of an earlier one of its pass shares what does
not depend on its tensors: `AlikeSteps`, and in compiled code `AlikeLayers`.
docs/concepts/watched_call.md draws the path.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from glasshead.recipe.masks import Mask
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.statistics import Statistic
from glasshead.watching.alike_layers import AlikeLayers, ObservedStep
from glasshead.watching.alike_steps import AlikeSteps, ObservedFirst
from glasshead.watching.captured_call import (
    AttentionCall,
    CapturedOnce,
    ComparableCall,
    MaskReader,
    SiteCall,
    output_mismatch,
)
from glasshead.watching.ends import EndFinder, Ends
from glasshead.watching.errors import SHARDED, UnseenError
from glasshead.watching.keeping import Keeper
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.mask_checks import MaskChecks
from glasshead.watching.missed import MissedAttention
from glasshead.watching.mixers.observer import MixerObserver
from glasshead.watching.module_calls import (
    ModuleCall,
    ModuleRun,
    attention_name,
    calls_in_progress,
    names_of,
    uncompiled,
)
from glasshead.watching.observing import Observer
from glasshead.watching.other_mixers import Unobserved
from glasshead.watching.padding import PaddingFinder
from glasshead.watching.placing import PlacedCall, Placer
from glasshead.watching.recorded_call import Call
from glasshead.watching.recording import Recorder
from glasshead.watching.sharding import Shard, ShardError, has_ranks, head_shard


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
        same_bits: Whether the model runs on its own kernels, and on no faster ones.
        mixers: Whether layers that mix tokens without attention are observed, too.
    """

    statistics: dict[str, Statistic]
    heads: tuple[int, ...] | None = None
    keep: str | None = None
    budget: int = 2**31
    attention_mask: Bool[Tensor, "batch tokens"] | None = None
    expect: Mapping[str, Mask | None] | None = None
    ended: Ends | None = None
    same_bits: bool = True
    mixers: bool = False


class Watcher:
    """The work of one `watch` on the attention calls of a model.

    Attributes:
        model, choice, names, layers: The model, the options, the modules of the model by name, and
            the layers that were selected.
        placer, observer, recorder: The stages of a captured call.
        missed: What ran and was not observed.
        watched: The records of the observed attentions, by name, in order of execution.
        mixers: Observes layers that mix tokens without attention; None: they are not observed.
    """

    def __init__(
        self, model: nn.Module, layers: str | Sequence[str] | None, choice: WatchChoices
    ) -> None:
        self.model, self.choice, self.names = uncompiled(model), choice, names_of(model)
        names, statistics = self.names.values(), choice.statistics
        self.layers = Layers(layers, names)
        self._selected = frozenset(name for name in names if name in self.layers)
        self.missed = MissedAttention(self.model, self.names, self.layers)
        self.placer = Placer()
        ends = EndFinder(self.model, choice.ended)
        known = any(hasattr(one, "padding") for one in statistics.values())
        padding = PaddingFinder(choice.attention_mask, names, ends=ends, known=known)
        self.observer = Observer(statistics, choice.heads, padding)
        keeper = None if choice.keep is None else Keeper(choice.keep, choice.budget)
        masks = MaskChecks(choice.expect, names)
        settle = self.observer.singles.settle
        self.recorder = Recorder(self.names, statistics, keeper, masks, settle)
        self.watched = self.recorder.watched
        self._alike, self._steps = AlikeLayers(), AlikeSteps()
        self.mixers = (
            MixerObserver(
                self.names,
                self.layers,
                choice.heads,
                statistics,
                self.missed,
                self.placer,
                padding,
                self.recorder,
            )
            if choice.mixers
            else None
        )

    def observe(self, module: nn.Module | None, capture: CapturedOnce) -> None:
        """Observe an attention call, if its layer is selected.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            capture: Returns the captured call.

        Errors: a ValueError for a statistic that does not fit, an `UnseenError` if the output
        does not follow from the inputs, which is raised at the end of the block.
        """
        calls = calls_in_progress(self.names)
        if not calls:
            return
        self.missed.ran = True
        own = next((call for call in calls if call.module is module), calls[0])
        name = attention_name(self.names, own.module)
        run = self.placer.forward_pass.run(name, calls, own)
        if self._observe_again(name, capture, calls, run):
            return
        if self.recorder.images is not None:
            self.recorder.images.note(calls)
        if name not in self._selected:
            self.missed.others[name] = None
            try:
                self.placer.pass_over(capture, calls, run)
            except UnseenError as error:
                # It is one of the cross-attention before this one, which was selected.
                self.missed.record_named(name, str(error))
            return
        captured = capture()
        try:
            shards = captured.shards
            if not shards and has_ranks():
                shards = self._shards(calls, own, captured.problem)
        except ShardError:
            self.missed.record_unobserved(SHARDED, own.module)
            return
        if shards != captured.shards:
            captured = replace(captured, shards=shards)
        with torch.no_grad(), without_autocast(captured.problem.query.device):
            self._through_stages(AttentionCall(name, captured, calls, run), capture.comparable)

    def _observe_again(
        self, name: str, capture: CapturedOnce, calls: Sequence[ModuleCall], run: ModuleRun
    ) -> bool:
        """Observe a call that shares its arguments with one of its pass; return whether it does.

        Args:
            name: Name of its attention.
            capture: Captures the call.
            calls: The module calls in progress, innermost first.
            run: The run of its module.
        """
        comparable = capture.comparable
        if comparable is None or name not in self.recorder.masks.settled:
            return False
        for first in self._steps.firsts(calls):
            if not self.observer.padding.is_same(name, first.name):
                continue
            captured = first.captured_again(comparable, calls)
            if captured is None:
                continue
            with without_autocast(captured.problem.query.device):
                # Its tensors are detached, so that nothing before its statistics has a gradient.
                if self.placer.places_alike(name, captured.problem, run, first.continued):
                    self._record_again(first, name, captured.problem, run)
                    return True
                placed = self.placer.place(AttentionCall(name, captured, calls, run))
                if first.has_place_of(placed):
                    self._record_again(first, name, placed.whole, placed.call.run)
                else:
                    with torch.no_grad():
                        self._from_its_place(placed, None)
            return True
        return False

    def _record_again(
        self, first: ObservedFirst, name: str, whole: Problem, run: ModuleRun
    ) -> None:
        """Record a call with the place and the rule of one of its pass.

        Args:
            first: The one of its pass.
            name: Name of its attention.
            whole: Its computation, with its keys numbered as in the text.
            run: The run that it belongs to.
        """
        info, values = first.info, dict[str, Any]()
        own = run.repeat, run.interleaved, run.beside
        if own != (info.run, info.interleaved, info.beside):
            info = info._replace(run=run.repeat, interleaved=run.interleaved, beside=run.beside)
        self.observer.singles.add_by_rule(first.rule, whole.query, whole.key, info.real, values)
        self.record(name, self.recorder.made(first.shape, values, info))

    def _through_stages(self, call: AttentionCall, comparable: ComparableCall | None) -> None:
        """Place, observe and record a captured call.

        Args:
            call: The call.
            comparable: What captured it, if that can be compared; else None.
        """
        name, captured = call.name, call.captured
        if name not in self.watched and (other := output_mismatch(captured)):
            raise UnseenError(
                f"watch cannot reproduce the output of {name!r} from its queries, keys and mask; "
                f"the module gave {other}. Exclude it with layers=."
            )
        self._from_its_place(self.placer.place(call), comparable)

    def _from_its_place(self, placed: PlacedCall, comparable: ComparableCall | None) -> None:
        """Observe and record a placed call.

        Args:
            placed: The call.
            comparable: As of `_through_stages`.
        """
        name, captured, calls, _ = placed.call
        observed = self.observer.observe(placed, first=name not in self.watched)
        info = self.recorder.info(placed, observed)
        make = self.recorder.call(placed, observed, info)
        rule = observed.rule
        if rule is not None and self.choice.keep is None and not self.recorder.masks.compares:
            self._alike.learn(ObservedStep(captured, rule, info, observed.shape), calls)
            if comparable is not None and not has_ranks():
                self._steps.learn(comparable, placed, rule, info, observed.shape)
        self.record(name, make)

    def observe_alike(self, site: SiteCall, masks: MaskReader) -> bool:
        """Observe an attention call that is like one of its pass; return whether it is.

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
            self.observe(None, CapturedOnce(lambda: captured))
            return True
        key = first.key(site, masks)
        if key is None:
            return False
        own, info = calls[0], first.info
        name = attention_name(self.names, own.module)
        run = self.placer.forward_pass.run(name, calls, own)
        if run.repeat or run.interleaved:
            info = info._replace(run=run.repeat, interleaved=run.interleaved)
        self.placer.place_single(name, info.position, run)
        values: dict[str, Any] = {}
        with torch.no_grad(), without_autocast(site.query.device):
            self.observer.singles.add_by_rule(first.rule, site.query, key, info.real, values)
        self.record(name, self.recorder.made(first.shape, values, info))
        return True

    def selects(self) -> bool:
        """Return whether the attention in progress belongs to a selected layer."""
        calls = calls_in_progress(self.names)
        return bool(calls) and attention_name(self.names, calls[0].module) in self._selected

    def record(self, name: str, make: Callable[[], Call]) -> None:
        """Record a call of an attention; a watcher of another kind uses it up instead."""
        self.recorder.add(name, make)

    def cropped(self, cache: Any, count: int | None) -> None:
        """Record that the last tokens of a cache were removed, as `SequenceLedger.cropped` does."""
        for name, (text, left) in self.placer.sequences.cropped(cache, count).items():
            if name in self.watched:
                self.watched[name].crop(text, left)

    @property
    def runs_again(self) -> bool:
        """Whether the current pass is of a module that a whole earlier pass was of."""
        return self.placer.forward_pass.again

    def unobserved(self) -> dict[str, Unobserved]:
        """Return the layers that mix tokens by other means than attention, by their names."""
        return self.missed.mixers(self.watched)

    def check_seen(self) -> None:
        """Check that nothing was missed.

        Errors: an `UnseenError` if there was no attention at all, none within a pattern, or one
        that cannot be seen.
        """
        self.missed.check(self.watched)
        if self.mixers is not None:
            self.missed.check_mixers(self.watched)
        why = self.missed.in_place_of_attention()
        self.layers.check_seen(self.watched, self.missed.others, why)
        self.observer.padding.check(list(self.watched))
        keeper = self.recorder.keeper
        if keeper is not None and keeper.spent is not None:
            warnings.warn(f"watch stopped keeping on the way: {keeper.spent}", stacklevel=4)
        self.recorder.masks.warn()
        if not self.watched:
            raise self.missed.nothing_seen()

    def _shards(
        self, calls: Sequence[ModuleCall], own: ModuleCall, problem: Problem
    ) -> tuple[Shard, ...]:
        """Return which heads this rank computes, where ranks share them.

        Errors: a `ShardError` if that is not known.
        """
        modules = [call.module for call in calls[calls.index(own) :]]
        shard = head_shard(modules, problem)
        return () if shard is None else (replace(shard, requested=self.choice.heads),)

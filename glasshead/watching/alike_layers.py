"""Layers of a step of generation that differ in their queries, keys and values alone.

What such a step costs is the Python around each of its small attentions: the mask converted, the
position in the text, padding and pictures found. In compiled code all layers of a step mostly have
them in common. Which do is learned from a pass in which each layer was captured by itself; in later
passes the first of them is observed as a whole, and the others take from it what they share.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.watching.captured_call import CapturedCall, MaskReader, SiteCall
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.recorded_call import CallInfo
from glasshead.watching.single_query import RowRule


class ObservedStep(NamedTuple):
    """A call of one query that was observed by itself.

    Attributes:
        captured: The captured call; its site is that of compiled code.
        rule: What makes the row of its query.
        info: What is known of it beside its statistics.
        shape: Of its statistics, the axes before those of their own.
    """

    captured: CapturedCall
    rule: RowRule
    info: CallInfo
    shape: tuple[int, ...]

    def shares_with(self, other: "ObservedStep") -> bool:
        """Return whether another call of its pass has all but queries, keys and values from it."""
        ours, theirs = (_shared(one.captured) for one in (self, other))
        return (
            ours is not None
            and theirs == ours
            and self.captured.problem.mask is other.captured.problem.mask
            and self.rule.normalizer is other.rule.normalizer
            and self.shape == other.shape
            and self.info.images is None
            and (self.info.first_key, self.info.run, self.info.interleaved) == (0, 0, False)
            and _same_real(self.info.real, other.info.real)
            and self.info._replace(real=None) == other.info._replace(real=None)
        )

    def captured_again(self, site: SiteCall, masks: MaskReader) -> CapturedCall | None:
        """Capture the call of a later pass at the same place; None if it is of another kind.

        All but its tensors is fixed by that place.
        """
        if self.captured.site is None or site.metadata != self.captured.site.metadata:
            return None
        read = masks.read(site.mask)
        offset = read.position(1, site.key.shape[-2])
        read = read.first(offset + 1)
        if read.bias is not None:
            return None
        key, value = (x[..., : offset + 1, :] for x in (site.key, site.value))
        problem = replace(
            self.captured.problem,
            query=site.query,
            key=key,
            value=value,
            mask=read.mask,
            offset=offset,
        )
        return CapturedCall(problem, site=site)

    def key(
        self, site: SiteCall, masks: MaskReader
    ) -> Float[Tensor, "*batch kv_heads keys dim"] | None:
        """Return the keys of another call of its pass; None if that has not all else from it."""
        own = self.captured.site
        if own is None or site.metadata != own.metadata:
            return None
        # A mask that is equal is converted once, and so has the same position.
        read = masks.read(site.mask).first(self.info.keys)
        if read.mask is not self.captured.problem.mask or read.bias is not None:
            return None
        return site.key[..., : self.info.keys, :]


class AlikeLayers:
    """The layers that were alike in the last pass, and the first of each kind in this one."""

    def __init__(self) -> None:
        self._identities: list[object] = []
        # By site and module, as modules that are alike share compiled code: of the last pass that
        # had other ones, and of this one.
        self._last: dict[tuple[Any, nn.Module], ObservedStep] = {}
        self._firsts: dict[tuple[Any, nn.Module], ObservedStep] = {}
        self._alike: dict[tuple[Any, nn.Module], tuple[Any, nn.Module]] = {}

    def learn(self, step: ObservedStep, calls: Sequence[ModuleCall]) -> None:
        """Learn from a call that was observed by itself which earlier one of its pass it is like.

        Args:
            step: The call.
            calls: The module calls in progress, innermost first.
        """
        site = step.captured.site
        if site is None or _shared(step.captured) is None:
            return
        if _identities(calls) != self._identities:
            self._identities, self._last, self._firsts = _identities(calls), self._firsts, {}
        own = site.place, calls[0].module
        like = next((first for first, one in self._firsts.items() if one.shares_with(step)), None)
        if like is None:
            self._firsts[own] = step
            self._alike.pop(own, None)
        else:
            self._alike[own] = like

    def captured_again(
        self, site: SiteCall, masks: MaskReader, calls: Sequence[ModuleCall]
    ) -> CapturedCall | None:
        """Capture a call by that of the last pass at the same place, if it was a first there.

        Args:
            site: The call.
            masks: The conversions of mask tensors.
            calls: The module calls in progress, innermost first.
        """
        if not calls:
            return None
        firsts = self._last if _identities(calls) == self._identities else self._firsts
        last = firsts.get((site.place, calls[0].module))
        return None if last is None else last.captured_again(site, masks)

    def first(self, site: SiteCall, calls: Sequence[ModuleCall]) -> ObservedStep | None:
        """Return the call of this pass that a call was like in the last one; None for none.

        Args:
            site: The call.
            calls: The module calls in progress, innermost first.
        """
        if not calls or _identities(calls) != self._identities:
            return None
        like = self._alike.get((site.place, calls[0].module))
        return None if like is None else self._firsts.get(like)


def _shared(captured: CapturedCall) -> tuple[Any, ...] | None:
    """Return what a call has to share with another, of numbers and shapes; None if it cannot."""
    problem, site = captured.problem, captured.site
    plain = (
        site is not None
        and captured.position is None
        and not captured.sliding
        and not captured.crossing
        and not captured.shards
        and not problem.biases
        and isinstance(problem.offset, int)
        # No axis was added, and no dtype cast.
        and problem.query.shape == site.query.shape
        and problem.query.dtype == site.query.dtype
        and problem.key.shape[:-2] == site.key.shape[:-2]
    )
    if not plain or site is None:
        return None
    return site.metadata, problem.scores_shape, problem.offset, problem.scale, problem.softcap


def _identities(calls: Sequence[ModuleCall]) -> list[object]:
    """Return the pass, and the calls in progress that tell arguments, such as a mask of padding.

    Layers within the same of them are told the same, as compiled code tells nothing.
    """
    return [calls[-1].identity, *(call.identity for call in calls if not call.compiled)]


def _same_real(ours: Tensor | None, theirs: Tensor | None) -> bool:
    """Return whether the same queries are no padding."""
    if ours is None or theirs is None:
        return ours is theirs
    return torch.equal(ours, theirs)

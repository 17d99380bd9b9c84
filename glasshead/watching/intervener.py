"""Intervener: the interventions of one `intervene`, and what they change of each call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.recipe.masks import dense
from glasshead.watching.captured_call import AttentionCall, CapturedCall
from glasshead.watching.interventions import ActivationPatch, ChangedCall, Intervention
from glasshead.watching.module_calls import (
    ForwardPass,
    ModuleCall,
    calling,
    calls_in_progress,
    names_of,
)
from glasshead.watching.sequences import CallPosition, SequenceLedger
from glasshead.watching.sharding import Shard, ShardError, has_ranks, head_shard


class AttentionChange:
    """Changes of one attention call by the open interventions, in the order of their blocks.

    Args:
        parts: The interventions, each with what it knows of the call.
        capture: Returns the captured call as it would be without them.

    Attributes:
        name: Name of the module.
        scales, rekeys: Whether the queries are changed, and the keys.
        hides: Whether the mask is changed.
    """

    def __init__(
        self,
        parts: Sequence[tuple[ChangedCall, Intervention]],
        capture: Callable[[], CapturedCall],
    ) -> None:
        self._parts, self._capture = parts, capture
        self.name = parts[0][0].name
        self.scales = any(one.scales for _, one in parts)
        self.rekeys = any(one.rekeys for _, one in parts)
        self.hides = any(one.hides for _, one in parts)

    @cached_property
    def captured(self) -> CapturedCall:
        """The call as it would be without interventions."""
        return self._capture()

    def query(
        self, query: Float[Tensor, "*batch heads queries dim"]
    ) -> Float[Tensor, "*batch heads queries dim"]:
        """Return the changed queries."""
        for call, one in self._parts:
            query = one.change_query(query, call)
        return query

    def key(
        self, key: Float[Tensor, "*batch kv_heads keys dim"]
    ) -> Float[Tensor, "*batch kv_heads keys dim"]:
        """Return the changed keys."""
        for call, one in self._parts:
            key = one.change_key(key, call)
        return key

    def factors(self, heads: int, like: Tensor) -> Float[Tensor, " heads"]:
        """Return the factor of the queries of each head.

        Errors: a ValueError if it is not the same for all queries.
        """
        for call, one in self._parts:
            if one.scales and one.queries is not None:
                raise ValueError(
                    f"{type(one).__name__}(queries=…) needs attention that gets its queries "
                    f"projected, but {call.name!r} projects them itself. Omit queries=, or call "
                    "it with need_weights=False."
                )
        return self.query(like.new_ones(heads, 1, 1))[:, 0, 0]

    def visible(self, keys: int) -> Bool[Tensor, "*#batch #heads queries keys"]:
        """Return which keys are visible, as the model's own function can be given it.

        Rows that an intervention empties stay as they were, as functions differ in what they make
        of an empty row; `emptied` sets them to 0. Of rows that were empty before all keys are
        visible, so that their own mask hides them as it did.

        Args:
            keys: Number of keys that the function is given; the last may have no place in the text.
        """
        before, after, emptied = self._visible
        shown = torch.where(emptied.unsqueeze(-1), before, after)
        return F.pad(shown, (0, keys - shown.shape[-1])) | ~before.any(-1, keepdim=True)

    def context(
        self, context: Float[Tensor, "*batch heads queries value_dim"]
    ) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Return the changed output of the heads, from that without what was emptied."""
        for call, one in self._parts:
            context = one.change_context(context, call)
        return context

    def emptied(
        self, context: Float[Tensor, "*batch heads queries value_dim"]
    ) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Return the output of the heads, with 0 where a query sees no key any more."""
        if not self.empties:
            return context
        return context.masked_fill(self._visible[2].unsqueeze(-1), 0.0)

    def changed_call(self, logsumexp: Tensor | None) -> CapturedCall:
        """Return the changed call without its output, for the watchers.

        Args:
            logsumexp: That of the kernel.
        """
        problem = self.captured.problem
        if self.scales:
            problem = replace(problem, query=self.query(problem.query))
        if self.rekeys:
            problem = replace(problem, key=self.key(problem.key))
        if self.hides:
            problem = replace(problem, mask=dense(self._visible[1]))
        return replace(self.captured, problem=problem, logsumexp=logsumexp)

    @property
    def empties(self) -> bool:
        """Whether a query sees no key any more."""
        return self.hides and bool(self._visible[2].any())

    @cached_property
    def _visible(self) -> tuple[Tensor, Tensor, Tensor]:
        """The visible keys before and after, and the rows that were emptied."""
        problem = self.captured.problem
        _, before = problem.bias_and_visible(problem.mask, problem.tile())
        queries, keys = problem.scores_shape[-2:]
        if before is None:
            before = torch.ones(1, 1, dtype=torch.bool, device=problem.query.device)
        # Some functions take masks of four axes alone.
        before = before[(None,) * (problem.query.ndim - before.ndim)]
        after = before = before.expand(*before.shape[:-2], queries, keys)
        for call, one in self._parts:
            after = one.change_visible(after, call)
        return before, after, before.any(-1) & ~after.any(-1)


class Intervener:
    """The interventions of one block by the attentions of its model, and those that it reached.

    Args:
        model: The model to run.
        interventions: Lists of interventions by module name, or by a pattern of names.
        verb: "intervene" or "ablate", for errors.

    Attributes:
        sequences: The texts that the model reads.
        compiled: Whether a module with interventions was compiled meanwhile.

    Errors: a ValueError for an unknown module name.
    """

    def __init__(
        self, model: nn.Module, interventions: Mapping[str, Sequence[Intervention]], verb: str
    ) -> None:
        self._kind, self._names = type(model).__name__, names_of(model)
        self._interventions, self._verb = interventions, verb
        every = [one for ones in interventions.values() for one in ones]
        self._placing = any(_needs_place(one) for one in every)
        self.sequences, self._pass = SequenceLedger(), ForwardPass()
        self._reached: dict[str, int] = {}
        self.compiled = False
        self._followed: dict[str, bool] = {}
        self._unfollowed: dict[str, None] = {}
        self._untold: str | None = None
        known = list(self._names.values())
        for name in interventions:
            if not any(_matches(one, name) for one in known):
                near = get_close_matches(name, known, n=3, cutoff=0.0)
                raise ValueError(
                    f"{verb} needs names of modules that attend, as watch gives them, got "
                    f"{name!r}, which names none. Did you mean one of {_listed(near)}?"
                )

    def change(
        self, module: nn.Module | None, heads: int | None, capture: Callable[[], CapturedCall]
    ) -> list[tuple[ChangedCall, Intervention]]:
        """Return the interventions of an attention that is about to run.

        Args:
            module: The module of the attention; None: the innermost module in progress.
            heads: Its number of heads; None: its inputs have no head axis.
            capture: Returns the captured call.

        Errors: a ValueError for a head out of range, or a position that is not known.
        """
        calls = calls_in_progress(self._names)
        if not calls:
            return []
        own = next((call for call in calls if call.module is module), calls[0])
        name = self._names[own.module]
        self._reached.setdefault(name, 0)
        named = (ones for each, ones in self._interventions.items() if _matches(name, each))
        mine = [one for ones in named for one in ones]
        shard = self._shard(calls, own, capture) if any(one.heads for one in mine) else None
        for one in mine:
            self._check_heads(name, one, heads if shard is None else shard.total)
        place = None
        if any(_needs_place(one) for one in mine):
            place = self._place(name, capture(), calls, own)
        elif self._placing:
            self._pass.run(name, calls, own)
            self.sequences.passed(capture, self._pass.number)
        here = mine if shard is None else [*_on_this_rank(mine, shard, heads or 0)]
        return [(ChangedCall(name, heads, place), one) for one in here]

    def concerned_calls(self) -> Sequence[ModuleCall]:
        """Return the module calls in progress, where the innermost one has interventions."""
        calls = calls_in_progress(self._names)
        if not calls:
            return []
        name = self._names[calls[0].module]
        named = (ones for each, ones in self._interventions.items() if _matches(name, each))
        return calls if any(named) else []

    def record_explicit(self, name: str | None, *, done: bool) -> None:
        """Record attention that is written by hand.

        Args:
            name: Name of the module; None: that in progress, which no watch follows.
            done: Whether a product with values took the weights of its softmax.
        """
        if name is not None:
            self._followed[name] = done
        elif (module := calling(self._names)) is not None:
            self._unfollowed[self._names[module]] = None

    def _shard(
        self, calls: Sequence[ModuleCall], own: ModuleCall, capture: Callable[[], CapturedCall]
    ) -> Shard | None:
        """Return which heads this rank computes, where ranks share them.

        Errors: a ValueError if that is not known.
        """
        if not has_ranks():
            return None
        modules = [call.module for call in calls[calls.index(own) :]]
        try:
            return head_shard(modules, capture().problem)
        except ShardError as error:
            raise ValueError(
                f"{self._verb} needs heads of projections that are sharded by heads, but the "
                f"heads of {self._names[own.module]!r} are sharded in another way. Omit heads."
            ) from error

    def _check_heads(self, name: str, one: Intervention, count: int | None) -> None:
        if one.heads is None:
            return
        if count is None:
            raise ValueError(
                f"{self._verb} needs attention with an axis of heads, but {name!r} was given "
                "none. Omit it."
            )
        if max(one.heads) >= count:
            raise ValueError(
                f"{self._verb} needs heads that are there, but {name!r} has {count}, counted from "
                f"0, and not {max(one.heads)}. Name others."
            )

    def _place(
        self, name: str, captured: CapturedCall, calls: Sequence[ModuleCall], own: ModuleCall
    ) -> CallPosition:
        """Return the position of a call in its text.

        Errors: a ValueError if its rows are at different ones, or keys were removed.
        """
        if isinstance(captured.problem.offset, Tensor):
            raise ValueError(  # noqa: TRY004 - of a batch
                f"{self._verb} needs texts at one position for queries= and keys, but {name!r} "
                "has a batch at several. Run them one at a time, or name heads alone."
            )
        run = self._pass.run(name, calls, own)
        place = self.sequences.place(AttentionCall(name, captured, calls, run))
        if place.places is not None or place.unplaced is not None:
            raise ValueError(
                f"{self._verb} needs positions of a text whose keys are all in its cache, but "
                f"some were removed from the cache of {name!r}. Name heads alone."
            )
        keys = place.first_key + captured.problem.scores_shape[-1]
        self._reached[name] = max(self._reached[name], keys, place.position + captured.queries)
        return place

    def record_compiled(self) -> None:
        """Record that a module is being compiled, where it has interventions."""
        module = calling(self._names)
        # A model compiled as a whole calls none of its modules.
        name = "" if module is None else self._names[module]
        for one in self._names.values():
            within = not name or f"{one}.".startswith(f"{name}.")
            if within and any(_matches(one, pattern) for pattern in self._interventions):
                self.compiled = True

    def record_elsewhere(self, why: str) -> None:
        """Record an attention in another thread that may be one of a backward pass.

        Args:
            why: Why that is not known.
        """
        if calling(self._names) is not None:
            self._untold = why

    def check_complete(self) -> None:
        """Check that every named attention was reached, and every named position.

        Errors: a RuntimeError if one was not, or may not have been, or a module was compiled.
        """
        if self._untold is not None:
            raise RuntimeError(self._untold)
        verb = self._verb
        if self.compiled:
            what = "removes heads" if verb == "ablate" else "changes attention"
            raise RuntimeError(
                f"{verb} {what} of what is not compiled, and a part of what ran was compiled on "
                "the way. Run it as it was before torch.compile, and give generate "
                "disable_compile=True."
            )
        for name, done in self._followed.items():
            if not done:
                raise RuntimeError(
                    f"{verb} changes a softmax whose weights a product with values uses, but of "
                    f"{name!r} none used them as they were. Omit it."
                )
        reached = [*self._reached]
        missed = [n for n in self._interventions if not any(_matches(one, n) for one in reached)]
        for name in self._unfollowed:
            if any(_matches(name, pattern) for pattern in missed):
                raise RuntimeError(
                    f"{verb} changes explicit attention, as of {name!r}, only if a watch follows "
                    f"it. Open gh.watch(model, [gh.Entropy()]) around the block, too."
                )
        verbed = "ablated" if verb == "ablate" else "changed"
        if missed and reached:
            raise RuntimeError(
                f"{verb} met no attention at {_listed(missed)}, only at {_listed(reached)}. Use "
                f"such names; what computes its attention by code of its own cannot be {verbed}."
            )
        if missed:
            raise RuntimeError(
                f"{verb} met no attention of {self._kind}. Run the model inside the block and in "
                "the thread that opened it; attention that goes neither through "
                "F.scaled_dot_product_attention nor the attention interface of transformers "
                f"cannot be {verbed}."
            )
        for name, ones in self._interventions.items():
            self._check_positions(name, ones)

    def _check_positions(self, name: str, ones: Sequence[Intervention]) -> None:
        end = max((end for one, end in self._reached.items() if _matches(one, name)), default=0)
        for one in ones:
            for argument, places in one.positions:
                if min(places) >= end:
                    raise RuntimeError(
                        f"{type(one).__name__}({argument}=…) needs positions of the text, but "
                        f"{name!r} met {end}, counted from 0, and none of {list(places)[:3]}. "
                        "Name others."
                    )


def _on_this_rank(
    interventions: Sequence[Intervention], shard: Shard, heads: int
) -> Iterator[Intervention]:
    """Yield the interventions of the heads of this rank, with their places on it."""
    for one in interventions:
        if one.heads is None:
            yield one
            continue
        own = range(shard.first, shard.first + heads)
        here = [head - shard.first for head in one.heads if head in own]
        if here:
            yield replace(one, heads=here)


def _needs_place(one: Intervention) -> bool:
    return bool(one.positions) or isinstance(one, ActivationPatch)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _listed(names: Sequence[str]) -> str:
    """Quote the first three names."""
    return ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")

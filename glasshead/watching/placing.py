"""Place a call in its text: the third of the stages of a call."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.recipe.masks import dense
from glasshead.recipe.problem import Problem, bias_values
from glasshead.watching.captured_call import AttentionCall, CapturedCall
from glasshead.watching.module_calls import TEXT, ForwardPass, ModuleCall, ModuleRun, within_traced
from glasshead.watching.sequences import CallPosition, ContinuedText, SequenceLedger


class PlacedCall(NamedTuple):
    """A call, and its place in its text.

    Attributes:
        call: The call.
        place: Its place.
        problem: Its computation, at that place.
        whole: The same with its keys numbered as in the text; those that were removed are hidden.
        merged: Whether its last keys are those of another text.
        continued: The text that it continues with all of its keys; None: none, or not all.
    """

    call: AttentionCall
    place: CallPosition
    problem: Problem
    whole: Problem
    merged: bool
    continued: ContinuedText | None


class _LastCall(NamedTuple):
    """The last call of an attention: the position after its last query, and its run."""

    end: int
    run: ModuleRun


class Placer:
    """Placer of calls in the texts that a model reads.

    The run of a module in its forward pass names the layer, and the ledger knows the texts of each
    layer. A module that attends twice in one call goes on with its text, or is two layers.

    Attributes:
        sequences: The texts.
        forward_pass: The current forward pass.
    """

    def __init__(self) -> None:
        self.sequences, self.forward_pass = SequenceLedger(), ForwardPass()
        # The last call of each run of each attention; under None that of any run.
        self._last: dict[tuple[str, int | None], _LastCall] = {}
        self._previous_key: Tensor | None = None

    def pass_over(
        self, capture: Callable[[], CapturedCall], calls: Sequence[ModuleCall], run: ModuleRun
    ) -> None:
        """Note a call that is not observed; it may be captured later, to place another one.

        Args:
            capture: Returns the captured call.
            calls: The module calls in progress, innermost first.
            run: The run of its module.

        Errors: an `UnseenError` if cross-attention ran before, and got a wrong position.
        """
        self.sequences.passed(partial(_among, calls, capture), run.forward)

    def place_single(self, name: str, position: int, run: ModuleRun) -> None:
        """Note a single query whose position is known.

        Args:
            name: Name of its attention.
            position: Its position.
            run: The run of its module.
        """
        self.sequences.placed(run.forward, position, 1)
        self._note(name, position + 1, run)

    def place(self, call: AttentionCall) -> PlacedCall:
        """Place a call in its text.

        Errors: an `UnseenError` if cross-attention ran before its position was known.
        """
        call, place = self._in_text(call)
        captured, problem = call.captured, call.captured.problem
        queries, keys = captured.queries, problem.key.shape[-2]
        merged = merged_position(queries, keys, call.calls[0]) if keys > queries else None
        if merged is not None:
            place = place._replace(position=merged, first_key=0, offset=merged, places=None)
        if place.offset is not None:
            problem = replace(problem, offset=place.offset)
        if place.places is None:
            whole = keys_before(problem, place.first_key)
        else:
            problem = whole = keys_at(problem, place.places, place.position)
        self._previous_key = captured.problem.key
        self._note(call.name, place.position + queries, call.run)
        continued = self.sequences.continued
        return PlacedCall(call, place, problem, whole, merged is not None, continued)

    def places_alike(
        self, name: str, problem: Problem, run: ModuleRun, first: ContinuedText | None
    ) -> bool:
        """Place a call that continues its text as another one of its pass does.

        Args:
            name: Name of its attention.
            problem: Its computation.
            run: The run of its module.
            first: The text that the other one has continued. The arguments of both are equal.

        Returns: whether it does, and has the place of the other one.
        """
        if first is None or self.forward_pass.repeated:
            return False
        if not self.sequences.continues((name, run.repeat), problem, first):
            return False
        self._previous_key = problem.key
        self._note(name, first.state.end, run)
        return True

    def _in_text(self, call: AttentionCall) -> tuple[AttentionCall, CallPosition]:
        """Return a call with the run that it belongs to, and its place in the ledger."""
        captured, run, place = call.captured, call.run, None
        last = self._last.get((call.name, None if captured.crossing else run.repeat))
        if captured.crossing:
            place = self.sequences.place(call)
        if (
            place is not None
            and last is not None
            and 0 < place.position == last.end
            and last.run.forward == run.forward
        ):
            # A step of a decoder without self-attention, not another layer.
            run = last.run._replace(beside=False)
        elif (
            self.forward_pass.repeated and not captured.shards and not self._goes_on(captured, last)
        ):
            run = self.forward_pass.another(call.name)
        if run is not call.run:
            call = call._replace(run=run)
        return call, self.sequences.place(call) if place is None else place

    def _goes_on(self, captured: CapturedCall, last: _LastCall | None) -> bool:
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

    def _note(self, name: str, end: int, run: ModuleRun) -> None:
        self._last[name, None] = self._last[name, run.repeat] = _LastCall(end, run)


def merged_position(queries: int, keys: int, own: ModuleCall) -> int | None:
    """Return the position of the first query of merged self- and cross-attention.

    Its keys are those of its own text and, after them, those of an encoder.

    Args:
        queries, keys: Number of queries and keys.
        own: The module call that the attention belongs to.

    Returns: the position; None for attention of another kind.
    """
    others: Any = own.arguments.get("encoder_hidden_states")
    if not isinstance(others, Tensor) or others.ndim != TEXT:
        return None
    position = keys - others.shape[1] - queries
    return position if position >= 0 else None


def _among(calls: Sequence[ModuleCall], capture: Callable[[], CapturedCall]) -> CapturedCall:
    """Capture a call later, among the module calls in which it ran."""
    with within_traced(calls, ()):
        return capture()


def keys_before(problem: Problem, count: int) -> Problem:
    """Prepend `count` hidden keys, so that the keys are numbered as in the text.

    These stand for the keys that a sliding cache has evicted.
    """
    if not count:
        return problem
    key, value = (F.pad(x, (0, 0, count, 0)) for x in (problem.key, problem.value))
    queries, keys = problem.scores_shape[-2:]
    shown = torch.ones(queries, keys, dtype=torch.bool, device=problem.query.device)
    if problem.mask is not None:
        shown = shown & problem.mask.visible(problem.tile())
    biases = tuple(
        F.pad(bias.expand(*bias.shape[:-1], keys), (count, 0))
        for bias in problem.biases
        if isinstance(bias, Tensor)
    )
    return replace(
        problem,
        key=key,
        value=value,
        mask=dense(F.pad(shown, (count, 0))),
        biases=biases,
        offset=problem.offset + count,
    )


def keys_at(problem: Problem, places: Int[Tensor, "rows kv_heads keys"], position: int) -> Problem:
    """Number the keys of a problem as in the text; those that were removed are hidden.

    Args:
        problem: The problem.
        places: The position of each key.
        position: Position of the first query.
    """
    *batch, heads, queries, keys = problem.scores_shape
    count = position + queries
    places = places.reshape(*batch, -1, keys).to(problem.key.device)
    of_queries = places.repeat_interleave(problem.group, -2).unsqueeze(-2)
    of_queries = of_queries.expand(*batch, heads, queries, keys)

    def spread(pairs: Tensor) -> Tensor:
        pairs = pairs.expand(*batch, heads, queries, keys)
        return pairs.new_zeros(*batch, heads, queries, count).scatter(-1, of_queries, pairs)

    def of_keys(x: Tensor) -> Tensor:
        index = places.unsqueeze(-1).expand(x.shape)
        return x.new_zeros(*x.shape[:-2], count, x.shape[-1]).scatter(-2, index, x)

    shown = torch.ones((), dtype=torch.bool, device=problem.query.device)
    if problem.mask is not None:
        shown = problem.mask.visible(problem.tile())
    biases = tuple(spread(bias_values(one, problem.tile())) for one in problem.biases)
    return replace(
        problem,
        key=of_keys(problem.key),
        value=of_keys(problem.value),
        mask=dense(spread(shown)),
        biases=biases,
        offset=position,
    )

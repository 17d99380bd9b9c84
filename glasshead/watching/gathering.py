"""Gathering: what the ranks of a sharded model have seen, made whole on each of them."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from glasshead.attention.weight_gradients import WeightGradients
from glasshead.attention.weights import Weights
from glasshead.recipe.masks import Mask, dense
from glasshead.recipe.normalizers import Normalizer, SoftmaxOne
from glasshead.recipe.problem import Problem, bias_values
from glasshead.watching.layer_record import Watched
from glasshead.watching.recorded_call import Call


class _Part(NamedTuple):
    """A call as one rank has seen it, without the process group.

    Attributes:
        name, place: Of the attention, and of the call in its record.
        first: The number of the first head or query among those of all ranks.
        call: The call.
        gradients: Its gradients, where they have arrived.
    """

    name: str
    place: int
    first: int
    call: Call
    gradients: WeightGradients | None


def gathered(watched: Mapping[str, Watched]) -> dict[str, Watched]:
    """Return the calls of all ranks, joined by heads and then by queries; see `Seen.gather`.

    Errors: a ValueError if ranks have seen other calls.
    """
    whole = {name: [*calls] for name, calls in watched.items()}
    for name, place, parts in _of_all_ranks(whole, "heads"):
        whole[name][place] = _joined_heads(whole[name][place], parts)
    # An attention that is spread by queries is a call for each span of these, on every rank.
    spans: dict[str, list[_Part]] = {}
    for name, _, parts in _of_all_ranks(whole, "queries"):
        spans.setdefault(name, []).extend(parts)
    for name, parts in spans.items():
        whole[name] = _in_order(whole[name], parts)
    return {name: Watched(name, calls) for name, calls in whole.items()}


def _of_all_ranks(
    calls: Mapping[str, Sequence[Call]], axis: str
) -> Iterator[tuple[str, int, list[_Part]]]:
    """Yield the name and place of each call that is spread along an axis, and its parts by rank.

    Errors: a ValueError if ranks have seen other calls.
    """
    own = [
        (shard.group, _Part(name, place, shard.first, call.moved(shards=()), call.arrived))
        for name, several in calls.items()
        for place, call in enumerate(several)
        for shard in call.shards
        if shard.axis == axis
    ]
    groups = {id(group): group for group, _ in own}
    for key, group in groups.items():
        mine = [part for each, part in own if id(each) == key]
        ranks = _exchanged(mine, group)
        counts = [len(parts) for parts in ranks]
        places = [[part[:2] for part in parts] for parts in ranks]
        if any(one != places[0] for one in places):
            raise ValueError(
                f"gather needs what all ranks have seen alike, but they saw {counts} calls that "
                f"are spread by {axis}. Watch the same on each of them."
            )
        for parts in zip(*ranks, strict=True):
            yield *parts[0][:2], sorted(parts, key=lambda part: part.first)


def _exchanged(own: list[_Part], group: Any) -> list[list[_Part]]:
    """Return the parts of each rank of a group, with tensors on the device of this one's."""
    tensors = (x for part in own for x in _tensors(part.call.values))
    device = next(tensors, torch.empty(0)).device
    gathered: list[Any] = [None] * distributed.get_world_size(group)
    written = io.BytesIO()
    torch.save([tuple(part) for part in own], written)
    distributed.all_gather_object(gathered, written.getvalue(), group=group)
    return [
        [
            _Part(*part)
            for part in torch.load(io.BytesIO(one), map_location=device, weights_only=False)
        ]
        for one in gathered
    ]


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of values of statistics."""
    if isinstance(value, Tensor):
        yield value
    else:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one)


def _joined_heads(own: Call, parts: Sequence[_Part]) -> Call:
    """Return a call with the heads of all ranks."""
    (shard,) = (one for one in own.shards if one.axis == "heads")
    calls = [part.call for part in parts]
    known = [head for call in calls for head in call.heads or ()]
    order = [known.index(head) for head in shard.requested or range(shard.total)]
    axis = len(own.shape) - 2
    values = {
        name: _concatenated([call.values[name] for call in calls], axis, order)
        for name in own.values
    }
    contexts = [call.context for call in calls if call.context is not None]
    gradients = [part.gradients for part in parts if part.gradients is not None]
    return own.moved(
        values,
        (*own.shape[:-2], len(order), own.shape[-1]),
        weights_of([call.weights for call in calls if call.has_weights]),  # type: ignore[misc]
        torch.cat(contexts, -3) if contexts else None,
        _gradients_of(gradients),
        heads=shard.requested,
        shards=tuple(one for one in own.shards if one is not shard),
    )


def _concatenated(values: Sequence[Any], axis: int, order: list[int]) -> Any:
    """Concatenate a statistic's values of several ranks along the heads, and order these."""
    first = values[0]
    if isinstance(first, Tensor):
        index = torch.tensor(order, dtype=torch.long, device=first.device)
        return torch.cat([*values], axis).index_select(axis, index)
    parts = [_concatenated(one, axis, order) for one in zip(*values, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)


def weights_of(parts: Sequence[Weights]) -> Weights | None:
    """Return the lazy weights of the heads of all ranks."""
    if not parts:
        return None
    problems = [one._problem for one in parts]  # noqa: SLF001 - of one family
    query, key = (torch.cat([getattr(one, x) for one in problems], -3) for x in ("query", "key"))
    whole = replace(
        problems[0],
        query=query,
        key=key,
        value=key,
        biases=tuple(
            _along_heads([bias_values(one.biases[place], one.tile()) for one in problems])
            for place in range(len(problems[0].biases))
        ),
        mask=_mask_of(problems),
        normalizer=_normalizer_of([one.normalizer for one in problems]),
    )
    return Weights(whole, torch.cat([one._logsumexp for one in parts], -2))  # noqa: SLF001


def _gradients_of(parts: Sequence[WeightGradients]) -> WeightGradients | None:
    """Return the lazy gradients of the heads of all ranks."""
    if not parts:
        return None
    outputs = torch.cat([one.output_gradient for one in parts], -3)
    return WeightGradients(torch.cat([one.value for one in parts], -3), outputs)


def _along_heads(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate what broadcasts to the scores, unless it is the same for all heads."""
    headed = parts[0].ndim > 2 and parts[0].shape[-3] > 1
    return torch.cat([*parts], -3) if headed else parts[0]


def _mask_of(problems: Sequence[Problem]) -> Mask | None:
    masks = [one.mask for one in problems]
    if masks[0] is None:
        return None
    shown = [one.mask.visible(one.tile()) for one in problems if one.mask is not None]
    whole = _along_heads(shown)
    return masks[0] if whole is shown[0] else dense(whole)


def _normalizer_of(parts: Sequence[Normalizer]) -> Normalizer:
    """Return the softmax of all heads, with the sink of each."""
    sinks = [one.sink for one in parts if isinstance(one, SoftmaxOne)]
    if not sinks or not all(isinstance(one, Tensor) and one.ndim for one in sinks):
        return parts[0]
    return SoftmaxOne(torch.cat([one.detach() for one in sinks if isinstance(one, Tensor)]))


def _in_order(calls: Sequence[Call], parts: Sequence[_Part]) -> list[Call]:
    """Return the calls of an attention, of each forward pass those of all ranks by position."""
    found = []
    for _, several in groupby(calls, lambda call: (call.forward, call.run)):
        own = [*several]
        whole = own[0]
        spread = [
            part
            for part in parts
            if (part.call.forward, part.call.run) == (whole.forward, whole.run)
        ]
        found += own if not spread else []
        found += [
            whole.moved(
                part.call.values,
                part.call.shape,
                part.call.weights,
                part.call.context,
                part.gradients,
                position=part.call.position,
                keys=part.call.keys,
                shards=tuple(one for one in whole.shards if one.axis != "queries"),
            )
            for part in sorted(spread, key=lambda part: part.first)
        ]
    return found

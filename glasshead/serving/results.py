"""Records of requests as `watch` has them, and as bytes between a worker and its reader."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.io import packed, parts, unpacked
from glasshead.attention.weights import Weights
from glasshead.serving.served_layers import ServedLayer
from glasshead.serving.watched_request import WatchedRequest
from glasshead.statistics import Statistic
from glasshead.watching.layer_record import Watched
from glasshead.watching.recorded_call import Call, CallInfo
from glasshead.watching.seen import Seen
from glasshead.watching.seen_file import KIND, contents, of_contents


class SeenRequest(Seen):
    """The observed attentions of one request of an engine, by the dotted name of their modules.

    Attributes:
        first_query: The position of its first query. Tokens before it came from the prefix cache:
            their keys are there, but no query was computed.
        preemptions: How often the engine dropped its keys, and computed them again.
        finished: Whether the engine had reported its end, which it does in its next step.
    """

    def __init__(
        self,
        watched: Mapping[str, Watched],
        *,
        first_query: int = 0,
        preemptions: int = 0,
        finished: bool = True,
    ) -> None:
        super().__init__(watched)
        self.first_query, self.preemptions, self.finished = first_query, preemptions, finished


def to_bytes(
    request: WatchedRequest,
    groups: Sequence[Sequence[ServedLayer]],
    statistics: dict[str, Statistic],
    order: Sequence[str],
) -> bytes:
    """Return the record of a request, of the heads of this worker."""
    records, kept, tensors = {}, {}, dict[str, Tensor]()
    count = request.settled - request.first_query
    for number, layers in enumerate(groups if count and request.error is None else ()):
        values = request.chunks[number].whole()
        for place, layer in enumerate(layers):
            own = {name: _each(value, place) for name, value in values.items()}
            info = CallInfo(position=request.first_query, keys=request.settled, text=(0,))
            call = Call((1, layer.heads, count), statistics, own, info)
            records[layer.name] = Watched(layer.name, [call])
            if request.kept_queries[number]:
                query, key = (
                    torch.cat(several, -2)[place]
                    for several in (request.kept_queries[number], request.kept_keys[number])
                )
                problem = layer.problem(query, key, key, request.first_query)
                recipe, own = Weights(problem)._serialize()  # noqa: SLF001 - of one family
                kept[layer.name] = recipe
                tensors |= {f"{layer.name}#{name}": one for name, one in own.items()}
    ordered = {name: records[name] for name in order if name in records}
    description, numbers = contents(ordered, {})
    rank = next(((one.rank, one.ranks) for group in groups for one in group), (0, 1))
    known = {
        "request": request.name,
        "first_query": request.first_query,
        "preemptions": request.preemptions,
        "finished": request.ended is not None,
        "error": request.error,
        "rank": list(rank),
        "kept": kept,
        "own": sorted(tensors),
    }
    return packed(KIND, description | known, numbers | tensors)


def seen_of(workers: Sequence[bytes]) -> SeenRequest | str:
    """Return what all workers have seen of a request; why it is not known, a sentence, if so."""
    read = sorted((unpacked(one) for one in workers), key=lambda one: one[0]["rank"])
    error = next((known["error"] for known, _ in read if known["error"]), None)
    if error is not None:
        return error
    layers: dict[str, list[Call]] = {}
    for known, tensors in read:
        own = {name: tensors.pop(name) for name in known["own"]}
        for name, watched in of_contents(known, tensors).items():
            call = watched[0]
            if name in known["kept"]:
                prefix = f"{name}#"
                kept = {n.removeprefix(prefix): x for n, x in own.items() if n.startswith(prefix)}
                weights = Weights._deserialize(known["kept"][name], kept)  # noqa: SLF001
                call = call.moved(call.values, weights=weights)
            layers.setdefault(name, []).append(call)
    first = read[0][0]
    return SeenRequest(
        {name: Watched(name, [joined_heads(calls)]) for name, calls in layers.items()},
        first_query=first["first_query"],
        preemptions=first["preemptions"],
        finished=first["finished"],
    )


def joined_heads(calls: Sequence[Call]) -> Call:
    """Return a call with the heads of several workers, in the order of their ranks."""
    if len(calls) == 1:
        return calls[0]
    own = calls[0]
    values = {name: _beside([call.values[name] for call in calls]) for name in own.values}
    heads = sum(call.shape[1] for call in calls)
    weights = None
    if all(call.has_weights for call in calls):
        from glasshead.watching.gathering import weights_of

        weights = weights_of([call.weights for call in calls if call.weights is not None])
    return own.moved(values, (own.shape[0], heads, own.shape[2]), weights)


def _beside(values: Sequence[Any]) -> Any:
    """Concatenate a statistic's values along the heads, the second axis."""
    if isinstance(values[0], Tensor):
        return torch.cat([*values], 1)
    several = [_beside(one) for one in zip(*values, strict=True)]
    return type(values[0])(*several)


def _each(value: Any, place: int) -> Any:
    """Return the part of one layer of a value whose first axis is that of layers."""
    if isinstance(value, Tensor):
        return value[place]
    return type(value)(*(part[place] for _, part in parts(value)))

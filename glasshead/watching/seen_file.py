"""The result of a watch as a file: its calls as safetensors, with metadata as JSON."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.io import describe_values, found, read, tensors_of, understood, write
from glasshead.recipe.validation import whole_number
from glasshead.watching.layer_record import Watched
from glasshead.watching.other_mixers import Unobserved
from glasshead.watching.recorded_call import ATTENTION, Call, CallInfo

KIND = "watch"
# Key of the padding mask; names of statistics are identifiers.
_REAL = "#real"


def save(
    file: str | os.PathLike[str],
    watched: Mapping[str, Watched],
    unobserved: Mapping[str, Unobserved],
) -> None:
    """Write every call to a file."""
    write(file, KIND, *contents(watched, unobserved))


def contents(
    watched: Mapping[str, Watched], unobserved: Mapping[str, Unobserved]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors of every call."""
    tensors: dict[str, Tensor] = {}
    for name, calls in watched.items():
        for place, call in enumerate(calls):
            own = tensors_of(call.values) | ({} if call.real is None else {_REAL: call.real})
            tensors |= {f"{name}/{place}/{value}": tensor for value, tensor in own.items()}
    layers = {name: [_described(call) for call in calls] for name, calls in watched.items()}
    others = {name: [*one] for name, one in unobserved.items()}
    return {"layers": layers, "unobserved": others}, tensors


def _described(call: Call) -> dict[str, Any]:
    """Describe a call as JSON, but for its tensors."""
    valued = {name: one for name, one in call.statistics.items() if name in call.values}
    return {
        "shape": list(call.shape),
        "position": call.position,
        "first_key": call.first_key,
        "keys": call.keys,
        "crossing": call.crossing,
        "compressed": call.compressed,
        "by_hand": call.by_hand,
        "pass": [call.forward, call.run, call.interleaved, call.beside, call.merged],
        "heads": None if call.heads is None else list(call.heads),
        "text": list(call.text),
        "rows": None if call.rows is None else list(call.rows),
        "apart": call.apart,
        "untold": call.untold,
        "stop": call.stop,
        "kernel": call.kernel,
        "kind": call.kind,
        "channels": call.channels,
        "statistics": describe_values(valued, call.values),
    }


def load(
    file: str | os.PathLike[str],
) -> tuple[dict[str, Watched], dict[str, Unobserved]]:
    """Read every call from a file, by layer name, and which layers were not observed."""
    description, tensors = read(file, KIND)
    with understood(file, KIND):
        others = description.get("unobserved", {}).items()
        return of_contents(description, tensors), {name: _unobserved(*one) for name, one in others}


def of_contents(
    description: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Watched]:
    """Rebuild what `contents` has described, without the layers that were not observed."""
    own: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        call, _, value = name.rpartition("/")
        own[call][value] = tensor
    layers = description["layers"].items()
    return {name: _watched(name, calls, own) for name, calls in layers}


def _unobserved(kind: Any, selected: Any) -> Unobserved:
    """Check what a file says of a layer that was not observed."""
    if not isinstance(kind, str) or selected not in (True, False):
        raise ValueError("a layer that was not observed has a class, and was selected or not")
    return Unobserved(kind, bool(selected))


def _watched(
    name: str, calls: Sequence[Mapping[str, Any]], own: Mapping[str, Mapping[str, Tensor]]
) -> Watched:
    """Deserialize the calls of a layer.

    Errors: a ValueError if there is none.
    """
    if not calls:
        raise ValueError(f"{name!r} has no call")
    return Watched(
        name, [_call(one, own[f"{name}/{place}"], place) for place, one in enumerate(calls)]
    )


# A file of an earlier version does not know which calls belong together.
_APART = "the file was written by a version that did not record which calls belong together"


def _call(described: Mapping[str, Any], own: Mapping[str, Tensor], place: int) -> Call:
    statistics, values = found(described["statistics"], own)
    shape = tuple(whole_number(length, "shape") for length in described["shape"])
    if not shape:
        raise ValueError("a call must have at least one axis")
    heads, crossing = described["heads"], described.get("crossing", False)
    if crossing not in (True, False):
        raise ValueError("a call must cross or not")
    # Older files do not say whether a call is beside another, or merged.
    known = (*described.get("pass", (0, 0, False)), False, False)
    forward, run, interleaved, beside, merged = known[:5]
    if any(one not in (True, False) for one in (interleaved, beside, merged)):
        raise ValueError("a call must be interleaved, beside another and merged, or not")
    by_hand = described.get("by_hand")
    if not isinstance(by_hand, str | None):
        raise ValueError("the steps of explicit attention in a call must be words")  # noqa: TRY004 - of a file
    rows, position = described.get("rows"), whole_number(described["position"], "position")
    apart = described.get("apart", _APART if position and place else None)
    untold, kernel = described.get("untold"), described.get("kernel")
    kind, channels = described.get("kind", ATTENTION), described.get("channels", False)
    if not isinstance(kind, str) or channels not in (True, False):
        raise ValueError("a call is of a kind, in words, and its heads are channels or not")
    if not all(isinstance(one, str | None) for one in (apart, untold, kernel)):
        raise ValueError("what is not known of a call must be stated in words")
    info = CallInfo(
        position=position,
        first_key=whole_number(described["first_key"], "first_key"),
        keys=whole_number(described["keys"], "keys"),
        crossing=crossing,
        compressed=whole_number(described.get("compressed", 0), "compressed"),
        heads=None if heads is None else tuple(whole_number(head, "heads") for head in heads),
        real=_real(own.get(_REAL), shape),
        forward=whole_number(forward, "forward"),
        run=whole_number(run, "run"),
        interleaved=interleaved,
        beside=beside,
        merged=merged,
        by_hand=by_hand,
        text=tuple(whole_number(one, "text") for one in described.get("text", [place])),
        rows=None if rows is None else tuple(whole_number(row, "rows") for row in rows),
        apart=apart,
        untold=untold,
        stop=None if (stop := described.get("stop")) is None else whole_number(stop, "stop"),
        kernel=kernel,
        kind=kind,
        channels=bool(channels),
    )
    return Call(shape, statistics, values, info)


def _real(real: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """Check a mask of real queries, `[batch, queries]`."""
    if real is not None and (
        real.dtype != torch.bool or real.ndim != 2 or real.shape[1] != shape[-1]
    ):
        raise ValueError(f"a call of {shape[-1]} queries has {list(real.shape)} that are real")
    return real

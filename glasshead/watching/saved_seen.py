"""What was seen, in a file: the values of every call, and which statistic each belongs to."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.io import describe_values, found, tensors_of
from glasshead.attention.tensor_files import read, understood, write
from glasshead.recipe.validation import whole_number
from glasshead.watching.watched import Call, CallInfo, Watched

_KIND = "watch"
# Beside statistics, whose names are words.
_REAL = "#real"


def save(file: str | os.PathLike[str], watched: Mapping[str, Watched]) -> None:
    """Write every call."""
    tensors: dict[str, Tensor] = {}
    layers: dict[str, Any] = {}
    for name, calls in watched.items():
        layers[name] = []
        for place, call in enumerate(calls):
            own = tensors_of(call.values)
            tensors |= {f"{name}/{place}/{value}": tensor for value, tensor in own.items()}
            if call.real is not None:
                tensors[f"{name}/{place}/{_REAL}"] = call.real
            stands = {"position": call.position, "first_key": call.first_key, "keys": call.keys}
            heads = None if call.heads is None else list(call.heads)
            layers[name].append(
                {
                    "shape": list(call.shape),
                    **stands,
                    "crossing": call.crossing,
                    "pass": [call.forward, call.run, call.interleaved],
                    "heads": heads,
                    "statistics": describe_values(call.statistics, call.values),
                }
            )
    write(file, _KIND, {"layers": layers}, tensors)


def load(file: str | os.PathLike[str]) -> dict[str, Watched]:
    """Every call, by the names of the layers."""
    description, tensors = read(file, _KIND)
    with understood(file, _KIND):
        own: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            call, _, value = name.rpartition("/")
            own[call][value] = tensor
        return {name: _watched(name, calls, own) for name, calls in description["layers"].items()}


def _watched(
    name: str, calls: Sequence[Mapping[str, Any]], own: Mapping[str, Mapping[str, Tensor]]
) -> Watched:
    """The calls of a layer, of which there is one at least."""
    if not calls:
        raise ValueError(f"{name!r} has no call")
    return Watched(name, [_call(told, own[f"{name}/{place}"]) for place, told in enumerate(calls)])


def _call(told: Mapping[str, Any], own: Mapping[str, Tensor]) -> Call:
    statistics, values = found(told["statistics"], own)
    shape = tuple(whole_number(length, "shape") for length in told["shape"])
    if not shape:
        raise ValueError("a call has one axis at least")
    heads, crossing = told["heads"], told.get("crossing", False)
    if crossing not in (True, False):
        raise ValueError("a call crosses or does not")
    forward, run, interleaved = told.get("pass", (0, 0, False))
    if interleaved not in (True, False):
        raise ValueError("a call is interleaved or not")
    info = CallInfo(
        position=whole_number(told["position"], "position"),
        first_key=whole_number(told["first_key"], "first_key"),
        keys=whole_number(told["keys"], "keys"),
        crossing=crossing,
        heads=None if heads is None else tuple(whole_number(head, "heads") for head in heads),
        real=_real(own.get(_REAL), shape),
        forward=whole_number(forward, "forward"),
        run=whole_number(run, "run"),
        interleaved=interleaved,
    )
    return Call(shape, statistics, values, info)


def _real(real: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """Check which queries are real tokens, `[batch, queries]`."""
    if real is not None and (
        real.dtype != torch.bool or real.ndim != 2 or real.shape[1] != shape[-1]
    ):
        raise ValueError(f"a call of {shape[-1]} queries has {list(real.shape)} that are real")
    return real

"""Layers of a step of generation, in code that is not compiled, that got equal arguments.

What such a step costs is the Python around each of its small attentions. The first of a forward
pass is observed as a whole. One that differs in its queries, keys and values alone takes from it
the mask, the padding and the rule of its row; its text is found by its own keys. The arguments of
both are compared in each step. `alike_layers.py` does this for compiled code.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from glasshead.watching.captured_call import CapturedCall, ComparableCall
from glasshead.watching.module_calls import TEXT, ModuleCall
from glasshead.watching.placing import PlacedCall
from glasshead.watching.recorded_call import CallInfo
from glasshead.watching.sequences import CallPosition, ContinuedText
from glasshead.watching.single_query import RowRule

# Kinds of calls of a pass, such as those of full layers and of layers with a window.
_MOST = 4
# What is compared by value; everything else has to be the same object.
_PLAIN = {type(None), bool, int, float, str}
# Fingerprints of a value that no other has, and of one that may be any.
_UNKNOWN, _ANY = object(), object()
# The vectors that a layer reads are its own.
_VECTORS = "hidden_states"


class ObservedFirst(NamedTuple):
    """A call of one query that was observed as a whole.

    Attributes:
        name: Name of its attention.
        fingerprints: Of the arguments of its function, and of those of the modules around it.
        captured: The call, without numbers.
        place: Its place in its text.
        rule: What makes the row of its query.
        info: What is known of it beside its statistics.
        shape: Of its statistics, the axes before those of their own.
        continued: The text that it continues with all of its keys; None: none, or not all.
    """

    name: str
    fingerprints: tuple[Any, list["_ModuleFingerprint"]]
    captured: CapturedCall
    place: CallPosition
    rule: RowRule
    info: CallInfo
    shape: tuple[int, ...]
    continued: ContinuedText | None

    def captured_again(
        self, capture: ComparableCall, calls: Sequence[ModuleCall]
    ) -> CapturedCall | None:
        """Capture a call as this one; None if its arguments, or those around it, differ."""
        own, around = self.fingerprints
        if len(around) != len(calls):
            return None
        for known, call in zip(around, calls, strict=True):
            if known.identity is call.identity:
                break
            if not known.fits(call):
                return None
        return capture.captured_like(own, self.captured)

    def has_place_of(self, placed: PlacedCall) -> bool:
        """Return whether another call has the same place in its text."""
        return placed.place.places is None and placed.place == self.place


class AlikeSteps:
    """The first calls of each kind of the current forward pass."""

    def __init__(self) -> None:
        self._pass: object = None
        self._firsts: list[ObservedFirst] = []

    def learn(
        self,
        capture: ComparableCall,
        placed: PlacedCall,
        rule: RowRule,
        info: CallInfo,
        shape: tuple[int, ...],
    ) -> None:
        """Learn a call that was observed as a whole.

        Args:
            capture: What captured it.
            placed: The call in its text.
            rule: What makes the row of its query.
            info: What is known of it beside its statistics.
            shape: Of its statistics, the axes before those of their own.
        """
        (name, captured, calls, _), place = placed.call, placed.place
        differs = (
            captured.problem.biases
            or captured.crossing
            or captured.shards
            or captured.one_pass is not None
            or place.places is not None
            or info.images is not None
            or placed.merged
        )
        if calls[-1].identity is not self._pass:
            self._pass, self._firsts = calls[-1].identity, []
        if differs or len(self._firsts) == _MOST:
            return
        fingerprint = capture.fingerprint(captured)
        if fingerprint is None:
            return
        own = fingerprint, [_ModuleFingerprint.of(one) for one in calls]
        empty = _without_numbers(captured)
        text = placed.continued
        self._firsts.append(ObservedFirst(name, own, empty, place, rule, info, shape, text))

    def firsts(self, calls: Sequence[ModuleCall]) -> Sequence[ObservedFirst]:
        """Return the first calls of the pass that a call is in."""
        return self._firsts if calls[-1].identity is self._pass else ()


class _ModuleFingerprint(NamedTuple):
    """The fingerprints of the arguments of a module call, by place and by name."""

    identity: object
    kind: type[nn.Module]
    inputs: tuple[Any, ...]
    named: dict[str, Any]

    @classmethod
    def of(cls, call: ModuleCall) -> "_ModuleFingerprint":
        given, named = call.given
        inputs, known = [*map(fingerprint_of, given)], fingerprints_of(named)
        if _VECTORS in named:
            known[_VECTORS] = _of_vectors(named[_VECTORS])
        elif given:
            inputs[0] = _of_vectors(given[0])
        return cls(call.identity, type(call.module), tuple(inputs), known)

    def fits(self, call: ModuleCall) -> bool:
        """Return whether a call of such a module got equal arguments, except for its vectors."""
        if type(call.module) is not self.kind or call.compiled:
            return False
        inputs, named = call.given
        return matches(self.inputs, inputs) and match(self.named, named)


class _Vectors(NamedTuple):
    """The fingerprint of vectors that may have any numbers."""

    shape: torch.Size
    dtype: torch.dtype


def _of_vectors(value: Any) -> Any:
    # A mask of tokens has fewer axes.
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim < TEXT:
        return fingerprint_of(value)
    return _Vectors(value.shape, value.dtype)


def fingerprints_of(given: Mapping[str, Any], own: Container[str] = ()) -> dict[str, Any]:
    """Return the fingerprints of arguments by name.

    Args:
        given: The arguments.
        own: The names of those that may be any.
    """
    return {name: _ANY if name in own else fingerprint_of(one) for name, one in given.items()}


def match(known: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether arguments by name have the fingerprints of others."""
    if known.keys() != given.keys():
        return False
    for name, value in given.items():
        own = known[name]
        # Most are plain values, such as None, which fingerprints are themselves.
        if own is not value and own is not _ANY and not matches(own, value):
            return False
    return True


def fingerprint_of(value: Any) -> Any:
    """Return what tells a value from others, without keeping an object alive.

    >>> ones = torch.ones(2)
    >>> matches(fingerprint_of((ones, 3)), (ones, 3)), matches(fingerprint_of(ones), torch.ones(2))
    (True, False)
    """
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return tuple(map(fingerprint_of, value))
    try:
        return ref(value)
    except TypeError:
        return _UNKNOWN


def matches(known: Any, value: Any) -> bool:
    """Return whether a value has a fingerprint."""
    kind = type(known)
    if kind is ReferenceType:
        # A reference to what is gone returns None.
        return value is not None and known() is value
    if kind is tuple:
        same = type(value) is tuple and len(value) == len(known)
        return same and all(map(matches, known, value))
    if kind is _Vectors:
        return isinstance(value, Tensor) and known == (value.shape, value.dtype)
    return kind is type(value) and known is not _UNKNOWN and known == value


def _without_numbers(captured: CapturedCall) -> CapturedCall:
    """Return a captured call whose tensors take no memory."""
    problem = captured.problem

    def shell(x: Tensor) -> Tensor:
        return torch.empty((), dtype=x.dtype, device=x.device).expand(x.shape)

    query, key, value = map(shell, (problem.query, problem.key, problem.value))
    return CapturedCall(
        problem.with_inputs(query, key, value),
        position=captured.position,
        sliding=captured.sliding,
        compressed=captured.compressed,
    )

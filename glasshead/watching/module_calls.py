"""Module calls: which modules of a model are running, and where in the text each call stands."""

import inspect
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from glasshead.attention import Attention
from glasshead.watching.captured_call import CapturedCall
from glasshead.watching.errors import UnseenError
from glasshead.watching.layer_record import Call

# Every call of a module goes through this function, whatever has become of its `forward`.
_CALL = nn.Module._wrapped_call_impl.__code__  # noqa: SLF001 - it has no other name
# A further local variable of such a call, which tells it from every other.
_IDENTITY = "__glasshead_call__"


class ModuleCall(NamedTuple):
    """A call of a module that is in progress, as the Python stack shows it."""

    module: nn.Module
    frame: FrameType

    @property
    def identity(self) -> object:
        """An object that this call has to itself; frames and their ids are used again."""
        return self.frame.f_locals.setdefault(_IDENTITY, object())

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `forward` by name, those that were not given with their defaults."""
        names, defaults = _parameters(type(self.module))
        local = self.frame.f_locals
        return {**defaults, **dict(zip(names, local["args"], strict=False)), **local["kwargs"]}


def calls_in_progress(names: dict[nn.Module, str]) -> list[ModuleCall]:
    """Return the calls of these modules that are in progress in this thread, innermost first.

    They are read from the stack. A hook on each module would tell the same, and turn off the
    fast paths of PyTorch's own layers, which look for hooks.
    """
    calls, frame = [], sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        if frame.f_code is _CALL and (module := frame.f_locals["self"]) in names:
            calls.append(ModuleCall(module, frame))
        frame = frame.f_back
    return calls


@lru_cache(maxsize=256)
def _parameters(kind: type[nn.Module]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the positional parameters of a class's `forward`, and all defaults."""
    try:
        given = list(inspect.signature(kind.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return (), {}
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {p.name: p.default for p in given if p.default is not p.empty}
    return tuple(p.name for p in given if p.kind in by_position), defaults


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """The dotted name of each module.

    A rule of ours goes by the name of the module that applies it, as several may share one, and so
    does a softmax.
    """
    return {
        module: name
        for name, module in model.named_modules()
        if not (name and isinstance(module, Attention | nn.Softmax))
    }


def calling(names: dict[nn.Module, str]) -> nn.Module | None:
    """The innermost of these modules that is being called in this thread.

    It is read from the stack of calls. A hook on each module would tell the same, and turn off the
    fast paths of PyTorch's own layers, which look for hooks.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        if frame.f_code is _CALL and (module := frame.f_locals["self"]) in names:
            return module
        frame = frame.f_back
    return None


class Layers:
    """The layers of a model that are asked for, by patterns of their names.

    A pattern such as "model.layers.1*" names modules; every attention in these belongs to it. `*`
    stands for anything, dots too, `?` for one letter, `[01]` for one of some.

    Args:
        patterns: One pattern, or several; None: all of the model.
        names: Of all its modules.

    Errors: a TypeError for what is no text, and a ValueError for a pattern that names nothing.
    """

    def __init__(self, patterns: str | Sequence[str] | None, names: Iterable[str]) -> None:
        self._named: dict[str, list[str]] | None = None
        if patterns is None:
            return
        names = list(names)
        self._named = {pattern: _outermost(pattern, names) for pattern in _texts(patterns)}
        for pattern, named in self._named.items():
            if not named:
                raise ValueError(
                    f"layers takes names of the model's modules, such as {_some(names)}, and got "
                    f"{pattern!r}, which names none."
                )

    def __contains__(self, name: str) -> bool:
        if self._named is None:
            return True
        return any(_within(name, layer) for named in self._named.values() for layer in named)

    def touch(self, name: str) -> bool:
        """Whether a module is asked for, or one within it."""
        inner = (layer for named in (self._named or {}).values() for layer in named)
        return name in self or any(_within(layer, name) for layer in inner)

    def check_seen(self, seen: Iterable[str], others: Iterable[str] = (), why: str = "") -> None:
        """Say loudly which pattern, or which layer of a pattern, has shown no attention.

        Args:
            seen: The names of modules whose attention was seen.
            others: Those of attention that was not asked for, told where there is no other.
            why: What may be the matter, a sentence that ends with "else".

        Errors: an `UnseenError` for a pattern; of a layer among others it is a warning, as models
        with layers of several kinds exist.
        """
        seen = list(seen)
        for pattern, named in (self._named or {}).items():
            blind = [layer for layer in named if not any(_within(name, layer) for name in seen)]
            if len(blind) == len(named):
                raise UnseenError(
                    f"watch saw no attention in what layers={pattern!r} names, {_some(named)}; it "
                    f"saw {_some(seen or [*others])}: {why}correct the pattern, or let the model "
                    f"run that layer."
                )
            numbered = [layer for layer in blind if layer.rpartition(".")[2].isdigit()]
            if numbered:
                warnings.warn(
                    f"watch saw no attention in {_some(numbered)}, which layers={pattern!r} names.",
                    stacklevel=5,
                )


def _texts(patterns: Any) -> list[str]:
    given = [patterns] if isinstance(patterns, str) else patterns
    several = isinstance(given, list | tuple) and len(given) > 0
    if not several or not all(isinstance(one, str) for one in given):
        raise TypeError(
            f"layers takes a pattern such as 'model.layers.*', or a list of them, and got "
            f"{patterns!r}."
        )
    return list(given)


def _outermost(pattern: str, names: list[str]) -> list[str]:
    """What the pattern names, without what lies within another that it names."""
    named: list[str] = []
    for name in names:
        if fnmatchcase(name, pattern) and not any(_within(name, other) for other in named):
            named.append(name)
    return named


def _within(name: str, layer: str) -> bool:
    return name == layer or not layer or name.startswith((f"{layer}.", f"{layer}#"))


def _some(names: Sequence[str]) -> str:
    """A few of them."""
    shown = [repr(name) for name in names if name] or ["nothing"]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")


# A decoder layer attends to itself and then to one other text, or two.
_PASSED = 3


class CallPosition(NamedTuple):
    """The place of a call in its text.

    Attributes:
        position: Of its first query in the text.
        first_key: Which key of the text its first one is.
        offset: Of query 0 among the keys, where it is another than that of the problem.
    """

    position: int
    first_key: int = 0
    offset: int | None = None


class _SelfAttention(NamedTuple):
    """The last attention of a text to itself: in which forward pass, and which queries."""

    forward: int = -1
    position: int = 0
    queries: int = 0


class SequenceTracker:
    """Places the calls of a model in their texts, most of which their keys place.

    Two are placed otherwise. A sliding cache hands on the last keys alone: the cache tells where
    these stand, and where it is out of sight the tokens fed so far are counted. Cross-attention
    stands where the self-attention before it in the same forward pass stood, whether that one is
    watched or not.
    """

    def __init__(self) -> None:
        self._last = _SelfAttention()
        self._passed: deque[tuple[int, Callable[[], CapturedCall]]] = deque(maxlen=_PASSED)
        self._unplaced: tuple[int, str, int] | None = None

    def place(self, name: str, met: CapturedCall, last: Call | None, forward: int) -> CallPosition:
        """Return where a call stands.

        Args:
            name: Of its module.
            met: The call.
            last: The call before it of the same layer.
            forward: The number of the forward pass.

        Errors: an `UnseenError` where cross-attention ran before anything told where it stood.
        """
        if met.crossing:
            return self._of_crossing(name, met, last, forward)
        place = _by_keys(met, last)
        self._passed.clear()
        self._note(_SelfAttention(forward, place.position, met.queries))
        return place

    def passed(self, met: Callable[[], CapturedCall], forward: int) -> None:
        """Take note of an attention that is not watched; cross-attention after it may ask for it.

        Args:
            met: Tells what it was.
            forward: The number of the forward pass.
        """
        self._passed.append((forward, met))
        if self._unplaced and self._unplaced[0] == forward:
            self._look_back(forward)

    def _of_crossing(
        self, name: str, met: CapturedCall, last: Call | None, forward: int
    ) -> CallPosition:
        self._look_back(forward)
        own = self._last
        if own.forward == forward:
            position = own.position if own.queries == met.queries else 0
        elif last is not None and _goes_on(met, last, forward):
            position = last.end
        else:
            position = 0
            self._unplaced = forward, name, met.queries
        return CallPosition(position, offset=position)

    def _look_back(self, forward: int) -> None:
        """Find the last self-attention among what was passed in this forward pass."""
        while self._passed:
            passed_in, met = self._passed.pop()
            one = met() if passed_in == forward else None
            if one is not None and not one.crossing:
                self._note(_SelfAttention(forward, _by_keys(one, None).position, one.queries))
                self._passed.clear()

    def _note(self, own: _SelfAttention) -> None:
        """Keep the last self-attention.

        Errors: an `UnseenError` where cross-attention before it was placed without it, wrongly.
        """
        self._last = own
        if self._unplaced is None:
            return
        forward, name, queries = self._unplaced
        self._unplaced = None
        if forward == own.forward and queries == own.queries and own.position:
            raise UnseenError(
                f"watch places cross-attention by the self-attention before it, and {name!r} ran "
                f"first, at position {own.position} of its text: leave it out by layers=."
            )


def _by_keys(met: CapturedCall, last: Call | None) -> CallPosition:
    """Return where a call of self-attention stands."""
    offset = met.problem.offset
    if not isinstance(offset, int):
        # Rows of a batch that stand at different places have no position in common.
        return CallPosition(0)
    if met.position is not None:
        return CallPosition(met.position, met.position - offset)
    if met.sliding and offset and last is not None and last.batch == met.batch:
        return CallPosition(last.end, max(0, last.end - offset))
    return CallPosition(offset)


def _goes_on(met: CapturedCall, last: Call, forward: int) -> bool:
    """Whether one query follows another of the same forward pass, as in a recurrent decoder."""
    keys = met.problem.scores_shape[-1]
    return (
        met.queries == last.queries == 1
        and last.forward == forward
        and (last.batch, last.keys) == (met.batch, keys)
    )

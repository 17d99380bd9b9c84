"""Module calls: the modules of a model in progress, its passes, and what modules were given.

By their arguments: where the keys of an attention come from, the text of its queries or another.
"""

import inspect
import sys
import threading
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor, nn

from glasshead.attention import Attention
from glasshead.private_names import lacking, private
from glasshead.watching.errors import UnseenError
from glasshead.watching.foreign import attribute, is_a

# Every call of a module goes through this function, even if its `forward` is patched.
_CALL: Any = getattr(
    private("torch.nn.Module._wrapped_call_impl") or nn.Module.__call__, "__code__", None
)
# An extra local variable of the frame of such a call: its `ModuleCall`.
_OWN = "__glasshead_call__"


def compiled_parts(model: nn.Module) -> list[str]:
    """Return the names of the modules of a model that are compiled."""
    return [
        name
        for name, module in model.named_modules()
        if uncompiled(module) is not module or attribute(module, "_compiled_call_impl")
    ]


def uncompiled(module: Any) -> Any:
    """Return the module that was given to `torch.compile`; itself where it was not."""
    if type(module).__name__ == "OptimizedModule":
        return module._orig_mod  # noqa: SLF001 - so it is told by `torch.compile`
    return module


def module_of(model: nn.Module, name: str) -> nn.Module:
    """Return the module of a model by its name, compiled or not."""
    return uncompiled(uncompiled(model).get_submodule(name))


class ModuleCall:
    """A call of a module in progress, found on the Python stack or in the graph of compiled code.

    Args:
        module: The module.
        given: Its arguments and keyword arguments; None: it is within compiled code, which does not
            tell them.

    Attributes:
        identity: An object unique to this call, as frames and their ids are reused. Whoever keeps
            it does not keep the arguments.
        compiled: Whether it is within compiled code.
    """

    def __init__(
        self, module: nn.Module, given: tuple[Sequence[Any], dict[str, Any]] | None = None
    ) -> None:
        self.module, self.identity, self.compiled = module, object(), given is None
        self._given = given
        self._arguments: dict[str, Any] | None = None if given else {}

    @property
    def given(self) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments by place and by name, as they were given; of compiled code none."""
        return self._given or ((), {})

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `forward` by name, defaults included; of compiled code none."""
        if self._arguments is None:
            inputs, named = self.given
            names, defaults = _parameters(type(self.module))
            self._arguments = {**defaults, **dict(zip(names, inputs, strict=False)), **named}
        return self._arguments

    @property
    def parameters(self) -> set[str]:
        """The names of the parameters of `forward`."""
        names, defaults = _parameters(type(self.module))
        return {*names, *defaults}


class _Traced(threading.local):
    """The traced calls in progress in a thread, and those around them, innermost first.

    None around them: they are to be read from the stack.
    """

    calls: Sequence[ModuleCall] = ()
    around: Sequence[ModuleCall] | None = None


_TRACED = _Traced()


class within_traced:  # noqa: N801 - read as a function
    """A block with traced calls in progress; a class, as a generator takes twice the time.

    Args:
        calls: The traced calls, innermost first.
        around: Those on the stack around them; None: they are not known.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(
        self, calls: Sequence[ModuleCall], around: Sequence[ModuleCall] | None = None
    ) -> None:
        self._inner = calls, around

    def __enter__(self) -> None:
        self._outer = _TRACED.calls, _TRACED.around
        _TRACED.calls, _TRACED.around = self._inner

    def __exit__(self, *error: object) -> None:
        _TRACED.calls, _TRACED.around = self._outer


def calls_in_progress(names: dict[nn.Module, str], *, innermost: bool = False) -> list[ModuleCall]:
    """Return the calls of these modules in progress in this thread, innermost first.

    They are read from the stack. Hooks on the modules would disable the fast paths of PyTorch's own
    layers, which check for hooks.

    Args:
        names: The modules.
        innermost: Whether to stop at the first.
    """
    calls: list[ModuleCall] = []
    for call in _TRACED.calls if _TRACED.around is None else (*_TRACED.calls, *_TRACED.around):
        if call.module in names:
            calls.append(call)
            if innermost:
                return calls
    return calls if _TRACED.around is not None else calls + calls_on_stack(names, innermost)


def calls_of_thread() -> list[ModuleCall]:
    """Return the calls of any modules in progress in this thread, innermost first."""
    around = calls_on_stack() if _TRACED.around is None else _TRACED.around
    return [*_TRACED.calls, *around]


def calls_on_stack(
    names: Container[nn.Module] | None = None, innermost: bool = False
) -> list[ModuleCall]:
    """Return the calls of modules on the stack of this thread, innermost first.

    Args:
        names: The modules; None: any.
        innermost: Whether to stop at the first.
    """
    calls: list[ModuleCall] = []
    frame = sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        if frame.f_code is _CALL:
            local = frame.f_locals
            # Not the frame, which would keep all that its call was given until it is collected.
            call = local.get(_OWN)
            if call is None:
                given = local["args"], local["kwargs"]
                call = local[_OWN] = ModuleCall(uncompiled(local["self"]), given)
            if names is None or call.module in names:
                calls.append(call)
                if innermost:
                    break
        frame = frame.f_back
    return calls


def is_within_call(frame: FrameType | None, names: Container[nn.Module]) -> bool:
    """Return whether a frame is within a call of one of these modules that is not compiled.

    Args:
        frame: The frame.
        names: The modules.
    """
    while frame is not None:
        if frame.f_code is _CALL:
            module = frame.f_locals["self"]
            if module in names and not attribute(module, "_compiled_call_impl"):
                return True
        frame = frame.f_back
    return False


def calling(names: dict[nn.Module, str]) -> nn.Module | None:
    """Return the innermost of these modules in progress in this thread; None if there is none."""
    calls = calls_in_progress(names, innermost=True)
    return calls[0].module if calls else None


@lru_cache(maxsize=256)
def _parameters(kind: type[nn.Module]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the positional parameters of a class's `forward`, and all defaults."""
    try:
        given = list(inspect.signature(kind.forward).parameters.values())[1:]
    except Exception:  # noqa: BLE001 - a descriptor, as of TorchScript, may raise anything
        return (), {}
    by_position = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {p.name: p.default for p in given if p.default is not p.empty}
    return tuple(p.name for p in given if p.kind in by_position), defaults


def may_be_given(module: nn.Module, names: frozenset[str]) -> bool:
    """Return whether a module may be given an argument by one of some names."""
    return "forward" in vars(module) or _may_be_given(type(module), names)


@lru_cache(maxsize=256)
def _may_be_given(kind: type[nn.Module], names: frozenset[str]) -> bool:
    try:
        taken = inspect.signature(kind.forward).parameters.values()
    except Exception:  # noqa: BLE001 - as above
        return True
    return any(one.name in names or one.kind is one.VAR_KEYWORD for one in taken)


# Attributes by which wrappers of PyTorch hold a module, whose other attributes they give as theirs.
_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return the dotted name of each module.

    An `Attention` goes by the name of the module that calls it, as several may share one, and so
    does a softmax. What is compiled or wrapped by FSDP goes by the name of what was given to it.

    Errors: an `UnseenError` if this version of PyTorch does not show which module runs.
    """
    if not {"self", "args", "kwargs"} <= set(getattr(_CALL, "co_varnames", ())):
        raise UnseenError(
            lacking(
                "watch and ablate cannot determine which module runs",
                "torch.nn.Module._wrapped_call_impl(self, *args, **kwargs)",
                "Install PyTorch 2.8 to 2.15 instead",
            )
        )
    found = {}
    for path, module in model.named_modules():
        name = ".".join(part for part in path.split(".") if part not in _WRAPPED)
        if uncompiled(module) is module and not (
            name and isinstance(module, Attention | nn.Softmax)
        ):
            found[module] = name
    return found


class ModuleRun(NamedTuple):
    """The run of a module in a forward pass that a call of attention belongs to.

    Attributes:
        forward: Number of the forward pass.
        repeat: How many runs of the module came before in it.
        interleaved: Whether other attention ran since the last run.
        beside: Whether the last run was in the same call of the module.
    """

    forward: int
    repeat: int = 0
    interleaved: bool = False
    beside: bool = False


class ForwardPass:
    """The current forward pass of a model, and the runs of each module within it.

    Attributes:
        number: Number of the current pass.
        again: Whether an earlier pass ran the same outermost module from beginning to end.
        repeated: Whether the module of the last attention has attended in the same call before.
    """

    def __init__(self) -> None:
        self.number, self.again, self.repeated = 0, False, False
        self._outermost: list[nn.Module] = []
        self._identity: object = None
        self._runs: dict[str, tuple[object, int]] = {}
        self._previous: str | None = None

    def run(self, name: str, calls: Sequence[ModuleCall], own: ModuleCall) -> ModuleRun:
        """Return the run that a call belongs to.

        Args:
            name: Name of the attention.
            calls: The module calls in progress, innermost first.
            own: The one of them that the attention belongs to.
        """
        if calls[-1].identity is not self._identity:
            self._begin(calls[-1])
        identity, index = self._runs.get(name, (None, -1))
        self.repeated = identity is own.identity
        again = identity is not None and not self.repeated
        interleaved = again and self._previous != name
        if not self.repeated:
            index += 1
        self._runs[name] = own.identity, index
        self._previous = name
        return ModuleRun(self.number, index, interleaved)

    def another(self, name: str) -> ModuleRun:
        """Begin another run within the same call of a module, and return it."""
        identity, index = self._runs[name]
        self._runs[name] = identity, index + 1
        return ModuleRun(self.number, index + 1, beside=True)

    def _begin(self, outermost: ModuleCall) -> None:
        """Begin another pass."""
        self._identity, self._runs, self._previous = outermost.identity, {}, None
        self.number += 1
        self.again = any(one is outermost.module for one in self._outermost)
        if not self.again:
            self._outermost.append(outermost.module)


def attention_name(names: dict[nn.Module, str], module: nn.Module) -> str:
    """Return the name of the attention that a module computes.

    Args:
        names: The modules of a model, as `names_of` gives them.
        module: One of them.
    """
    if isinstance(module, nn.TransformerEncoderLayer):
        # Its fused operator does not call the attention module.
        module = module.self_attn
    return names[module]


# Arguments that give a module the text of its keys, if its queries belong to another.
_OTHER_TEXTS = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "memory")
# A tensor with such a word in its name is not a text.
_NO_TEXTS = ("mask", "bias", "position", "freqs")
# Axes of a text with its batch, and of one that is divided into heads.
TEXT, _HEADS = 3, 4


def crosses_by_arguments(queries: int, keys: int) -> bool:
    """Return whether keys belong to another text, by what the modules in progress were given.

    A module with one text whose keys are more than that has keys of its own, such as a prefix or a
    memory. Fewer keys than queries are no tokens of their text.

    Args:
        queries, keys: Number of queries and keys of an attention that is not causal.
    """
    for call in calls_of_thread():
        if _given_other_text(call, keys):
            return True
        if queries in (keys, 1):
            # Lengths do not tell: the same text, or a step after others of it.
            return False
        texts = _texts(call)
        own = next((one for one in texts if queries in lengths_of(one)), None)
        others = [one for one in texts if one is not own]
        if any(_makes(one, own, queries, keys) for one in others):
            # A module that was given the heads of both says nothing of where they come from.
            if own is None or own.ndim < _HEADS:
                return True
        elif own is not None:
            return keys < queries
    return queries not in (keys, 1)


def _given_other_text(call: ModuleCall, keys: int) -> bool:
    """Return whether a module was given, by name, another text that has all of the keys."""
    given = call.arguments
    own = [one for name, one in given.items() if name not in _OTHER_TEXTS]
    others = [one for one in other_texts(given) if keys in lengths_of(one)]
    return any(all(one is not each for each in own) for one in others)


def other_texts(given: Mapping[str, Any]) -> list[Tensor]:
    """Return what is given by the name of another text."""
    named = (given.get(name) for name in _OTHER_TEXTS)
    return [one for one in named if one is not None and is_a(one, Tensor)]


def _texts(call: ModuleCall) -> list[Tensor]:
    """Return the vectors that a module was given."""
    return [
        one
        for name, one in call.arguments.items()
        if is_a(one, Tensor)
        and one.is_floating_point()
        and one.ndim >= TEXT - 1
        and not any(word in name for word in _NO_TEXTS)
    ]


def _makes(text: Tensor, own: Tensor | None, queries: int, keys: int) -> bool:
    """Return whether the keys may be those of a text, alone or before the queries' own."""
    lengths = lengths_of(text)
    return keys in lengths or (
        own is not None and own.ndim == text.ndim and keys - queries in lengths
    )


def lengths_of(text: Tensor) -> set[int]:
    """Return how many tokens a tensor may have: the batch may come second, a picture has pixels."""
    shape = text.shape
    lengths = {shape[-2]} if len(shape) > 1 else set()
    if len(shape) == TEXT:
        lengths.add(shape[0])
    if len(shape) > TEXT:
        lengths.add(prod(shape[2:]))
    return lengths

"""Module calls: the modules of a model in progress, its passes, and the layers a user selects."""

import inspect
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from torch import nn

from glasshead.attention import Attention
from glasshead.private_names import lacking, private
from glasshead.watching.errors import UnseenError
from glasshead.watching.foreign import attribute

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

    __slots__ = ("_given", "compiled", "identity", "module")

    def __init__(
        self, module: nn.Module, given: tuple[Sequence[Any], dict[str, Any]] | None = None
    ) -> None:
        self.module, self.identity, self.compiled = module, object(), given is None
        self._given: Any = {} if given is None else given

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `forward` by name, defaults included; of compiled code none."""
        if type(self._given) is tuple:
            inputs, named = self._given
            names, defaults = _parameters(type(self.module))
            self._given = {**defaults, **dict(zip(names, inputs, strict=False)), **named}
        return self._given

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
    for call in calls_of_thread():
        if call.module in names:
            calls.append(call)
            if innermost:
                break
    return calls


def calls_of_thread() -> Iterator[ModuleCall]:
    """Yield the calls of any modules in progress in this thread, innermost first."""
    yield from _TRACED.calls
    yield from calls_on_stack() if _TRACED.around is None else _TRACED.around


def calls_on_stack() -> Iterator[ModuleCall]:
    """Yield the calls of modules on the stack of this thread, innermost first."""
    frame = sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        if frame.f_code is _CALL:
            local = frame.f_locals
            # Not the frame, which would keep all that its call was given until it is collected.
            call = local.get(_OWN)
            if call is None:
                given = local["args"], local["kwargs"]
                call = local[_OWN] = ModuleCall(uncompiled(local["self"]), given)
            yield call
        frame = frame.f_back


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


# Attributes by which wrappers of PyTorch hold a module, whose other attributes they give as theirs.
_WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return the dotted name of each module.

    An `Attention` goes by the name of the module that calls it, as several may share one, and so
    does a softmax. What is compiled or wrapped by FSDP goes by the name of what was given to it.

    Errors: an `UnseenError` where this version of PyTorch does not show which module runs.
    """
    if not {"self", "args", "kwargs"} <= set(getattr(_CALL, "co_varnames", ())):
        raise UnseenError(
            lacking(
                "watch and ablate cannot tell which module runs",
                "torch.nn.Module._wrapped_call_impl(self, *args, **kwargs)",
                "take PyTorch 2.8 to 2.15 instead",
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
        place: Index of the run of the module in it.
        interleaved: Whether other attention ran since the last run.
        beside: Whether the last run was in the same call of the module.
    """

    forward: int
    place: int = 0
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


class Layers:
    """The layers of a model selected by patterns of module names.

    A pattern such as "model.layers.1*" selects modules, and every attention within them. `*`
    matches anything, dots included, `?` one character, `[01]` one of a set.

    Args:
        patterns: One pattern, or several; None: all layers.
        names: Names of all modules of the model.
        argument: The name of the argument that they were given by.

    Errors: a TypeError for a pattern that is no string, a ValueError for one that matches nothing.
    """

    def __init__(
        self, patterns: str | Sequence[str] | None, names: Iterable[str], argument: str = "layers"
    ) -> None:
        self._named: dict[str, list[str]] | None = None
        if patterns is None:
            return
        names = list(names)
        self._named = {pattern: _outermost(pattern, names) for pattern in _texts(patterns)}
        for pattern, named in self._named.items():
            if not named:
                raise ValueError(
                    f"{argument} takes names of the model's modules, such as {_some(names)}, and "
                    f"got {pattern!r}, which names none."
                )

    def __contains__(self, name: str) -> bool:
        if self._named is None:
            return True
        return any(_within(name, layer) for named in self._named.values() for layer in named)

    def touch(self, name: str) -> bool:
        """Return whether a module, or one within it, is selected."""
        inner = (layer for named in (self._named or {}).values() for layer in named)
        return name in self or any(_within(layer, name) for layer in inner)

    def check_seen(self, seen: Iterable[str], others: Iterable[str] = (), why: str = "") -> None:
        """Check that every pattern, and every layer of a pattern, has shown attention.

        Args:
            seen: Names of modules whose attention was seen.
            others: Names of attentions that were not selected, for the error.
            why: A possible reason, a clause that ends with "else".

        Errors: an `UnseenError` for a pattern without any; for one layer of several it is a
        warning, as models may have layers of several kinds.
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
    """Return the names that match a pattern, except those within another match."""
    named: list[str] = []
    for name in names:
        if fnmatchcase(name, pattern) and not any(_within(name, other) for other in named):
            named.append(name)
    return named


def _within(name: str, layer: str) -> bool:
    return name == layer or not layer or name.startswith((f"{layer}.", f"{layer}#"))


def _some(names: Sequence[str]) -> str:
    """Quote the first three names."""
    shown = [repr(name) for name in names if name] or ["nothing"]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")

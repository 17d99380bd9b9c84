"""Kernels of layers that mix tokens without attention, as transformers' modules call them.

Most are functions that each modeling file of transformers has under the same name, and that run the
kernel of another library where it is installed. They are patched in the files of a model's classes.
Gated recurrences, lightning attention and mLSTMs are methods, which are patched in their classes.
"""

import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import Tensor, nn

from glasshead.watching.interception.circumstances import in_backward
from glasshead.watching.interception.session import Patch, Session
from glasshead.watching.mixers.kinds import (
    CONVOLUTION,
    FUNCTIONS,
    GATED_CHANNELS,
    LIGHTNING,
    MATRIX_MEMORY,
    Kind,
    Mix,
)
from glasshead.watching.module_calls import calls_on_stack
from glasshead.watching.watcher import Watcher

_Function = Callable[..., Any]
# The method of a class that scans, and the parts of a module of lightning attention, or of the
# kernels of an mLSTM.
_SCAN = "_rnn_scan"
_KERNELS = {"chunkwise_kernel_fn", "sequence_kernel_fn", "step_kernel_fn"}
_PARTS = {"qkv_proj", "norm", "slope_rate", "head_dim", "num_attention_heads"}


def mixer_kernels(modules: Iterable[nn.Module]) -> list[Patch]:
    """Return the patches of the mixers of a model.

    Args:
        modules: The modules of the model.
    """
    kinds = {type(module): module for module in modules}
    patches: list[Patch] = []
    for home in dict.fromkeys(sys.modules.get(kind.__module__) for kind in kinds):
        found = {name: kind for name, kind in FUNCTIONS.items() if callable(_own(home, name))}
        # A convolution before a recurrence is a part of it.
        alone = all(kind.name == CONVOLUTION for kind in found.values())
        patches += [
            Patch(home, name, partial(_kernel, kind))
            for name, kind in found.items()
            if alone or kind.name != CONVOLUTION
        ]
    for kind, module in kinds.items():
        if callable(getattr(kind, _SCAN, None)):
            patches.append(Patch(kind, _SCAN, _scan))
        if all(hasattr(module, part) for part in _PARTS):
            patches.append(Patch(kind, "forward", _lightning))
        if all(hasattr(module, part) for part in _KERNELS):
            patches.append(Patch(kind, "forward", _memory))
    return patches


def _own(home: Any, name: str) -> Any:
    return vars(home).get(name) if home is not None else None


def _watches(session: Session) -> bool:
    return not in_backward() and any(one.mixers is not None for one in session.watchers)


def _kernel(
    kind: Kind, session: Session, original: _Function, /, *inputs: Any, **named: Any
) -> Any:
    """Run a kernel, and let the watchers observe it."""
    if not _watches(session):
        return original(*inputs, **named)
    given = _by_name(original, inputs, named)
    if kind.written is not None:
        given["before"] = given[kind.written].detach().clone()
    with session.suspended():
        output = original(*inputs, **named)
    if kind.name == CONVOLUTION:
        given |= _of_cached_text()
    _observe(session, kind, given, output)
    return output


def _by_name(original: _Function, inputs: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function by name, defaults included."""
    bound = _signature(inspect.unwrap(original)).bind(*inputs, **named)
    bound.apply_defaults()
    given = dict(bound.arguments)
    return given | given.pop("kwargs", {})


@cache
def _signature(function: _Function) -> inspect.Signature:
    return inspect.signature(function)


def _of_cached_text() -> dict[str, Any]:
    """Return how many tokens the module in progress reads, and whether it was given a cache."""
    given = calls_on_stack(innermost=True)[0].arguments
    tokens = given["hidden_states"].shape[1]
    caches = (given.get(name) for name in ("past_key_values", "cache_params"))
    return {"tokens": tokens, "cached": any(one is not None for one in caches)}


def _scan(session: Session, original: _Function, module: nn.Module, /, **given: Any) -> Any:
    """Run the scan of a gated recurrence, and let the watchers observe it."""
    output = original(module, **given)
    if _watches(session):
        session.record_mixing()
        _observe(session, GATED_CHANNELS, given, output)
    return output


def _memory(
    session: Session, original: _Function, module: Any, /, *inputs: Any, **named: Any
) -> Any:
    """Run the kernels of an mLSTM, and let the watchers observe them."""
    if not _watches(session):
        return original(module, *inputs, **named)
    given = _by_name(original, (module, *inputs), named) | {"eps": module.config.eps}
    # A cache writes to its states.
    states = {name: one for name, one in given.items() if name.endswith("_initial")}
    given |= {name: None if one is None else one.detach().clone() for name, one in states.items()}
    output = original(module, *inputs, **named)
    _observe(session, MATRIX_MEMORY, given, output)
    return output


def _lightning(
    session: Session, original: _Function, module: Any, /, *inputs: Any, **named: Any
) -> Any:
    """Run lightning attention, which is written into its module, and let the watchers observe it.

    Its queries, keys and values follow from a projection, and its output goes through a norm.
    """
    if not _watches(session):
        return original(module, *inputs, **named)
    named = {**dict(zip(_positional(original), inputs, strict=False)), **named}
    cache_, layer = named.get("past_key_values"), module.layer_idx
    state = None if cache_ is None else cache_.get_linear_cache(layer)
    state = None if state is None else state.detach().clone()
    with _noted(module.qkv_proj) as projected, _noted(module.norm, inputs=True) as made:
        output = original(module, **named)
    heads = module.num_attention_heads
    states = module.act_fn(projected[0])
    mask = named.get("attention_mask")
    states = states if mask is None else states * mask[:, :, None].to(states.dtype)
    shape = *states.shape[:2], heads, 3 * module.head_dim
    query, key, value = states.reshape(shape).transpose(1, 2).split(module.head_dim, -1)
    given = {"query": query, "key": key, "value": value, "state": state}
    given["slope_rate"] = module.slope_rate
    out = made[0].unflatten(-1, (heads, -1)).transpose(1, 2)
    _observe(session, LIGHTNING, given, (out, output[1]))
    return output


@cache
def _positional(function: _Function) -> list[str]:
    return [*inspect.signature(function).parameters][1:]


@contextmanager
def _noted(module: nn.Module, *, inputs: bool = False) -> Any:
    """Note what a module gives, or what it is given, while the block lasts."""
    noted: list[Tensor] = []

    def note(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        del module
        noted.append((given[0] if inputs else output).detach())

    handle = module.register_forward_hook(note)
    try:
        yield noted
    finally:
        handle.remove()


def _observe(session: Session, kind: Kind, given: dict[str, Any], output: Any) -> None:
    made = output[0] if isinstance(output, tuple) else output
    mixes: list[Mix | None] = []

    def observe(watcher: Watcher) -> None:
        if watcher.mixers is None:
            return
        if not mixes:
            mixes.append(kind.read(_detached(given), _detached(output)))
        if mixes[0] is not None:
            watcher.mixers.observe(kind, mixes[0], made.dtype)

    session.record_mixing()
    session.observe_mixer(observe, made)


def _detached(given: Any) -> Any:
    """Return tensors, in whatever holds them, without their gradients."""
    if isinstance(given, Tensor):
        return given.detach()
    if isinstance(given, dict):
        return {name: _detached(one) for name, one in given.items()}
    if isinstance(given, list | tuple):
        return tuple(_detached(one) for one in given)
    return given

"""Follow the residual stream of a model while it runs, operator by operator."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.private_names import private
from glasshead.watching.foreign import attribute
from glasshead.watching.interception.circumstances import hidden_from_modes, in_backward
from glasshead.watching.residual.nodes import HEADS, STREAM
from glasshead.watching.residual.operators import before_writing, take
from glasshead.watching.residual.tape import Output, Tape

_Mode: Any = private("torch.utils._python_dispatch.TorchDispatchMode") or object
_Operator = type(torch.ops.aten.mm.default)
# Their parts are not called as modules, and hooks on these would turn off their fast paths.
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


@contextmanager
def following(tape: Tape, model: nn.Module, names: dict[nn.Module, str]) -> Iterator[None]:
    """Follow the residual stream on a tape while the block lasts."""
    within = {part for one in model.modules() if isinstance(one, _FUSED) for part in one.modules()}
    blocks = {model, *_blocks(model)}
    mode, last = _FollowMode(tape), _output_projection(model)
    with ExitStack() as stack:
        stack.callback(tape.close)
        for module, name in names.items():
            if module in within:
                continue
            if module in blocks:
                enter = _Entering(tape, name)
                stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            leave = _Leaving(tape, name, module, is_last=module is last or not name)
            stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(mode)
        yield


def _output_projection(model: nn.Module) -> nn.Module:
    """Return the module that gives the logits, as a model may cap them after it."""
    named = attribute(model, "get_output_embeddings")
    found = named() if callable(named) else None
    return found if isinstance(found, nn.Module) else model


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Generate the modules in the outermost lists of a model."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            yield from child.children()
        else:
            yield from _blocks(child)


class _FollowMode(_Mode):
    """A mode that hands each operator of this thread to a tape."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tape = self._tape
        if torch.is_inference_mode_enabled():
            # Composite operators arrive there.
            tape.spent = "the model ran in torch.inference_mode(). Run it under torch.no_grad()"
        if tape.spent is not None or not isinstance(func, _Operator) or in_backward():
            return func(*args, **kwargs)
        writes = func._schema.is_mutable  # noqa: SLF001 - it has no other name
        node = None
        if writes:
            with hidden_from_modes(), torch.no_grad():
                node = tape.guarded(before_writing, tape, func.name(), args, kwargs)
        output = func(*args, **kwargs)
        if node is not None:
            tape.follow(output, node)
        elif not writes:
            with hidden_from_modes(), torch.no_grad():
                tape.guarded(take, tape, func.name(), output, args, kwargs)
        return output


class _Entering:
    """A hook that begins a residual stream at what a model, or a block of it, is given."""

    def __init__(self, tape: Tape, name: str) -> None:
        self._tape, self._name = tape, name

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tape = self._tape
        tape.forget_freed()
        if not self._name:
            tape.output = None
        given = args if not self._name else args[:1] or [kwargs.get("hidden_states")]
        for one in [*given, *(() if self._name else kwargs.values())]:
            if not isinstance(one, Tensor) or not one.is_floating_point() or one.ndim < 2:
                continue
            if tape.node(one) is None:
                name = tape.labelled(one) or (f"input of {self._name}" if self._name else "input")
                with hidden_from_modes(), torch.no_grad():
                    leaf = tape.guarded(tape.leaf, one, STREAM, kind="input", name=name)
                if leaf is not None:
                    tape.follow(one, leaf)


class _Leaving:
    """A hook that labels what a module returns by its name."""

    def __init__(self, tape: Tape, name: str, module: nn.Module, *, is_last: bool) -> None:
        self._tape, self._name, self._is_last = tape, name, is_last
        # A norm or a dropout returns what another module has made.
        own = [*module.parameters()]
        self._passes_on = all(one.ndim < 2 for one in own)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        made = output[0] if isinstance(output, tuple | list) and output else output
        made = made if self._name else attribute(made, "logits", made)
        if not isinstance(made, Tensor):
            return
        if self._is_last:
            node = self._tape.node(made)
            with hidden_from_modes(), torch.no_grad():
                last = made[..., -1, :].clone() if made.ndim > 1 else made
            if node is not None:
                self._tape.output = Output(node, last, tuple(made.shape))
                if node.role == HEADS:
                    self._tape.wrote(made, node)
        name = self._name
        if not name:
            return
        if self._passes_on and args and isinstance(args[0], Tensor):
            name = self._tape.labelled(args[0]) or name
        self._tape.label(made, name)

"""Errors of a watch: why a model is not watched, and what would help this one."""

import re
import sys
from collections.abc import Iterator, Sequence

from torch import nn


def check_not_compiled(model: nn.Module, verb: str) -> None:
    """Raise where a part of the model is compiled: its attention is code that nobody calls.

    Args:
        model: What is to run.
        verb: What is to be done with it: "watch", "ablate".

    Errors: a ValueError.
    """
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None:  # noqa: SLF001 - it has no other name
            raise ValueError(
                f"{verb} takes a model that is not compiled, and {name or 'the model'!r} is: "
                f"{verb} the model that was given to torch.compile."
            )


# What modules call the switch between their fused path and one of products and a softmax.
_SWITCH = re.compile(
    r"_?((use|enable|with|is)_)?(flash|fused|sdpa?|sdp|efficient|scaled_dot_product)"
    r"(_?(attn|attention|sdpa?))?"
)


class UnseenError(RuntimeError):
    """The model ran, and attention of it was not seen, or not as it is; the message says why."""


class BudgetError(ValueError):
    """What is kept of a model takes more memory than its `budget`."""


# Why attention that has run was not observed.
UNDER_VMAP = (
    "watch sees a model as it runs, and not under torch.vmap: give the model the batch itself, "
    "which {module} was not given, or leave that out by layers=."
)
NUMBERLESS = (
    "watch sees attention that has numbers, and {module} ran on tensors without any, of the meta "
    "device or FakeTensorMode: give the model real ones, or leave it out by layers=."
)
COMPILED = (
    "watch sees what is not compiled, and {module} ran attention within code of torch.compile: "
    "run that code as it was before, or leave it out by layers=."
)


def unreadable(error: Exception) -> str:
    """Return the sentence about attention that gave an error where it was observed."""
    said = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    said = said.replace("{", "{{").replace("}", "}}")
    return (
        f"watch could not observe the attention of {{module}}, which ran all the same ({said}): "
        f"leave it out by layers=."
    )


def described(model: nn.Module, names: Sequence[str]) -> str:
    """Return the class and the name of the first of some modules, and how many more there are."""
    kind = type(model.get_submodule(names[0])).__name__
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{kind} at {names[0] or 'the model'!r}{others}"


def not_run(model: nn.Module, *, elsewhere: bool) -> str:
    """Return the sentence about a model of which no module was called in the thread of the block.

    Args:
        model: What is watched.
        elsewhere: Whether it was called in another thread.
    """
    kind = type(model).__name__
    if elsewhere:
        return (
            f"watch saw no attention of {kind}: run the model inside the block and in the thread "
            f"that opened it, and not in another, as it was."
        )
    return (
        f"watch saw no attention of {kind}: run the model inside the block and in the thread that "
        f"opened it, and not compiled."
    )


def without_attention(model: nn.Module, softmaxes: Sequence[str]) -> str:
    """Return the sentence about a model that ran without any attention that can be seen.

    Args:
        model: What is watched.
        softmaxes: The names of the modules that computed a softmax by themselves.
    """
    kind = type(model).__name__
    if softmaxes:
        return (
            f"watch saw no attention of {kind}, which ran: {softmax_of(model, softmaxes)}there is "
            f"nothing to watch."
        )
    return (
        f"watch saw no attention of {kind}, which ran: it called no scaled_dot_product_attention, "
        f"no attention of PyTorch's layers or of transformers, and no softmax, so there is "
        f"nothing to watch."
    )


def softmax_of(model: nn.Module, names: Sequence[str]) -> str:
    """Return what would help where softmaxes are attention that does not look so; ends in "else".

    Args:
        model: What is watched.
        names: Of the modules that computed a softmax by themselves.
    """
    return (
        f"if the softmax of {described(model, names)} is attention, {way_out(model, names[0])}, "
        f"else "
    )


def attends(name: str) -> bool:
    """Return whether the name of a module or a class says that it attends."""
    return any(word in name.lower() for word in ("attention", "attn"))


def is_a_head(model: nn.Module, name: str) -> bool:
    """Return whether a module is one of the heads that a class of attention lists."""
    outer, _, number = name.rpartition(".")
    if not number.isdigit():
        return False
    owner = model.get_submodule(outer.rpartition(".")[0])
    return type(owner).__name__.lower().endswith(("attention", "attn"))


def way_out(model: nn.Module, name: str) -> str:
    """Return what makes the attention of a module visible that computes a softmax by itself.

    Args:
        model: What is watched.
        name: Of the module.
    """
    module = model.get_submodule(name)
    library = type(module).__module__.partition(".")[0]
    if advice := _of_transformers(model, name) or _of_diffusers(module, library):
        return advice
    if library == "glasshead":
        return "build gh.MultiHeadAttention.from_module of it"
    if switch := _switch(module):
        return f"its {switch} is False, so {_switched_on(library, switch)}"
    return "call F.scaled_dot_product_attention there instead of that softmax"


def _of_transformers(model: nn.Module, name: str) -> str | None:
    """What helps a module of transformers, where it is one."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return None
    module = model.get_submodule(name)
    for outer in _around(model, name):
        written = type(outer).__module__ == type(module).__module__
        if not isinstance(outer, library.PreTrainedModel) or not written:
            continue
        kind, chosen = type(outer).__name__, getattr(outer.config, "_attn_implementation", None)
        if not outer._supports_sdpa:  # noqa: SLF001 - it has no other name
            return (
                f"call F.scaled_dot_product_attention in {type(module).__name__}, as {kind} has no "
                f"attn_implementation='sdpa' in this version of transformers"
            )
        if chosen != "sdpa":
            return "load the model with attn_implementation='sdpa'"
        return (
            f"{kind} has attn_implementation='sdpa' and left it for this call, as some models do "
            f"for output_attentions=True, so call it without"
        )
    return None


def _around(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """Yield a module and those that it is a part of, the innermost first."""
    while name:
        yield model.get_submodule(name)
        name = name.rpartition(".")[0]
    yield model


def _of_diffusers(module: nn.Module, library: str) -> str | None:
    """What helps a module of diffusers, whose processor computes its attention."""
    if library != "diffusers" or not hasattr(module, "set_processor"):
        return None
    processor = type(getattr(module, "processor", None)).__name__
    return f"its processor is {processor}, so give it AttnProcessor2_0() by set_processor"


def _switch(module: nn.Module) -> str | None:
    """The attribute by which a module has turned its fused path off."""
    for name, value in vars(module).items():
        if value is False and _SWITCH.fullmatch(name):
            return name
    return None


def _switched_on(library: str, switch: str) -> str:
    """How a library switches its fused path on."""
    if library == "timm":
        return "set it to True, or call timm.layers.set_fused_attn(True) before the model is built"
    if library == "x_transformers":
        return "build the model with attn_flash=True"
    return f"set {switch} to True, or build the model so"

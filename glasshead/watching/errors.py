"""Errors of a watch: why a model cannot be observed, and what to do about it."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from glasshead.private_names import lacking, private
from glasshead.recipe.validation import UnfitError
from glasshead.watching.foreign import attribute


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


# Names of attributes by which modules switch between a fused kernel and a softmax by hand.
_SWITCH = re.compile(
    r"_?((use|enable|with|is)_)?(flash|fused|sdpa?|sdp|efficient|scaled_dot_product)"
    r"(_?(attn|attention|sdpa?))?"
)


# Weak references to the memory of a tensor, by which attention by hand is followed.
WEAK_STORAGE = "torch.multiprocessing.reductions.StorageWeakRef"
# Only the math fallback of PyTorch's attention calls this operator.
_SAFE_SOFTMAX = "torch.ops.aten._safe_softmax"


class UnseenError(RuntimeError):
    """Attention of a model ran, but was not seen, or not as it is; the message says why."""


class UnfollowedError(RuntimeError):
    """Attention written by hand that is not what its softmax says; the message is a clause."""


class BudgetError(UnfitError):
    """Kept weights that need more memory than `budget`."""


# The error that a watch raises into the model's run, as its arguments do not fit it. An
# `UnseenError` waits for the end of the block.
MEANT = UnfitError


# Reasons why an attention that ran was not observed.
UNDER_VMAP = (
    "watch sees a model as it runs, and not under torch.vmap: give the model the batch itself, "
    "which {module} was not given, or leave that out by layers=."
)
NUMBERLESS = (
    "watch sees attention that has numbers, and {module} ran on tensors without any, of the meta "
    "device or FakeTensorMode: give the model real ones, or leave it out by layers=."
)
TRACED = (
    "watch sees attention that is not being traced, and {module} ran within torch.jit.trace alone: "
    "run the model in the block, too, or leave the module out by layers=."
)
COMPILED = (
    "watch sees F.scaled_dot_product_attention in code of torch.compile, and {module} ran another "
    "attention within such code: run it as it was before, or leave it out by layers=."
)
COMPILED_SOFTMAX = (
    "watch sees F.scaled_dot_product_attention in code of torch.compile, and {module} computes a "
    "softmax of its own there: load a model of transformers with attn_implementation='sdpa' where "
    "it has that, run it as it was before torch.compile, or leave it out by layers=."
)
SHARDED = (
    "watch tells the heads of tensor parallel by projections that are sharded by heads, and the "
    "weights of {module} are sharded in another way: shard them by ColwiseParallel and "
    "RowwiseParallel, or leave it out by layers=."
)
STANCE = (
    "watch compiles what is compiled anew, and where {module} ran the stance of torch.compiler "
    "does not let it: leave that stance, or leave the module out by layers=."
)
BY_HAND = (
    "watch follows attention by hand from a product of queries and keys through a softmax to a "
    "product with values"
)
FEATURES = (
    "has features of a projection on one side of its softmax, and not on both, as cross-covariance "
    "attention has"
)


def unknown_operator(name: str) -> str:
    """Return the message for an attention that was computed by an operator that we do not know."""
    return (
        f"watch does not know {name} of PyTorch {torch.__version__}, by which {{module}} attends: "
        f"call F.scaled_dot_product_attention there instead, or leave it out by layers=."
    )


def unreadable(error: Exception) -> str:
    """Return the message for an attention whose observation raised an error."""
    if isinstance(error, UnfollowedError):
        return f"{BY_HAND}, and {{module}} {error}: leave it out by layers=."
    if isinstance(error, UnseenError):
        return str(error).replace("{", "{{").replace("}", "}}")
    reason = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".")
    reason = reason.replace("{", "{{").replace("}", "}}")
    return (
        f"watch could not observe the attention of {{module}}, which ran all the same ({reason}): "
        f"leave it out by layers=."
    )


def described(model: nn.Module, names: Sequence[str]) -> str:
    """Return the class and name of the first of some modules, and the number of the others."""
    kind = type(module_of(model, names[0])).__name__
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{kind} at {names[0] or 'the model'!r}{others}"


def not_run(model: nn.Module, *, elsewhere: bool) -> str:
    """Return the message for a model of which no module was called in the thread of the block.

    Args:
        model: The watched model.
        elsewhere: Whether it was called in another thread.
    """
    last = ", and not in another, as it was" if elsewhere else ""
    return (
        f"watch saw no attention of {type(model).__name__}: run the model inside the block and in "
        f"the thread that opened it{last}."
    )


def without_attention(model: nn.Module, softmaxes: Sequence[str]) -> str:
    """Return the message for a model that ran without any visible attention.

    Args:
        model: The watched model.
        softmaxes: Names of the modules that computed a softmax by hand.
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
    """Return advice for softmaxes that may be attention by hand; it ends in "else".

    Args:
        model: The watched model.
        names: Names of the modules that computed a softmax by hand.
    """
    return (
        f"if the softmax of {described(model, names)} is attention, {way_out(model, names[0])}, "
        f"else "
    )


def unfollowed(model: nn.Module, name: str, why: str) -> str:
    """Return the message for attention by hand of which a part could not be followed.

    Args:
        model: The watched model.
        name: Name of the module.
        why: What it does, a clause.
    """
    # Features stay features on a fused kernel.
    advice = "" if why == FEATURES else f"{way_out(model, name)}, or "
    return f"{BY_HAND}, and {described(model, [name])} {why}: {advice}leave it out by layers=."


def attends(name: str) -> bool:
    """Return whether the name of a module or class suggests attention."""
    return any(word in name.lower() for word in ("attention", "attn"))


def is_a_head(model: nn.Module, name: str) -> bool:
    """Return whether a module is one of the heads in a list of an attention class."""
    outer, _, number = name.rpartition(".")
    if not number.isdigit():
        return False
    owner = module_of(model, outer.rpartition(".")[0])
    return type(owner).__name__.lower().endswith(("attention", "attn"))


def way_out(model: nn.Module, name: str) -> str:
    """Return how to make the attention of a module visible that computes a softmax by hand.

    Args:
        model: The watched model.
        name: Name of the module.
    """
    module = module_of(model, name)
    library = type(module).__module__.partition(".")[0]
    if advice := _of_transformers(model, name) or _of_diffusers(module, library):
        return advice
    if switch := _switch(module):
        return f"its {switch} is False, so {_switched_on(library, switch)}"
    if private(WEAK_STORAGE) is None:
        return lacking(
            "watch cannot follow attention by hand",
            WEAK_STORAGE,
            "call F.scaled_dot_product_attention there instead of that softmax",
        ).rstrip(".")
    if private(_SAFE_SOFTMAX) is None:
        # What PyTorch computes without a fused kernel looks like a softmax by hand then.
        return lacking(
            "if it is a fallback of F.scaled_dot_product_attention, watch cannot see it",
            _SAFE_SOFTMAX,
            "give it four axes and no dropout",
        ).rstrip(".")
    return "call F.scaled_dot_product_attention there instead of that softmax"


def _of_transformers(model: nn.Module, name: str) -> str | None:
    """Return advice for a module of transformers; None for any other."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return None
    module = module_of(model, name)
    for outer in _around(model, name):
        written = type(outer).__module__ == type(module).__module__
        if not isinstance(outer, library.PreTrainedModel) or not written:
            continue
        kind, chosen = (
            type(outer).__name__,
            attribute(attribute(outer, "config"), "_attn_implementation"),
        )
        if not attribute(outer, "_supports_sdpa", True):
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
    """Yield a module and its ancestors, innermost first."""
    while name:
        yield module_of(model, name)
        name = name.rpartition(".")[0]
    yield model


def _of_diffusers(module: nn.Module, library: str) -> str | None:
    """Return advice for a module of diffusers, whose processor computes its attention."""
    if library != "diffusers" or attribute(module, "set_processor") is None:
        return None
    processor = type(attribute(module, "processor")).__name__
    return f"its processor is {processor}, so give it AttnProcessor2_0() by set_processor"


def _switch(module: nn.Module) -> str | None:
    """Return the attribute by which a module has switched its fused kernel off."""
    for name, value in vars(module).items():
        if value is False and _SWITCH.fullmatch(name):
            return name
    return None


def _switched_on(library: str, switch: str) -> str:
    """Return how to switch a library's fused kernel on."""
    if library == "timm":
        return "set it to True, or call timm.layers.set_fused_attn(True) before the model is built"
    if library == "x_transformers":
        return "build the model with attn_flash=True"
    return f"set {switch} to True, or build the model so"

"""Words for attention that ran and was not observed: what it is, why, and what helps."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from glasshead.private_names import lacking, private
from glasshead.watching.errors import (
    EXPLICIT,
    FEATURES,
    IN_COMPILED_CODE,
    OVERWRITTEN,
)
from glasshead.watching.foreign import attribute
from glasshead.watching.module_calls import module_of

# Names of attributes by which modules switch between a fused kernel and a softmax by hand.
_SWITCH = re.compile(
    r"_?((use|enable|with|is)_)?(flash|fused|sdpa?|sdp|efficient|scaled_dot_product)"
    r"(_?(attn|attention|sdpa?))?"
)
# Only the math fallback of PyTorch's attention calls this operator.
_SAFE_SOFTMAX = "torch.ops.aten._safe_softmax"
# What helps whatever the module is; features stay features on a fused kernel.
_WAYS = {
    IN_COMPILED_CODE: "run it uncompiled",
    OVERWRITTEN: "write them to a tensor of their own",
    FEATURES: None,
}


class LoneSoftmax(NamedTuple):
    """A softmax that was not observed.

    Attributes:
        why: What it does instead of attending as watch follows it, a clause.
        asked: Whether the model was called with output_attentions=True.
        between: Whether it was followed between two products, and is more than a kernel computes.
    """

    why: str
    asked: bool = False
    between: bool = False


def described(model: nn.Module, names: Sequence[str]) -> str:
    """Return the class and name of the first of some modules, and the number of the others."""
    kind = type(module_of(model, names[0])).__name__
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{kind} at {names[0] or 'the model'!r}{others}"


def not_run(model: nn.Module, *, elsewhere: bool) -> str:
    """Return the message for a model of which no module was called in the thread of the block.

    Args:
        model: The watched model.
        elsewhere: Whether it was called in another thread.
    """
    kind = type(model).__name__
    if elsewhere:
        return (
            f"watch observed no attention of {kind}, which ran in another thread. Run it in the "
            "thread that opened the block."
        )
    return (
        f"watch observed no attention of {kind}. Run the model inside the block and in the thread "
        "that opened it."
    )


def without_softmax(model: nn.Module, steps: Mapping[str, str]) -> str:
    """Return the message for a model whose modules weigh values by scores without a softmax.

    Args:
        model: The watched model.
        steps: The steps from queries to values, by the names of the modules.
    """
    # Other products of three tensors are named where there is no attention by name.
    named = [name for name in steps if attends(own_names(model, name, within=False))]
    names = named or [*steps]
    return (
        f"watch observes attention with a softmax, but {described(model, names)} has none between "
        f"its scores and its values ({steps[names[0]]})."
    )


def without_attention(model: nn.Module, softmaxes: Mapping[str, LoneSoftmax]) -> str:
    """Return the message for a model that ran without any visible attention.

    Args:
        model: The watched model.
        softmaxes: The softmaxes that were not observed, by the names of their modules.
    """
    kind = type(model).__name__
    if softmaxes:
        found = lone_softmax(model, [*softmaxes], softmaxes)
        return f"watch observed no attention of {kind}, which ran: {found}"
    return (
        f"watch observed no attention of {kind}, which ran: it called no "
        "scaled_dot_product_attention, no attention of PyTorch's layers or of transformers, and no "
        "softmax; watch does not observe other kinds of weights."
    )


def lone_softmax(
    model: nn.Module,
    names: Sequence[str],
    softmaxes: Mapping[str, LoneSoftmax],
    omit: str = "",
) -> str:
    """Return why softmaxes were not observed, and what helps, in one or two sentences.

    Args:
        model: The watched model.
        names: Names of the modules that computed them.
        softmaxes: The softmaxes by these names.
        omit: How to watch without them, a clause; "" if that does not help.
    """
    first = softmaxes[names[0]]
    ways = [way for way in (advice_for(model, names[0], first), omit) if way]
    advice = ", or ".join(ways)
    after = f" {advice[0].upper()}{advice[1:]}." if advice else ""
    return f"{described(model, names)} {first.why}.{after}"


def unfollowed(model: nn.Module, name: str, softmax: LoneSoftmax) -> str:
    """Return the message for attention by hand of which a part could not be followed.

    Args:
        model: The watched model.
        name: Name of the module.
        softmax: Its softmax.
    """
    why = lone_softmax(model, [name], {name: softmax}, "exclude it with layers=")
    return f"{EXPLICIT}, but {why}"


def attends(name: str) -> bool:
    """Return whether the name of a module or class suggests attention."""
    return any(word in name.lower() for word in ("attention", "attn"))


def own_names(model: nn.Module, name: str, *, within: bool) -> str:
    """Return the names of a module and of its class, as one text.

    Args:
        model: The watched model.
        name: Name of the module; of a layer of PyTorch, such as `nn.Softmax`, its owner counts.
        within: Whether those of the modules around it count as well.
    """
    owner = name
    if type(module_of(model, name)).__module__.startswith("torch.nn."):
        owner = name.rpartition(".")[0]
    kind = type(module_of(model, owner)).__name__
    return f"{name if within else owner.rpartition('.')[2]} {kind}"


def is_a_head(model: nn.Module, name: str) -> bool:
    """Return whether a module is one of the heads in a list of an attention class."""
    outer, _, number = name.rpartition(".")
    if not number.isdigit():
        return False
    owner = module_of(model, outer.rpartition(".")[0])
    return type(owner).__name__.lower().endswith(("attention", "attn"))


def advice_for(model: nn.Module, name: str, softmax: LoneSoftmax) -> str | None:
    """Return how to make the attention of a module visible; None if nothing is known to.

    Args:
        model: The watched model.
        name: Name of the module that computed a softmax by hand.
        softmax: That softmax.
    """
    if softmax.why in _WAYS:
        return _WAYS[softmax.why]
    module = module_of(model, name)
    library = type(module).__module__.partition(".")[0]
    if advice := _of_transformers(model, name, softmax) or _of_diffusers(module, library):
        return advice
    if not softmax.between and (switch := _switch(module)):
        return f"its {switch} is False, so {_switched_on(library, switch)}"
    return _of_private_names()


def _of_private_names() -> str | None:
    """Return advice for a version of PyTorch without the softmax of its math fallback."""
    if private(_SAFE_SOFTMAX) is None:
        # What PyTorch computes without a fused kernel looks like a softmax by hand then.
        return lacking(
            "if it is a fallback of F.scaled_dot_product_attention, watch cannot see it",
            _SAFE_SOFTMAX,
            "Give it four axes and no dropout",
        ).rstrip(".")
    return None


def _of_transformers(model: nn.Module, name: str, softmax: LoneSoftmax) -> str | None:
    """Return advice for a module of transformers whose attention function can be chosen."""
    library = sys.modules.get("transformers.modeling_utils")
    module = module_of(model, name)
    if library is None or not _chooses(type(module), "ALL_ATTENTION_FUNCTIONS"):
        return None
    for outer in _around(model, name):
        written = type(outer).__module__ == type(module).__module__
        if not isinstance(outer, library.PreTrainedModel) or not written:
            continue
        chosen = attribute(attribute(outer, "config"), "_attn_implementation")
        if chosen != "sdpa" and attribute(outer, "_supports_sdpa", False):
            return "load the model with attn_implementation='sdpa'"
        if chosen == "sdpa" and softmax.asked:
            return "call the model without output_attentions=True"
        return None
    return None


def _chooses(kind: type, *names: str) -> bool:
    """Return whether the methods of a class name all of these, as what they call."""
    code = [attribute(one, "__code__") for one in vars(kind).values()]
    named = {name for one in code if one is not None for name in one.co_names}
    return named.issuperset(names)


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
    if processor not in ("AttnProcessor", "SlicedAttnProcessor"):
        # Others do more than AttnProcessor2_0 does.
        return None
    return f"its processor is {processor}, so give it AttnProcessor2_0() by set_processor"


def _switch(module: nn.Module) -> str | None:
    """Return the attribute by which a module has switched off a call of a fused kernel."""
    for name, value in vars(module).items():
        if value is False and _SWITCH.fullmatch(name):
            used = _chooses(type(module), name, "scaled_dot_product_attention")
            return name if used else None
    return None


def _switched_on(library: str, switch: str) -> str:
    """Return how to switch a library's fused kernel on."""
    if library == "timm":
        return "set it to True, or call timm.layers.set_fused_attn(True) before the model is built"
    return f"set {switch} to True, or build the model so"

"""The names that PyTorch's transformer has for the parameters of ours."""

import torch
from torch import nn

_ENCODER = {
    "attention.projections.stacks.0.": "self_attn.in_proj_",
    "attention.output.": "self_attn.out_proj.",
    "feed_forward.hidden.": "linear1.",
    "feed_forward.output.": "linear2.",
    "around_attention.norm.": "norm1.",
    "around_feed_forward.norm.": "norm2.",
}
_DECODER = {
    **_ENCODER,
    "around_cross_attention.norm.": "norm2.",
    "around_feed_forward.norm.": "norm3.",
}
_CROSS = {
    "projections.stacks.0.weight": "in_proj_weight",
    "projections.stacks.0.bias": "in_proj_bias",
}


def in_torch(name: str, *, decoder: bool) -> str:
    """The name, within a layer of PyTorch's, of the parameter `name` of a block."""
    if name.startswith("cross_attention."):
        rest = name.removeprefix("cross_attention.")
        return "multihead_attn." + _CROSS.get(rest, rest.replace("output.", "out_proj."))
    for mine, theirs in (_DECODER if decoder else _ENCODER).items():
        if name.startswith(mine):
            return theirs + name.removeprefix(mine)
    raise LookupError(name)


def loud(module: nn.Module, std: float = 0.4) -> nn.Module:
    """The module with weights so large that each matters, biases and norms too, in float64."""
    generator = torch.Generator().manual_seed(7)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).double() * std)
    return module.eval()

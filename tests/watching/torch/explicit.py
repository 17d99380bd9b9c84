"""Weights by an explicit softmax, what they say, and runs that a watch must not have touched."""

import math

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import glasshead as gh
from glasshead.watching.interception.opening import PATCHES
from glasshead.watching.interception.session import THREADS

STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "sink": gh.MassOn([0]),
    "largest": gh.MaxWeight(),
    "distance": gh.MeanDistance(),
    "top": gh.TopK(2),
}


def weights(query, key, *, visible=None, bias=None, scale=None):
    """softmax(q·k · scale + bias), `[..., heads, queries, keys]`; zeros where nothing is seen."""
    query, key = query.detach().double(), key.detach().double()
    key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3) if key.ndim > 2 else key
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias.double()
    hidden = scores.isneginf() if visible is None else ~visible | scores.isneginf()
    return scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num(0.0)


def lower(queries, keys=None):
    """Which keys a query sees that sees none after its own, counted from the top left."""
    return torch.ones(queries, keys or queries, dtype=torch.bool).tril()


def check(call, expected, *, offset=0, tolerance=1e-5):
    """What was seen is what the weights say, `[batch, heads, queries, keys]`."""
    near = {"rtol": tolerance, "atol": tolerance, "check_dtype": False}
    queries, keys = expected.shape[-2:]
    apart = (torch.arange(queries)[:, None] + offset - torch.arange(keys)).abs()
    real = getattr(call, "real", None)
    counted = expected if real is None else expected * real[:, None, :, None]
    says = {
        "entropy": -torch.special.xlogy(expected, expected).sum(-1),
        "received": counted.sum(-2),
        "sink": expected[..., 0],
        "largest": expected.amax(-1),
        "distance": (expected * apart).sum(-1),
    }
    for name, value in says.items():
        torch.testing.assert_close(
            call[name], value, msg=lambda told, name=name: f"{name}: {told}", **near
        )
    values, places = call.top
    torch.testing.assert_close(values, expected.topk(2).values, **near)
    at_places = expected.gather(-1, places.clamp(min=0))
    torch.testing.assert_close(torch.where(places < 0, 0.0, at_places), values.double(), **near)


def undisturbed(model, *inputs, statistics=STATISTICS, gradient=False, asked=None, **named):
    """What a watch sees of a run that gives, bit for bit, what it gives when nobody watches.

    Output, gradients and the random numbers drawn are compared.

    Args:
        statistics, asked: What is given to `watch`.
        gradient: Whether there is a backward pass, within the block.
    """

    def run():
        torch.manual_seed(31)
        model.zero_grad()
        outputs = model(*inputs, **named)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        outputs = [output for output in outputs if output is not None]
        if gradient:
            for x in inputs:
                x.grad = None
            outputs[0].float().square().sum().backward()
            grown = [x for x in (*inputs, *model.parameters()) if x.requires_grad]
            outputs += [x.grad.clone() for x in grown if x.grad is not None]
        return [*outputs, torch.get_rng_state()]

    alone = run()
    with gh.watch(model, statistics, **(asked or {})) as seen:
        watched = run()
    assert len(alone) == len(watched)
    for one, other in zip(alone, watched, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(bits(one), bits(other))
    assert nothing_is_open()
    return seen


def bits(tensor):
    """The numbers of a tensor as integers, so that NaN equals itself; packed texts side by side."""
    tensor = tensor.detach()
    if tensor.is_nested:
        tensor = torch.cat([text.reshape(-1) for text in tensor.unbind()])
    return tensor.contiguous().view(torch.uint8) if tensor.ndim else tensor[None].view(torch.uint8)


def nothing_is_open():
    """Whether all that a watch replaces is as PyTorch has it."""
    functional = torch.nn.functional
    return (
        functional.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention
        and functional.multi_head_attention_forward.__module__ == functional.__name__
        and not hasattr(functional.multi_head_attention_forward, "__wrapped__")
        and not hasattr(gh.Attention.forward, "__wrapped__")
        and not _get_current_dispatch_mode_stack()
        and not PATCHES.installed
        and not THREADS.session.modes
    )

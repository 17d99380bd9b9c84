"""Kinds of layers that mix tokens without attention, each read from the inputs of its kernel.

The mixers of transformers call few functions, which their modules share by name: each function here
takes the arguments of one of these by name and its output, and returns what they mean as a `Mix`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.watching.mixers.recurrence import Band, Operator, Recurrence

_Given = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Mix:
    """One run of a mixer: y = gate · (W·v + what the state held before + constant).

    Attributes:
        operator: W.
        values: v, `[batch, heads, tokens, value_dim]`.
        output: What the kernel gave, like the values.
        state: What a state of earlier tokens held, `[batch, heads, state, value_dim]`; None: there
            was none.
        given: That state as the model holds it, by which it is known again; None: there was none.
        left: The state after the last token, in the same form; None: it was not asked for.
        gate: What the kernel multiplies its output by; None: 1.
        constant: A bias of the output.
    """

    operator: Operator
    values: Float[Tensor, "batch heads tokens value_dim"]
    output: Float[Tensor, "batch heads tokens value_dim"]
    state: Float[Tensor, "batch heads state value_dim"] | None = None
    given: Tensor | None = None
    left: Tensor | None = None
    gate: Tensor | None = None
    constant: Tensor | None = None

    def rebuilt(self) -> Float[Tensor, "batch heads tokens value_dim"]:
        """Compute the output before its gate from the weights, the values and the state."""
        made = self.operator.scan(self.values, state=self.state)
        return made if self.constant is None else made + self.constant


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of mixer.

    Attributes:
        name: What it computes, in words.
        read: Returns the `Mix` of a call, from its arguments by name and its output.
        channels: Whether each of its heads is a single channel.
        outer: How many modules around the one that calls the kernel the mixer is.
        written: The argument that the kernel writes to; None: there is none. What it held before
            is given as "before".
    """

    name: str
    read: Callable[[_Given, Any], Mix | None]
    channels: bool = False
    outer: int = 0
    written: str | None = None


def _heads_first(x: Tensor) -> Tensor:
    """Lay `[batch, tokens, heads, …]` out as `[batch, heads, tokens, …]`."""
    return x.transpose(1, 2).float()


def _split(output: Any) -> tuple[Tensor, Tensor | None]:
    """Return the output of a kernel, and the state after it, if there is one."""
    return output if isinstance(output, tuple) else (output, None)


def _as_summed(decay: Tensor, chunk: int | None) -> Tensor:
    """Return logarithms of decays as a kernel rounds them that sums them within chunks of tokens.

    Their sums differ from those of the exact numbers by more than anything else that rounds.
    """
    if chunk is None:
        return decay
    tokens = decay.shape[2]
    sums = F.pad(decay, (0, 0, 0, -tokens % chunk)).unflatten(2, (-1, chunk)).cumsum(3)
    steps = torch.cat([sums[:, :, :, :1], sums.diff(dim=3)], 3)
    return steps.flatten(2, 3)[:, :, :tokens]


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def delta_rule(given: _Given, output: Any) -> Mix:
    """Read a gated delta rule, whose decay is of heads or of their channels.

    Source: Yang et al. 2025 (Gated delta networks), equation 10; Kimi team 2025 (Kimi Linear),
    equation 1.
    """
    query, key, value = (_heads_first(given[name]) for name in ("query", "key", "value"))
    if given.get("use_qk_l2norm_in_kernel"):
        query, key = _unit(query), _unit(key)
    decay, gain = (_heads_first(given[name]) for name in ("g", "beta"))
    decay = decay if decay.ndim > 3 else decay.unsqueeze(-1)
    group = value.shape[1] // key.shape[1]
    made, left = _split(output)
    state = given.get("initial_state")
    return Mix(
        Recurrence(
            query=query.repeat_interleave(group, 1) * query.shape[-1] ** -0.5,
            key=key.repeat_interleave(group, 1),
            gain=gain.unsqueeze(-1),
            decay=_as_summed(decay, given.get("chunk_size")),
            delta=True,
        ),
        value,
        _heads_first(made),
        state=None if state is None else state.float(),
        given=state,
        left=left,
    )


def _step_sizes(given: _Given, bias: str, soft: str, axis: int) -> Tensor:
    """Return Δ, as a state space computes it from what it is given."""
    steps, offset = given["dt"], given.get(bias)
    if offset is not None:
        steps = steps + offset.to(steps.dtype).reshape(-1, *[1] * (steps.ndim - 1 - axis))
    steps = F.softplus(steps) if given.get(soft) else steps
    limits = given.get("dt_limit")
    return (steps if limits is None else steps.clamp(*limits)).float()


def state_space_of_heads(given: _Given, output: Any) -> Mix:
    """Read Mamba-2: one decay for each head and token, Δ_t x_t as values, and a skip.

    Source: Dao & Gu 2024 (Transformers are SSMs), section 5.
    """
    value = _heads_first(given["hidden_states"])
    made, left = _split(output)
    steps = _step_sizes(given, "dt_bias", "dt_softplus", 2).transpose(1, 2)
    skip, state = given.get("D"), given.get("initial_states")
    group = value.shape[1] // given["B"].shape[2]
    query, key = (_heads_first(given[name]).repeat_interleave(group, 1) for name in ("C", "B"))
    return Mix(
        _state_space(query, key, steps, given["A"].float()[:, None], skip),
        value,
        _heads_first(made),
        state=None if state is None else state.float().mT,
        given=state,
        left=left,
    )


def one_token_of_heads(given: _Given, output: Tensor) -> Mix:
    """Read the step by which Mamba-2 decodes, whose numbers of heads are repeated for channels."""
    one = {name: given[name].unsqueeze(1) for name in ("hidden_states", "B", "C")}
    bias, skip = given.get("dt_bias"), given.get("D")
    one |= {"dt": given["dt"][:, None, :, 0], "A": given["A"][:, 0, 0]}
    one["dt_bias"] = None if bias is None else bias[:, 0]
    one["D"] = None if skip is None else skip[:, 0]
    one |= {"dt_softplus": given.get("dt_softplus"), "initial_states": given["before"]}
    mix = state_space_of_heads(one, (output.unsqueeze(1), given["state"]))
    gate = given.get("z")
    return mix if gate is None else replace(mix, gate=F.silu(gate.float()).unsqueeze(2))


def state_space_of_channels(given: _Given, output: Any) -> Mix:
    """Read Mamba: a state for each channel, whose decays differ, and a gate.

    Source: Gu & Dao 2023 (Mamba), algorithm 2; Ali et al. 2024 (The hidden attention of Mamba
    models), section 3.
    """
    made, left = _split(output)
    steps = _step_sizes(given, "delta_bias", "delta_softplus", 1)
    query, key = (given[name].float().mT[:, None] for name in ("C", "B"))
    gate, state = given.get("z"), given.get("initial_state")
    return Mix(
        _state_space(query, key, steps, given["A"].float(), given.get("D")),
        given["hidden_states"].float().unsqueeze(-1),
        made.float().unsqueeze(-1),
        state=None if state is None else state.float().unsqueeze(-1),
        given=state,
        left=left,
        gate=None if gate is None else F.silu(gate.float()).unsqueeze(-1),
    )


def one_token_of_channels(given: _Given, output: Tensor) -> Mix:
    """Read the step by which Mamba decodes."""
    names = ("hidden_states", "dt", "B", "C", "z")
    one = {name: given[name].unsqueeze(-1) for name in names if given.get(name) is not None}
    one |= {"A": given["A"], "D": given.get("D"), "delta_bias": given.get("dt_bias")}
    one |= {"delta_softplus": given.get("dt_softplus"), "initial_state": given["before"]}
    return state_space_of_channels(one, (output.unsqueeze(-1), given["state"]))


def _state_space(
    query: Tensor, key: Tensor, steps: Tensor, rate: Tensor, skip: Tensor | None
) -> Recurrence:
    """Return h_t = exp(Δ_t A) h_{t-1} + Δ_t B_t x_t, y_t = C_tᵀ h_t + D x_t."""
    steps = steps.unsqueeze(-1)
    if skip is not None:
        skip = skip.float()[None, :, None, None].expand(steps.shape)
    return Recurrence(query, key, gain=steps, decay=steps, rate=rate, skip=skip)


def weighted_key_values(given: _Given, output: Any) -> Mix:
    """Read RWKV's weighted average of values, of which each channel is a head.

    Its rows sum to 1. Numerator and denominator are kept relative to the largest exponent so far,
    as RWKV keeps them.

    Source: Peng et al. 2023 (RWKV), equations 16 and 23 to 28.
    """
    made, left = output
    key, value = given["key"].float(), given["value"].float()
    kept, own = -given["time_decay"].float().exp(), given["time_first"].float()
    state = given.get("state")
    below, largest = torch.zeros_like(key[:, 0]), torch.full_like(key[:, 0], -1e38)
    if state is not None:
        below, largest = state[1].float().clone(), state[2].float().clone()
    found: dict[str, list[Tensor]] = {"query": [], "gain": [], "decay": [], "skip": []}
    for place in range(key.shape[1]):
        now = key[:, place]
        top = torch.maximum(largest, now + own)
        before, itself = (largest - top).exp(), (now + own - top).exp()
        total = before * below + itself
        after = torch.maximum(largest + kept, now)
        passed, gain = largest + kept - after, (now - after).exp()
        below, largest = passed.exp() * below + gain, after
        for each, x in zip(
            found.values(), (before / total, gain, passed, itself / total), strict=True
        ):
            each.append(x)
    query, gain, decay, skip = (torch.stack(each, -1).unsqueeze(-1) for each in found.values())
    ones = torch.ones_like(gain[:1, :1])
    return Mix(
        Recurrence(query, ones, gain, decay, skip, before=True),
        value.mT.unsqueeze(-1),
        made.float().mT.unsqueeze(-1),
        state=None if state is None else state[0].float()[..., None, None],
        given=None if state is None else torch.stack([*state], -1),
        left=None if left is None else torch.stack([*left], -1),
    )


def matrix_memory(given: _Given, output: Any) -> Mix:
    """Read an mLSTM: linear attention with exponential gates, divided by the sum of its weights.

    The sum is at least 1 in magnitude. Numerator and sum are kept relative to the largest exponent
    so far, as the kernels keep them.

    Source: Beck et al. 2024 (xLSTM), equations 19 to 27.
    """
    query, key, value = (given[name].float() for name in ("query", "key", "value"))
    gain, kept = given["igate"].float(), F.logsigmoid(given["fgate"].float())
    made, left = _split(output)
    state, below, top = (given.get(f"{name}_initial") for name in "cnm")
    largest = [torch.zeros_like(gain[..., 0]) if top is None else top[..., 0].float()]
    for place in range(gain.shape[-1]):
        largest.append(torch.maximum(largest[-1] + kept[..., place], gain[..., place]))
    exponents = torch.stack(largest, -1).unsqueeze(-1)
    before, after = exponents[:, :, :-1], exponents[:, :, 1:]
    summed = Recurrence(
        query=query * query.shape[-1] ** -0.5,
        key=key,
        gain=(gain.unsqueeze(-1) - after).exp(),
        decay=kept.unsqueeze(-1) + before - after,
    )
    # A cache begins with zeros.
    if state is None or not bool(state.any()):
        state = below = None
    sums = summed.scan(
        torch.ones_like(value[..., :1]),
        state=None if below is None else below.float().unsqueeze(-1),
    )
    sums = sums.abs().maximum((-after).exp()) + given["eps"]
    return Mix(
        replace(summed, query=summed.query / sums),
        value,
        made.float(),
        state=None if state is None else state.float(),
        given=state,
        left=None if left is None else left[0],
    )


def gated_channels(given: _Given, output: Any) -> Mix:
    """Read a real-gated linear recurrent unit, of which each channel is a head.

    Values are what it scans: the channels after their input gate.

    Source: De et al. 2024 (Griffin), equations 1 to 4.
    """
    made, left = output
    decay = (given["recurrent_gate"] * ~given["reset"]).float().log().mT.unsqueeze(-1)
    ones = decay.new_ones(1, 1, decay.shape[2], 1)
    # A text begins with a reset, which leaves nothing of the one before.
    state = None if bool(given["reset"][:, 0].all()) else given.get("recurrent_states")
    return Mix(
        Recurrence(query=ones, key=ones, gain=ones, decay=decay),
        given["hidden_states"].float().mT.unsqueeze(-1),
        made.float().mT.unsqueeze(-1),
        state=None if state is None else state.float()[..., None, None],
        given=state,
        left=left,
    )


def lightning(given: _Given, output: Any) -> Mix:
    """Read lightning attention: linear attention with one decay for each head.

    Source: Qin et al. 2024 (Lightning attention-2), equation 4.
    """
    query, key, value = given["query"].float(), given["key"].float(), given["value"].float()
    made, left = output
    decay = -given["slope_rate"].float().reshape(1, -1, 1, 1).expand(-1, -1, query.shape[2], -1)
    state = given["state"]
    return Mix(
        Recurrence(query=query, key=key, gain=torch.ones_like(decay), decay=decay),
        value,
        made.float(),
        state=None if state is None else state.float(),
        given=state,
        left=left,
    )


def short_convolution(given: _Given, output: Tensor) -> Mix | None:
    """Read a convolution over the last few tokens, of which each channel is a head.

    One whose output passes through an activation is not linear, and None is returned.
    """
    if given.get("activation") is not None:
        return None
    taps, bias = given["weight"].float().flip(-1), given.get("bias")
    values, tokens = given["hidden_states"].float(), given["tokens"]
    before = given.get("before")
    if before is not None:
        values = torch.cat([before.float(), values], -1)
    first = values.shape[-1] - tokens
    earlier, own = values[..., :first], values[..., first:]
    # A cache begins with zeros.
    held = given["cached"] and bool(earlier.any())
    return Mix(
        Band(taps, len(values), tokens),
        own.unsqueeze(-1),
        output[..., output.shape[-1] - tokens :].float().unsqueeze(-1),
        state=earlier.unsqueeze(-1) if held else None,
        given=_last(earlier, taps) if held else None,
        left=_last(values, taps) if given["cached"] else None,
        constant=None if bias is None else bias.float()[:, None, None],
    )


def _last(values: Tensor, taps: Tensor) -> Tensor:
    """Return the values that later outputs may read, with zeros before the text."""
    most = max(taps.shape[-1] - 1, 1)
    return F.pad(values, (most, 0))[..., -most:]


DELTA, KIMI, MAMBA, MAMBA_2 = "gated delta rule", "Kimi delta attention", "Mamba", "Mamba-2"
CONVOLUTION = "short convolution"
LIGHTNING = Kind("lightning attention", lightning)
MATRIX_MEMORY = Kind("mLSTM", matrix_memory, outer=1)
GATED_CHANNELS = Kind("RG-LRU", gated_channels, channels=True, outer=1)

# The functions that the modules of transformers call, by name.
FUNCTIONS: dict[str, Kind] = {
    "torch_chunk_gated_delta_rule": Kind(DELTA, delta_rule),
    "torch_recurrent_gated_delta_rule": Kind(DELTA, delta_rule),
    "chunk_kimi_delta_attention": Kind(KIMI, delta_rule),
    "recurrent_kimi_delta_attention": Kind(KIMI, delta_rule),
    "mamba2_chunk_scan": Kind(MAMBA_2, state_space_of_heads),
    "mamba2_selective_state_update": Kind(MAMBA_2, one_token_of_heads, written="state"),
    "mamba_selective_scan": Kind(MAMBA, state_space_of_channels, channels=True),
    "mamba_selective_state_update": Kind(
        MAMBA, one_token_of_channels, channels=True, written="state"
    ),
    "rwkv_linear_attention": Kind("RWKV", weighted_key_values, channels=True),
    "causal_conv1d_fn": Kind(CONVOLUTION, short_convolution, channels=True),
    "causal_conv1d_update": Kind(
        CONVOLUTION, short_convolution, channels=True, written="conv_state"
    ),
}

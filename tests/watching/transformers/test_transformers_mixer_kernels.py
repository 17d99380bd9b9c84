"""The weights read from a kernel's inputs are the derivatives of its output by its values."""

import importlib
import inspect

import pytest
import torch
from torch.autograd.functional import jacobian

pytest.importorskip("transformers", minversion="5")

from glasshead.watching.mixers.kinds import FUNCTIONS, GATED_CHANNELS, LIGHTNING
from glasshead.watching.mixers.weights import ImpliedWeights

BATCH, TOKENS, HEADS, STATE, WIDTH = 2, 11, 3, 5, 2
CHANNELS = 7


def kernel(file, name):
    found = importlib.import_module(f"transformers.models.{file}.modeling_{file}")
    return getattr(found, name)


def numbers(*shape):
    return torch.randn(*shape)


def gates(*shape):
    return -torch.rand(*shape)


def delta(heads=HEADS, decays=()):
    return {
        "query": numbers(BATCH, TOKENS, HEADS, STATE),
        "key": numbers(BATCH, TOKENS, HEADS, STATE),
        "value": numbers(BATCH, TOKENS, heads, WIDTH),
        "g": gates(BATCH, TOKENS, heads, *decays),
        "beta": torch.rand(BATCH, TOKENS, heads),
        "use_qk_l2norm_in_kernel": True,
    }


def grouped_delta(file, name):
    """Two value heads a key head: repeated by the kernel, or by the module, with older versions."""
    given = delta(2 * HEADS)
    if "repeat_interleave" not in inspect.getsource(inspect.unwrap(kernel(file, name))):
        given |= {one: given[one].repeat_interleave(2, 2) for one in ("query", "key")}
    return given


def state_of_heads(heads=6):
    return {
        "hidden_states": numbers(BATCH, TOKENS, heads, WIDTH),
        "dt": numbers(BATCH, TOKENS, heads),
        "A": gates(heads) - 0.1,
        "B": numbers(BATCH, TOKENS, 2, STATE),
        "C": numbers(BATCH, TOKENS, 2, STATE),
        "chunk_size": 4,
        "D": numbers(heads),
        "dt_bias": numbers(heads),
        "dt_softplus": True,
        "dt_limit": (0.1, 1.0),
    }


def state_of_channels(gate):
    return {
        "hidden_states": numbers(BATCH, CHANNELS, TOKENS),
        "dt": numbers(BATCH, CHANNELS, TOKENS),
        "A": gates(CHANNELS, STATE) - 0.1,
        "B": numbers(BATCH, STATE, TOKENS),
        "C": numbers(BATCH, STATE, TOKENS),
        "D": numbers(CHANNELS),
        "z": gate,
        "delta_bias": numbers(CHANNELS),
        "delta_softplus": True,
    }


def average():
    return {
        "time_decay": numbers(CHANNELS),
        "time_first": numbers(CHANNELS),
        "key": 3 * numbers(BATCH, TOKENS, CHANNELS),
        "value": numbers(BATCH, TOKENS, CHANNELS),
    }


def convolution():
    return {
        "hidden_states": numbers(BATCH, CHANNELS, TOKENS),
        "weight": numbers(CHANNELS, 4),
        "bias": numbers(CHANNELS),
    }


CASES = [
    ("qwen3_next", "torch_chunk_gated_delta_rule", lambda: delta() | {"chunk_size": 4}),
    (
        "qwen3_next",
        "torch_chunk_gated_delta_rule",
        lambda: grouped_delta("qwen3_next", "torch_chunk_gated_delta_rule"),
    ),
    (
        "olmo_hybrid",
        "torch_recurrent_gated_delta_rule",
        lambda: grouped_delta("olmo_hybrid", "torch_recurrent_gated_delta_rule"),
    ),
    ("kimi_linear", "chunk_kimi_delta_attention", lambda: delta(decays=(STATE,))),
    (
        "kimi_linear",
        "recurrent_kimi_delta_attention",
        lambda: delta(decays=(STATE,)) | {"initial_state": None, "output_final_state": True},
    ),
    ("bamba", "mamba2_chunk_scan", state_of_heads),
    ("jamba", "mamba_selective_scan", lambda: state_of_channels(None)),
    ("rwkv", "rwkv_linear_attention", average),
    ("lfm2", "causal_conv1d_fn", convolution),
]
# What each takes as its values, and on which axes it has tokens and heads.
VALUES = {"hidden_states": "hidden_states", "value": "value"}


def read(name, given, output):
    given = {k: v for k, v in given.items() if v is not None}
    if name.startswith("causal"):
        given |= {"tokens": TOKENS, "cached": False}
    return FUNCTIONS[name].read(given, output)


def weights_of(mix):
    return ImpliedWeights(lambda: mix.operator, "a test", shape=mix.operator.shape)


def laid_out(x, name):
    """`[batch, heads, tokens]` of the first number of a value."""
    if name.startswith(("mamba_", "causal")):
        return x
    return x.mT if name.startswith("rwkv") else x[..., 0].mT


@pytest.mark.parametrize(("file", "name", "make"), CASES)
def test_weights_are_the_derivatives_of_a_kernel_by_its_values(file, name, make):
    torch.manual_seed(3)
    function, given = kernel(file, name), make()
    values = next(given[one] for one in VALUES if one in given)
    slot = next(one for one in VALUES if one in given)

    def run(x):
        output = function(**given | {slot: x})
        return output[0] if isinstance(output, tuple) else output

    bound = inspect.signature(inspect.unwrap(function)).bind(**given)
    bound.apply_defaults()
    mix = read(name, bound.arguments, function(**given))
    torch.testing.assert_close(mix.rebuilt(), mix.output, rtol=1e-5, atol=1e-5)

    found = weights_of(mix).dense()
    by_values = jacobian(lambda x: laid_out(run(x), name).sum(0), values)
    # Rows of the batch do not touch, so that their sum has the derivatives of each.
    for h in range(found.shape[1]):
        own = by_values[h]
        expected = torch.stack([laid_out(own[t], name)[:, h] for t in range(TOKENS)], 1)
        torch.testing.assert_close(found[:, h], expected, rtol=1e-4, atol=1e-5)


def test_a_gate_within_the_kernel_is_apart_from_the_weights():
    torch.manual_seed(5)
    gate = numbers(BATCH, CHANNELS, TOKENS)
    given = state_of_channels(gate)
    made = kernel("jamba", "mamba_selective_scan")(**given)
    mix = read("mamba_selective_scan", given, made)
    without = read("mamba_selective_scan", given | {"z": None}, made)
    assert mix.gate is not None
    torch.testing.assert_close(mix.rebuilt() * mix.gate, mix.output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights_of(mix).dense(), weights_of(without).dense())


def test_rows_of_rwkv_are_shares_of_one():
    torch.manual_seed(7)
    given = average()
    mix = read("rwkv_linear_attention", given, kernel("rwkv", "rwkv_linear_attention")(**given))
    rows = weights_of(mix) @ torch.ones(TOKENS, 1)
    torch.testing.assert_close(rows, torch.ones_like(rows))
    assert weights_of(mix).dense().min() >= 0


def test_a_reset_of_a_gated_recurrence_hides_what_was_before():
    torch.manual_seed(9)
    reset = torch.zeros(BATCH, TOKENS, 1, dtype=torch.bool)
    reset[:, 0] = reset[0, 4] = True
    given = {
        "hidden_states": numbers(BATCH, TOKENS, CHANNELS),
        "recurrent_gate": torch.rand(BATCH, TOKENS, CHANNELS),
        "reset": reset,
        "recurrent_states": numbers(BATCH, CHANNELS),
    }
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as file

    made = file.RecurrentGemmaRglru._rnn_scan(None, **given)
    mix = GATED_CHANNELS.read(given, made)
    torch.testing.assert_close(mix.rebuilt(), mix.output, rtol=1e-5, atol=1e-5)
    W = weights_of(mix)
    assert not W[0, :, 4:, :4].any()
    assert W[1, :, 4:, :4].all()
    kept = given["recurrent_gate"][1, 1:4].prod(0)
    torch.testing.assert_close(W[1, :, 3, 0], kept)


def test_lightning_attention_decays_by_one_rate_a_head():
    torch.manual_seed(11)
    query, key, value = numbers(3, BATCH, HEADS, TOKENS, STATE).unbind(0)
    rate = torch.rand(HEADS, 1, 1)
    given = {"query": query, "key": key, "value": value, "slope_rate": rate, "state": None}
    W = weights_of(LIGHTNING.read(given, (value, None))).dense()
    distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    expected = (query @ key.mT) * torch.exp(-rate * distance).tril()
    torch.testing.assert_close(W, expected, rtol=1e-4, atol=1e-5)

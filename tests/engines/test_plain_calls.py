"""Plain calls have the bits of the streaming operator, and are seen and refused as it is."""

import contextlib
import ctypes
import gc
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import glasshead as gh
from glasshead.attention import attention as module
from glasshead.engines.streaming import machine_code, matrix_tiles, programs, threads
from glasshead.engines.streaming.engine import Streaming
from glasshead.engines.streaming.kernels.arguments import (
    EITHER,
    FIRST_GIVEN,
    NEXT_THREAD,
    NEXT_UNIT,
    SCRATCH,
    STATUS,
    STOP,
    ZERO,
    HeadCalls,
)
from glasshead.engines.streaming.machine_code import kernel
from glasshead.recipe.masks.base import Mask

REAL = np.dtype(np.float32)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def kernels_in_package(monkeypatch):
    """Kernels are there, or compiled; nothing is remembered of other tests."""
    monkeypatch.setattr(machine_code, "in_package", lambda: True)
    module._REMEMBERED.clear()
    torch.manual_seed(5)


def inputs_of(batch, heads, kv_heads, queries, keys, dim, value_dim, dtype=torch.float32):
    """Inputs as a model has them: heads are split off last, so that they lie apart in memory."""
    shapes = ((queries, heads, dim), (keys, kv_heads, dim), (keys, kv_heads, value_dim))
    made = [torch.randn(batch, *shape).to(dtype).transpose(1, 2) for shape in shapes]
    return [x.requires_grad_() for x in made]


def with_gradients(attention, inputs, **call):
    context = attention(*inputs, **call)
    weight = torch.linspace(-1, 1, context.numel()).sin().view_as(context).to(context.dtype)
    return [context, *torch.autograd.grad(context, inputs, weight)]


def by_operator(function, *arguments, **call):
    """Call a function while no call is plain."""
    module._REMEMBERED.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Streaming, "direct", lambda *_: None)
        return function(*arguments, **call)


def plainly(function, *arguments, **call):
    """Call a function while the operator is not to run."""

    def refuse(*_, **__):
        raise AssertionError("the operator was called")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("glasshead.engines.streaming.engine.run", refuse)
        return function(*arguments, **call)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


# Of an attention, and of its call; batch, heads, key heads, queries, keys, head_dim, value_dim.
CALLS = {
    "full": ({}, {}, (2, 3, 3, 67, 131, 32, 64)),
    "causal": ({"mask": gh.causal()}, {}, (1, 2, 2, 211, 211, 64, 64)),
    "one head": ({"mask": gh.causal()}, {}, (1, 1, 1, 331, 331, 32, 32)),
    "causal, more keys": ({"mask": gh.causal()}, {}, (2, 1, 1, 67, 131, 32, 32)),
    "grouped": ({"mask": gh.causal()}, {}, (2, 6, 2, 97, 97, 64, 32)),
    "one key head": ({}, {}, (1, 5, 1, 67, 71, 128, 96)),
    "window": ({"mask": gh.causal() & gh.window(before=23)}, {}, (1, 2, 1, 131, 131, 32, 32)),
    "window ahead": ({"mask": gh.window(before=5, after=17)}, {}, (1, 2, 2, 131, 131, 64, 64)),
    "cap": ({"softcap": 3.0, "mask": gh.causal()}, {}, (1, 3, 3, 101, 101, 64, 64)),
    "beta": ({"score": gh.Dot()}, {}, (1, 2, 2, 37, 41, 32, 32)),
    "beta below 0": ({"score": gh.ScaledDot(beta=-0.3)}, {}, (1, 2, 2, 37, 41, 32, 32)),
    "one query": ({}, {}, (2, 3, 3, 1, 71, 32, 32)),
    "padded": ({}, {"mask": gh.padding([53, 53])}, (2, 2, 2, 67, 71, 64, 64)),
    "causal, ragged": (
        {"mask": gh.causal()},
        {"mask": gh.padding([71, 13, 40])},
        (3, 4, 2, 71, 71, 32, 32),
    ),
    "window, ragged": (
        {"mask": gh.causal() & gh.window(before=37)},
        {"mask": gh.padding([71, 53])},
        (2, 2, 1, 71, 71, 96, 64),
    ),
    "head_dim 48": ({"mask": gh.causal()}, {}, (2, 3, 3, 67, 71, 48, 48)),
    "head_dim 80": ({}, {"mask": gh.padding([71, 13])}, (2, 4, 2, 67, 71, 80, 80)),
    "head_dim 112": ({"mask": gh.causal()}, {}, (1, 2, 2, 131, 131, 112, 112)),
    "head_dim 192": ({"softcap": 3.0}, {}, (1, 2, 2, 67, 71, 192, 128)),
    "head_dim 256": ({"mask": gh.causal()}, {}, (1, 2, 1, 67, 67, 256, 256)),
    "head_dim 37": ({}, {}, (1, 2, 1, 67, 71, 37, 23)),
    "ragged": ({}, {"mask": gh.padding([71, 13, 40])}, (3, 4, 2, 67, 71, 32, 32)),
    "a sink": ({"normalizer": gh.SoftmaxOne(0.7)}, {}, (2, 3, 3, 67, 71, 32, 32)),
    "sinks of heads, a window": (
        {
            "mask": gh.causal() & gh.window(before=23),
            "normalizer": gh.SoftmaxOne(torch.tensor([0.3, -1.0, 2.0, 0.0])),
        },
        {},
        (2, 4, 2, 131, 131, 64, 64),
    ),
    "distances": ({"mask": gh.causal(), "bias": gh.ALiBi(6)}, {}, (2, 6, 3, 97, 131, 64, 32)),
    "distances, a cap, a sink, ragged": (
        {"bias": gh.ALiBi(4), "softcap": 3.0, "normalizer": gh.SoftmaxOne()},
        {"mask": gh.padding([71, 13, 40])},
        (3, 4, 2, 67, 71, 32, 48),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_a_plain_call_has_the_bits_and_gradients_of_the_operator(name, dtype):
    settings, call, sizes = CALLS[name]
    inputs = inputs_of(*sizes, dtype)
    attention = gh.Attention(**settings, engine="streaming")
    expected = by_operator(with_gradients, attention, inputs, **call)
    for _ in range(2):
        assert_same(plainly(with_gradients, attention, inputs, **call), expected)
    with torch.no_grad():
        assert torch.equal(plainly(attention, *inputs, **call), expected[0])
    # Other numbers, by the program of the first ones.
    others = inputs_of(*sizes, dtype)
    expected = by_operator(with_gradients, attention, others, **call)
    assert_same(plainly(with_gradients, attention, others, **call), expected)


@pytest.mark.parametrize("name", CALLS)
def test_a_plain_call_is_the_reference_in_value_and_gradient(name):
    settings, call, sizes = CALLS[name]
    inputs = inputs_of(*sizes)
    found = plainly(with_gradients, gh.Attention(**settings, engine="streaming"), inputs, **call)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = with_gradients(gh.Attention(**settings, engine="reference"), exact, **call)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5)


class Learned(gh.Bias):
    """A bias by distance whose numbers are learned; hidden below the least distance, if any."""

    by_distance = True

    def __init__(self, least=None):
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, 401).sin())
        self.least = least

    def forward(self, tile):
        far = tile.distance()
        values = self.table[far + 200]
        return values if self.least is None else values.masked_fill(far < self.least, -torch.inf)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_sinks_and_distances_that_learn_have_the_gradients_of_the_operator(dtype, threads):
    sink = torch.nn.Parameter(torch.tensor([0.3, -1.0, 2.0, 0.1]))
    normalizer = gh.SoftmaxOne(sink)
    attention = gh.Attention(mask=gh.causal(), bias=Learned(), normalizer=normalizer)
    attention.engine = "streaming"
    learned = [*inputs_of(3, 4, 2, 97, 101, 32, 48, dtype), *attention.parameters()]
    call = {"mask": gh.padding([101, 53, 7])}

    def gradients():
        context = attention(*learned[:3], **call)
        weight = torch.linspace(-1, 1, context.numel()).sin().view_as(context).to(dtype)
        return [context, *torch.autograd.grad(context, learned, weight)]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_same(plainly(gradients), by_operator(gradients))
        # A remembered call reads the sink as it is.
        with torch.no_grad():
            sink.add_(1.0)
        assert_same(plainly(gradients), by_operator(gradients))
    finally:
        torch.set_num_threads(before)


def test_a_sink_that_learns_is_read_by_each_remembered_call():
    sink = torch.nn.Parameter(torch.zeros(3))
    attention = gh.Attention(normalizer=gh.SoftmaxOne(sink), engine="streaming")
    inputs = inputs_of(1, 3, 3, 131, 137, 32, 32)
    found = []
    for number in (0.0, 5.0, 0.0):
        with torch.no_grad():
            sink.fill_(number)
        context = attention(*inputs)
        found.append([context, *torch.autograd.grad(context.sum(), [*inputs, sink])])
        assert len(module._REMEMBERED) == 1
    assert_same(found[0], found[2])
    assert not torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][0], by_operator(attention, *inputs))


def test_a_bias_by_distance_that_hides_takes_the_operator():
    attention = gh.Attention(bias=Learned(least=3), engine="streaming")
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    with pytest.raises(AssertionError, match="the operator was called"):
        plainly(attention, *inputs)
    exact = gh.Attention(bias=attention.bias, engine="reference")
    expected = exact(*(x.double() for x in inputs)).float()
    torch.testing.assert_close(attention(*inputs), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("tiny", [1e-30, 1e-39])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_pairs_of_bfloat16_that_would_lose_bits_are_widened(place, tiny, monkeypatch):
    """Small numbers in one head of an input, or of the arriving gradient, are kept in every bit."""
    # Those round the weights, too.
    monkeypatch.setattr(matrix_tiles, "refusal", lambda: "hidden")
    monkeypatch.setattr(programs, "_PROGRAMS", {})
    inputs = inputs_of(2, 4, 2, 67, 71, 32, 64, torch.bfloat16)
    arriving = torch.randn(2, 4, 67, 64).to(torch.bfloat16)
    tensors = [*inputs, arriving]
    with torch.no_grad():
        tensors[place][1, 1, 5] *= tiny

    def both(attention):
        context = attention(*inputs)
        return [context, *torch.autograd.grad(context, inputs, arriving)]

    attention = gh.Attention(engine="streaming")
    expected = by_operator(both, attention)
    assert_same(plainly(both, attention), expected)
    wide = [x.detach().float().requires_grad_() for x in inputs]
    context = gh.Attention(engine="streaming")(*wide)
    exact = [context, *torch.autograd.grad(context, wide, arriving.float())]
    assert_same([x.to(torch.bfloat16) for x in exact], expected)


LAYOUTS = {
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second": lambda x: torch.stack([x, -x], -1).flatten(-2)[..., ::2],
    "one for all heads": lambda x: x[:, :1].expand(-1, 4, -1, -1),
    "one for all rows": lambda x: x[..., :1, :].expand(-1, -1, x.shape[2], -1),
    "a part": lambda x: torch.cat([x, x, x], -1)[..., 32:64],
    "not aligned": lambda x: torch.cat([x[0].reshape(-1)[:1], x.reshape(-1)])[1:].view_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_in_any_layout(layout, dtype):
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    inputs = [LAYOUTS[layout](torch.randn(2, 4, 71, 32).to(dtype)) for _ in range(3)]
    arriving = LAYOUTS[layout](torch.randn(2, 4, 71, 32).to(dtype))
    leaves = [x.detach().requires_grad_() for x in inputs]

    def both():
        context = attention(*leaves)
        return [context, *torch.autograd.grad(context, leaves, arriving)]

    expected = by_operator(both)
    for _ in range(2):
        assert_same(plainly(both), expected)


def test_gradients_in_any_layout_arrive_at_one_call():
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    inputs = inputs_of(2, 4, 4, 71, 71, 32, 32)
    arriving = [layout(torch.randn(2, 4, 71, 32)) for layout in LAYOUTS.values()]

    def gradients(given):
        return torch.autograd.grad(attention(*inputs), inputs, given)

    expected = [by_operator(gradients, given) for given in arriving]
    for _ in range(2):
        for given, right in zip(arriving, expected, strict=True):
            assert_same(plainly(gradients, given), right)


def test_a_sum_gives_every_number_the_same_gradient():
    """Its gradient has one number in memory, that strides of 0 repeat."""
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    _, _, of_value = torch.autograd.grad(plainly(attention, *inputs).sum(), inputs)
    # Each query's weights have the sum 1.
    torch.testing.assert_close(of_value.sum(2), torch.full((1, 2, 32), 37.0))


def test_gradients_of_some_inputs_alone():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    expected = with_gradients(attention, inputs)[2]
    inputs[0].requires_grad_(False)
    inputs[2].requires_grad_(False)
    context = plainly(attention, *inputs)
    weight = torch.linspace(-1, 1, context.numel()).sin().view_as(context)
    context.backward(weight)
    assert torch.equal(inputs[1].grad, expected)
    assert inputs[0].grad is None is inputs[2].grad


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lengths_hide_is_not_read_and_has_no_gradient(dtype):
    inputs = inputs_of(2, 2, 2, 37, 41, 32, 32, dtype)
    attention, mask = gh.Attention(engine="streaming"), gh.padding([29, 17])
    expected = with_gradients(attention, inputs, mask=mask)
    with torch.no_grad():
        for x in inputs[1:]:
            x[0, :, 29:], x[1, :, 17:] = torch.nan, torch.inf
    found = plainly(with_gradients, attention, inputs, mask=mask)
    assert_same(found, expected)
    for gradient in found[2:]:
        assert not gradient[0, :, 29:].any()
        assert not gradient[1, :, 17:].any()


def test_the_gradient_has_no_gradient():
    inputs = inputs_of(1, 1, 1, 37, 41, 32, 32)
    context = plainly(gh.Attention(engine="streaming"), *inputs)
    first = torch.autograd.grad(context.square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no gradient of its gradient\. Use Attention"):
        first[0].sum().backward()


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_of_each_call_are_its_own_and_take_one_program(dtype):
    inputs = inputs_of(3, 4, 2, 67, 131, 32, 64, dtype)
    attention = gh.Attention(engine="streaming")
    plainly(with_gradients, attention, inputs, mask=gh.padding([131, 130, 129]))
    programs_before = set(programs._PROGRAMS)
    masks = [[131, 1, 64], [7, 7, 7], [33, 32, 31], 53]
    for lengths in (*map(torch.tensor, masks), torch.tensor([5, 2**20, 65], dtype=torch.int32)):
        mask = gh.padding(lengths)
        expected = by_operator(with_gradients, attention, inputs, mask=mask)
        plainly(with_gradients, attention, inputs, mask=mask)
        assert_same(plainly(with_gradients, attention, inputs, mask=mask), expected)
    others = {kind for kind in set(programs._PROGRAMS) - programs_before if "lengths" in str(kind)}
    assert not others


def test_a_row_without_keys_takes_the_operator():
    inputs = inputs_of(2, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    plainly(attention, *inputs, mask=gh.padding([29, 17]))
    found = with_gradients(attention, inputs, mask=gh.padding([0, 17]))
    expected = by_operator(with_gradients, attention, inputs, mask=gh.padding([0, 17]))
    assert_same(found, expected)
    assert not found[0][0].any()


def test_lengths_changed_in_place_before_the_backward_pass_change_no_gradient():
    inputs, lengths = inputs_of(2, 2, 2, 37, 41, 32, 32), torch.tensor([29, 17])
    attention = gh.Attention(engine="streaming")
    weight = torch.linspace(-1, 1, 2 * 2 * 37 * 32).view(2, 2, 37, 32)
    context = plainly(attention, *inputs, mask=gh.padding(lengths))
    expected = torch.autograd.grad(context, inputs, weight, retain_graph=True)
    lengths.fill_(3)
    assert_same(torch.autograd.grad(context, inputs, weight), expected)


def test_gradients_in_batches():
    """Transforms wrap the gradient that arrives, which has no memory of its own then."""
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    context = plainly(gh.Attention(engine="streaming"), *inputs)
    weights = torch.randn(3, *context.shape)
    expected = [
        torch.autograd.grad(context, inputs, weight, retain_graph=True) for weight in weights
    ]
    found = torch.autograd.grad(context, inputs, weights, is_grads_batched=True)
    assert_same(found, [torch.stack(one) for one in zip(*expected, strict=True)])


def test_a_mode_around_the_backward_pass_sees_its_operator():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    call = {"mask": gh.padding([29])}
    attention = gh.Attention(softcap=3.0, engine="streaming")
    expected = plainly(with_gradients, attention, inputs, **call)
    context = plainly(attention, *inputs, **call)
    weight = torch.linspace(-1, 1, context.numel()).sin().view_as(context)
    with Names() as seen:
        found = torch.autograd.grad(context, inputs, weight)
    assert "glasshead::streaming_backward" in seen.names
    assert_same(found, expected[1:])


def test_tensors_that_hooks_lay_out_anew():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    expected = plainly(with_gradients, attention, inputs)

    def turned(x):
        return x.transpose(-1, -2) if x.ndim > 1 else x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: turned(x).contiguous(), turned):
        assert_same(plainly(with_gradients, attention, inputs), expected)


@pytest.mark.parametrize("change", [torch.Tensor.double, lambda x: x[:1], torch.Tensor.bfloat16])
def test_hooks_that_return_other_tensors_are_refused(change):
    inputs = inputs_of(2, 2, 2, 37, 41, 32, 32)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, change):
        context = plainly(gh.Attention(engine="streaming"), *inputs)
        with pytest.raises(TypeError, match="in their own shape and dtype"):
            context.sum().backward()


@pytest.mark.parametrize("first", [True, False])
def test_a_checkpoint_computes_plainly_and_by_the_operator(first):
    """Once a mode sees the first computation, once the one that the backward pass makes again."""
    inputs = inputs_of(1, 2, 2, 37, 37, 32, 32)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    expected = with_gradients(attention, inputs)
    weight = torch.linspace(-1, 1, expected[0].numel()).sin().view_as(expected[0])
    with Names() if first else contextlib.nullcontext():
        context = checkpoint(lambda *x: attention(*x) * 1, *inputs, use_reentrant=False)
    with contextlib.nullcontext() if first else Names():
        found = torch.autograd.grad(context, inputs, weight)
    assert_same([context, *found], expected)


@pytest.mark.parametrize("mask", [None, gh.causal(), gh.window(before=3)], ids=str)
@pytest.mark.parametrize("engine", ["auto", "streaming"])
def test_the_meta_device_has_shapes_alone(engine, mask):
    inputs = [torch.empty(2, 3, 160, 64, device="meta") for _ in range(3)]
    assert gh.Attention(mask=mask, engine=engine)(*inputs).shape == (2, 3, 160, 64)


@pytest.mark.parametrize("mask", [None, gh.causal(), gh.window(before=3)], ids=str)
def test_make_fx_traces_what_sdpa_computes(mask):
    inputs, others = ([torch.randn(2, 2, 160, 64) for _ in range(3)] for _ in range(2))
    attention = gh.Attention(mask=mask)
    attention(*inputs)
    expected = attention(*others)
    found = make_fx(attention)(*inputs)(*others)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_tensor_of_zeros_without_memory():
    query, key, value = (x.detach() for x in inputs_of(1, 2, 2, 37, 41, 32, 32))
    attention = gh.Attention(engine="streaming")
    plainly(attention, query, key, value)
    zeros = torch._efficientzerotensor(query.shape)
    assert torch.equal(attention(zeros, key, value), attention(torch.zeros_like(query), key, value))


class Named(Mask):
    """A mask of positions whose name does not tell which."""

    def __init__(self, before):
        self.before = before
        self.of_positions = "named", before

    def __repr__(self):
        return "Named()"

    def visible(self, tile):
        return gh.window(before=self.before, after=0).visible(tile)

    def intervals(self, tile):
        return gh.window(before=self.before, after=0).intervals(tile)


def test_masks_of_one_name_have_bounds_of_their_own():
    inputs = [x.detach() for x in inputs_of(1, 2, 2, 131, 131, 32, 32)]
    for before in (3, 0, 5, 3):
        found = gh.Attention(mask=Named(before), engine="streaming")(*inputs)
        window = gh.window(before=before, after=0)
        assert torch.equal(found, gh.Attention(mask=window, engine="streaming")(*inputs))


def test_memory_outlives_threads_at_ctrl_c():
    """Without OpenMP, an interrupt of this thread ends the call after all others have ended."""
    ended = []

    def slow():
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.2)
        ended.append(1)

    with pytest.raises(KeyboardInterrupt):
        threads._in_own_pool(slow, 3)
    assert ended == [1, 1]


def test_another_default_device_changes_nothing():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    expected = by_operator(with_gradients, attention, inputs)
    programs._PROGRAMS.clear()
    with torch.device("meta"):
        context = plainly(attention, *inputs)
    assert torch.equal(context, expected[0])


def test_views_whose_sign_is_not_in_memory():
    inputs = [x.detach() for x in inputs_of(1, 2, 2, 37, 41, 32, 32)]
    attention = gh.Attention(engine="streaming")
    expected = plainly(attention, -inputs[0], inputs[1], -inputs[2])
    negated = [torch._neg_view(inputs[0]), inputs[1], torch._neg_view(inputs[2])]
    assert negated[0].is_neg()
    assert torch.equal(plainly(attention, *negated), expected)


def test_a_parameter_is_an_ordinary_tensor():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(engine="streaming")
    expected = plainly(with_gradients, attention, inputs)
    parameters = [torch.nn.Parameter(x.detach()) for x in inputs]
    assert_same(plainly(with_gradients, attention, parameters), expected)


@pytest.mark.parametrize(
    "shapes",
    [
        [(37, 32), (41, 32), (41, 32)],
        [(3, 37, 32), (3, 41, 32), (3, 41, 32)],
        [(2, 3, 37, 32), (2, 3, 41, 32), (2, 3, 41, 32)],
        [(2, 1, 3, 37, 32), (2, 1, 3, 41, 32), (2, 1, 3, 41, 32)],
    ],
    ids=len,
)
@pytest.mark.parametrize("engine", ["fused", "streaming"])
def test_a_plan_that_says_plain_has_a_plain_call(shapes, engine):
    attention = gh.Attention(engine=engine)
    problem = attention.problem(*(torch.randn(shape) for shape in shapes))
    streaming = Streaming()
    assert streaming.is_plain(problem) == (streaming.direct(problem) is not None)
    assert streaming.is_plain(problem) == (len(shapes[0]) in {3, 4})


class Names(TorchDispatchMode):
    """The operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_the_operator_of_a_remembered_call():
    inputs = inputs_of(1, 2, 2, 131, 131, 32, 32)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    expected = plainly(attention, *inputs)
    assert module._REMEMBERED
    with Names() as seen:
        assert torch.equal(attention(*inputs), expected)
    assert "glasshead::streaming" in seen.names
    assert torch.equal(plainly(attention, *inputs), expected)


def test_tracing_on_numbers_traces_the_operator():
    inputs = [x.detach() for x in inputs_of(1, 2, 2, 131, 131, 32, 32)]
    others = [x.detach() for x in inputs_of(1, 2, 2, 131, 131, 32, 32)]
    attention = gh.Attention(engine="streaming")
    attention(*inputs)
    traced = make_fx(attention)(*inputs)
    assert torch.equal(traced(*others), attention(*others))


# Of PyTorch's own code.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_a_tangent_is_refused_not_lost():
    query, key, value = (x.detach() for x in inputs_of(1, 1, 1, 131, 131, 32, 32))
    attention = gh.Attention(engine="streaming")
    expected = plainly(attention, query, key, value)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(query, torch.randn_like(query))
        with pytest.raises(ValueError, match="it has no derivative forwards"):
            attention(dual, key, value)
    assert torch.equal(plainly(attention, query, key, value), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_under_the_transforms_of_torch_func():
    inputs = [x.detach() for x in inputs_of(3, 2, 2, 131, 131, 32, 32)]
    expected = plainly(gh.Attention(mask=gh.causal(), engine="streaming"), *inputs)
    attention = gh.Attention(mask=gh.causal())
    attention(*inputs)
    found = torch.func.vmap(attention)(*(x[:, None] for x in inputs))[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_kernels_that_are_not_in_the_package_take_the_same_way(monkeypatch):
    """As after an edit of their sources: they are compiled once."""
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    expected = plainly(with_gradients, gh.Attention(engine="streaming"), inputs)
    monkeypatch.setattr(machine_code, "in_package", lambda: False)
    module._REMEMBERED.clear()
    assert_same(plainly(with_gradients, gh.Attention(engine="streaming"), inputs), expected)


def test_statistics_have_the_context_of_the_plain_call():
    inputs = [x.detach() for x in inputs_of(2, 6, 2, 131, 131, 64, 32)]
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    context = plainly(attention, *inputs)
    assert torch.equal(attention.observe(*inputs, [gh.Entropy()]).context, context)


@pytest.mark.parametrize("lengths", [[71, 0], [71, 11]])
def test_rows_that_see_no_key_within_their_window_take_the_operator(lengths):
    attention = gh.Attention(mask=gh.causal() & gh.window(before=13), engine="streaming")
    inputs = inputs_of(2, 2, 2, 71, 71, 48, 48)
    plainly(attention, *inputs, mask=gh.padding([71, 61]))
    with Names() as seen:
        expected = with_gradients(attention, inputs, mask=gh.padding(lengths))
    assert "glasshead::streaming" in seen.names
    assert_same(with_gradients(attention, inputs, mask=gh.padding(lengths)), expected)
    with pytest.raises(AssertionError, match="the operator was called"):
        plainly(attention, *inputs, mask=gh.padding(lengths))


@pytest.mark.parametrize("engine", ["auto", "fused", "streaming"])
def test_a_remembered_causal_call_reads_the_lengths_of_each_call(engine):
    """With the attention's own mask, the lengths of one call are not those of the next."""
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    inputs = [x.detach() for x in inputs_of(2, 3, 3, 131, 131, 64, 64)]
    exact = [x.double() for x in inputs]
    for lengths in ([131, 131], [7, 131], [131, 53], [131, 131]):
        mask = gh.padding(lengths)
        found = attention(*inputs, mask=mask)
        expected = gh.Attention(mask=gh.causal(), engine="reference")(*exact, mask=mask)
        torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_any_number_of_threads(number):
    inputs = inputs_of(1, 3, 3, 211, 211, 64, 64)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    expected = plainly(with_gradients, attention, inputs)
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        found = plainly(with_gradients, attention, inputs)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], expected[0])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_callers_in_several_threads_share_programs_and_memory():
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    inputs = [
        [x.detach() for x in inputs_of(1, 2, 2, length, length, 32, 32)]
        for length in (131, 137, 139, 149)
    ]
    expected = [attention(*one) for one in inputs]

    def turn(start):
        order = [*range(start, len(inputs)), *range(start)]
        return all(
            torch.equal(attention(*inputs[at]), expected[at]) for _ in range(50) for at in order
        )

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(turn, range(len(inputs))))


# A fork in a process of threads is what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_computes():
    inputs = [x.detach() for x in inputs_of(1, 4, 4, 211, 211, 64, 64)]
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    # PyTorch's own operators would wait for its threads in a child.
    expected = attention(*inputs).numpy().tobytes()
    child = os.fork()
    if not child:
        os._exit(0 if attention(*inputs).numpy().tobytes() == expected else 3)
    assert os.waitpid(child, 0)[1] == 0


def test_no_tensor_of_a_caller_is_kept_and_programs_are_bounded(monkeypatch):
    monkeypatch.setattr(programs, "_MOST", 7)
    attention, held = gh.Attention(engine="streaming"), []
    for length in range(1, 24):
        inputs = inputs_of(1, 2, 2, 37, length, 32, 32)
        found = plainly(with_gradients, attention, inputs)
        held += [weakref.ref(x) for x in (*inputs, *found)]
        assert 0 < len(programs._PROGRAMS) <= 7
    del inputs, found
    gc.collect()
    assert not any(one() is not None for one in held)


@pytest.mark.parametrize("keys", [41, 64])
def test_a_gradient_that_has_a_graph_may_be_changed_in_place(keys):
    inputs = inputs_of(1, 1, 1, 37, keys, 32, 32)
    context = plainly(gh.Attention(engine="streaming"), *inputs).sum()
    for gradient in torch.autograd.grad(context, inputs, create_graph=True):
        twice = 2 * gradient.detach()
        assert torch.equal(gradient.mul_(2), twice)
        assert gradient.untyped_storage().nbytes() == gradient.nbytes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_default_dtype_changes_no_gradient(dtype):
    sink = torch.nn.Parameter(torch.tensor([0.3, -1.0]))
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(normalizer=gh.SoftmaxOne(sink), engine="streaming")

    def gradients():
        return torch.autograd.grad(attention(*inputs).sum(), [*inputs, sink])

    expected = plainly(gradients)
    torch.set_default_dtype(dtype)
    try:
        found = plainly(gradients)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same(found, expected)


def test_nothing_is_kept_of_a_gradient_that_has_a_graph():
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    context = plainly(gh.Attention(engine="streaming"), *inputs).sum()
    torch.autograd.grad(context, inputs, create_graph=True)
    held = [weakref.ref(x) for x in inputs]
    del inputs, context
    gc.collect()
    assert not any(one() is not None for one in held)


def test_the_memory_of_a_large_call_is_not_kept():
    inputs = [x.detach() for x in inputs_of(1, 2, 2, 37, 41, 32, 32)]
    attention = gh.Attention(engine="streaming")
    plainly(attention, *inputs)
    (kept,) = programs._SPARE
    plainly(attention, *(x.detach() for x in inputs_of(1, 2, 2, 37, 9001, 64, 64)))
    assert [kept] == programs._SPARE
    assert kept.nbytes == 2**20


@pytest.mark.parametrize("call", [{}, {"mask": gh.padding([41])}], ids=["causal", "padded"])
def test_a_call_in_inference_mode_does_not_keep_later_ones_from_gradients(call):
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    attention = gh.Attention(mask=None if call else gh.causal(), engine="streaming")
    with torch.inference_mode():
        expected = plainly(attention, *inputs, **call)
    found = plainly(with_gradients, attention, inputs, **call)
    assert torch.equal(found[0], expected)
    assert_same(found, by_operator(with_gradients, attention, inputs, **call))


def test_results_are_not_overwritten_by_the_next_call():
    attention = gh.Attention(engine="streaming")
    first, second = (inputs_of(1, 2, 2, 37, 41, 32, 32) for _ in range(2))
    kept = with_gradients(attention, first)
    copies = [x.clone() for x in kept]
    with_gradients(attention, second)
    assert_same(kept, copies)


STATISTICS = {
    "rows": {
        "a": gh.LogSumExp(),
        "b": gh.MaxWeight(),
        "c": gh.ArgMax(),
        "d": gh.Entropy(),
        "e": gh.MeanDistance(),
    },
    "keys": {"a": gh.Received(), "b": gh.MassOn([0, 3]), "c": gh.DistanceHistogram([1, 5, 40])},
    "many": {
        "a": gh.TopK(5),
        "b": gh.PooledMap(3, 7),
        "c": gh.PooledMap(11, 2),
        "d": gh.Received(),
        "e": gh.MassOn([1]),
    },
}
RECIPES = {
    "plain": ({}, {}),
    "causal": ({"mask": gh.causal(), "softcap": 2.0}, {}),
    "ragged": ({"mask": gh.causal()}, {"mask": gh.padding([97, 0, 41])}),
    "dense": ({"mask": gh.dense(torch.rand(3, 1, 97, 101) < 0.7)}, {}),
    "dense of heads": ({"mask": gh.dense(torch.rand(6, 97, 101) < 0.7)}, {}),
    "distances": ({"bias": gh.ALiBi(6), "mask": gh.causal()}, {}),
    "bias": ({"bias": torch.randn(6, 97, 101)}, {}),
    "bias of keys": ({"bias": torch.randn(3, 1, 1, 101)}, {}),
    "offset": ({"mask": gh.causal()}, {"offset": 2}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("names", STATISTICS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_statistics_are_those_of_the_reference(recipe, names, dtype):
    """Of 18 heads in 6 groups, each with arrays of its own: twice, made and remembered."""
    settings, call = RECIPES[recipe]
    inputs = inputs_of(3, 6, 2, 97, 101, 64, 32, dtype)

    def seen(engine, *inputs):
        attention = gh.Attention(**settings, engine=engine)
        found = attention.observe(*inputs, STATISTICS[names], **call)
        values = [getattr(found, name) for name in found.statistics]
        parts = [part for one in values for part in (one if isinstance(one, tuple) else (one,))]
        return [found.context.float(), *parts]

    expected = seen("reference", *(x.double() for x in inputs))
    first = seen("streaming", *inputs)
    assert_same(seen("streaming", *inputs), first)
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 1e-2}[dtype]
    query, key, _ = (x.double() for x in inputs)
    weights = gh.Attention(**settings, engine="reference").weights(query, key, **call).dense()

    def compared(part):
        """Numbers as they are; for keys their weights, as keys of nearly equal ones may swap."""
        if part.is_floating_point():
            return part
        keys = part if part.ndim == weights.ndim else part[..., None]
        return torch.where(keys < 0, -1.0, weights.gather(-1, keys.clamp(min=0)))

    for one, other in zip(map(compared, first), map(compared, expected), strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=tolerance, atol=tolerance)


CALLED = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def shared(function, words, moves, calls, given, **sizes):
    """Share the heads of a task whose kernels are functions of ours; return what was given."""
    stands = [CALLED(function(number)) for number in range(len(calls))]
    table = [
        (ctypes.cast(stand, ctypes.c_void_p).value, *call)
        for stand, call in zip(stands, calls, strict=True)
    ]
    scratch = np.zeros(64, np.int64)
    task = HeadCalls(
        words=np.array(words, np.int64),
        moves=np.array(moves, np.int64),
        calls=np.array(table, np.int64),
        least=np.zeros(4, np.int64),
        **{"threads": 1, "room": 512, **sizes},
    )
    own = (ctypes.c_int64 * (FIRST_GIVEN + len(given)))()
    own[SCRATCH], own[STOP] = scratch.ctypes.data, task.batch * task.kv_heads * task.stripes
    own[FIRST_GIVEN:] = given
    kernel("share_heads", REAL)(task, ctypes.addressof(own))
    return own


def test_words_move_with_batch_row_heads_and_stripe():
    seen = []

    def function(number):
        def note(_, __, address):
            words = (ctypes.c_int64 * 3).from_address(address)
            seen.append((number, *words[: 1 + 2 * number]))
            return 0

        return note

    lengths = np.array([31, 37], np.int64)
    own = shared(
        function,
        # One call of a word for each key head, and another of three words for each head.
        words=[5, 7, 0, 11],
        moves=[
            (FIRST_GIVEN, 1000, 100, 10, 1, 0),
            (ZERO, 1000, 100, 10, 1, 0),
            (FIRST_GIVEN + 1, 8, 0, 0, 0, 1),
            (SCRATCH, 0, 0, 0, 0, 0),
        ],
        calls=[(0, 1, 1, EITHER, EITHER), (1, 4, 0, EITHER, EITHER)],
        given=[90_000, lengths.ctypes.data],
        batch=2,
        kv_heads=3,
        group=2,
        stripes=2,
    )
    expected = []
    for batch in range(2):
        for kv_head in range(3):
            place = 1000 * batch + 100 * kv_head
            # The second stripe is of the same key head as the first.
            expected.append((0, 90_005 + place))
            keys = (31, 37)[batch]
            expected += [(1, 7 + place + 10 * h + s, keys) for s in range(2) for h in range(2)]
    assert [one[:3] for one in seen] == expected
    assert own[NEXT_UNIT] == 2 * 3 * 2 + 1
    assert own[NEXT_THREAD] == 1
    assert own[STATUS] == 0
    # What lies in the thread's own memory does not move.
    assert len({one[3] for one in seen if one[0] == 1}) == 1


def test_a_kernel_that_fails_is_told():
    sizes = {"batch": 1, "kv_heads": 1, "group": 1, "stripes": 1}
    own = shared(
        lambda number: lambda *_: 7,
        words=[0],
        moves=[(ZERO, 0, 0, 0, 0, 0)],
        calls=[(0, 1, 0, EITHER, EITHER)],
        given=[],
        **sizes,
    )
    assert own[STATUS] == 7


def test_a_call_that_fails_is_told(monkeypatch):
    packed = programs.Program._task_with

    def failing(program, words):
        words[STATUS] = 7
        return packed(program, words)

    monkeypatch.setattr(programs.Program, "_task_with", failing)
    inputs = inputs_of(1, 2, 2, 37, 41, 32, 32)
    with pytest.raises(RuntimeError, match=r"ended with status 7\. Use Attention"):
        gh.Attention(engine="streaming")(*inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hidden_keys_of_any_kind_reach_no_gradient_through_a_cap(dtype):
    query, key, value = inputs_of(1, 2, 2, 67, 67, 16, 16, dtype)
    with torch.no_grad():
        key[..., 59:, :] = value[..., 59:, :] = torch.nan
    attention = gh.Attention(mask=gh.padding([59]), softcap=3.0, engine="streaming")
    for found in with_gradients(attention, (query, key, value)):
        assert found.isfinite().all()

"""Plain calls have the bits of the streaming operator, and are seen and refused as it is."""

import ctypes
import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import glasshead as gh
from glasshead.attention import attention as module
from glasshead.engines.streaming import plain_calls, programs
from glasshead.engines.streaming.engine import Streaming
from glasshead.engines.streaming.kernels.arguments import (
    EITHER,
    FIRST_GIVEN,
    NEXT_THREAD,
    NEXT_UNIT,
    SCRATCH,
    STATUS,
    ZERO,
    Task,
)
from glasshead.engines.streaming.machine_code import kernel

REAL = np.dtype(np.float32)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def machine_code(monkeypatch):
    """Kernels are there, or compiled; nothing is remembered of other tests."""
    monkeypatch.setattr(plain_calls, "in_package", lambda: True)
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
    "ragged": ({}, {"mask": gh.padding([71, 13, 40])}, (3, 4, 2, 67, 71, 32, 32)),
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


@pytest.mark.parametrize("tiny", [1e-30, 1e-39])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_pairs_of_bfloat16_that_would_lose_bits_are_widened(place, tiny):
    """Small numbers in one head of an input, or of the arriving gradient, are kept in every bit."""
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


def test_what_lengths_hide_is_not_read_and_has_no_gradient():
    inputs = inputs_of(2, 2, 2, 37, 41, 32, 32)
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
    with pytest.raises(RuntimeError, match="no gradient of its gradient: take Attention"):
        first[0].sum().backward()


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
    from torch.fx.experimental.proxy_tensor import make_fx

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
    attention = gh.Attention(mask=gh.causal())
    expected = attention(*inputs)
    found = torch.func.vmap(attention)(*(x[:, None] for x in inputs))[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_statistics_have_the_context_of_the_plain_call():
    inputs = [x.detach() for x in inputs_of(2, 6, 2, 131, 131, 64, 32)]
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    context = plainly(attention, *inputs)
    assert torch.equal(attention.observe(*inputs, [gh.Entropy()]).context, context)


@pytest.mark.parametrize("dim", [31, 33, 40])
def test_widths_that_fill_no_tile_take_the_operator(dim):
    attention = gh.Attention(engine="streaming")
    inputs = inputs_of(1, 2, 2, 37, 41, dim, dim)
    with Names() as seen:
        expected = with_gradients(attention, inputs)
    assert "glasshead::streaming" in seen.names
    assert_same(with_gradients(attention, inputs), expected)
    for _ in range(2):
        with pytest.raises(AssertionError, match="the operator was called"):
            plainly(attention, *inputs)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_any_number_of_threads(threads):
    inputs = inputs_of(1, 3, 3, 211, 211, 64, 64)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    expected = plainly(with_gradients, attention, inputs)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
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

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(turn, range(len(inputs))))


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
    monkeypatch.setattr(plain_calls, "_MOST", 7)
    attention = gh.Attention(engine="streaming")
    for length in range(1, 24):
        inputs = inputs_of(1, 2, 2, 37, length, 32, 32)
        found = plainly(with_gradients, attention, inputs)
        held = [weakref.ref(x) for x in (*inputs, *found)]
        del inputs, found
        gc.collect()
        assert not any(one() is not None for one in held)
        assert 0 < len(plain_calls._PROGRAMS) <= 7
    assert sum(x.nbytes for x in programs._SPARE) <= 2**20


def test_results_are_not_overwritten_by_the_next_call():
    attention = gh.Attention(engine="streaming")
    first, second = (inputs_of(1, 2, 2, 37, 41, 32, 32) for _ in range(2))
    kept = with_gradients(attention, first)
    copies = [x.clone() for x in kept]
    with_gradients(attention, second)
    assert_same(kept, copies)


CALLED = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def shared(function, words, moves, calls, given, **sizes):
    """Share the heads of a task whose kernels are functions of ours; return what was given."""
    stands = [CALLED(function(number)) for number in range(len(calls))]
    table = [
        (ctypes.cast(stand, ctypes.c_void_p).value, *call)
        for stand, call in zip(stands, calls, strict=True)
    ]
    scratch = np.zeros(64, np.int64)
    task = Task(
        words=np.array(words, np.int64),
        moves=np.array(moves, np.int64),
        calls=np.array(table, np.int64),
        least=np.zeros(4, np.int64),
        **{"threads": 1, "room": 512, **sizes},
    )
    own = (ctypes.c_int64 * (FIRST_GIVEN + 1))(0, 0, 0, 0, scratch.ctypes.data, given)
    kernel("share_heads", REAL)(task, ctypes.addressof(own))
    return own


def test_words_move_with_batch_row_heads_and_stripe():
    seen = []

    def function(number):
        def note(_, __, address):
            words = (ctypes.c_int64 * 2).from_address(address)
            seen.append((number, *words[: 1 + number]))
            return 0

        return note

    own = shared(
        function,
        # One call of a word for each key head, and another of two words for each head.
        words=[5, 7, 11],
        moves=[
            (FIRST_GIVEN, 1000, 100, 10, 1),
            (ZERO, 1000, 100, 10, 1),
            (SCRATCH, 0, 0, 0, 0),
        ],
        calls=[(0, 1, 1, EITHER, EITHER), (1, 3, 0, EITHER, EITHER)],
        given=90_000,
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
            expected += [(1, 7 + place + 10 * h + s) for s in range(2) for h in range(2)]
    assert [one[:2] for one in seen] == expected
    assert own[NEXT_UNIT] == 2 * 3 * 2 + 1
    assert own[NEXT_THREAD] == 1
    assert own[STATUS] == 0
    # What lies in the thread's own memory does not move.
    assert len({one[2] for one in seen if one[0] == 1}) == 1


def test_a_kernel_that_fails_is_told():
    sizes = {"batch": 1, "kv_heads": 1, "group": 1, "stripes": 1}
    own = shared(
        lambda number: lambda *_: 7,
        words=[0],
        moves=[(ZERO, 0, 0, 0, 0)],
        calls=[(0, 1, 0, EITHER, EITHER)],
        given=0,
        **sizes,
    )
    assert own[STATUS] == 7

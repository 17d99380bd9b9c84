"""Shortcuts: a remembered call has the bits, gradients, errors and engine of the long way."""

import copy
import gc
import io
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

import glasshead as gh
from glasshead.attention import attention as module
from glasshead.engines import fused
from glasshead.engines.fused import Fused

WINDOW = gh.causal() & gh.window(before=3)
# Recipe, mask and offset of the call, and what differs from 2 rows, 6 heads, 13 tokens, width 7.
CALLS = {
    "plain": ({}, None, None, {}),
    "named": ({"engine": "fused", "mask": gh.causal()}, None, None, {}),
    "causal": ({"mask": gh.causal()}, None, None, {}),
    "causal, of few queries": ({"mask": gh.causal(offset=0)}, None, None, {"keys": 11}),
    "offset": ({"mask": gh.causal()}, None, 0, {"keys": 11}),
    "window": ({"mask": WINDOW}, None, None, {}),
    "window to both sides": ({"mask": gh.window(before=2, after=5)}, None, None, {}),
    "number as beta": ({"score": gh.Dot(beta=0.7), "mask": WINDOW}, None, None, {}),
    "scaled": ({"score": gh.ScaledDot(beta=0.3)}, None, None, {}),
    "heads in groups": ({"mask": WINDOW}, None, None, {"kv_heads": 2}),
    "one query of groups": ({"mask": gh.causal()}, None, None, {"kv_heads": 2, "queries": 1}),
    "padding": ({}, gh.padding([11, 11]), None, {}),
    "padding, a number": ({}, gh.padding(5), None, {}),
    "padding, heads in groups": ({}, gh.padding([11, 11]), None, {"kv_heads": 3, "queries": 1}),
    "ragged": ({}, gh.padding([41, 97]), None, {"queries": 83, "keys": 97}),
    "ragged, in groups": (
        {},
        gh.padding([97, 1]),
        None,
        {"queries": 83, "keys": 97, "kv_heads": 2},
    ),
    "longer than the keys": ({}, gh.padding([2**60, 13]), None, {}),
}


def inputs_of(sizes, dtype=torch.float32, *, requires_grad=True):
    sizes = {"queries": 13, "keys": 13, "kv_heads": 6} | sizes
    of_keys = (2, sizes["kv_heads"], sizes["keys"], 7)
    shapes = (2, 6, sizes["queries"], 7), of_keys, of_keys
    return [torch.randn(shape).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def with_gradients(attention, inputs, **call):
    context = attention(*inputs, **call)
    weight = torch.linspace(-1, 1, context.numel()).view_as(context).to(context.dtype)
    return [context, *torch.autograd.grad((context * weight).sum(), inputs)]


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Each test begins without shortcuts and kept masks."""
    torch.manual_seed(7)
    module._REMEMBERED.clear()
    fused.AddedMask._kept.clear()


def long_way(function, *arguments, **call):
    """Call a function while nothing is remembered, and the fused engine takes no direct way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("glasshead.attention.attention._signature_of", lambda *_: None)
        patched.setattr(Fused, "direct", lambda *_: None)
        return function(*arguments, **call)


def short_way(function, *arguments, **call):
    """Call a function whose attention is to be remembered, as no problem may be made."""

    def refuse(*_, **__):
        raise AssertionError("the long way was taken")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gh.Attention, "problem", refuse)
        return function(*arguments, **call)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_a_remembered_call_has_the_bits_and_gradients_of_the_long_way(name, dtype):
    settings, mask, offset, sizes = CALLS[name]
    call = {"mask": mask, "offset": offset}
    inputs, others = inputs_of(sizes, dtype), inputs_of(sizes, dtype)
    attention = gh.Attention(**settings)
    expected = long_way(with_gradients, attention, inputs, **call)
    assert_same(with_gradients(attention, inputs, **call), expected)
    assert_same(short_way(with_gradients, attention, inputs, **call), expected)
    # Of other numbers, and without gradients.
    expected = long_way(attention, *others, **call)
    assert torch.equal(short_way(attention, *others, **call), expected)
    with torch.no_grad():
        assert torch.equal(short_way(attention, *others, **call), expected)


CHANGES = {
    "mask": lambda a: setattr(a, "mask", gh.window(before=1)),
    "no mask": lambda a: setattr(a, "mask", None),
    "mask tensor": lambda a: setattr(a, "mask", torch.rand(13, 13) < 0.7),
    "score": lambda a: setattr(a, "score", gh.Cosine()),
    "beta": lambda a: setattr(a.score, "beta", 0.3),
    "dot": lambda a: setattr(a, "score", gh.Dot()),
    "dot without beta": lambda a: (setattr(a, "score", gh.Dot()), setattr(a.score, "beta", None)),
    "beta of numpy": lambda a: setattr(a.score, "beta", np.array(0.3)),
    "whole beta": lambda a: setattr(a.score, "beta", 2),
    "beta below 0": lambda a: setattr(a.score, "beta", -0.3),
    "learned beta": lambda a: setattr(a.score, "beta", torch.nn.Parameter(torch.rand(6))),
    "normalizer": lambda a: setattr(a, "normalizer", gh.SoftmaxOne()),
    "softcap": lambda a: setattr(a, "softcap", 0.5),
    "bias": lambda a: setattr(a, "bias", gh.ALiBi(6)),
    "bias tensor": lambda a: setattr(a, "bias", torch.rand(13, 13)),
    "learned bias": lambda a: setattr(a, "bias", torch.nn.Parameter(torch.rand(13, 13))),
    "buffer as bias": lambda a: (delattr(a, "bias"), a.register_buffer("bias", torch.rand(13, 13))),
    "reference": lambda a: setattr(a, "engine", "reference"),
    "streaming": lambda a: setattr(a, "engine", "streaming"),
    "float64": lambda a: a.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_settings_hold_from_the_next_call_on(change):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=WINDOW)
    before = attention(*inputs)
    short_way(attention, *inputs)
    CHANGES[change](attention)
    expected = long_way(attention, *inputs)
    assert torch.equal(attention(*inputs), expected)
    assert torch.equal(attention(*inputs), expected)
    same = torch.allclose(expected, before, rtol=1e-4, atol=1e-5)
    assert same == (change in {"reference", "streaming", "float64"})


def test_dropout_holds_in_training_only():
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=WINDOW)
    plain = attention(*inputs)
    attention.dropout = 0.5
    torch.manual_seed(3)
    dropped = attention(*inputs)
    torch.manual_seed(3)
    assert torch.equal(long_way(attention, *inputs), dropped)
    assert not torch.allclose(dropped, plain)
    assert torch.equal(short_way(attention.eval(), *inputs), plain)
    assert not torch.allclose(attention.train()(*inputs), plain)


@pytest.mark.parametrize("change", ["mask", "score", "normalizer", "bias", "softcap", "dropout"])
def test_a_missing_setting_is_missed(change):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=gh.causal())
    attention(*inputs)
    delattr(attention, change)
    with pytest.raises(AttributeError, match=change):
        attention(*inputs)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (lambda q, k, v: (q, k[..., :5], v), ValueError, "same width"),
        (lambda q, k, v: (q, k, v[..., :5, :]), ValueError, "one value"),
        (lambda q, k, v: (q, k.double(), v), TypeError, "one dtype"),
        (lambda q, k, v: (q, k, v.to("meta")), ValueError, "one device"),
        (lambda q, k, v: (q.long(), k.long(), v.long()), TypeError, "must be float16"),
        (lambda q, k, v: (q, k.to_sparse(), v), TypeError, "dense"),
        (lambda q, k, v: (q.tolist(), k, v), TypeError, "must be a torch.Tensor"),
        (lambda q, k, v: (torch.nested.as_nested_tensor([*q]), k, v), TypeError, "nested"),
        (lambda q, k, v: (q[0], k, v), ValueError, "number of axes"),
        (lambda q, k, v: (q[:, :5], k[:, :3], v[:, :3]), ValueError, "multiple of the key heads"),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_that_do_not_fit_are_refused_as_ever(change, error, told):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention()
    attention(*inputs)
    for _ in range(2):
        with pytest.raises(error, match=told):
            attention(*change(*inputs))


def test_arguments_that_do_not_fit_are_refused_as_ever():
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=gh.causal())
    attention(*inputs, offset=0)
    short_way(attention, *inputs, offset=0)
    with pytest.raises(TypeError, match="offset must be a whole number, got False"):
        attention(*inputs, offset=False)
    gh.Attention()(*inputs, mask=gh.padding([5, 5]))
    for _ in range(2):
        with pytest.raises(ValueError, match="one number a batch row"):
            gh.Attention()(*inputs, mask=gh.padding([5, 5, 5]))
    attention.engine = ["auto"]
    with pytest.raises(ValueError, match="engine must be"):
        attention(*inputs)


def test_bias_and_mask_of_a_call_are_its_own():
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention()
    attention(*inputs)
    for call in (
        {"bias": torch.rand(13, 13)},
        {"mask": gh.causal()},
        {"mask": torch.rand(13, 13) < 0.7},
        {"mask": gh.padding([3, 13])},
        {"mask": gh.padding([0, 13])},
        {"mask": gh.padding([5, 7]) & gh.causal()},
    ):
        assert torch.equal(attention(*inputs, **call), long_way(attention, *inputs, **call))
    attention = gh.Attention(mask=gh.causal())
    attention(*inputs)
    found = attention(*inputs, mask=gh.padding([5, 5]))
    assert torch.equal(found, long_way(attention, *inputs, mask=gh.padding([5, 5])))
    tensor = attention(*inputs, offset=torch.tensor([0, 3]))
    assert torch.equal(tensor, long_way(attention, *inputs, offset=torch.tensor([0, 3])))


def test_the_offset_of_a_call_is_its_own():
    inputs = inputs_of({"keys": 11}, requires_grad=False)
    attention = gh.Attention(mask=gh.causal())
    for offset in (0, None, 0, 5, -3):
        expected = long_way(attention, *inputs, offset=offset)
        assert torch.equal(attention(*inputs, offset=offset), expected)
        assert torch.equal(attention(*inputs, offset=offset), expected)


@pytest.mark.parametrize("shape", [(13, 7), (2, 13, 7), (2, 3, 2, 13, 7)])
@pytest.mark.parametrize("mask", [None, gh.causal(), WINDOW], ids=str)
def test_other_layouts(shape, mask):
    attention, x = gh.Attention(mask=mask), torch.randn(shape)
    expected = long_way(attention, x, 2 * x, 3 * x)
    for _ in range(2):
        assert torch.equal(attention(x, 2 * x, 3 * x), expected)


def test_lengths_are_read_in_each_call():
    inputs = inputs_of({"queries": 83, "keys": 97}, requires_grad=False)
    attention, lengths = gh.Attention(), torch.tensor([61, 97])
    mask = gh.padding(lengths)
    attention(*inputs, mask=mask)
    for rows in ([61, 61], [97, 3], [97, 97], [0, 5], [-3, 5]):
        lengths.copy_(torch.tensor(rows))
        assert torch.equal(attention(*inputs, mask=mask), long_way(attention, *inputs, mask=mask))


def test_numbers_of_a_mask_are_read_in_each_call():
    inputs = inputs_of({}, requires_grad=False)
    for tensor, mask in (
        (shown := torch.rand(13, 13) < 0.5, gh.dense(shown)),
        (offset := torch.tensor([0, 3]), gh.causal(offset)),
        (number := torch.tensor(2), gh.window(before=3, offset=number)),
        (ids := torch.arange(13) // 5, gh.documents(ids)),
        (length := torch.tensor([5, 5]), gh.padding(length)),
        (lengths := torch.tensor([5, 5]), gh.causal() | gh.prefix(lengths)),
    ):
        attention = gh.Attention(mask=mask)
        before = attention(*inputs)
        attention(*inputs)
        tensor.copy_(tensor.roll(1, 0) if tensor.ndim > 1 else torch.full_like(tensor, 7))
        after = attention(*inputs)
        assert not torch.equal(before, after)
        assert torch.equal(after, long_way(attention, *inputs))


Band = type(gh.causal())


class Growing(Band):
    """A band that grows, as no value should."""

    def simplified(self, tile):
        self.__dict__["before"] += 1
        return Band(self.before, 0)


@pytest.mark.parametrize("both", [lambda mask: mask, lambda mask: gh.causal() & mask])
def test_a_custom_mask_is_asked_in_each_call(both):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=both(Growing(1, 0)))
    found = [attention(*inputs) for _ in range(3)]
    assert_same(found, [gh.Attention(mask=gh.window(before=n))(*inputs) for n in (2, 3, 4)])


def test_a_subclass_makes_its_own_problems():
    class Doubled(gh.Attention):
        def problem(self, query, *others):
            return super().problem(2 * query, *others)

    inputs = inputs_of({}, requires_grad=False)
    plain = gh.Attention()
    plain(*inputs)
    doubled = plain(2 * inputs[0], *inputs[1:])
    assert all(torch.equal(Doubled()(*inputs), doubled) for _ in range(2))


@pytest.mark.parametrize("first", ["inside", "outside"])
@pytest.mark.parametrize("mask", [gh.causal(), gh.window(before=3), None], ids=str)
def test_autocast_holds_within_its_context_only(mask, first):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=mask)
    expected = long_way(attention, *inputs)
    half = long_way(attention, *(x.bfloat16() for x in inputs))
    for turn in range(3):
        if turn or first == "outside":
            assert torch.equal(attention(*inputs), expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(attention(*inputs), half)


def test_a_mask_that_is_made_in_inference_mode_serves_gradients():
    inputs = inputs_of({})
    attention = gh.Attention(mask=WINDOW)
    with torch.inference_mode():
        attention(*inputs)
    expected = long_way(with_gradients, attention, inputs)
    assert_same(short_way(with_gradients, attention, inputs), expected)


@pytest.mark.parametrize("mask", [None, gh.causal(), WINDOW], ids=str)
@pytest.mark.parametrize("transform_first", [True, False])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_of_torch_func(mask, transform_first):
    inputs = inputs_of({}, requires_grad=False)
    stacked = [torch.stack([x, 2 * x]) for x in inputs]
    attention = gh.Attention(mask=mask)

    def total(query):
        return attention(query, *inputs[1:]).square().sum()

    def plain():
        assert torch.equal(attention(*inputs), long_way(attention, *inputs))
        query = inputs[0].clone().requires_grad_()
        return torch.autograd.grad(total(query), query)[0]

    expected = None if transform_first else plain()
    found, each = torch.func.grad(total)(inputs[0]), torch.func.vmap(attention)(*stacked)
    torch.testing.assert_close(found, plain() if expected is None else expected)
    for one, x in zip(each, zip(*stacked, strict=True), strict=True):
        torch.testing.assert_close(one, attention(*x))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_lengths_that_a_transform_wraps_are_not_read():
    inputs = inputs_of({"queries": 83, "keys": 97}, requires_grad=False)
    attention, lengths = gh.Attention(), torch.tensor([[97, 41], [5, 5]])
    expected = [attention(*inputs, mask=gh.padding(one)) for one in lengths]
    found = torch.func.vmap(lambda one: attention(*inputs, mask=gh.padding(one)))(lengths)
    torch.testing.assert_close(found, torch.stack(expected))


def test_what_is_computed_forwards_is_not_remembered():
    # 2^22 scores, of which the window hides most: streaming takes them, but not forwards.
    x = torch.randn(1, 4, 1024, 2)
    attention = gh.Attention(mask=gh.causal() & gh.window(before=3))
    with torch.autograd.forward_ad.dual_level():
        forwards = [attention(x, x, x) for _ in range(2)]
        assert torch.equal(*forwards)
    assert attention.plan(x, x, x).engine == "streaming"
    streaming = gh.Attention(mask=attention.mask, engine="streaming")(x, x, x)
    assert torch.equal(attention(x, x, x), streaming)
    assert not torch.equal(forwards[0], streaming)


@pytest.mark.parametrize(
    "mask",
    [
        *(gh.causal(), gh.padding([97, 41])),
        *(pytest.param(mask, marks=pytest.mark.slow) for mask in (None, WINDOW)),
    ],
    ids=str,
)
def test_compiles_whole_where_it_is_remembered(mask):
    own = {} if mask is None or mask.of_keys else {"mask": mask}
    call = {"mask": mask} if mask is not None and mask.of_keys else {}
    attention = gh.Attention(**own)
    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend=counter)
    for keys in (97, 101, 89):
        inputs = inputs_of({"queries": keys, "keys": keys})
        expected = with_gradients(attention, inputs, **call)
        short_way(attention, *inputs, **call)
        found = with_gradients(compiled, inputs, **call)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("mask", [None, gh.causal(), WINDOW], ids=str)
def test_a_trace_of_torch_jit_is_that_of_the_long_way(mask):
    attention = gh.Attention(mask=mask)
    inputs = inputs_of({}, requires_grad=False)
    attention(*inputs)
    short_way(attention, *inputs)
    traced, long = torch.jit.trace(attention, inputs), long_way(torch.jit.trace, attention, inputs)
    graphs = [[node.kind() for node in one.graph.nodes()] for one in (traced, long)]
    assert graphs[0] == graphs[1]


def test_fake_tensors_and_the_meta_device_compute_nothing():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    attention = gh.Attention(mask=WINDOW)
    inputs = inputs_of({}, requires_grad=False)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in inputs]
        assert all(isinstance(attention(*fakes), FakeTensor) for _ in range(2))
        assert not fused.AddedMask._kept
    assert torch.equal(attention(*inputs), long_way(attention, *inputs))
    with mode:
        assert isinstance(attention(*fakes), FakeTensor)
    on_meta = [x.to("meta") for x in inputs]
    assert all(attention(*on_meta).device.type == "meta" for _ in range(2))


def test_a_subclass_of_tensor_is_dispatched():
    class Named(torch.Tensor):
        pass

    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention()
    attention(*inputs)
    named = attention(*(x.as_subclass(Named) for x in inputs))
    assert type(named) is Named


def test_a_stand_in_for_sdpa_is_called(monkeypatch):
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=gh.causal())
    attention(*inputs)
    calls, original = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *x, **k: calls.append(k) or original(*x, **k)
    )
    short_way(attention, *inputs)
    assert [call["is_causal"] for call in calls] == [True]


def test_watching_sees_a_remembered_call():
    class Layer(torch.nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.attention = gh.Attention(mask=mask)

        def forward(self, inputs):
            query, *others = inputs
            return [self.attention(query, *others), *others]

    model = torch.nn.Sequential(Layer(WINDOW), Layer(None))
    inputs = inputs_of({}, requires_grad=False)

    expected = model(inputs)
    with gh.watch(model, [gh.Entropy()]) as long:
        long_way(model, inputs)
    short_way(model, inputs)
    with gh.watch(model, [gh.Entropy()]) as seen:
        assert_same(model(inputs), expected)
    assert list(seen) == list(long) == ["0", "1"]
    for name in seen:
        assert torch.equal(seen[name]["entropy"], long[name]["entropy"])
    assert_same(short_way(model, inputs), expected)


def test_observing_has_the_bits_of_a_remembered_call():
    inputs = inputs_of({"queries": 97, "keys": 83}, requires_grad=False)
    for own, mask in ((None, None), (gh.causal(offset=0), None), (None, gh.padding([83, 41]))):
        attention = gh.Attention(mask=own)
        attention(*inputs, mask=mask)
        context = short_way(attention, *inputs, mask=mask)
        seen = attention.observe(*inputs, [gh.Entropy()], mask=mask)
        assert torch.equal(seen.context, context)


def test_nothing_is_kept_on_the_attention():
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=WINDOW)
    before = set(vars(attention)), pickle.dumps(attention), attention.state_dict()
    expected = attention(*inputs)
    assert (set(vars(attention)), pickle.dumps(attention), attention.state_dict()) == before
    saved = io.BytesIO()
    torch.save(attention, saved)
    saved.seek(0)
    copies = (
        copy.deepcopy(attention),
        pickle.loads(pickle.dumps(attention)),
        torch.load(saved, weights_only=False),
    )
    for one in copies:
        assert torch.equal(one(*inputs), expected)
        one.mask = gh.causal()
        assert not torch.equal(one(*inputs), expected)
    assert torch.equal(short_way(attention, *inputs), expected)


def test_no_tensor_of_a_caller_is_kept():
    held = []
    for settings, lengths in (({"mask": WINDOW}, None), ({}, [5, 5])):
        inputs = inputs_of({})
        mask = None if lengths is None else gh.padding(torch.tensor(lengths))
        gh.Attention(**settings)(*inputs, mask=mask)
        assert module._REMEMBERED
        held += [weakref.ref(x) for x in inputs]
        held += [] if mask is None else [weakref.ref(mask.lengths)]
    del inputs, mask
    gc.collect()
    assert not any(one() is not None for one in held)


def test_an_equal_mask_is_remembered_as_well():
    inputs = inputs_of({})
    for make in (gh.causal, lambda: gh.window(before=2)):
        expected = gh.Attention(mask=make())(*inputs)
        remembered = {*module._REMEMBERED}
        assert remembered
        assert torch.equal(short_way(gh.Attention(mask=make()), *inputs), expected)
        assert {*module._REMEMBERED} == remembered


def test_no_more_is_remembered_than_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 5)
    attention = gh.Attention(mask=gh.causal())
    for length in range(1, 23):
        x = torch.randn(1, 1, length, 2)
        assert torch.equal(attention(x, x, x), long_way(attention, x, x, x))
        assert 0 < len(module._REMEMBERED) <= 5
        short_way(attention, x, x, x)


def test_threads_share_what_is_remembered(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 3)
    monkeypatch.setattr(fused.AddedMask, "_most_bytes", 2000)
    attentions = [gh.Attention(mask=mask) for mask in (None, gh.causal(), WINDOW)]
    inputs = [inputs_of({"queries": n, "keys": n}, requires_grad=False) for n in (5, 7, 11, 13)]
    pairs = [(attention, x) for x in inputs for attention in attentions]
    expected = [long_way(attention, *x) for attention, x in pairs]

    def turn(start):
        order = [*range(start, len(pairs)), *range(start)]
        return all(
            torch.equal(pairs[at][0](*pairs[at][1]), expected[at])
            for _ in range(20)
            for at in order
        )

    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(turn, range(len(pairs))))


def test_plan_tells_the_engine_of_a_remembered_call():
    inputs = inputs_of({}, requires_grad=False)
    attention = gh.Attention(mask=WINDOW)
    plan = attention.plan(*inputs)
    attention(*inputs)
    short_way(attention, *inputs)
    assert attention.plan(*inputs) == plan
    assert plan.engine == "fused"

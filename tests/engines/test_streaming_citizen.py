"""The streaming operators are good citizens: checked, compiled, exported, threaded and forked."""

import os
import threading
import time

import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming import threads as workers
from glasshead.engines.streaming.engine import lower
from glasshead.engines.streaming.kernels.streamed import OutputSpec
from glasshead.engines.streaming.operator import streaming, streaming_backward

RECIPES = {
    "causal": lambda: {"mask": gh.causal()},
    "window": lambda: {"mask": gh.causal() & gh.window(before=3), "softcap": 7.0},
    "learned": lambda: {
        "score": gh.Cosine(beta=torch.nn.Parameter(torch.linspace(1, 2, 6))),
        "bias": gh.RelativeBias(6),
        "normalizer": gh.SoftmaxOne(sink=torch.nn.Parameter(torch.zeros(6))),
    },
    "rule": lambda: {"mask": ~gh.window(before=2)},
}


STATISTICS = [gh.Entropy(), gh.Received(), gh.TopK(2), gh.MassOn([0]), gh.PooledMap(2, 3)]


def attention_and_inputs(recipe, queries=5, keys=11):
    torch.manual_seed(5)
    attention = gh.Attention(**RECIPES[recipe](), engine="streaming")
    query, key, value = (
        torch.randn(2, h, n, d) for h, n, d in ((6, queries, 7), (3, keys, 7), (3, keys, 5))
    )
    return attention, (query, key, value)


def operands(*, requires_grad):
    """What the operator is called with, everything there is given."""
    attention, inputs = attention_and_inputs("learned")
    bias = torch.randn(2, 1, 5, 11)
    problem = attention.problem(*inputs, gh.dense(torch.rand(5, 11) < 0.7), bias, None)
    query, key, value, of = lower(problem)
    tensors = [x.detach().clone() for x in (query, key, value, of.bias, of.table, of.sink)]
    query, key, value, bias, table, sink = (x.requires_grad_(requires_grad) for x in tensors)
    per_key, per_query = torch.rand(1, 1, 2, 11), torch.rand(1, 6, 1, 5)
    return (
        *(query, key, value, of.bounds, of.offsets, of.visible, bias, table, sink, None),
        *(0.5, 3.0, 0),
        *OutputSpec(
            keyed=1, far=1, diagonal=1, top=2, maps=(2, 3), per_key=per_key, per_query=per_query
        ),
    )


# PyTorch's own check asks for the gradients of whatever it is given.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("requires_grad", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_opcheck_of_the_forward_operator(requires_grad):
    found = torch.library.opcheck(streaming, operands(requires_grad=requires_grad))
    assert set(found.values()) == {"SUCCESS"}


def test_opcheck_of_the_backward_operator():
    given = operands(requires_grad=False)
    recipe, asked = given[: -len(OutputSpec._fields)], given[-len(OutputSpec._fields) :]
    per_key = OutputSpec(*asked).per_key
    arriving = (
        torch.rand(2, 6, 2, 5),
        torch.randn(2, 6, 5, 5),
        torch.randn(2, 6, 5),
        torch.randn(2, 6, 5),
        torch.randn(2, 6, 2, 5),
    )
    call = (*recipe, [True, True, True], *arriving, per_key)
    assert set(torch.library.opcheck(streaming_backward, call).values()) == {"SUCCESS"}


@pytest.mark.parametrize(
    ("recipe", "dynamic"),
    [
        *(("window", False), ("rule", False)),
        # "window" is causal too.
        *(pytest.param(x, True, marks=pytest.mark.slow) for x in RECIPES if x != "causal"),
        pytest.param("learned", False, marks=pytest.mark.slow),
    ],
)
def test_compiles_whole_with_its_gradient(recipe, dynamic):
    attention, inputs = attention_and_inputs(recipe)
    lengths = torch.tensor([4, 11])

    def call(query, key, value, lengths):
        return attention(query, key, value, mask=gh.padding(lengths))

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    learned = [*(x.requires_grad_() for x in inputs), *attention.parameters()]
    expected, found = call(*inputs, lengths), compiled(*inputs, lengths)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(x.square().sum(), learned) for x in (expected, found)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "recipe",
    ["rule", *(pytest.param(x, marks=pytest.mark.slow) for x in RECIPES if x != "rule")],
)
def test_observing_compiles_whole(recipe):
    attention, inputs = attention_and_inputs(recipe)

    def call(query, key, value):
        seen = attention.observe(query, key, value, STATISTICS)
        return seen.context, seen.entropy, seen.received, seen.top_k.weights, seen.pooled_map

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for one, other in zip(compiled(*inputs), call(*inputs), strict=True):
        torch.testing.assert_close(one, other)


# Seconds of compilation; test_opcheck_of_the_forward_operator has lengths that are symbols, too.
@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["causal", "learned"])
def test_exports_for_every_length(recipe):
    attention, inputs = attention_and_inputs(recipe)
    queries, keys = torch.export.Dim("queries", min=2), torch.export.Dim("keys", min=2)
    shapes = {"query": {2: queries}, "key": {2: keys}, "value": {2: keys}}
    program = torch.export.export(attention, inputs, dynamic_shapes=shapes)
    for lengths in ((5, 11), (3, 8)):
        _, other = attention_and_inputs(recipe, *lengths)
        torch.testing.assert_close(program.module()(*other), attention(*other))


def test_autocast_casts_the_inputs_and_no_more():
    attention, inputs = attention_and_inputs("causal")
    half = [x.bfloat16() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        seen = attention.observe(*inputs, [gh.Entropy()])
    assert seen.context.dtype == torch.bfloat16
    assert seen.entropy.dtype == torch.float32
    torch.testing.assert_close(seen.context, attention(*half))


def work():
    """Enough for several threads."""
    x = torch.linspace(-1, 1, 2 * 8 * 517 * 64).sin().view(2, 8, 517, 64)
    return gh.Attention(mask=gh.causal(), engine="streaming").observe(
        x, x, x, [gh.Entropy(), gh.Received(), gh.TopK(3)]
    )


def test_four_threads_observe_at_once():
    expected, found = work(), {}

    def observe(place):
        for _ in range(3):
            found[place] = work()

    threads = [threading.Thread(target=observe, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [0, 1, 2, 3]
    for seen in found.values():
        assert torch.equal(seen.context, expected.context)
        assert torch.equal(seen.entropy, expected.entropy)
        assert torch.equal(seen.received, expected.received)


@pytest.fixture(params=["PyTorch's", "our own"])
def lent(request, monkeypatch):
    """Threads of either kind; three, as if there were so many cores."""
    if request.param == "our own":
        monkeypatch.setattr(workers, "_openmp", lambda: None)
    elif workers._openmp() is None:
        pytest.skip("this PyTorch has no OpenMP whose threads could be lent")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("lent")
def test_each_unit_is_taken_once_by_this_thread_or_another():
    taken, all_there = [], threading.Barrier(3, timeout=60)

    def take(units):
        all_there.wait()
        taken.extend((unit, threading.get_ident()) for unit in units)

    for _ in range(5):
        taken.clear()
        workers.share(range(101), take, 3)
        assert sorted(unit for unit, _ in taken) == list(range(101))
    # Fewer than there are: this one, which Ctrl-C reaches, and one more.
    threads = []
    for _ in range(20):
        threads.clear()
        workers.share(range(2), lambda units: threads.append((threading.get_ident(), *units)), 2)
        idents = {thread for thread, *_ in threads}
        assert len(idents) == 2
        assert threading.get_ident() in idents


@pytest.mark.usefixtures("lent")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_in_one_thread_ends_the_work_of_all(error):
    taken, both_there = [], threading.Barrier(2, timeout=60)
    own = threading.get_ident()

    def take(units):
        both_there.wait()
        for unit in units:
            taken.append(unit)
            if threading.get_ident() == own:
                raise error
            time.sleep(0.001)

    with pytest.raises(error):
        workers.share(range(10**6), take, 2)
    assert len(taken) < 10**4


def test_threads_of_our_own_give_the_same_bits(monkeypatch):
    expected = work()
    monkeypatch.setattr(workers, "_openmp", lambda: None)
    found = work()
    assert torch.equal(found.context, expected.context)
    assert torch.equal(found.received, expected.received)


# A fork in a process of threads is what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_threads_of_its_own():
    """Those of the parent are gone in it, and to wait for them would never end."""
    taken = []
    workers.share(range(5), taken.extend, 2)
    assert sorted(taken) == list(range(5))
    child = torch.multiprocessing.get_context("fork").Process(target=_shares_five_units)
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0


def _shares_five_units():
    taken = []
    workers.share(range(5), taken.extend, 2)
    os._exit(sorted(taken) != list(range(5)))


class Observing(torch.utils.data.Dataset):
    """Rows that are observed where they are loaded."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        del index
        return work().entropy


# A fork in a process of threads is what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_workers_of_a_data_loader_observe():
    expected = work().entropy
    loader = torch.utils.data.DataLoader(
        Observing(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    rows = list(loader)
    assert len(rows) == 3
    for row in rows:
        torch.testing.assert_close(row, expected)


def test_a_rule_lives_until_the_backward():
    attention, inputs = attention_and_inputs("rule", 71, 73)
    inputs = [x.requires_grad_() for x in inputs]
    context = attention(*inputs)
    reference = gh.Attention(**RECIPES["rule"](), engine="reference")
    found = torch.autograd.grad(context.square().sum(), inputs)
    expected = torch.autograd.grad(reference(*inputs).square().sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

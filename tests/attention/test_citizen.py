"""A good citizen of PyTorch: compiled, exported, copied, pickled, cast, moved, planned."""

import copy
import io
import pickle

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import glasshead as gh

RECIPES = {
    "default": {},
    "causal": {"mask": gh.causal()},
    "learned": {
        "score": gh.Cosine(beta=torch.nn.Parameter(torch.linspace(1, 2, 6))),
        "bias": gh.ALiBi(6),
        "mask": gh.causal() & gh.window(before=3),
    },
    "reference only": {
        "score": gh.Additive(7),
        "softcap": 5.0,
        "bias": gh.RelativeBias(6),
        "normalizer": gh.SoftmaxOne(sink=torch.nn.Parameter(torch.zeros(6))),
    },
    "sparse": {"normalizer": gh.Entmax15(), "score": gh.Gaussian(beta=0.2)},
    "hard": {"normalizer": gh.HardMax(), "mask": ~gh.window(before=0)},
}


def attention_and_inputs(recipe):
    torch.manual_seed(5)
    query, key, value = (torch.randn(2, h, n, 7) for h, n in ((6, 5), (3, 11), (3, 11)))
    # A recipe's modules are shared between tests; each gets its own.
    return gh.Attention(**copy.deepcopy(RECIPES[recipe])), (query, key, value)


def quick(*names, others=tuple(RECIPES)):
    """Return names of recipes, and the others, whose compilation takes seconds, marked slow."""
    return [*names, *(pytest.param(x, marks=pytest.mark.slow) for x in others if x not in names)]


def with_padding(attention):
    def call(query, key, value, lengths):
        return attention(query, key, value, mask=gh.padding(lengths))

    return call


def assert_same_with_gradient(compiled, call, query, *others):
    query.requires_grad_()
    contexts = compiled(query, *others), call(query, *others)
    torch.testing.assert_close(*contexts)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), query)[0] for x in contexts))


@pytest.mark.parametrize("recipe", quick("hard"))
def test_compiles_whole(recipe):
    attention, inputs = attention_and_inputs(recipe)
    call = with_padding(attention)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=False, backend="aot_eager")
    assert_same_with_gradient(compiled, call, *inputs, torch.tensor([4, 11]))


# test_remembered_calls.py compiles plain calls like this in the quick tests.
# The backend aot_eager traces the gradient too, which takes longest: three recipes do it.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "backend"),
    [
        *((recipe, "aot_eager") for recipe in ("causal", "learned", "reference only")),
        *((recipe, "eager") for recipe in ("default", "sparse", "hard")),
    ],
)
def test_one_graph_serves_every_length(recipe, backend):
    attention, inputs = attention_and_inputs(recipe)
    call = with_padding(attention)
    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    assert_same_with_gradient(compiled, call, *inputs, torch.tensor([4, 11]))
    with torch.compiler.set_stance("fail_on_recompile"):
        for queries, keys in ((3, 8), (7, 13), (6, 17)):
            query, key = torch.randn(2, 6, queries, 7), torch.randn(2, 3, keys, 7)
            lengths = torch.tensor([4, keys])
            assert_same_with_gradient(compiled, call, query, key, key.clone(), lengths)


# The two remaining normalizers run on the same engine as "reference only".
@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["causal", "learned", "reference only"])
def test_compiles_again_for_other_lengths(recipe):
    attention, _ = attention_and_inputs(recipe)
    torch.compiler.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    for length in (8, 11, 13):
        x = torch.randn(2, 6, length, 7)
        torch.testing.assert_close(compiled(x, x, x), attention(x, x, x))
        query = x[..., -1:, :]
        torch.testing.assert_close(compiled(query, x, x), attention(query, x, x))


def test_an_offset_that_changes_is_compiled_once_more():
    attention, inputs = attention_and_inputs("causal")
    torch.compiler.reset()
    counter = CompileCounter()

    def call(offset):
        return attention(*inputs, offset=offset)

    compiled = torch.compile(call, fullgraph=True, backend=counter)
    for offset in range(1, 8):
        torch.testing.assert_close(compiled(offset), call(offset))
    assert counter.frame_count == 2


def test_a_mask_tensor_of_changing_size_compiles():
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, mask: gh.Attention()(x, x, x, mask=mask),
        fullgraph=True,
        dynamic=True,
        backend="eager",
    )
    for length in (5, 7, 11):
        x, mask = torch.randn(2, 3, length, 4), torch.rand(length, length) < 0.7
        torch.testing.assert_close(compiled(x, mask), gh.Attention()(x, x, x, mask=mask))


@pytest.mark.parametrize("recipe", quick("causal", others=["reference only", "sparse"]))
def test_exports_for_every_length(recipe):
    if recipe in ("reference only", "sparse") and torch.__version__.startswith("2.10."):
        pytest.skip("PyTorch 2.10 exports no copies of heads for every length")
    attention, inputs = attention_and_inputs(recipe)
    queries, keys = torch.export.Dim("queries", min=2), torch.export.Dim("keys", min=2)
    shapes = {"query": {2: queries}, "key": {2: keys}, "value": {2: keys}}
    program = torch.export.export(attention, inputs, dynamic_shapes=shapes)
    for lengths in ((5, 11), (3, 8)):
        query, key = torch.randn(2, 6, lengths[0], 7), torch.randn(2, 3, lengths[1], 7)
        torch.testing.assert_close(program.module()(query, key, key), attention(query, key, key))


@pytest.mark.parametrize("recipe", RECIPES)
def test_copies_pickles_and_loads(recipe):
    attention, inputs = attention_and_inputs(recipe)
    expected = attention(*inputs)
    torch.testing.assert_close(copy.deepcopy(attention)(*inputs), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(attention))(*inputs), expected)
    saved = io.BytesIO()
    torch.save(attention.state_dict(), saved)
    saved.seek(0)
    fresh, _ = attention_and_inputs(recipe)
    for parameter in fresh.parameters():
        parameter.data.zero_()
    fresh.load_state_dict(torch.load(saved, weights_only=True))
    torch.testing.assert_close(fresh(*inputs), expected)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(recipe, dtype):
    attention, inputs = attention_and_inputs(recipe)
    half = [x.to(dtype) for x in inputs]
    exact = attention.double()(*(x.double() for x in half))
    tolerance = 2e-2 if dtype == torch.bfloat16 else 3e-3
    for module in (attention.float(), attention.to(dtype)):
        found = module(*half)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_autocast_casts_the_inputs_as_sdpa_does(engine):
    _, inputs = attention_and_inputs("causal")
    attention = gh.Attention(mask=gh.causal(), engine=engine)
    half = [x.bfloat16() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(*inputs)
        trace = attention.trace(*inputs)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, attention(*half))
    assert trace.weights.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(*(x.double() for x in inputs)).dtype == torch.float64


def test_dropout_acts_only_in_training():
    attention, inputs = attention_and_inputs("default")
    attention.dropout = 0.5
    assert not torch.equal(attention(*inputs), attention(*inputs))
    trace = attention.trace(*inputs)
    assert (trace.dropped == 0).any()
    assert (trace.weights > 0).all()
    attention.eval()
    assert torch.equal(attention(*inputs), attention(*inputs))


@pytest.mark.parametrize("recipe", RECIPES)
def test_plans_on_the_meta_device(recipe):
    attention, inputs = attention_and_inputs(recipe)
    there = attention.plan(*(x.to("meta") for x in inputs), mask=gh.padding([1, 11]))
    assert there == attention.plan(*inputs, mask=gh.padding([1, 11]))


def test_a_plan_tells_work_and_memory():
    x = torch.empty(1, 8, 1024, 64, device="meta")
    pairs, context = 8 * 1024 * 1024, 8 * 1024 * 64 * 4
    full = gh.Attention(engine="fused").plan(x, x, x)
    assert (full.engine, full.flops, full.bytes) == ("fused", 4 * pairs * 64, context)
    causal = gh.Attention(mask=gh.causal(), engine="fused").plan(x, x, x)
    assert causal.flops == 4 * 8 * (1024 * 1025 // 2) * 64
    assert causal.bytes == context
    more = gh.Attention(mask=gh.causal(offset=0), engine="fused").plan(
        x, x[..., :512, :], x[..., :512, :]
    )
    assert more.flops == 4 * 8 * (512 * 513 // 2 + 512 * 512) * 64
    padded = gh.Attention(mask=gh.padding([1000]), engine="fused").plan(x, x, x)
    assert padded.bytes == context + 1024 * (2 + 4)
    windowed = gh.Attention(mask=gh.window(before=9), engine="fused").plan(x, x, x)
    assert windowed.bytes == context + 1024 * 1024 * (2 + 4)
    skipping = gh.Attention(mask=gh.window(before=9)).plan(x, x, x)
    assert skipping.engine == "streaming"
    assert skipping.flops == 4 * 8 * (1024 * 10 - 45) * 64
    assert skipping.bytes < 3 * context
    biased = gh.Attention(bias=gh.ALiBi(8), engine="fused").plan(x, x, x)
    assert biased.bytes == context + 2 * pairs * 4
    dropped = gh.Attention(dropout=0.5).plan(x, x, x)
    assert dropped.bytes == context + 3 * pairs * 4
    wide = gh.Attention(engine="fused").plan(x, x, x.expand(1, 8, 1024, 64).repeat(1, 1, 1, 2))
    assert (wide.flops, wide.bytes) == (8 * pairs * 64, 2 * context)
    reference = gh.Attention(engine="reference").plan(x, x, x)
    assert (reference.flops, reference.bytes) == (4 * pairs * 64, 3 * pairs * 4 + context)
    gaussian = gh.Attention(score=gh.Gaussian()).plan(x, x, x)
    assert gaussian.bytes == (3 + 2 * 64) * pairs * 4 + context
    sparse = gh.Attention(normalizer=gh.Sparsemax()).plan(x, x, x)
    assert sparse.bytes == (3 + 5) * pairs * 4 + context
    whole = gh.Attention(softcap=3.0, bias=gh.ALiBi(8), engine="reference").plan(x, x, x)
    assert whole.bytes == (3 + 1 + 2 + 1) * pairs * 4 + context
    grouped = gh.Attention(engine="reference").plan(x, x[:, :2], x[:, :2])
    assert grouped.bytes == reference.bytes + 2 * context
    assert "fused: PyTorch's scaled_dot_product_attention" in str(full)


def test_it_reads_as_what_it_is():
    attention = gh.Attention(mask=gh.causal() & gh.window(before=3), softcap=30.0, dropout=0.1)
    text = repr(attention)
    for part in ("mask=causal() & window(before=3)", "softcap=30.0", "dropout=0.1", "ScaledDot()"):
        assert part in text

"""Compiled models are watched as they run: compiled again for the block, with the same bits."""

import shutil
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

import glasshead as gh
from glasshead.private_names import private
from watching import small
from watching.torch.explicit import STATISTICS, bits, check, lower, nothing_is_open, weights

pytestmark = [
    pytest.mark.usefixtures("compiler"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not hasattr(torch._dynamo.eval_frame, "innermost_backend"),
        reason=f"on PyTorch {torch.__version__} watch cannot compile again",
    ),
]
# The compiler's own backend wants a C++ compiler, and takes long: for a few tests.
WITH_COMPILER = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++"),
]
INDUCTOR = pytest.param("inductor", marks=WITH_COMPILER)
BACKENDS = ["eager", "aot_eager", INDUCTOR]


class Attention(nn.Module):
    """Causal attention of a text to itself."""

    def __init__(self, function=None):
        super().__init__()
        self.qkv, self.function = nn.Linear(small.WIDTH, 3 * small.WIDTH), function

    def heads(self, x):
        parts = self.qkv(x).chunk(3, -1)
        return [part.unflatten(-1, (small.HEADS, -1)).transpose(1, 2) for part in parts]

    def forward(self, x):
        attend = self.function or partial(F.scaled_dot_product_attention, is_causal=True)
        return attend(*self.heads(x)).transpose(1, 2).flatten(2)


class Block(nn.Module):
    def __init__(self, function=None):
        super().__init__()
        self.attention = Attention(function)

    def forward(self, x):
        return x + self.attention(x)


class Model(nn.Module):
    def __init__(self, layers=2, function=None):
        super().__init__()
        self.layers = nn.ModuleList(Block(function) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


NAMES = ["layers.0.attention", "layers.1.attention"]


@pytest.fixture(autouse=True)
def _from_the_beginning():
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def whole(model, **asked):
    compiled = torch.compile(model, **asked)
    return compiled, compiled


def in_place(model, **asked):
    model.compile(**asked)
    return model, model


def block_by_block(model, **asked):
    for layer in model.layers:
        layer.compile(**asked)
    return model, model


def inner(model, **asked):
    model.layers[1].attention = torch.compile(model.layers[1].attention, **asked)
    return model, model


def called(model, **asked):
    return torch.compile(model.__call__, **asked), model


def function(model, **asked):
    return torch.compile(lambda x: model(x).tanh(), **asked), model


WAYS = [whole, in_place, block_by_block, inner, called, function]


def graphs():
    return counters["stats"]["unique_graphs"]


def expected(model, x):
    """The weights of each layer of a model that is not compiled."""
    for layer in model.layers:
        query, key, _ = layer.attention.heads(x)
        yield weights(query, key, visible=lower(x.shape[1]))
        x = layer(x)


# Where the compiler begins and what it makes of a graph do not depend on each other.
@pytest.mark.parametrize(
    ("way", "backend"),
    [
        *((way, "aot_eager") for way in WAYS),
        *((way, "eager") for way in (whole, block_by_block)),
        *(pytest.param(way, "inductor", marks=WITH_COMPILER) for way in (whole, block_by_block)),
    ],
)
def test_what_is_compiled_is_seen_and_gives_the_same_bits(way, backend):
    model, x = Model(), small.text()
    says = list(expected(model, x))
    run, watched = way(model, backend=backend, fullgraph=True)
    alone = run(x)
    before = graphs()
    with gh.watch(watched, STATISTICS) as seen:
        assert torch.equal(run(x), alone)
    assert nothing_is_open()
    assert list(seen) == NAMES
    for layer, one in zip(seen.values(), says, strict=True):
        assert len(layer) == 1
        check(layer, one)
    doubled = graphs()
    assert doubled == 2 * before
    with gh.watch(watched, STATISTICS, keep="weights") as again:
        assert torch.equal(run(x), alone)
    for layer, one in zip(again.values(), says, strict=True):
        torch.testing.assert_close(layer.weights[:], one.float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(run(x), alone)
    assert graphs() == doubled


@pytest.mark.parametrize("backend", ["eager", INDUCTOR])
def test_what_is_compiled_in_the_block_is_seen(backend):
    model, x = Model(), small.text()
    says = list(expected(model, x))
    with gh.watch(model, STATISTICS) as seen:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        watched = compiled(x)
    for layer, one in zip(seen.values(), says, strict=True):
        check(layer, one)
    assert list(seen) == NAMES
    assert torch.equal(compiled(x), watched)


def test_calls_of_one_model_in_one_function_are_passes_of_their_own():
    model, x = Model(), small.text()
    run = torch.compile(lambda y: model(y) + model(2 * y), backend="eager", fullgraph=True)
    with gh.watch(model, STATISTICS) as seen:
        run(x)
        run(3 * x)
    for name in NAMES:
        assert [(call.forward, call.run) for call in seen[name]] == [(n, 0) for n in range(1, 5)]
    for times, call in zip((1, 2, 3, 6), seen[NAMES[0]], strict=True):
        check(call, next(expected(model, times * x)))


def test_a_layer_that_runs_twice_is_two_layers():
    class Twice(Model):
        def forward(self, x):
            return super().forward(super().forward(x))

    model, x = Twice(1), small.text()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with gh.watch(compiled, [gh.Entropy()]) as seen:
        compiled(x)
    assert [(call.forward, call.run) for call in seen["layers.0.attention"]] == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("dynamic", "backend"),
    [
        (None, "eager"),
        (False, "eager"),
        # Operators of lengths that are not known take long to derive.
        pytest.param(True, "aot_eager", marks=pytest.mark.slow),
    ],
)
def test_lengths_may_change(dynamic, backend):
    model = Model(1)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    texts = [small.text(length) for length in (7, 11, 13, 7)]
    alone = [compiled(x) for x in texts]
    for _ in range(2):
        with gh.watch(compiled, STATISTICS) as seen:
            watched = [compiled(x) for x in texts]
        assert all(map(torch.equal, watched, alone))
        for call, x in zip(seen[NAMES[0]], texts, strict=True):
            check(call, next(expected(model, x)))
    compiled_so_far = graphs()
    assert all(map(torch.equal, (compiled(x) for x in texts), alone))
    assert graphs() == compiled_so_far


@pytest.mark.slow
def test_a_scale_may_depend_on_the_length():
    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, scale=query.shape[-2] ** -0.5)

    model = Model(1, attend)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    with gh.watch(compiled, STATISTICS) as seen:
        for length in (7, 11):
            compiled(small.text(length))
    assert [call.queries for call in seen["layers.0.attention"]] == [7, 11]


def test_compiled_code_for_watches_does_not_count_in_the_limit_of_recompilations():
    if private("torch._dynamo.eval_frame._next_isolate_recompiles_id") is None:
        pytest.skip(f"PyTorch {torch.__version__} counts all compiled code of a function")
    model = Model(1)
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    texts = [small.text(length) for length in (2, 3, 5)]
    with torch._dynamo.config.patch(recompile_limit=3):
        for x in texts[:2]:
            compiled(x)
        with gh.watch(compiled, [gh.Entropy()]) as seen:
            for x in texts:
                compiled(x)
        compiled(texts[2])
    assert len(seen["layers.0.attention"]) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_the_same_and_recomputation_counts_once(backend):
    model, x = Model(), small.text()
    compiled = torch.compile(model, backend=backend, fullgraph=True)

    def step():
        model.zero_grad()
        compiled(x).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    alone = step()
    with gh.watch(compiled, STATISTICS) as seen:
        watched = step()
    assert all(map(torch.equal, watched, alone))
    for name, one in zip(NAMES, expected(model, x), strict=True):
        assert len(seen[name]) == 1
        check(seen[name], one)


@pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])
def test_dropout_draws_the_same_numbers(backend):
    model = Model(1, partial(F.scaled_dot_product_attention, dropout_p=0.5))
    x = small.text()
    compiled = torch.compile(model, backend=backend, fullgraph=True)

    def run():
        torch.manual_seed(7)
        return compiled(x)

    alone = run()
    with gh.watch(compiled, STATISTICS) as seen:
        assert torch.equal(run(), alone)
    query, key, _ = model.layers[0].attention.heads(x)
    check(seen["layers.0.attention"], weights(query, key))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_bits_are_the_same_in_other_types(dtype):
    model, x = Model().to(dtype), small.text().to(dtype)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        alone = compiled(x)
        with gh.watch(compiled, [gh.Entropy()]):
            assert torch.equal(bits(compiled(x)), bits(alone))


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow), INDUCTOR]
)
def test_what_is_checkpointed_is_seen_and_counts_once(backend):
    class Checkpointed(Model):
        def forward(self, x):
            x = self.layers[0](x)
            return torch.utils.checkpoint.checkpoint(self.layers[1], x, use_reentrant=False)

    model, x = Checkpointed(), small.text()
    compiled = torch.compile(model, backend=backend, fullgraph=True)

    def step():
        model.zero_grad()
        output = compiled(x)
        output.square().sum().backward()
        return [output, *(parameter.grad.clone() for parameter in model.parameters())]

    alone = step()
    with gh.watch(compiled, STATISTICS) as seen:
        assert all(map(torch.equal, step(), alone))
    assert [len(layer) for layer in seen.values()] == [1, 1]
    for name, one in zip(NAMES, expected(model, x), strict=True):
        check(seen[name], one)


def test_graph_breaks_leave_names_as_they_are():
    def attend(query, key, value):
        torch._dynamo.graph_break()
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    model, x = Model(2, attend), small.text()
    compiled = torch.compile(model, backend="eager")
    alone = model(x)
    with gh.watch(compiled, STATISTICS) as seen:
        assert torch.equal(compiled(x), alone)
    for name, one in zip(NAMES, expected(model, x), strict=True):
        check(seen[name], one)


def test_layers_and_heads_are_selected_by_the_names_of_what_was_compiled():
    model, x = Model(3), small.text()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with gh.watch(compiled, [gh.Entropy()], layers="layers.[02]", heads=[2, 0]) as seen:
        compiled(x)
    with gh.watch(model, [gh.Entropy()], layers="layers.[02]", heads=[2, 0]) as eager:
        model(x)
    assert list(seen) == list(eager) == ["layers.0.attention", "layers.2.attention"]
    for name in seen:
        assert torch.equal(seen[name].entropy, eager[name].entropy)
    with (
        pytest.raises(ValueError, match="heads must be in 0..2 for .*, got 3"),
        gh.watch(compiled, [gh.Entropy()], heads=[3]),
    ):
        compiled(x)
    assert nothing_is_open()


def test_watches_may_be_nested():
    model, x = Model(), small.text()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with gh.watch(compiled, [gh.Entropy()]) as outer:
        compiled(x)
        with gh.watch(model, [gh.MaxWeight()], layers="layers.1") as within:
            compiled(x)
        compiled(x)
    assert [len(layer) for layer in outer.values()] == [3, 3]
    assert [len(layer) for layer in within.values()] == [1]
    assert graphs() == 1


def test_weights_are_kept_where_the_code_writes_to_their_memory_again():
    class Growing(nn.Module):
        """A cache of a fixed size, which each call fills further."""

        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 3, 5, 7))

        def forward(self, x, at):
            self.keys.index_copy_(2, at, x)
            mask = (torch.arange(5) <= at)[None]
            return F.scaled_dot_product_attention(x, self.keys, self.keys, attn_mask=mask)

    model, texts = Growing(), torch.randn(5, 1, 3, 1, 7)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), gh.watch(compiled, [gh.Entropy()], keep="weights") as seen:
        for at, x in enumerate(texts):
            compiled(x, torch.tensor([at]))
    text = texts.squeeze(3).movedim(0, 2)
    torch.testing.assert_close(
        seen[""].weights[:].double(), weights(text, text, visible=lower(5)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "padded", "backend"),
    [
        ({}, [7, 5], "aot_eager"),
        ({"window": 3}, None, "aot_eager"),
        ({"positions": "alibi"}, [7, 5], "aot_eager"),
        pytest.param({"positions": "alibi"}, [7, 5], "inductor", marks=WITH_COMPILER),
    ],
)
def test_our_own_models_are_seen(options, padded, backend):
    config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=1, **options)
    model = gh.LanguageModel(config).eval()
    tokens = torch.randint(11, (2, 7))
    compiled = torch.compile(model, backend=backend)
    statistics = [gh.Entropy(), gh.Received(), gh.MeanDistance()]
    with torch.no_grad():
        with gh.watch(model, statistics) as eager:
            model(tokens, padding=padded)
        alone = compiled(tokens, padding=padded)
        with gh.watch(compiled, statistics) as seen:
            assert torch.equal(compiled(tokens, padding=padded), alone)
    assert list(seen) == list(eager)
    for name in seen:
        for one in statistics:
            torch.testing.assert_close(seen[name][one], eager[name][one], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "recipe",
    [
        {"softcap": 2.0},
        {"engine": "streaming", "mask": gh.window(2)},
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                {"softcap": 2.0, "mask": gh.causal() & gh.padding([11, 5])},
                {"engine": "streaming", "bias": gh.ALiBi(6)},
                {"engine": "streaming", "mask": gh.dense(torch.ones(7, 11).bool().triu(2))},
            )
        ),
    ],
)
def test_recipes_of_our_own_engine_are_seen(recipe):
    attention = gh.Attention(**recipe)
    query, key, value = torch.randn(2, 6, 7, 5), *torch.randn(2, 2, 3, 11, 5)
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
    statistics = [gh.Entropy(), gh.Received(), gh.MeanDistance(), gh.MaxScore()]
    with gh.watch(attention, statistics) as eager:
        attention(query, key, value)
    alone = compiled(query, key, value)
    with gh.watch(compiled, statistics, keep="weights") as seen:
        assert torch.equal(compiled(query, key, value), alone)
    (call,), (its,) = seen[""], eager[""]
    assert (call.position, call.crossing) == (its.position, its.crossing)
    for one in statistics:
        torch.testing.assert_close(call[one], its[one], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        call.weights[:], attention.weights(query, key)[:], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("crossing", [False, True])
def test_layers_of_pytorch_are_seen(crossing, need_weights):
    model, x = nn.MultiheadAttention(12, 3, batch_first=True), torch.randn(2, 5, 12)
    other = torch.randn(2, 5, 12) if crossing else x
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        with gh.watch(model, STATISTICS) as eager:
            model(x, other, other, need_weights=need_weights)
        alone, _ = compiled(x, other, other, need_weights=need_weights)
        with gh.watch(compiled, STATISTICS) as seen:
            watched, _ = compiled(x, other, other, need_weights=need_weights)
    assert torch.equal(alone, watched)
    assert seen[""][0].crossing == eager[""][0].crossing == crossing
    torch.testing.assert_close(seen[""].entropy, eager[""].entropy, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(seen[""].received, eager[""].received, rtol=1e-5, atol=1e-5)


def test_encoders_and_decoders_of_pytorch_are_seen():
    model = nn.Transformer(12, 3, 2, 1, 29, batch_first=True).eval()
    texts = torch.randn(2, 5, 12), torch.randn(2, 3, 12)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        with gh.watch(model, [gh.Entropy()]) as eager:
            model(*texts)
        alone = compiled(*texts)
        with gh.watch(compiled, [gh.Entropy()]) as seen:
            assert torch.equal(compiled(*texts), alone)
    assert list(seen) == list(eager)
    for name in seen:
        torch.testing.assert_close(seen[name].entropy, eager[name].entropy, rtol=1e-5, atol=1e-5)


def test_code_of_other_models_and_threads_is_left_alone():
    model, other, x = Model(), Model(), small.text()
    compiled = torch.compile(other, backend="eager", fullgraph=True)
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(x)
        compiled(x)
    assert [len(layer) for layer in seen.values()] == [1, 1]


def test_the_operator_is_one_that_pytorch_accepts():
    query, key, value = (torch.randn(2, 3, size, 7) for size in (5, 11, 11))
    output = F.scaled_dot_product_attention(query, key, value)
    record = torch.ops.glasshead.record_attention.default
    token = record([query, key, value], [], [0.5], output, None, 0)
    assert token.dtype == torch.uint8
    torch.library.opcheck(
        record, ([query.requires_grad_(), key, value], [5], [0.5], output, token, 1)
    )


@pytest.mark.parametrize(
    "export",
    [
        lambda model, x: torch.export.export(model, (x,)),
        lambda model, x: torch._dynamo.export(model)(x).graph_module,
    ],
)
def test_what_is_exported_in_the_block_is_as_it_would_be_without(export):
    model, x = Attention(), small.text()
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(x)
        exported = export(model, x)
    assert "record_attention" not in str(exported.graph)
    assert len(seen[""]) == 1


def by_hand(query, key, value):
    return (query @ key.transpose(-1, -2)).softmax(-1) @ value


def bare(query, key, value):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)[0]


def behind_a_condition(query, key, value):
    return torch.cond(
        query.sum() > 0,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).exp(),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).neg(),
        (query.clone(), key.clone(), value.clone()),
    )


@torch._dynamo.allow_in_graph
def hidden(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (by_hand, "in code of torch.compile, which watch does not follow. Run it uncompiled"),
        (bare, "Attention at 'layers.0.attention' runs another attention. Watch the model"),
        (behind_a_condition, "Attention at 'layers.0.attention' runs another attention. Watch"),
        (hidden, "runs another attention. Watch the model uncompiled, or exclude"),
    ],
)
def test_what_cannot_be_seen_is_refused_and_runs(function, sentence):
    model, x = Model(2, function), small.text()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        alone = compiled(x)
        with pytest.raises(RuntimeError, match=sentence), gh.watch(compiled, [gh.Entropy()]):
            watched = compiled(x)
    assert torch.equal(watched, alone)
    assert nothing_is_open()


def test_a_stance_that_forbids_to_compile_is_refused():
    model, x = Model(), small.text()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    alone = compiled(x)
    sentence = (
        "torch.compiler does not allow it. Use the default stance inside the block, or "
        "exclude Model at 'the model'"
    )
    with (
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(compiled, [gh.Entropy()]),
        torch.compiler.set_stance("eager_on_recompile"),
    ):
        watched = compiled(x)
    assert torch.equal(watched, alone)


@pytest.mark.parametrize("stance", ["force_eager", "default"])
def test_a_stance_that_lets_it_is_not_in_the_way(stance):
    model, x = Model(), small.text()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    forced = {"force_backend": "eager"} if stance == "default" else {}
    with torch.compiler.set_stance(stance, **forced), gh.watch(compiled, STATISTICS) as seen:
        compiled(x)
    for name, one in zip(NAMES, expected(model, x), strict=True):
        check(seen[name], one)


def test_a_model_that_was_compiled_can_be_watched_itself():
    model, x = Model(), small.text()
    torch.compile(model)
    with gh.watch(model, [gh.Entropy()]) as seen:
        model(x)
    assert list(seen) == NAMES


def test_a_version_without_the_names_refuses_what_is_compiled(monkeypatch):
    from glasshead.watching.interception import recompilation

    monkeypatch.setattr(recompilation, "private", lambda name: None)
    model = Model()
    model.layers[1].compile()
    sentence = (
        "^watch cannot compile 'layers.1' again on PyTorch .*, which has no .*[.] Watch the model "
        "that was given to torch.compile.$"
    )
    with pytest.raises(ValueError, match=sentence), gh.watch(model, [gh.Entropy()]):
        pytest.fail("the block has run")
    assert nothing_is_open()
    compiled = torch.compile(model, backend="eager")
    with (
        pytest.raises(RuntimeError, match="because it was compiled inside the block"),
        gh.watch(model.layers[0], [gh.Entropy()]),
    ):
        compiled(small.text())

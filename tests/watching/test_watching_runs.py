"""A module that runs several times in one forward pass is a layer in each run."""

import pytest
import torch
from torch import nn

import glasshead as gh
import watched_weights as eager
from watching.analytics.direct import rolled_out

LAYERS, BATCH, LENGTH, HEADS = 3, 2, 7, 5
NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


def albert(mode="sdpa"):
    transformers = pytest.importorskip("transformers")
    config = transformers.AlbertConfig(
        vocab_size=61,
        embedding_size=13,
        hidden_size=35,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=29,
        initializer_range=0.6,
        attn_implementation=mode,
    )
    torch.manual_seed(7)
    return transformers.AlbertModel(config).eval()


def read(statistics=(), **asked):
    """What is seen of a text of ALBERT, and the weights of its layers in eager mode."""
    tokens = torch.arange(2, 2 + BATCH * LENGTH).view(BATCH, LENGTH)
    with torch.no_grad():
        weights = albert("eager")(tokens, output_attentions=True).attentions
    model = albert()
    with torch.no_grad(), gh.watch(model, statistics, **asked) as seen:
        model(tokens)
    return seen, weights, tokens


def test_each_run_is_a_layer():
    seen, weights, _ = read(eager.STATISTICS, keep="weights")
    (watched,) = seen.values()
    assert list(seen.layers) == [f"{watched.name}#{run}" for run in range(LAYERS)]
    for layer, one in zip(seen.layers.values(), weights, strict=True):
        eager.check(layer, one)


def test_rollout_and_flow_go_through_every_run():
    seen, weights, _ = read(keep="weights")
    whole = rolled_out(weights)
    torch.testing.assert_close(gh.rollout(seen, range(LENGTH)), whole, **NEAR)
    assert not torch.allclose(rolled_out(weights[-1:]), whole, atol=0.05)
    named = gh.rollout(seen, range(LENGTH), layers=[*seen.layers][:2])
    torch.testing.assert_close(named, rolled_out(weights[:2]), **NEAR)
    flow = gh.flow(seen, [0])
    alone = gh.flow(seen, [0], layers=[*seen.layers][-1])
    assert flow.shape == alone.shape == (BATCH, 1, LENGTH)
    torch.testing.assert_close(alone[:, 0], rolled_out(weights[-1:])[:, 0].float(), **NEAR)
    assert not torch.allclose(flow, alone, atol=0.01)


def test_tables_and_sums_have_a_row_of_each_run():
    seen, weights, tokens = read([gh.Entropy(), gh.Received()], keep="weights")
    entropy = [-torch.special.xlogy(one, one).sum(-1) for one in weights]
    means = torch.tensor(seen.summary().values["entropy"])
    torch.testing.assert_close(means, torch.stack(entropy).mean((1, 3)), **NEAR)
    frame = seen.to_frame()
    assert list(frame.index.unique("layer")) == list(seen.layers)
    found = torch.tensor(frame["entropy"].tolist()).view(LAYERS, BATCH, HEADS, LENGTH)
    torch.testing.assert_close(found, torch.stack(entropy), **NEAR)
    corpus = gh.CorpusStatistics([gh.Entropy(), gh.Received()])
    corpus.update(seen)
    result = corpus.compute()
    assert result.keys() == list(seen.layers)
    torch.testing.assert_close(result.stacked("entropy"), torch.stack(entropy).mean((1, 3)), **NEAR)
    received = torch.stack(weights).sum(-2)
    torch.testing.assert_close(result.stacked("received"), received.mean(1), **NEAR)
    scores = gh.eviction_scores(seen, "h2o")
    for name, one in zip(seen.layers, received, strict=True):
        torch.testing.assert_close(scores[name], one, **NEAR)
    assert list(gh.patterns(seen, window=3)) == list(seen.layers)
    roles = gh.head_roles(seen, tokens)
    first = torch.stack(weights)[..., 1:, 0].mean((1, 3))
    torch.testing.assert_close(roles.scores["first"], first, **NEAR)


def test_what_is_asked_of_the_module_itself_is_refused():
    seen, _, _ = read([gh.Entropy()], keep="weights")
    (watched,) = seen.values()
    for ask in ("entropy", "weights", "joined", "prefill", "steps", "real"):
        with pytest.raises(ValueError, match=r"runs 3 times in a forward pass.*\.runs\[-1\]"):
            getattr(watched, ask)
    with pytest.raises(ValueError, match="runs 3 times"):
        watched[gh.Entropy()]


def test_they_are_told_apart_when_saved_and_read(tmp_path):
    seen, _, _ = read([gh.Entropy()])
    seen.save(tmp_path / "seen.safetensors")
    loaded = gh.Seen.load(tmp_path / "seen.safetensors")
    assert list(loaded.layers) == list(seen.layers)
    for name, layer in loaded.layers.items():
        assert torch.equal(layer.entropy, seen.layers[name].entropy)


class Twice(nn.Module):
    """Two layers that run twice in turn, or two texts that two layers read."""

    def __init__(self):
        super().__init__()
        self.first, self.second = gh.MultiHeadAttention(6, 2), gh.MultiHeadAttention(6, 2)

    def forward(self, *texts):
        for x in texts:
            self.second(self.first(x))


def test_layers_that_run_in_turn_are_not_taken_for_a_stack():
    model, x = Twice(), torch.randn(1, LENGTH, 6)
    with gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(x, x)
    for asked in ({}, {"layers": "first"}):
        with pytest.raises(
            ValueError, match="whose order is known, but '(first|second)#1' ran aga"
        ):
            gh.rollout(seen, layers=asked.get("layers", ["first", "second"]))
    assert list(seen.layers) == ["first#0", "first#1", "second#0", "second#1"]


def test_texts_that_follow_each_other_are_no_layers():
    model = Twice()
    with gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        for length in (5, LENGTH):
            model(torch.randn(1, length, 6))
    assert list(seen.layers) == ["first", "second"]
    assert seen["first"].entropy.shape == (1, 2, LENGTH)
    assert gh.rollout(seen, layers=["first", "second"]).shape == (1, 1, LENGTH)


class Pieces(nn.Module):
    """Several texts in one call of the module, such as pictures of one row."""

    def __init__(self):
        super().__init__()
        self.rule = gh.Attention()

    def forward(self, *texts):
        return [self.rule(x, x, x) for x in texts]


def explicit(query, key, visible=None):
    scores = query.double() @ key.double().mT * query.shape[-1] ** -0.5
    return (scores if visible is None else scores.masked_fill(~visible, -torch.inf)).softmax(-1)


def test_several_texts_in_one_call_are_records_of_their_own(tmp_path):
    model, texts = Pieces(), (torch.randn(1, 2, 5, 3), torch.randn(1, 2, 7, 3))
    with gh.watch(model, [gh.Received()], keep="weights") as seen:
        model(*texts)
    assert list(seen.layers) == ["#0", "#1"]
    scores = gh.eviction_scores(seen, "h2o")
    for name, x in zip(("#0", "#1"), texts, strict=True):
        torch.testing.assert_close(seen[name].weights.dense(), explicit(x, x), **NEAR)
        torch.testing.assert_close(seen[name].received, explicit(x, x).sum(-2), **NEAR)
        torch.testing.assert_close(scores[name], explicit(x, x).sum(-2), **NEAR)
    for ask in ("received", "weights", "joined", "prefill", "steps", "real"):
        with pytest.raises(ValueError, match=r"'' attends 2 times .*\. Use seen\['#0'\] to seen\["):
            getattr(seen[""], ask)
    for asks in (gh.rollout, gh.flow):
        with pytest.raises(
            ValueError, match="'#1' is of a module that attends several times in on"
        ):
            asks(seen)
    assert gh.rollout(seen, layers="#0").shape == (1, 1, 5)
    with pytest.raises(KeyError, match="'#2' was not observed"):
        seen["#2"]
    seen.save(tmp_path / "seen.safetensors")
    loaded = gh.Seen.load(tmp_path / "seen.safetensors")
    assert torch.equal(loaded["#1"].received, seen["#1"].received)
    assert [call.beside for call in loaded[""]] == [False, True]


class Differential(nn.Module):
    """Two softmaxes of other queries and keys, of a text that grows; the second sees three keys."""

    def __init__(self):
        super().__init__()
        self.keys, self.last = torch.empty(2, 1, 0, 8), []

    def forward(self, x):
        self.keys = torch.cat([self.keys, x[:, None]], -2)
        context = 0
        for part, before in ((slice(4), 11), (slice(4, 8), 2)):
            query, key = x[:, None, :, part], self.keys[..., part]
            shape, first = (x.shape[1], key.shape[-2]), key.shape[-2] - x.shape[1]
            distance = torch.arange(shape[1]) - torch.arange(shape[0])[:, None] - first
            mask = (distance <= 0) & (distance >= -before)
            self.last.append(explicit(query, key, mask))
            context = (
                torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)
                - context
            )
        return context


def test_two_attentions_of_one_module_grow_side_by_side():
    model = nn.Sequential(Differential())
    with gh.watch(model, [gh.Entropy(), gh.Received()], keep="weights") as seen:
        for queries in (5, 1, 2):
            model(torch.randn(2, queries, 8))
    assert list(seen.layers) == ["0#0", "0#1"]
    for run, name in enumerate(seen.layers):
        parts = model[0].last[run::2]
        whole = torch.cat([nn.functional.pad(one, (0, 8 - one.shape[-1])) for one in parts], -2)
        torch.testing.assert_close(seen[name].weights.dense(), whole, **NEAR)
        torch.testing.assert_close(seen[name].received, whole.sum(-2), **NEAR)
        entropy = -torch.special.xlogy(whole, whole).sum(-1)
        torch.testing.assert_close(seen[name].entropy, entropy, **NEAR)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_differential_transformer_has_two_records_a_layer(cache):
    transformers = pytest.importorskip("transformers")
    config = transformers.DiffLlamaConfig(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=29,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.6,
    )
    torch.manual_seed(7)
    model = transformers.DiffLlamaForCausalLM(config).eval()
    tokens = torch.arange(2, 2 + BATCH * LENGTH).view(BATCH, LENGTH)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        written = model.generate(
            tokens,
            max_new_tokens=5,
            min_new_tokens=5,
            do_sample=False,
            pad_token_id=0,
            cache_implementation=None if cache == "dynamic" else cache,
            disable_compile=True,
        )
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(written[:, :-1], output_attentions=True).attentions
    assert [name.rpartition(".")[2] for name in seen.layers] == ["self_attn#0", "self_attn#1"] * 2
    twice = [one for one in weights for _ in range(2)]
    for layer, one in zip(seen.layers.values(), twice, strict=True):
        eager.check(layer, one)


class Loops(nn.Module):
    """Attention in a loop: over windows, over chunks of queries, or over tokens with a cache."""

    def __init__(self, way):
        super().__init__()
        self.way, self.rule = way, gh.Attention(mask=gh.causal())

    def forward(self, x):
        length = x.shape[-2]
        for start in range(0, length, 3):
            stop = min(start + 3, length)
            some = x[..., start:stop, :]
            keys = some if self.way == "windows" else x[..., :stop, :]
            self.rule(some, keys, keys)


def test_windows_of_a_loop_are_records_of_their_own():
    x = torch.randn(1, 2, 8, 5)
    with gh.watch(model := Loops("windows"), keep="weights") as seen:
        model(x)
    assert list(seen.layers) == ["#0", "#1", "#2"]
    for layer, some in zip(seen.layers.values(), x.split(3, -2), strict=True):
        mask = torch.ones(some.shape[-2], some.shape[-2], dtype=torch.bool).tril()
        torch.testing.assert_close(layer.weights.dense(), explicit(some, some, mask), **NEAR)


def test_a_text_that_grows_within_one_call_stays_one():
    x = torch.randn(1, 2, 8, 5)
    with gh.watch(model := Loops("chunks"), [gh.Received()], keep="weights") as seen:
        model(x)
    assert list(seen.layers) == [""]
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    torch.testing.assert_close(seen[""].weights.dense(), explicit(x, x, mask), **NEAR)
    torch.testing.assert_close(seen[""].received, explicit(x, x, mask).sum(-2), **NEAR)


def test_a_text_whose_position_only_seems_to_follow_is_another():
    model, texts = Pieces(), (torch.randn(1, 2, 5, 3), torch.randn(1, 2, 8, 3))
    model.rule = gh.Attention(mask=gh.causal())
    model.forward = lambda: [model.rule(one[..., -3:, :], one, one) for one in texts]
    with gh.watch(model, keep="weights") as seen:
        model()
    assert [call.position for call in seen[""]] == [2, 5]
    assert list(seen.layers) == ["#0", "#1"]


class Recurrent(nn.Module):
    """A decoder without self-attention, that looks at a text in each of its steps."""

    def __init__(self):
        super().__init__()
        self.look = gh.MultiHeadAttention(6, 2)

    def forward(self, steps, text):
        x = torch.zeros(len(text), 1, 6)
        for _ in range(steps):
            x = x + self.look(x, text)
        return x


def test_steps_of_a_recurrent_decoder_are_one_text():
    model = Recurrent()
    with gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(5, torch.randn(2, 11, 6))
    assert [call.position for call in seen["look"]] == [0, 1, 2, 3, 4]
    assert seen["look"].weights.shape == (2, 2, 5, 11)
    assert seen["look"].entropy.shape == (2, 2, 5)


class CrossesFirst(nn.Module):
    """A decoder layer whose cross-attention stands before its self-attention."""

    def __init__(self):
        super().__init__()
        self.cross, self.own = gh.MultiHeadAttention(6, 2), gh.MultiHeadAttention(6, 2)
        self.cache = []

    def forward(self, x, text):
        x = self.cross(x, text)
        self.cache.append(x)
        return self.own(x, torch.cat(self.cache, 1), mask=gh.causal())

    def read(self, steps, text):
        for _ in range(steps):
            self(torch.randn(1, 1, 6), text)


@pytest.mark.parametrize("layers", [None, "cross"])
def test_cross_attention_that_cannot_be_placed_is_refused(layers):
    model, text = CrossesFirst(), torch.randn(1, 11, 6)
    with (
        pytest.raises(RuntimeError, match=r"'cross' ran first, at position 1 of its text\. Omit"),
        gh.watch(model, [gh.Entropy()], layers=layers),
    ):
        model.read(2, text)


class Merged(nn.Module):
    """Attention to a text that grows and, after its keys, to that of an encoder."""

    def __init__(self):
        super().__init__()
        self.past = torch.empty(1, 2, 0, 3)

    def forward(self, hidden_states, encoder_hidden_states):
        own, other = (
            x.unflatten(-1, (2, 3)).transpose(1, 2) for x in (hidden_states, encoder_hidden_states)
        )
        self.past = torch.cat([self.past, own], -2)
        keys = torch.cat([self.past, other], -2)
        queries, grown = own.shape[-2], self.past.shape[-2]
        mask = torch.ones(queries, keys.shape[-2], dtype=torch.bool)
        mask[:, :grown] = mask[:, :grown].tril(grown - queries)
        return torch.nn.functional.scaled_dot_product_attention(own, keys, keys, attn_mask=mask)


def test_keys_of_another_text_after_its_own_are_not_joined(tmp_path):
    model, text = nn.ModuleList([Merged()]), torch.randn(1, 7, 6)
    parts = torch.randn(1, 5, 6).split((3, 1, 1), 1)
    with gh.watch(model, [gh.Entropy(), gh.Received()], keep="weights") as seen:
        for part in parts:
            model[0](part, text)
    seen.save(tmp_path / "seen.safetensors")
    for one in (seen, gh.Seen.load(tmp_path / "seen.safetensors")):
        assert [(call.position, call.queries, call.keys) for call in one["0"]] == [
            (0, 3, 10),
            (3, 1, 11),
            (4, 1, 12),
        ]
        for ask in ("entropy", "received", "weights", "joined"):
            with pytest.raises(ValueError, match="'0' cannot be joined: its last keys are keys"):
                getattr(one["0"], ask)
    own, other = (x.unflatten(-1, (2, 3)).transpose(1, 2) for x in (torch.cat(parts, 1), text))
    last = explicit(own[..., -1:, :], torch.cat([own, other], -2))
    torch.testing.assert_close(seen["0"][-1].weights.dense(), last, **NEAR)

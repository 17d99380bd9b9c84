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
            ValueError, match="whose order is known, and '(first|second)#1' ran aga"
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


def test_several_texts_in_one_call_are_refused_where_one_is_taken():
    model = Pieces()
    with gh.watch(model, keep="weights") as seen:
        model(torch.randn(1, 2, 5, 3), torch.randn(1, 2, 5, 3))
    assert list(seen.layers) == [""]
    for asks in (gh.rollout, gh.flow, gh.patterns, lambda one: gh.eviction_scores(one, "h2o")):
        with pytest.raises(ValueError, match="one text in a forward pass, and '' read 2"):
            asks(seen)
    with pytest.raises(ValueError, match="head_roles takes one text in a forward pass"):
        gh.head_roles(seen, torch.arange(5))


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
        pytest.raises(RuntimeError, match="'cross' ran first, at position 1 of its text: leave"),
        gh.watch(model, [gh.Entropy()], layers=layers),
    ):
        model.read(2, text)

"""A reader's own class is explained in one call, watched, loaded, or refused in one sentence."""

import pickle
import re

import pytest
import torch
from torch import nn

import glasshead as gh
from glasshead import ladder
from glasshead.watching import UnseenError
from readers.journey import WORDS, inputs, traced
from readers.test_text_d import ProjectedInColumns
from readers.test_texts_a_and_b import (
    CausalAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
    SelfAttention_v1,
    SelfAttention_v2,
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20170612)


def softmax_naive(x, dim=-1):
    return torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)


def softmax_stable(x, dim=-1):
    powers = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return powers / powers.sum(dim=dim, keepdim=True)


class ByExponentials(SelfAttention_v2):
    def __init__(self, softmax, *, causal=False):
        super().__init__(3, 2)
        self.softmax, self.causal = softmax, causal

    def forward(self, x):
        scores = self.W_query(x) @ self.W_key(x).T / 2**0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        return self.softmax(scores) @ self.W_value(x)


class Drops(nn.Module):
    def forward(self, x):
        dropped = 0.5 if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropped)


class TestExplain:
    def test_the_projection_is_told_with_the_biases_and_matrices_of_the_class(self):
        module = SelfAttention_v2(3, 2, qkv_bias=True)
        step = gh.explain(module, inputs(), tokens=WORDS, query="with")["projection"]
        assert torch.equal(step.data["W_key"], module.W_key.weight.T)
        assert torch.equal(step.data["b_value"], module.W_value.bias)
        assert step.formula.startswith("q = x·W_query + b_query")

    @pytest.mark.parametrize("row", [0, 1])
    def test_a_row_of_a_batch_is_told_with_its_own_words(self, row):
        batch = torch.stack((inputs(), 3 * inputs()))
        module = CausalAttention(3, 2, 7, 0.5).eval()
        told = traced(gh.explain(module, batch, tokens=WORDS, index=(row,)))
        torch.testing.assert_close(told["projection"]["inputs"], batch[row])
        torch.testing.assert_close(told["context"]["context"], module(batch)[row].detach())

    def test_one_of_several_modules_is_named(self):
        batch = inputs()[None]
        module = MultiHeadAttentionWrapper(3, 2, 7, 0.0, 2)
        told = traced(gh.explain(module, batch, tokens=WORDS, layers="heads.1"))
        expected = module.heads[1](batch)[0].detach()
        torch.testing.assert_close(told["context"]["context"], expected)
        assert torch.equal(told["projection"]["W_query"], module.heads[1].W_query.weight.T)
        with pytest.raises(
            ValueError, match="has 2. Name one of 'heads.0', 'heads.1' with layers="
        ):
            gh.explain(module, batch)

    def test_a_class_within_a_model_is_found(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(11, 3)
                self.attention = CausalAttention(3, 5, 7, 0.1)
                self.head = nn.Linear(5, 11)

            def forward(self, ids):
                return self.head(self.attention(self.words(ids)))

        model = Model().eval()
        explanation = gh.explain(model, torch.tensor([[3, 1, 4]]), tokens=["a", "b", "c"])
        assert "CausalAttention itself" in explanation.notes[0]
        assert "output projection" in explanation.notes[1]
        assert "projection" in traced(explanation)

    def test_what_returns_its_contexts_has_no_note_of_a_projection(self):
        for module, x in (
            (SelfAttention_v1(3, 2), inputs()),
            (CausalAttention(3, 2, 7, 0.0), inputs()[None]),
            (ProjectedInColumns(3, 2), inputs().T),
        ):
            assert len(gh.explain(module, x).notes) == 1
        several = MultiHeadAttention(3, 4, 7, 0.0, 2)
        assert len(gh.explain(several, inputs()[None]).notes) == 2

    def test_attention_of_a_function(self):
        class Fused(SelfAttention_v2):
            def forward(self, x):
                made = (layer(x) for layer in (self.W_query, self.W_key, self.W_value))
                return nn.functional.scaled_dot_product_attention(*made)

        module, x = Fused(3, 2), inputs()
        told = traced(gh.explain(module, x))
        torch.testing.assert_close(told["context"]["context"], module(x).detach())

    @pytest.mark.parametrize("diagonal", [0, 1])
    @pytest.mark.parametrize("low", [None, -torch.inf, -1e9])
    def test_a_mask_that_is_inverted_is_told(self, diagonal, low):
        class Inverted(nn.Module):
            def forward(self, x):
                mask = torch.ones(6, 6, dtype=torch.bool).triu(diagonal)
                if low is not None:
                    mask = torch.zeros(6, 6).masked_fill(~mask, low)
                return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

        explanation = gh.explain(Inverted(), torch.randn(1, 1, 6, 8), query=1)
        assert any("words see only later words" in one for one in explanation["masked"].intro)
        causal = gh.Attention(mask=gh.causal()).trace(*torch.randn(3, 1, 1, 6, 8))
        assert not any("inverted" in one for one in gh.explain(causal)["masked"].intro)

    def test_the_module_stays_as_it_is(self):
        module = MultiHeadAttentionWrapper(3, 2, 7, 0.0, 2)
        gh.explain(module, inputs()[None], layers="heads.0")
        assert not any(part._forward_pre_hooks for part in module.modules())
        assert all(part.training for part in module.modules())

    @pytest.mark.parametrize("softmax", [softmax_naive, softmax_stable])
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_softmax_of_exponentials(self, softmax, causal):
        module = ByExponentials(softmax, causal=causal)
        explanation = gh.explain(module, inputs(), tokens=WORDS)
        told = traced(explanation)
        torch.testing.assert_close(told["context"]["context"], module(inputs()).detach())
        assert explanation.recipe["mask"] == ("causal()" if causal else None)


class TestWatch:
    @pytest.mark.parametrize(
        ("module", "layer"),
        [
            (lambda: SelfAttention_v1(3, 5), ""),
            (lambda: ByExponentials(softmax_naive, causal=True), ""),
            (lambda: ByExponentials(softmax_stable), ""),
            (lambda: MultiHeadAttentionWrapper(3, 5, 7, 0.0, 2), "heads.1"),
            (lambda: MultiHeadAttention(3, 6, 7, 0.0, 2), ""),
        ],
        ids=["v1", "exp", "stable", "wrapper", "heads"],
    )
    def test_statistics_are_those_of_the_weights_that_are_explained(self, module, layer):
        module = module()
        x = inputs()[None] if isinstance(module, MultiHeadAttention) or layer else inputs()
        plain = module(x)
        with gh.watch(module, [gh.Entropy(), gh.Received()]) as seen:
            assert torch.equal(module(x), plain)
        told = traced(gh.explain(module, x, layers=layer or None))
        weights = told["weights"]["weights"].double()
        entropy = -torch.special.xlogy(weights, weights).sum(-1)
        torch.testing.assert_close(seen[layer].entropy[0, 0].double(), entropy)
        torch.testing.assert_close(seen[layer].received[0, 0].double(), weights.sum(0))


class TestRefused:
    def test_weights_that_are_dropped_by_chance(self):
        module = CausalAttention(3, 2, 7, 0.5)
        with pytest.raises(
            ValueError, match=r"drops weights at random\. Call .eval\(\) on the modu"
        ):
            gh.explain(module, inputs()[None])

    @pytest.mark.parametrize(
        ("module", "count"),
        [
            (lambda: CausalAttention(3, 2, 7, 0.5), 1),
            (lambda: nn.MultiheadAttention(3, 1, dropout=0.5, batch_first=True), 3),
            (lambda: nn.TransformerEncoderLayer(3, 1, 5, dropout=0.5, batch_first=True), 1),
            (Drops, 1),
        ],
        ids=["class", "MultiheadAttention", "encoder", "function"],
    )
    def test_the_advice_for_a_module_in_training_is_enough(self, module, count):
        module, x = module().train(), [inputs()[None]] * count
        with pytest.raises(ValueError, match="drops weights at random") as said:
            gh.explain(module, *x)
        (call,) = re.findall(r"call \.(\w+)\(\) on the module first", str(said.value))
        assert all(part.training for part in module.modules())
        getattr(module, call)()
        told = traced(gh.explain(module, *x))
        assert told["weights"]["weights"].sum(-1).allclose(torch.ones(len(WORDS)))

    @pytest.mark.parametrize("keep", ["trace", "gradients"])
    def test_the_advice_to_watch_a_module_in_training_is_enough(self, keep):
        model, x = Drops().train(), inputs()[None].requires_grad_()

        def watched():
            with gh.watch(model, keep=keep) as seen:
                model(x).sum().backward()
            return seen

        with pytest.raises(ValueError, match="'the model' drops weights") as said:
            watched()
        (call,) = re.findall(r"[Cc]all model\.(\w+)\(\)", str(said.value))
        getattr(model, call)()
        assert len(watched()[""]) == 1

    def test_a_module_that_attends_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = SelfAttention_v2(3, 3)

            def forward(self, x):
                return self.attention(self.attention(x))

        with pytest.raises(ValueError, match="'attention' attends 2 times. Watch it with"):
            gh.explain(Twice(), inputs())

    def test_weights_that_are_scaled_on_their_way(self):
        class Half(nn.Module):
            def forward(self, x):
                return 0.5 * torch.softmax(x @ x.T, dim=-1) @ x

        with pytest.raises(ValueError, match="'Half' has times 0.5 in between. Omit that"):
            gh.explain(Half(), inputs())

    def test_a_module_without_its_input(self):
        with pytest.raises(TypeError, match="needs a Trace, .* inputs, got SelfAttention_v1 alone"):
            gh.explain(SelfAttention_v1(3, 2))

    def test_inputs_beside_a_trace(self):
        trace = gh.Attention().trace(inputs(), inputs(), inputs())
        with pytest.raises(TypeError, match="inputs and layers=, got them"):
            gh.explain(trace, inputs())

    def test_a_projection_of_a_module(self):
        with pytest.raises(TypeError, match="reads the projection of a module itself"):
            gh.explain(SelfAttention_v1(3, 2), inputs(), projection=object())

    @pytest.mark.parametrize(
        "softmax",
        [
            lambda x: torch.exp(x) / torch.exp(x).sum(),
            lambda x: torch.exp(x) / torch.exp(2 * x).sum(-1, keepdim=True),
            lambda x: torch.exp(100 * x) / torch.exp(100 * x).sum(-1, keepdim=True),
        ],
        ids=["of all", "of others", "overflown"],
    )
    def test_exponentials_that_are_no_softmax(self, softmax):
        with pytest.raises(UnseenError, match="has none between its scores and its values"):
            gh.explain(ByExponentials(lambda x: softmax(10 * x)), 30 * inputs())


class TestFromModule:
    @pytest.mark.parametrize(
        ("module", "mask"),
        [
            (lambda: SelfAttention_v1(3, 5), "None"),
            (lambda: SelfAttention_v2(3, 5, qkv_bias=True), "None"),
            (lambda: CausalAttention(3, 5, 7, 0.25), "causal()"),
            (lambda: MultiHeadAttentionWrapper(3, 5, 7, 0.25, 2), "causal()"),
            (lambda: MultiHeadAttention(3, 6, 7, 0.25, 2), "causal()"),
        ],
        ids=["v1", "v2", "causal", "wrapper", "heads"],
    )
    def test_is_the_class_of_the_reader(self, module, mask):
        module = module()
        x = inputs() if mask == "None" else inputs()[None]
        layer = gh.MultiHeadAttention.from_module(module)
        assert layer.training
        assert all(part.training for part in module.modules())
        assert layer.attention.dropout == (0.0 if mask == "None" else 0.25)
        assert repr(layer.attention.mask) == mask
        expected = module.eval()(x).reshape(1, 6, -1)
        torch.testing.assert_close(layer.eval()(inputs()[None]), expected)

    def test_scores_without_a_scale_are_told(self):
        class Unscaled(SelfAttention_v2):
            def forward(self, x):
                return torch.softmax(self.W_query(x) @ self.W_key(x).T, -1) @ self.W_value(x)

        layer = gh.MultiHeadAttention.from_module(Unscaled(3, 2))
        assert type(layer.attention.score) is gh.Dot

    @pytest.mark.parametrize("change", ["softmax over queries", "dropped output", "other scale"])
    def test_refuses_what_its_names_do_not_tell(self, change):
        class Other(SelfAttention_v2):
            def __init__(self):
                super().__init__(3, 5)
                self.dropout = nn.Dropout(0.5 if change == "dropped output" else 0.0)

            def forward(self, x):
                scores = (
                    self.W_query(x) @ self.W_key(x).T / (3 if change == "other scale" else 5**0.5)
                )
                axis = 0 if change == "softmax over queries" else 1
                return self.dropout(torch.softmax(scores, axis) @ self.W_value(x))

        reason = "does so in .eval" if change == "dropped output" else "gives another output for"
        with pytest.raises(ValueError, match=f"got Other: it {reason}"):
            gh.MultiHeadAttention.from_module(Other())

    def test_refuses_a_class_without_known_names(self):
        with pytest.raises(TypeError, match=r"W_query, W_key and W_value, got Linear\. Copy"):
            gh.MultiHeadAttention.from_module(nn.Linear(3, 3))


class TestNamesOfTheTexts:
    def test_the_ladder_has_both_names_of_a_class(self):
        assert ladder.SelfAttention_v1 is ladder.SelfAttentionV1
        assert ladder.SelfAttention_v2 is ladder.SelfAttentionV2
        rung = ladder.SelfAttention_v2(3, 2)
        again = pickle.loads(pickle.dumps(rung))
        assert torch.equal(again(inputs()), rung(inputs()))

    @pytest.mark.parametrize(
        ("arguments", "options"),
        [
            ((3, 2, 7, 0.0, 2), {}),
            ((3, 2, 7, 0.0), {"num_heads": 2}),
            ((), {"d_in": 3, "d_out": 2, "context_length": 7, "dropout": 0.0, "num_heads": 2}),
        ],
    )
    def test_the_call_of_a_text_names_the_class_of_the_ladder(self, arguments, options):
        named = r"Use glasshead\.ladder\.MultiHeadAttention\(d_in, d_out, context_length, dropout"
        with pytest.raises(TypeError, match=named):
            gh.MultiHeadAttention(*arguments, **options)
        assert ladder.MultiHeadAttention(*arguments, **options).num_heads == 2

    def test_the_call_of_the_notebook_names_the_class_of_the_encoder(self):
        with pytest.raises(TypeError, match=r"Use glasshead\.ladder\.EncoderMultiHeadAttention"):
            gh.MultiHeadAttention(6, 2, 0.1)

    def test_our_own_call_goes_on(self):
        assert gh.MultiHeadAttention(12, 6, 3, 5).num_kv_heads == 3

    @pytest.mark.parametrize("name", ["CausalAttention", "SelfAttention_v1", "KeyValueStore"])
    def test_a_name_of_the_ladder_is_told_where_it_is(self, name):
        with pytest.raises(AttributeError, match=f"; use glasshead.ladder.{name} for the class"):
            getattr(gh, name)
        assert not hasattr(gh, name)

    def test_another_name_is_not(self):
        with pytest.raises(AttributeError, match="no attribute 'CausalAttentions'$"):
            _ = gh.CausalAttentions

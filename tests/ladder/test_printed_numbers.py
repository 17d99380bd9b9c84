"""Every number that the texts print comes out, by the ladder and by `Attention`.

The ladder hands its names on when they are used, and not before.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead import ladder
from glasshead.ladder import (
    HELLO_SHINY_SUN,
    CausalAttention,
    MultiHeadAttention,
    ScaledDotProductAttention,
    SelfAttentionV1,
    SelfAttentionV2,
    simple_self_attention,
    soft_attention,
)

NUMBERS = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text())


ARTICLE = NUMBERS["scaled_dot_product_article"]


SHINY = NUMBERS["shiny_sun"]


RAN = NUMBERS["ran_here"]


JOURNEY = torch.tensor(NUMBERS["journey_inputs"])


SHARPNESS = ARTICLE["softmax_sharpness"]


def assert_prints(actual, printed, places=4):
    """Rounded to so many places, the actual numbers are the printed ones."""
    torch.testing.assert_close(
        actual.double(),
        torch.tensor(printed, dtype=torch.float64),
        rtol=0,
        atol=0.501 * 10.0**-places,
    )


@pytest.fixture
def article():
    """The modules of the article, made in its order after one seed."""
    torch.manual_seed(ARTICLE["seed"])
    widths = ARTICLE["d_in"], ARTICLE["d_out"]
    return SelfAttentionV1(*widths), SelfAttentionV2(*widths), ScaledDotProductAttention(*widths)


@pytest.fixture
def article_trace(article):
    _, linear, _ = article
    return gh.Attention().trace(
        linear.W_query(JOURNEY), linear.W_key(JOURNEY), linear.W_value(JOURNEY)
    )


class TestHelloShinySun:
    x = torch.tensor(SHINY["embeddings"])
    row = SHINY["tokens"].index(SHINY["query"])

    def test_the_data_of_the_ladder_is_that_of_the_text(self):
        for field in ("tokens", "query", "embeddings", "printed_terms", "printed_context"):
            held = getattr(HELLO_SHINY_SUN, field)
            assert json.loads(json.dumps(held)) == SHINY[field], field

    def test_rung_1(self):
        assert_prints(simple_self_attention(self.x)[self.row], SHINY["exact_context"], places=6)

    def test_attention_shows_every_step(self):
        steps = gh.Attention(score=gh.Dot()).trace(self.x, self.x, self.x)
        assert_prints(steps.scores[self.row], SHINY["exact_scores"], places=4)
        assert_prints(steps.weights[self.row], SHINY["exact_weights"], places=6)
        assert_prints(steps.context[self.row], SHINY["exact_context"], places=6)

    def test_the_text_does_not_scale_its_scores(self):
        steps = gh.Attention().trace(self.x, self.x, self.x)
        assert SHINY["unscaled"]
        with pytest.raises(AssertionError, match="not close"):
            assert_prints(steps.weights[self.row], SHINY["exact_weights"], places=2)


class TestScaledDotProductArticle:
    def test_random_matrices_by_rung_2(self, article):
        first, _, _ = article
        assert_prints((JOURNEY @ first.W_query)[1], ARTICLE["rand_query_2"])
        assert_prints(JOURNEY @ first.W_key, ARTICLE["rand_keys"])
        assert_prints(JOURNEY @ first.W_value, ARTICLE["rand_values"])

    def test_linear_layers_by_rung_3(self, article):
        _, linear, _ = article
        assert_prints(linear.W_query(JOURNEY)[1], ARTICLE["linear_query_2"])
        assert_prints(linear.W_key(JOURNEY), ARTICLE["linear_keys"])
        assert_prints(linear.W_value(JOURNEY), ARTICLE["linear_values"])
        assert_prints(linear(JOURNEY)[1], ARTICLE["context_2"])

    def test_attention_shows_every_step(self, article_trace):
        assert_prints(article_trace.queries[1], ARTICLE["linear_query_2"])
        assert_prints(article_trace.keys, ARTICLE["linear_keys"])
        assert_prints(article_trace.values, ARTICLE["linear_values"])
        assert_prints(article_trace.scores[1], ARTICLE["scores_2"])
        assert_prints(article_trace.weights[1], ARTICLE["weights_2"])
        assert_prints(article_trace.context[1], ARTICLE["context_2"])

    def test_the_module_by_rung_3(self, article):
        _, _, module = article
        assert_prints(module(JOURNEY), ARTICLE["module_output"])

    def test_the_module_by_attention(self, article):
        _, _, module = article
        projected = module.W_query(JOURNEY), module.W_key(JOURNEY), module.W_value(JOURNEY)
        assert_prints(gh.Attention()(*projected), ARTICLE["module_output"])


@pytest.mark.parametrize("beta", [1, 10, 100])
class TestSoftmaxSharpness:
    keys = torch.tensor(SHARPNESS["x"])[:, None]
    query = torch.ones(1)

    def assert_prints_five_digits(self, weights, beta):
        printed = torch.tensor(SHARPNESS[f"times_{beta}"])
        torch.testing.assert_close(weights, printed, rtol=4e-4, atol=0)

    def test_by_rung_8(self, beta):
        one_place_a_value = torch.eye(len(self.keys))
        weights = soft_attention(self.query, self.keys, one_place_a_value, beta=beta)
        self.assert_prints_five_digits(weights, beta)

    def test_by_attention(self, beta):
        steps = gh.Attention(score=gh.Dot(beta)).trace(self.query[None], self.keys, self.keys)
        self.assert_prints_five_digits(steps.weights[0], beta)


class TestRanHere:
    def test_self_attention_v2(self):
        torch.manual_seed(789)
        rung = SelfAttentionV2(3, 2)
        printed = RAN["SelfAttentionV2 seed 789"]
        projected = rung.W_query(JOURNEY), rung.W_key(JOURNEY), rung.W_value(JOURNEY)
        assert_prints(rung(JOURNEY), printed)
        assert_prints(gh.Attention()(*projected), printed)

    def test_causal_attention(self):
        torch.manual_seed(123)
        rung = CausalAttention(3, 2, context_length=6, dropout=0.0)
        printed = RAN["CausalAttention seed 123 (batch of two equal sentences, first shown)"]
        batch = torch.stack((JOURNEY, JOURNEY))
        projected = rung.W_query(batch), rung.W_key(batch), rung.W_value(batch)
        assert_prints(rung(batch), [printed, printed])
        assert_prints(gh.Attention(mask=gh.causal())(*projected), [printed, printed])

    def test_multi_head_attention(self):
        torch.manual_seed(123)
        rung = MultiHeadAttention(3, 2, context_length=6, dropout=0.0, num_heads=2)
        printed = RAN["MultiHeadAttention seed 123, 2 heads (first shown)"]
        batch = torch.stack((JOURNEY, JOURNEY))
        heads = [
            layer(batch).reshape(2, 6, 2, 1).transpose(1, 2)
            for layer in (rung.W_query, rung.W_key, rung.W_value)
        ]
        context = gh.Attention(mask=gh.causal())(*heads)
        assert_prints(rung(batch), [printed, printed])
        assert_prints(rung.out_proj(context.transpose(1, 2).reshape(2, 6, 2)), [printed, printed])

    def test_no_number_is_left_out(self):
        assert len(RAN) == 3


def test_the_worked_example_is_read_without_torch():
    program = (
        "import sys; from glasshead.ladder import HELLO_SHINY_SUN as a; "
        "from glasshead.ladder.worked_example import HELLO_SHINY_SUN as b; "
        "sys.exit(a is not b or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ladder.__all__)
def test_every_name_is_there(name):
    assert getattr(ladder, name) is not None
    assert name in dir(ladder)


def test_type_checkers_see_the_same_names():
    stub = ast.parse(Path(ladder.__file__).with_suffix(".pyi").read_text())
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    names = {alias.asname for line in lines for alias in line.names}
    assert names == set(ladder.__all__)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match=r"'glasshead\.ladder' has no attribute 'rung_9'"):
        _ = ladder.rung_9

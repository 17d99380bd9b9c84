"""Rung 8: one object between sharing and choosing."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from glasshead.ladder import Answer, KeyValueStore, hard_attention, soft_attention
from scripts import script

RECIPES = ["lasagna", "soup", "pie"]
KEYS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.3]])
QUESTION = torch.tensor([0.9, 0.2])  # its scores are 0.9, 0.2 and 0.6

scores = st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=11)
betas = st.floats(0, 50)


@pytest.fixture
def store():
    return KeyValueStore(KEYS, RECIPES)


def store_with_scores(values):
    """A store whose scores, for the question [1], are these values."""
    return KeyValueStore(torch.tensor(values)[:, None], range(len(values)))


class TestSoftAndHardAttention:
    def test_soft_is_attention_with_that_beta(self):
        torch.manual_seed(2015)
        query, keys, values = torch.randn(5), torch.randn(7, 5), torch.randn(7, 3)
        expected = gh.Attention(score=gh.Dot(2.5))(query[None], keys, values)[0]
        torch.testing.assert_close(soft_attention(query, keys, values, beta=2.5), expected)

    def test_soft_is_the_formula(self):
        weights = torch.tensor([math.exp(1.8), math.exp(0.4), math.exp(1.2)])
        expected = (weights / weights.sum()) @ KEYS
        torch.testing.assert_close(soft_attention(QUESTION, KEYS, KEYS, beta=2), expected)

    def test_hard_is_one_value_untouched(self):
        values = torch.randn(3, 5)
        assert torch.equal(hard_attention(QUESTION, KEYS, values), values[0])

    def test_soft_becomes_hard(self):
        apart = [
            (
                soft_attention(QUESTION, KEYS, KEYS, beta) - hard_attention(QUESTION, KEYS, KEYS)
            ).norm()
            for beta in (0, 1, 10, 100)
        ]
        assert apart == sorted(apart, reverse=True)
        assert apart[-1] < 1e-6


class TestAsk:
    def test_the_hardest_answer_is_exactly_one(self, store):
        assert store.ask(QUESTION, beta=math.inf) == [Answer("lasagna", 1.0, 0)]

    def test_the_soft_answer_is_ranked(self, store):
        answers = store.ask(QUESTION, beta=2)
        total = math.exp(1.8) + math.exp(0.4) + math.exp(1.2)
        assert [(answer.value, answer.index) for answer in answers] == [
            ("lasagna", 0),
            ("pie", 2),
            ("soup", 1),
        ]
        assert [answer.weight for answer in answers] == pytest.approx(
            [math.exp(1.8) / total, math.exp(1.2) / total, math.exp(0.4) / total]
        )

    def test_beta_is_1_unless_given(self, store):
        assert store.ask(QUESTION) == store.ask(QUESTION, beta=1.0)
        assert store.ask(QUESTION) != store.ask(QUESTION, beta=2.0)

    @pytest.mark.parametrize("top", [1, 2, 3, 5])
    def test_top_cuts_the_ranking(self, store, top):
        answers = store.ask(QUESTION, top=top)
        assert answers == store.ask(QUESTION)[:top]
        assert len(answers) == min(top, 3)

    def test_values_may_be_any_object(self):
        pie = {"title": "pie", "steps": ["bake"]}
        assert KeyValueStore(torch.eye(1), [pie]).ask(torch.ones(1))[0].value is pie

    def test_the_first_of_equals_comes_first(self):
        tied = store_with_scores([1.0, 2.0, 2.0, 1.0])
        assert [answer.index for answer in tied.ask(torch.ones(1))] == [1, 2, 0, 3]
        assert [answer.index for answer in tied.ask(torch.ones(1), beta=math.inf)] == [1]

    @given(scores, betas)
    def test_the_weights_are_a_ranked_distribution(self, values, beta):
        answers = store_with_scores(values).ask(torch.ones(1), beta=beta)
        weights = [answer.weight for answer in answers]
        assert sum(weights) == pytest.approx(1, abs=1e-5)
        assert weights == sorted(weights, reverse=True)
        assert len({answer.index for answer in answers}) == len(answers)

    @given(scores)
    def test_at_beta_0_every_value_counts_alike(self, values):
        answers = store_with_scores(values).ask(torch.ones(1), beta=0)
        assert [answer.index for answer in answers] == list(range(len(values)))
        assert [answer.weight for answer in answers] == pytest.approx(
            [1 / len(values)] * len(values)
        )

    @given(scores)
    def test_at_beta_infinity_the_best_takes_all(self, values):
        (answer,) = store_with_scores(values).ask(torch.ones(1), beta=math.inf)
        assert (answer.weight, answer.index) == (1.0, values.index(max(values)))

    def test_the_best_weighs_more_as_beta_grows(self, store):
        best = [store.ask(QUESTION, beta=beta)[0].weight for beta in (0, 1, 3, 10)]
        assert best == sorted(set(best))


class TestEmbed:
    LETTERS = "abcdefghijklmnopqrstuvwxyz"

    def embed(self, text):
        return torch.tensor([float(text.count(letter)) for letter in self.LETTERS])

    def test_keys_and_questions_may_be_strings(self):
        store = KeyValueStore(["soup", "lasagna"], ["boil", "bake"], embed=self.embed)
        assert store.ask("lasagna?", beta=math.inf) == [Answer("bake", 1.0, 1)]

    def test_a_question_may_still_be_a_vector(self):
        store = KeyValueStore(["soup", "lasagna"], ["boil", "bake"], embed=self.embed)
        assert store.ask(self.embed("pasta")) == store.ask("pasta")


class TestErrors:
    def test_keys_and_values_not_in_pairs(self):
        with pytest.raises(ValueError, match=r"one value for each key .* got 3 keys and 2 values"):
            KeyValueStore(KEYS, RECIPES[:2])

    def test_nothing_to_answer_with(self):
        with pytest.raises(ValueError, match="at least one key, got 0 keys and 0 values"):
            KeyValueStore([], [])

    def test_keys_that_are_no_vectors(self):
        with pytest.raises(
            ValueError, match=r"keys must be \[n, d\], got \[3\]\. Give each key one"
        ):
            KeyValueStore(torch.ones(3), RECIPES)

    def test_strings_without_an_embed(self, store):
        with pytest.raises(TypeError, match=r"must be a tensor, got str\. Give the store"):
            KeyValueStore(["a"], ["b"])
        with pytest.raises(TypeError, match=r"must be a tensor, got str\. Give the store"):
            store.ask("lasagna")

    @pytest.mark.parametrize("shape", [(3,), (1, 2), ()])
    def test_question_of_other_width(self, store, shape):
        with pytest.raises(ValueError, match=r"must be as wide as the keys, \[2\], got \["):
            store.ask(torch.ones(shape))

    @pytest.mark.parametrize("beta", [-1, math.nan, -math.inf])
    def test_beta_that_is_no_inverse_temperature(self, store, beta):
        with pytest.raises(ValueError, match=f"beta must be from 0 to math.inf, got {beta}"):
            store.ask(QUESTION, beta=beta)
        with pytest.raises(ValueError, match=f"beta must be from 0 to math.inf, got {beta}"):
            soft_attention(QUESTION, KEYS, KEYS, beta=beta)

    @pytest.mark.parametrize(
        ("question", "beta"),
        [(QUESTION, 1e300), (QUESTION * math.nan, 1), (QUESTION / 0, math.inf)],
    )
    def test_no_finite_weights(self, store, question, beta):
        with pytest.raises(ValueError, match="weights must be finite numbers, got others at beta="):
            store.ask(question, beta=beta)

    def test_no_answers_wanted(self, store):
        with pytest.raises(ValueError, match=r"top must be at least 1, got 0\. Omit it"):
            store.ask(QUESTION, top=0)


def test_the_cookbook_answers_a_question_about_lasagna(capsys):
    script("examples/lasagna.py").main()
    *_, soft, hard = capsys.readouterr().out.split("\n\n")
    assert len(soft.splitlines()) == 4
    assert hard.splitlines()[0] == "β = inf"
    assert [line.split(":")[0] for line in hard.splitlines()[1:]] == [
        "  100.0%  lasagna with spinach"
    ]

"""Embeddings: made up from a seed, looked up, and checked."""

import hashlib
import re
from statistics import NormalDist

import pytest
import torch

from glasshead.explanation.embeddings import Embeddings, composed


def test_made_up_numbers_are_those_that_the_hash_gives_by_hand():
    drawn = hashlib.shake_256("7:güneş".encode()).digest(16)
    first, second = (int.from_bytes(part, "big") // 2**12 for part in (drawn[:8], drawn[8:]))
    expected = [round(NormalDist().inv_cdf((x + 0.5) / 2**52), 2) for x in (first, second)]
    made = Embeddings.made_up(["güneş"], dim=2, seed=7)
    assert made.vectors.tolist() == [expected]
    assert Embeddings.made_up(["sun"], dim=2).vectors.tolist() == [[0.64, -0.06]]


def test_a_word_has_the_same_vector_in_every_sentence():
    one = Embeddings.made_up(["the", "sun", "the"], dim=6)
    other = Embeddings.made_up(["moon", "the"], dim=6)
    assert torch.equal(one.vectors[0], one.vectors[2])
    assert torch.equal(one.vectors[0], other.vectors[1])
    assert not torch.equal(one.vectors[1], other.vectors[0])


def test_another_seed_gives_other_vectors_and_a_wider_one_begins_alike():
    made = Embeddings.made_up(["sun"], dim=4, seed=1).vectors
    assert not torch.equal(made, Embeddings.made_up(["sun"], dim=4, seed=2).vectors)
    assert torch.equal(made, Embeddings.made_up(["sun"], dim=9, seed=1).vectors[:, :4])


def test_made_up_numbers_are_normal_with_two_decimals():
    vectors = Embeddings.made_up([f"word {i}" for i in range(2000)], dim=8).vectors
    assert abs(float(vectors.mean())) < 0.03
    assert abs(float(vectors.std()) - 1) < 0.03
    assert torch.equal((vectors * 100).round() / 100, vectors)


def test_the_callers_random_numbers_are_left_alone():
    state = torch.get_rng_state()
    Embeddings.made_up(["sun"])
    assert torch.equal(torch.get_rng_state(), state)


def test_look_up_takes_rows_in_the_order_of_the_words():
    known = Embeddings(("a", "b", "c", "b"), torch.tensor([[1.0], [2.0], [3.0], [2.0]]))
    found = known.look_up(["c", "b", "c"])
    assert found.tokens == ("c", "b", "c")
    assert found.vectors.tolist() == [[3.0], [2.0], [3.0]]


def test_look_up_names_what_is_missing_and_what_is_twice():
    known = Embeddings(("a", "b", "b"), torch.tensor([[1.0], [2.0], [3.0]]))
    with pytest.raises(ValueError, match="there is no vector for 'x', 'y' among 3 tokens"):
        known.look_up(["a", "x", "y", "x"])
    with pytest.raises(ValueError, match="'b' has 2 rows with different vectors"):
        known.look_up(["a", "b"])
    assert known.look_up(["a"]).vectors.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("tokens", "vectors", "error", "sentence"),
    [
        ("ab", torch.ones(2, 3), TypeError, "tokens takes a sequence of strings, and got 'ab'"),
        (
            ("a",),
            [[1.0]],
            TypeError,
            "vectors takes a tensor of floating-point numbers, and got list",
        ),
        (("a",), torch.ones(1, 2).long(), TypeError, "and got torch.int64"),
        (("a",), torch.ones(2), ValueError, "one row for each of the 1 tokens, and got shape [2]"),
        (("a",), torch.ones(2, 3), ValueError, "and got shape [2, 3]"),
        (("a", "b"), torch.tensor([[1.0], [torch.nan]]), ValueError, "and got others for row 1"),
    ],
)
def test_what_is_no_embedding_is_refused(tokens, vectors, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        Embeddings(tokens, vectors)


def test_a_vector_without_numbers_cannot_be_made_up():
    with pytest.raises(ValueError, match="dim takes a whole number of at least 1, and got 0"):
        Embeddings.made_up(["a"], dim=0)


def test_equal_looking_words_are_made_equal():
    assert composed("i\u0307") != "i"
    assert composed("gu\u0308nes\u0327") == "güneş"

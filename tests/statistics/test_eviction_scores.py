"""The formulas by which caches keep keys, against numbers by hand."""

import pytest
import torch

from glasshead.statistics.eviction_scores import h2o_scores, snapkv_scores, tova_scores

# Of 4 query heads on 2 key heads, and 5 keys.
RECEIVED = torch.tensor(
    [
        [0.0, 1.0, 2.0, 3.0, 4.0],
        [2.0, 1.0, 0.0, 1.0, 0.0],
        [5.0, 0.0, 0.0, 0.0, 1.0],
        [1.0, 2.0, 6.0, 2.0, 1.0],
    ]
)


def test_h2o_is_the_mean_over_a_group():
    expected = torch.tensor([[1.0, 1.0, 1.0, 2.0, 2.0], [3.0, 1.0, 3.0, 1.0, 1.0]])
    assert torch.equal(h2o_scores(RECEIVED, 2), expected)
    assert torch.equal(h2o_scores(RECEIVED, 4), RECEIVED)


def test_tova_is_the_mean_over_all_heads_for_each_key_head():
    expected = torch.tensor([2.0, 1.0, 2.0, 1.5, 1.5])
    assert torch.equal(tova_scores(RECEIVED, 2), expected.expand(2, 5))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        # Of (0 1 2 | 2 1 0) the means of three, with 0 beyond; then the mean of both heads.
        ("mean", [[2 / 3, 1.0, 2 / 3], [4 / 3, 7 / 3, 4 / 3]]),
        ("max", [[1.5, 2.0, 1.5], [3.5, 5.5, 3.0]]),
    ],
)
def test_snapkv_pools_the_keys_before_the_window(pooling, expected):
    found = snapkv_scores(RECEIVED, 2, window=2, kernel=3, pooling=pooling)
    torch.testing.assert_close(found[:, :3], torch.tensor(expected))
    assert bool(found[:, 3:].isposinf().all())


def test_snapkv_without_pooling_and_of_short_texts():
    found = snapkv_scores(RECEIVED, 4, window=3, kernel=1)
    assert torch.equal(found[:, :2], RECEIVED[:, :2])
    assert bool(snapkv_scores(RECEIVED, 4, window=7).isposinf().all())


@pytest.mark.parametrize("leading", [(), (3,), (3, 2)])
def test_scores_of_a_batch_are_those_of_each_text(leading):
    received = torch.rand(*leading, 6, 11)
    for scores in (
        lambda x: h2o_scores(x, 3),
        lambda x: tova_scores(x, 3),
        lambda x: snapkv_scores(x, 3, window=2),
    ):
        found = scores(received)
        assert found.shape == (*leading, 3, 11)
        each = [scores(one) for one in received.reshape(-1, 6, 11)]
        torch.testing.assert_close(found, torch.stack(each).reshape(found.shape))


@pytest.mark.parametrize(
    ("asked", "error", "sentence"),
    [
        (
            {"kv_heads": 3},
            ValueError,
            "^the number of query heads must be a multiple of kv_heads=3, got 4.",
        ),
        ({"kv_heads": 0}, ValueError, "^kv_heads must be a whole number of at least 1, got 0"),
        ({"kv_heads": 2.0}, TypeError, "^kv_heads must be a whole number"),
        ({"window": 0}, ValueError, r"^SnapKV\(window=…\) must be a whole number of at least 1"),
        ({"kernel": 0}, ValueError, r"^SnapKV\(kernel=…\) must be a whole number of at least 1"),
        ({"kernel": 4}, ValueError, r"^SnapKV\(kernel=…\) must be an odd number of keys, got 4."),
        ({"pooling": "sum"}, ValueError, r"^SnapKV\(pooling=…\) must be 'mean' or 'max', got 's"),
        (
            {"pooling": ["max"]},
            ValueError,
            r"^SnapKV\(pooling=…\) must be 'mean' or 'max', got \[",
        ),
    ],
)
def test_what_snapkv_does_not_take(asked, error, sentence):
    with pytest.raises(error, match=sentence):
        snapkv_scores(RECEIVED, **{"kv_heads": 2, "window": 2} | asked)


@pytest.mark.parametrize("scores", [h2o_scores, tova_scores])
def test_heads_that_do_not_fit_are_refused(scores):
    with pytest.raises(ValueError, match="^the number of query heads must be a multiple"):
        scores(RECEIVED, 3)

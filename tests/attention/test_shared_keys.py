"""Keys of a text that grows are kept once; each call's weights stay those of its own keys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from glasshead.attention.shared_keys import KeyStore, SharedWeights
from glasshead.recipe.problem import Problem

BATCH, HEADS, KV_HEADS, DIM = 3, 4, 2, 5
NEAR = {"rtol": 1e-5, "atol": 1e-6, "check_dtype": False}


def new(count, batch=BATCH, dtype=torch.float32):
    return torch.randn(batch, KV_HEADS, count, DIM, dtype=dtype)


def problem_of(key, queries, mask=None):
    query = torch.randn(len(key), HEADS, queries, DIM, dtype=key.dtype) * 3
    return gh.Attention(mask=mask or gh.causal()).problem(query, key, key)


def grow(cache, count):
    return torch.cat([cache, new(count, len(cache), cache.dtype)], -2), count


def reorder(cache, count):
    rows = torch.arange(len(cache)) * count % len(cache)
    return grow(cache[rows], 1)


def split(cache, count):
    # Beams of one text share a past: row 0 goes on in all rows.
    return grow(cache[[0] * len(cache)], count)


def crop(cache, count):
    return grow(cache[..., : max(1, cache.shape[-2] - count), :], count)


def slide(cache, count):
    return grow(cache[..., min(count, cache.shape[-2] - 1) :, :], count)


def evict(cache, count):
    places = [place for place in range(cache.shape[-2]) if place != count // 2]
    return grow(cache[..., places or [0], :], 1)


def overwrite(cache, count):
    cache = cache.clone()
    cache[1, 0, 0, 0] += 1
    return grow(cache, count)


def again(cache, count):
    del count
    return cache, 1


def begin(cache, count):
    return new(count, len(cache), cache.dtype), count


CHANGES = [grow, reorder, split, crop, slide, evict, overwrite, again, begin]


@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(1, 5)), max_size=11),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_weights_are_those_of_the_call_whatever_its_cache_becomes(changes, dtype):
    store, charged, kept = KeyStore(), [], []
    cache = new(3, dtype=dtype)
    queries = 3
    for change, count in [(None, 0), *changes]:
        if change is not None:
            cache, queries = change(cache, count)
        problem = problem_of(cache, queries)
        expected = gh.Weights(problem)
        kept.append((store.weights(problem, None, charged.append), expected, expected.dense()))
    for W, expected, dense in kept:
        assert (W.shape, W.dtype, W.offset) == (expected.shape, expected.dtype, expected.offset)
        assert W.key_heads == KV_HEADS
        torch.testing.assert_close(W.dense(), dense, **NEAR)
        torch.testing.assert_close(W.logsumexp, expected.logsumexp, **NEAR)
        torch.testing.assert_close(W[1, 2, -1], dense[1, 2, -1], **NEAR)


def test_keys_that_grow_are_kept_once_with_little_room():
    store, charged, cache = KeyStore(), [], new(97)
    for step in range(211):
        if step:
            cache, _ = grow(cache, 1)
        assert store.keep(cache, 1 if step else 97, charged.append, instead=None) is not None
        assert sum(charged) <= 1.2 * cache.numel() * 4


@pytest.mark.parametrize(
    ("change", "new_keys"), [(reorder, 1), (split, 2), (crop, 2), (slide, 2), (again, 0)]
)
def test_what_is_kept_already_is_not_copied(change, new_keys):
    store, charged, cache = KeyStore(), [], new(64)
    store.keep(cache, 64, charged.append, instead=None)
    changed, queries = change(cache, 2)
    kept = store.keep(changed, queries, charged.append, instead=None)
    assert kept is not None
    assert torch.equal(kept.tensor(), changed)
    # A buffer grows by an eighth of its room at least.
    number = BATCH * KV_HEADS * DIM * 4
    assert sum(charged[1:]) in ({0} if not new_keys else {new_keys * number, 8 * number})


def test_texts_in_turn_are_kept_side_by_side():
    store, charged = KeyStore(), []
    texts = [new(64), new(64)]
    for text in texts:
        store.keep(text, 64, charged.append, instead=None)
    before = sum(charged)
    for _ in range(5):
        texts = [grow(text, 1)[0] for text in texts]
        for text in texts:
            store.keep(text, 1, charged.append, instead=None)
    assert sum(charged) - before == 2 * 8 * BATCH * KV_HEADS * DIM * 4


def test_a_cache_that_changes_in_each_step_takes_its_scores_until_a_copy_pays():
    store, charged, cache = KeyStore(), [], new(64)
    store.weights(problem_of(cache, 64), None, charged.append)
    kinds = []
    for _ in range(7):
        cache, _ = overwrite(cache, 1)
        kinds.append(type(store.weights(problem_of(cache, 1), None, charged.append)))
    # A row of scores of 4 heads takes 4 numbers a key, and the keys of 2 heads 10.
    assert [kind is SharedWeights for kind in kinds] == [
        False,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("modes", [(True, False), (False, True)])
def test_a_text_may_leave_inference_mode(modes):
    store, cache, first = KeyStore(), new(5), True
    for mode in modes:
        with torch.inference_mode(mode):
            problem = problem_of(cache, 5 if first else 1)
            W = store.weights(problem, None, lambda _: None)
        torch.testing.assert_close(W.dense(), gh.Weights(problem).dense(), **NEAR)
        cache, first = grow(cache, 1)[0], False


def test_what_a_budget_refuses_leaves_what_was_kept():
    def refuse(_):
        raise MemoryError

    store, cache = KeyStore(), new(7)
    W = store.weights(problem_of(cache, 7), None, lambda _: None)
    dense = W.dense()
    with pytest.raises(MemoryError):
        store.weights(problem_of(grow(cache, 2)[0], 2), None, refuse)
    assert torch.equal(W.dense(), dense)


def test_a_recipe_keeps_its_parts_where_only_scores_are_kept():
    store, cache = KeyStore(), new(64)
    store.weights(problem_of(cache, 64), None, lambda _: None)
    cache, _ = overwrite(cache, 1)
    query, bias = torch.randn(BATCH, HEADS, 1, DIM), torch.randn(HEADS, 1, 65)
    rule = gh.Attention(score=gh.Cosine(), bias=bias, softcap=2.0, mask=gh.window(40))
    problem: Problem = rule.problem(query, cache, cache)
    W = store.weights(problem, None, lambda _: None)
    assert not isinstance(W, SharedWeights)
    torch.testing.assert_close(W.dense(), gh.Weights(problem).dense(), **NEAR)


def test_shared_weights_are_saved_and_read(tmp_path):
    store, cache, parts = KeyStore(), new(7), []
    for queries in (7, 1, 2):
        parts.append(store.weights(problem_of(cache, queries), None, lambda _: None))
        cache, _ = grow(cache, 1 if queries == 7 else 2)
    W = gh.JoinedWeights(parts, [0, 0, 0])
    W.save(tmp_path / "weights.safetensors")
    read = gh.JoinedWeights.load(tmp_path / "weights.safetensors")
    torch.testing.assert_close(read.dense(), W.dense(), **NEAR)

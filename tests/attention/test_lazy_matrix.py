"""One lazy matrix: the verbs of weights, of joined weights and of their transposes are the same."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import glasshead as gh

BATCH, HEADS, DIM = 2, 3, 5


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, check_dtype=False)


def one_call(queries, keys, leading=(BATCH, HEADS), *, scale=1.0, dtype=torch.float32, **options):
    query = scale * torch.randn(*leading, queries, DIM, dtype=dtype)
    key = scale * torch.randn(*leading, keys, DIM, dtype=dtype)
    return gh.Attention(**({"mask": gh.causal()} | options)).weights(query, key)


def joined(leading=(BATCH, HEADS), **options):
    """Thirteen queries in three calls, of which the last has lost its first two keys."""
    sizes, first_keys = ((7, 7), (1, 11), (5, 15)), (0, 0, 2)
    parts = [one_call(queries, keys, leading, **options) for queries, keys in sizes]
    whole = torch.zeros(*leading, 13, 17, dtype=parts[0].dtype)
    before = 0
    for part, first in zip(parts, first_keys, strict=True):
        queries, keys = part.shape[-2:]
        whole[..., before : before + queries, first : first + keys] = part.dense()
        before += queries
    return gh.JoinedWeights(parts, first_keys), whole


def weights(leading=(BATCH, HEADS), **options):
    W = one_call(13, 17, leading, **options)
    return W, W.dense()


def transposed(make):
    def made(*args, **options):
        W, P = make(*args, **options)
        return W.T, P.mT

    return made


MATRICES = {
    "weights": weights,
    "joined": joined,
    "transposed weights": transposed(weights),
    "transposed joined": transposed(joined),
}


@pytest.fixture(params=MATRICES)
def make(request):
    return MATRICES[request.param]


@pytest.mark.parametrize("leading", [(), (HEADS,), (BATCH, HEADS)])
def test_every_verb_is_that_of_the_matrix(make, leading):
    W, P = make(leading)
    height, width = P.shape[-2:]
    assert W.shape == P.shape
    assert W.T.shape == P.mT.shape
    assert (W.dtype, W.device) == (P.dtype, P.device)
    close(W.dense(), P)
    close(W.T.dense(), P.mT)
    for rows in (range(height), range(2, 11), range(12, 13), range(3, 3)):
        for columns in (range(width), range(5, 7), range(11, 11)):
            some = P[..., rows.start : rows.stop, columns.start : columns.stop]
            close(W.tile(rows, columns), some)
            close(W.T.tile(columns, rows), some.mT)
    for index in (..., (..., -1, slice(None)), (..., 4), (..., slice(1, 9, 3), slice(-5, None))):
        close(W[index], P[index])
    for count in (2, 11):
        R, L = torch.randn(width, count), torch.randn(*leading, height, count)
        close(W @ R, P @ R)
        close(W.T @ L, P.mT @ L)
    close(W.pooled(height, width), P)
    means = torch.stack([block.mean(-2) for block in P.tensor_split([height // 2], -2)], -2)
    starts = [width // 3, 2 * width // 3]
    blocks = torch.stack([block.sum(-1) for block in means.tensor_split(starts, -1)], -1)
    close(W.pooled(2, 3), blocks)


def test_one_head_is_that_head(make):
    W, P = make()
    one = W.head(1, -1)
    close(one.dense(), P[1, -1])
    close(one[3:8], P[1, -1, 3:8])
    close(one.T[4], P[1, -1, :, 4])
    close(one @ torch.eye(P.shape[-1]), P[1, -1])
    assert one.head() is one
    with pytest.raises(
        ValueError, match=r"W.head must have a place along each axis .*\[2, 3\], got"
    ):
        W.head(1)
    with pytest.raises(IndexError, match=r"in -3\.\.2 along its leading axis"):
        W.head(0, 3)


@pytest.mark.parametrize("mask", [gh.causal(), gh.causal() & gh.window(before=2), gh.padding([3])])
def test_what_is_not_seen_is_0_both_ways(make, mask):
    W, P = make((1, HEADS), mask=mask)
    height = P.shape[-2]
    for rows in (range(height), range(2, 5), range(11, 13), range(1, 2), range(4, 4)):
        seen, some = W.seen(rows), P[..., rows.start : rows.stop, :]
        assert not some[..., : seen.start].any()
        assert not some[..., seen.stop :].any()
    with pytest.raises(
        ValueError, match=r"^seen\(rows\) must be a range of step 1 within range\(0, 1"
    ):
        W.seen(range(18))


@pytest.mark.parametrize("mask", [None, gh.causal(), gh.causal() & gh.window(before=2)])
@pytest.mark.parametrize("leading", [(), (HEADS,), (BATCH, HEADS)])
@pytest.mark.parametrize("name", ["weights", "joined"])
def test_what_is_visible_has_a_weight(name, mask, leading):
    W, P = MATRICES[name](leading, mask=mask)
    for rows in (range(P.shape[-2]), range(2, 5), range(4, 4)):
        # No weight here is so small that it is 0.
        assert torch.equal(W.visible(rows), P[..., rows.start : rows.stop, :] > 0)
    with pytest.raises(ValueError, match=r"^visible\(rows\) must be a range of step 1"):
        W.visible(range(18))


def test_the_transpose_sees_no_more_than_it_has_to():
    W = one_call(13, 17, mask=gh.causal() & gh.window(before=2))
    # Query i sees keys i + 2 to i + 4.
    assert W.T.seen(range(9, 11)) == range(5, 9)
    assert W.T.seen(range(1)) == range(13, 13)
    assert W.T.seen(range(17)) == range(13)


def needed(W, ask):
    with pytest.raises(ValueError, match=r"may take at most \d+ bytes, but needs") as refused:
        ask(W)
    return int(str(refused.value).split(" needs ")[1].split(".")[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [gh.ScaledDot(), gh.Additive(DIM, hidden=11), gh.Gaussian()])
def test_there_is_one_budget_whatever_the_dtype_and_the_score(make, dtype, score):
    W, P = make(score=score.to(dtype), dtype=dtype)
    a_pair = 4 + score.numbers_a_pair(DIM)
    most = a_pair * P.numel() * dtype.itemsize
    assert needed(W, lambda W: W.dense(budget=1)) == most
    close(W.dense(budget=most), P)
    with pytest.raises(
        ValueError, match=r"^W.dense\(\) may take at most .* bytes, but needs \d+\. Raise budget="
    ):
        W.dense(budget=most - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_index_is_held_to_the_same_budget(make, dtype, monkeypatch):
    W, P = make(dtype=dtype)
    a_column = 4 * P[..., 0].numel() * dtype.itemsize
    monkeypatch.setattr("glasshead.attention.lazy_matrix._BUDGET", 2 * a_column - 1)
    close(W[..., 3], P[..., 3])
    with pytest.raises(
        ValueError, match=r"^this part of W may take at most \d+ bytes, .*Ask for less"
    ):
        W[..., 3:5]


def test_rows_that_are_computed_besides_count_too():
    # Scores of 1e4 are computed sixteen rows at a time, whichever are asked for.
    large = [one_call(19, 23, scale=1e4), gh.JoinedWeights([one_call(19, 23, scale=1e4)], [0])]
    for W in large:
        few = 4 * BATCH * HEADS * 16 * 23 * 4
        assert needed(W, lambda W: W._check_budget(range(1), range(23), 1, "", "")) == few
        assert needed(W.T, lambda W: W._check_budget(range(23), range(1), 1, "", "")) == few


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (lambda W: W.tile(3, range(2)), TypeError, r"^tile\(rows\) must be a range such as range"),
        (
            lambda W: W.tile(range(2), range(18)),
            ValueError,
            r"^tile\(columns\) must be a range of",
        ),
        (
            lambda W: W[..., 17, :],
            IndexError,
            r"^W\[…\] must have an index in -1[37]..1[26] along its (queries|keys), got",
        ),
        (
            lambda W: W[2],
            IndexError,
            "^W.* must have an index in -2..1 along its leading axis, got",
        ),
        (lambda W: W[..., "a"], TypeError, "^W.* must have whole numbers, slices or an ellipsis"),
        (lambda W: W.dense(budget="1"), TypeError, "budget"),
        (lambda W: W @ torch.ones(5, 1), ValueError, r"^W(.T)? @ [RL] must be \[..., 1[37], n\]"),
        (lambda W: W @ [1.0], TypeError, "^W(.T)? @ [RL] must be a floating-point tensor, got"),
        (
            lambda W: W @ torch.eye(W.shape[-1]).to_sparse(),
            TypeError,
            "must be a dense tensor, got",
        ),
        (lambda W: W[::-1], ValueError, r"^W\[…\] must have slices with steps above 0, got -1"),
        (
            lambda W: W[0, 1.5:],
            TypeError,
            r"^W\[…\] must have whole numbers, slices or an ellipsis",
        ),
        (lambda W: W.pooled(18, 2), ValueError, r"^pooled\(rows\) must be at most 1[37], got 18"),
        (
            lambda W: W.pooled(2, 0),
            ValueError,
            r"^pooled\(columns\) must be a whole number of at le",
        ),
    ],
)
def test_what_no_matrix_takes(make, ask, error, sentence):
    with pytest.raises(error, match=sentence):
        ask(make()[0])


def test_no_rows_and_steps_beyond_the_end_are_those_of_the_matrix(make):
    W, P = make()
    assert W[0, 0, 3:1].shape == P[0, 0, 3:1].shape
    assert W[..., 5:5, 2:4].shape == P[..., 5:5, 2:4].shape
    torch.testing.assert_close(W[:: 2**70, :, :: 2**70, 1 :: 2**70], P[:1, :, :1, 1:2])


def test_the_axes_are_named_as_they_are():
    W, _ = joined()
    for one, names in ((W, ("queries", "keys")), (W.T, ("keys", "queries"))):
        for index, name in zip(((..., 17, slice(None)), (..., 17)), names, strict=True):
            with pytest.raises(IndexError, match=f"in -1[37]..1[26] along its {name}, got"):
                one[index]


@pytest.mark.parametrize("first", [0, 3])
def test_the_offset_is_that_of_the_first_query(first):
    assert one_call(7, 11).offset == 4
    assert one_call(7, 11).head(1, 2).offset == 4
    assert gh.JoinedWeights([one_call(7, 11), one_call(2, 13)], [first, 0]).offset == 4 + first
    own = gh.Attention().weights(
        torch.ones(2, 3, 5, 7), torch.ones(2, 3, 5, 7), offset=torch.tensor([1, 4])
    )
    assert own.offset.tolist() == [1, 4]


# Joined weights, saved and read again


RECIPES = {
    "plain": {},
    "float64": {"dtype": torch.float64},
    "additive": {"score": gh.Additive(DIM, hidden=11)},
    "bias": {"bias": gh.ALiBi(HEADS), "softcap": 3.0},
    "sink": {"normalizer": gh.SoftmaxOne(0.5)},
    "large scores": {"scale": 1e3},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_joined_weights_come_back_bit_for_bit(recipe, tmp_path):
    W, P = joined(**RECIPES[recipe])
    file = tmp_path / "joined.safetensors"
    W.save(file)
    back = gh.JoinedWeights.load(file)
    assert (back.shape, back.dtype, back.offset) == (W.shape, W.dtype, W.offset)
    assert repr(back) == repr(W) == "JoinedWeights [2, 3, 13, 17] of 3 calls"
    assert back.dense().equal(W.dense())
    assert back.logsumexp.equal(W.logsumexp)
    assert back.tile(range(6, 11), range(1, 17)).equal(W.tile(range(6, 11), range(1, 17)))
    assert (back @ torch.eye(17)).equal(W @ torch.eye(17))
    assert back.head(1, 2).seen(range(9, 11)) == W.head(1, 2).seen(range(9, 11))
    close(back.dense(), P)
    first = file.read_bytes()
    back.save(file)
    assert file.read_bytes() == first
    back.head(1, 2).save(file)
    close(gh.load(file).dense(), P[1, 2])


def test_weights_and_joined_weights_are_told_apart(tmp_path):
    file = tmp_path / "weights.safetensors"
    W, _ = joined()
    W.save(file)
    with pytest.raises(
        ValueError, match=r"got the kind 'joined weights'\. .* gh\.JoinedWeights\.lo"
    ):
        gh.Weights.load(file)
    one_call(7, 11).save(file)
    with pytest.raises(
        ValueError,
        match=r"the kind 'joined weights', got the kind 'weights'\. .* gh\.Weights\.load",
    ):
        gh.JoinedWeights.load(file)


def test_joined_weights_of_a_part_of_ones_own_are_not_written(tmp_path):
    class Own(gh.Dot):
        pass

    W, _ = joined(score=Own())
    for one in (W, W.head(1, 2)):
        with pytest.raises(TypeError, match=r"cannot save the custom score Own\. Save W"):
            one.save(tmp_path / "own.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("recipes"),
        lambda told: told["recipes"].pop(),
        lambda told: told["recipes"].append(told["recipes"][0]),
        lambda told: told["recipes"][1].pop("mask"),
        lambda told: told["recipes"][1].update(mask=told["recipes"][1]["score"]),
        lambda told: told.update(first_keys=[0, 0]),
        lambda told: told.update(first_keys=[0, -1, 2]),
        lambda told: told.update(first_keys=[0, "1", 2]),
        lambda told: told.update(recipes=[], first_keys=[]),
        lambda told: told["recipes"][1].update(softcap="much"),
        lambda told: told["recipes"][1].update(softcap=10**400),
        lambda told: told["recipes"][1].update(offset=None),
        lambda told: told["recipes"][1].update(axes="all"),
    ],
)
def test_joined_weights_that_were_tampered_with_are_refused(tmp_path, change):
    file = tmp_path / "joined.safetensors"
    joined()[0].save(file)
    with safe_open(file, "pt") as opened:
        told = json.loads(opened.metadata()["glasshead"])
    change(told)
    save_file(load_file(file), file, metadata={"glasshead": json.dumps(told)})
    with pytest.raises(ValueError, match="description of joined weights that cannot be read"):
        gh.JoinedWeights.load(file)


def test_joined_weights_with_half_of_what_is_known_of_rows_are_refused(tmp_path):
    file = tmp_path / "joined.safetensors"
    joined()[0].save(file)
    with safe_open(file, "pt") as opened:
        told = opened.metadata()
    for name in ("1.largest_score", "1.largest_weight"):
        tensors = load_file(file)
        whole = {**tensors, name: tensors[name].long()}
        for damaged in ({k: x for k, x in tensors.items() if k != name}, whole):
            save_file(damaged, tmp_path / "damaged", metadata=told)
            with pytest.raises(ValueError, match="joined weights that cannot be read"):
                gh.JoinedWeights.load(tmp_path / "damaged")


@pytest.mark.parametrize(
    ("parts", "first_keys", "error", "sentence"),
    [
        (
            [],
            [],
            ValueError,
            "one part and a first key for each, got 0 parts and",
        ),
        ([(3, 5)], [0, 1], ValueError, "got 1 parts and 2 first keys"),
        (
            [(3, 5)],
            [-1],
            ValueError,
            r"JoinedWeights\(first_keys\) must be a whole number of at lea",
        ),
        ([(3, 5)], [0.5], TypeError, r"JoinedWeights\(first_keys\) must be a whole number"),
        ([(3, 5), (3, 5, (7,))], [0, 1], ValueError, r"\[2, 3\] .* and \[7\] torch.float32 on cpu"),
    ],
)
def test_what_cannot_be_joined(parts, first_keys, error, sentence):
    with pytest.raises(error, match=sentence):
        gh.JoinedWeights([one_call(*part) for part in parts], first_keys)
    with pytest.raises(TypeError, match="JoinedWeights must be Weights, got Tensor"):
        gh.JoinedWeights([torch.ones(3, 5)], [0])
    for wrong in ((None, [0]), ([one_call(3, 5)], 0)):
        with pytest.raises(TypeError, match="needs a list of Weights and one of their first keys"):
            gh.JoinedWeights(*wrong)

"""One head of the lazy matrix is that head of the whole, whatever of the recipe is per head."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import cases
from glasshead.attention.weights import OneOfAll
from hypothesis_profiles import examples

HEADS = 6


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, check_dtype=False)


def check(W, P=None, *, told_apart=True):
    """Some heads of W, the last among them, in every way that they can be asked."""
    P = W.dense() if P is None else P
    every = list(itertools.product(*map(range, W.shape[:-2])))
    for index in (*every[::5], every[-1]):
        one, expected = W.head(*index), P[index]
        assert isinstance(one, OneOfAll) != told_apart
        assert one.shape == expected.shape
        assert (one.dtype, one.device) == (W.dtype, W.device)
        close(one.dense(), expected)
        close(one.logsumexp, W.logsumexp[index])
        close(one.tile(range(1, 4), range(2, 5)), expected[1:4, 2:5])
        assert one.tile(range(3, 3), range(2, 5)).shape == (0, 3)
        assert one.tile(range(3, 3), range(4, 4)).shape == (0, 0)
        close(one[-1, 1:], expected[-1, 1:])
        R, L = torch.randn(W.shape[-1], 3), torch.randn(W.shape[-2], 3)
        close(one @ R.to(W.dtype), expected @ R.to(expected))
        close(one.T @ L.to(W.dtype), expected.mT @ L.to(expected))
        close(one.pooled(2, 3), W.pooled(2, 3)[index])
        assert torch.equal(one.visible(range(1, 4)), W.visible(range(1, 4))[index])
        seen = one.seen(range(1, 4))
        assert not expected[1:4, : seen.start].any()
        assert not expected[1:4, seen.stop :].any()


def inputs(queries=7, keys=11, dim=5, batch=(2,), kv_heads=2):
    query = torch.randn(*batch, HEADS, queries, dim, dtype=torch.float64)
    return query, torch.randn(*batch, kv_heads, keys, dim, dtype=torch.float64)


@given(cases(), st.sampled_from([gh.Softmax, lambda: gh.SoftmaxOne(0.5)]), st.data())
@examples(60)
def test_every_head_of_every_row_is_that_of_the_trace(case, normalizer, data):
    query, key, _ = case.inputs()
    attention = gh.Attention(normalizer=normalizer())
    W = attention.weights(query, key, **case.call())
    P = attention.trace(query, key, key, **case.call()).weights
    index = data.draw(st.tuples(*(st.integers(0, size - 1) for size in P.shape[:-2])))
    one = W.head(*index)
    close(one.dense(), P[index])
    close(one.T @ torch.ones(case.queries, 1, dtype=W.dtype), P[index].sum(-2)[:, None])
    rows = range(case.queries // 2, case.queries)
    seen = one.seen(rows)
    assert not P[index][rows.start :, : seen.start].any()
    assert not P[index][rows.start :, seen.stop :].any()


PER_HEAD = torch.linspace(-1, 2, HEADS)
RECIPES = {
    "learned β": {"score": gh.Dot(torch.nn.Parameter(PER_HEAD.clone()))},
    "scaled β": {"score": gh.ScaledDot(PER_HEAD.clone())},
    "cosine": {"score": gh.Cosine(PER_HEAD.double())},
    "Gaussian": {"score": gh.Gaussian(0.3 * PER_HEAD), "mask": gh.causal()},
    "one β": {"score": gh.Dot(torch.tensor(0.7))},
    "additive": {"score": gh.Additive(5, 3)},
    "additive β": {"score": gh.Additive(5, 3, beta=torch.nn.Parameter(PER_HEAD.clone()))},
    "sinks": {"normalizer": gh.SoftmaxOne(torch.nn.Parameter(PER_HEAD.clone()))},
    "one sink": {"normalizer": gh.SoftmaxOne(torch.tensor(0.7))},
    "softcap": {"softcap": 0.8, "bias": torch.randn(HEADS, 1, 11)},
    "ALiBi": {"bias": gh.ALiBi(HEADS), "mask": gh.causal()},
    "relative": {"bias": gh.RelativeBias(HEADS, 8, 17), "mask": gh.window(3, 1)},
}


@pytest.mark.parametrize(
    ("name", "kv_heads"),
    [
        *((name, 2) for name in RECIPES),
        *((name, n) for name in ("additive β", "cosine", "relative") for n in (1, 3, 6)),
    ],
)
def test_what_is_per_head_is_that_of_the_head(name, kv_heads):
    query, key = inputs(kv_heads=kv_heads)
    attention = gh.Attention(**RECIPES[name])
    offset = torch.tensor([4, -2])
    before = torch.get_rng_state()
    W = attention.weights(query, key, mask=gh.padding([11, 3]), offset=offset)
    P = attention.trace(query, key, key, mask=gh.padding([11, 3]), offset=offset).weights
    W.head(1, 2)
    assert torch.equal(torch.get_rng_state(), before)
    check(W, P)


MASKS = {
    "documents": gh.documents(torch.tensor([[0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [3] * 5 + [4] * 6])),
    "one row of documents": gh.documents([0] * 4 + [1] * 7),
    "own offsets": gh.causal(torch.tensor([2, 5])) | ~gh.window(1, 2, torch.tensor([3, 0])),
    "prefix": gh.causal(3) | gh.prefix([2, 5]),
    "keys": gh.from_huggingface((torch.arange(22).view(2, 11) % 5 > 0).long())[0],
    "dense by head": gh.dense(torch.rand(HEADS, 7, 11) > 0.4) & gh.causal(),
    "dense by row": gh.dense(torch.rand(2, 1, 1, 11) > 0.4),
    "dense by both": ~gh.dense(torch.rand(2, HEADS, 7, 11) > 0.4),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_that_of_the_row_and_the_head(name):
    query, key = inputs()
    attention = gh.Attention()
    W = attention.weights(query, key, mask=MASKS[name])
    check(W, attention.trace(query, key, key, mask=MASKS[name]).weights)


@pytest.mark.parametrize("leading", [(), (3,)])
def test_layouts_without_heads_have_a_head_a_row(leading):
    query, key = torch.randn(*leading, 7, 5), torch.randn(*leading, 11, 5)
    bias, seen = torch.randn(*leading, 7, 11), torch.rand(*leading, 7, 11) > 0.3
    mask = gh.dense(seen) & gh.padding(torch.full(leading, 9))
    W = gh.Attention().weights(query, key, mask=mask, bias=bias)
    check(W, gh.Attention().trace(query, key, key, mask=mask, bias=bias).weights)
    one = W.head(*(2,) * len(leading))
    assert one.head() is one


@dataclass(frozen=True, eq=False, repr=False)
class Odd(gh.Mask):
    """Sees what is odd in a way of its own for each row and head."""

    def visible(self, tile):
        heads = torch.arange(HEADS)[:, None, None]
        return (tile.positions() + 2 * tile.columns() + heads * tile.positions()) % 3 != 1


class Own(gh.Bias):
    """A number for each pair, row and head."""

    def forward(self, tile):
        heads = torch.arange(HEADS, dtype=tile.dtype)[:, None, None]
        return (tile.positions() * heads - tile.columns()).to(tile.dtype).sin()


class Near(gh.Bias):
    """Hides what is far, at a distance that differs from head to head."""

    by_distance = True

    def forward(self, tile):
        far = tile.distance().abs() > torch.arange(3, 3 + HEADS)[:, None, None]
        return torch.zeros(far.shape, dtype=tile.dtype).masked_fill(far, -torch.inf)


class Level(gh.Bias):
    """The same for all pairs of a head."""

    by_distance = True
    hides = False

    def forward(self, tile):
        return torch.arange(HEADS, dtype=tile.dtype)[:, None, None]


class Talking(gh.Score):
    """Heads are mixed."""

    def forward(self, query, key):
        return (query @ key.mT).cumsum(-3)


class Double(gh.Dot):
    """A subclass may be anything."""

    def features(self, query, key):
        return 2 * query, key


class Slow(gh.Softmax):
    """As is a normalizer's."""


@pytest.mark.parametrize("offset", [None, torch.tensor([1, 6])])
@pytest.mark.parametrize(
    ("own", "told_apart"),
    [
        ({"mask": Odd()}, True),
        ({"mask": gh.causal() | ~Odd()}, True),
        ({"bias": Own()}, True),
        ({"bias": Near()}, True),
        ({"bias": Level()}, True),
        ({"score": Talking()}, False),
        ({"score": Double(PER_HEAD)}, False),
        ({"normalizer": Slow(), "bias": gh.ALiBi(HEADS)}, False),
    ],
)
def test_what_is_a_users_own_is_asked_as_it_is(own, told_apart, offset):
    query, key = inputs()
    attention = gh.Attention(**own)
    W = attention.weights(query, key, mask=gh.padding([11, 4]), offset=offset)
    P = attention.trace(query, key, key, mask=gh.padding([11, 4]), offset=offset).weights
    check(W, P, told_apart=told_apart)
    # What cannot be told apart is held for all heads at once.
    assert W.head(0, 1).numbers_a_pair == W.numbers_a_pair // (1 if not told_apart else 2 * HEADS)


def test_rows_that_see_nothing_and_what_they_hold_stay_hidden():
    query, key = inputs()
    query[1, :, 2], key[1, :, 4] = torch.nan, torch.inf
    seen = (torch.arange(7) != 2)[:, None] & (torch.arange(11) != 4)
    W = gh.Attention().weights(query, key, mask=gh.dense(torch.stack([~seen, seen])[:, None]))
    assert not W.head(1, 3)[2].any()
    assert not W.head(1, 3)[:, 4].any()
    check(gh.Attention().weights(query[1:], key[1:], mask=gh.dense(seen)))


def test_queries_keys_and_logsumexp_are_not_copied():
    query, key = inputs()
    W = gh.Attention(bias=gh.ALiBi(HEADS)).weights(query, key)
    one = W.head(1, 4)
    whole = W._problem
    assert one._problem.query.data_ptr() == whole.query[1, 4].data_ptr()
    assert one._problem.key.data_ptr() == whole.key[1, 1].data_ptr()
    assert one.logsumexp.data_ptr() == W.logsumexp[1, 4].data_ptr()


@pytest.mark.parametrize("name", [*RECIPES, "hides far", "own, by distance"])
def test_a_head_is_saved_and_read_as_what_it_is(name, tmp_path):
    query, key = inputs()
    own = {"hides far": {"bias": Near()}, "own, by distance": {"bias": Level()}}
    attention = gh.Attention(**{**RECIPES, **own}[name])
    call = {"mask": gh.padding([11, 4]), "offset": torch.tensor([4, -2])}
    one = attention.weights(query, key, **call).head(1, 4)
    one.save(tmp_path / "head.safetensors")
    again = gh.Weights.load(tmp_path / "head.safetensors")
    assert again.shape == (7, 11)
    assert again.dense().equal(one.dense())
    assert again.logsumexp.equal(one.logsumexp)
    assert again.seen(range(2, 5)) == one.seen(range(2, 5))


@pytest.mark.parametrize(("queries", "keys"), [(0, 11), (7, 0), (0, 0), (1, 1)])
def test_a_head_of_nothing_is_saved_too(queries, keys, tmp_path):
    W = gh.Attention(bias=gh.ALiBi(HEADS)).weights(*inputs(queries, keys))
    W.head(1, 4).save(tmp_path / "head.safetensors")
    assert gh.Weights.load(tmp_path / "head.safetensors").dense().equal(W.dense()[1, 4])


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"score": Talking()}, "score Talking"),
        ({"normalizer": Slow()}, "normalizer Slow"),
        ({"mask": gh.causal() & Odd()}, "mask Odd"),
        ({"bias": Own()}, "biases Own"),
    ],
)
def test_a_head_with_what_is_a_users_own_is_not_saved(own, name, tmp_path):
    W = gh.Attention(**own).weights(*inputs())
    for one in (W, W.head(1, 4)):
        with pytest.raises(TypeError, match=rf"cannot save the custom {name}\. Save W"):
            one.save(tmp_path / "own.safetensors")


@pytest.mark.parametrize("wrong", [{"table": torch.zeros(16)}, {"queries": 6}, {"table": None}])
def test_a_file_whose_diagonals_are_too_few_is_refused(wrong, tmp_path):
    one = gh.Attention(bias=gh.ALiBi(HEADS)).weights(*inputs()).head(1, 4)
    vars(one._problem.biases[0]).update(wrong)
    one.save(tmp_path / "head.safetensors")
    with pytest.raises(ValueError, match="description of weights that cannot be read"):
        gh.Weights.load(tmp_path / "head.safetensors")


@pytest.mark.parametrize(
    ("index", "error", "sentence"),
    [
        ((), ValueError, r"before the queries, \[2, 6\], got \[\]\. Pass 2"),
        ((1, 2, 3), ValueError, r"\[2, 6\], got \[1, 2, 3\]"),
        (
            (2, 0),
            IndexError,
            "must have an index in -2..1 along its leading axis, got 2",
        ),
        (
            (0, -7),
            IndexError,
            "must have an index in -6..5 along its leading axis, got -7",
        ),
        ((0, 1.0), TypeError, "W.head must be a whole number, got 1.0"),
        ((0, True), TypeError, "W.head must be a whole number"),
    ],
)
def test_a_head_that_is_not_there_is_refused(index, error, sentence):
    W = gh.Attention().weights(*inputs())
    with pytest.raises(error, match=sentence):
        W.head(*index)


def test_rows_that_are_not_there_have_seen_nothing():
    W = gh.Attention(mask=gh.window(2)).weights(*inputs())
    assert W.head(0, 0).seen(range(3, 5)) == range(5, 9)
    assert not W.head(0, 0).seen(range(3, 3))
    with pytest.raises(
        ValueError, match=r"^seen\(rows\) must be a range of step 1 within range\(0, 7\)"
    ):
        W.seen(range(8))
    with pytest.raises(TypeError, match=r"^seen\(rows\) must be a range such as"):
        W.head(0, 0).seen(slice(3))

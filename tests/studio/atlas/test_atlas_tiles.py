"""Each tile of each level is what its blocks are by definition, computed from the whole matrix."""

import pytest
import torch

import glasshead as gh
from glasshead.studio.atlas import Atlas, NotYetError, TileCache, block_sums
from studio.atlas.small_atlases import (
    HEADS,
    KEYS,
    LEVELS,
    QUERIES,
    check,
    cut,
    inputs,
    of_blocks,
)

PER_HEAD = torch.linspace(0, 2, HEADS)
TWO = torch.tensor([[0] * 301 + [1] * (KEYS - 301), [0] * 7 + [1] * (KEYS - 7)])
RECIPES = {
    "plain": ({}, {}),
    "causal": ({"mask": gh.causal()}, {}),
    "top-left": ({"mask": gh.causal(0)}, {}),
    "own offsets": ({"mask": gh.causal()}, {"offset": torch.tensor([3, 199])}),
    "window": ({"mask": gh.window(29, 3)}, {}),
    "documents": ({"mask": gh.causal()}, {"mask": gh.documents(TWO)}),
    "padding": ({"mask": gh.causal()}, {"mask": gh.padding([KEYS, 307])}),
    "left padding": ({}, {"mask": ~gh.padding([0, 307])}),
    "prefix": ({"mask": gh.causal() | gh.prefix(17)}, {}),
    "dense": ({}, {"mask": torch.rand(2, 1, 1, KEYS) > 0.3}),
    "softcap": ({"softcap": 0.7, "mask": gh.causal()}, {}),
    "ALiBi": ({"bias": gh.ALiBi(HEADS), "mask": gh.causal()}, {}),
    "bias": ({}, {"bias": torch.randn(HEADS, 1, KEYS)}),
    "β": ({"score": gh.Dot(PER_HEAD)}, {}),
    "sink": ({"normalizer": gh.SoftmaxOne(PER_HEAD), "mask": gh.causal()}, {}),
    "Gaussian": ({"score": gh.Gaussian(0.5)}, {}),
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.usefixtures("coarsely")
def test_every_tile_is_what_its_blocks_are(name):
    recipe, call = RECIPES[name]
    query, key = inputs()
    attention = gh.Attention(**recipe)
    P = attention.trace(query, key, key, **call).weights[1, 2]
    W = attention.weights(query, key, **call)
    atlas = Atlas(W.head(1, 2))
    assert (atlas.levels, atlas.overview_level) == (LEVELS, 1)
    check(atlas, P)  # each from its weights
    atlas.overview()
    check(atlas, P)  # the coarse ones from the overview


def test_a_text_that_needs_no_cutting_is_the_same_with_the_sizes_of_a_long_one():
    query, key = inputs()
    attention = gh.Attention(mask=gh.causal())
    P = attention.trace(query, key, key).weights[0, 1]
    atlas = Atlas(attention.weights(query, key).head(0, 1))
    assert atlas.overview_level == 0
    check(atlas, P)
    atlas.overview()
    check(atlas, P)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("coarsely")
def test_lower_precision_is_as_exact_as_the_lazy_matrix(dtype):
    query, key = inputs(dtype=dtype)
    W = gh.Attention(mask=gh.causal()).weights(query, key)
    atlas = Atlas(W.head(1, 3))
    atlas.overview()
    check(atlas, W.dense()[1, 3], 1e-5)


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.usefixtures("coarsely")
def test_where_blocks_divide_evenly_they_are_those_of_a_pooled_map(ready):
    query, key = inputs(queries=256, keys=1024)
    attention = gh.Attention(mask=gh.causal())
    W = attention.weights(query, key)
    atlas = Atlas(W.head(0, 1))
    assert (atlas.levels, atlas.overview_level) == (3, 1)
    if ready:
        atlas.overview()
    for level in range(3):
        rows, columns = atlas.blocks(level)
        seen = attention.observe(query, key, key, [gh.PooledMap(rows, columns)])
        tiles = torch.cat([atlas.tile(level, 0, c) for c in range(atlas.size(level)[1])], 1)
        torch.testing.assert_close(tiles.double(), seen.pooled_map[0, 1], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(tiles.double(), W.pooled(rows, columns)[0, 1], **NEAR)
        torch.testing.assert_close(tiles.sum(1), torch.ones(rows))


NEAR = {"rtol": 1e-6, "atol": 1e-6}


@pytest.mark.parametrize("block", [1, 8, 64, 256])
def test_blocks_may_be_larger_than_the_parts_and_begin_further_on(block, monkeypatch):
    cut(monkeypatch, 2**12, 16)  # parts of 16 queries and 64 keys
    W = gh.Attention(mask=gh.causal()).weights(*inputs()).head(0, 1)
    rows, columns = range(256, QUERIES), range(256, KEYS - 1)
    P = W.tile(rows, columns)
    expected = torch.stack([keys.sum(-1) for keys in P.split(block, -1)], -1)
    expected = torch.stack([queries.sum(-2) for queries in expected.split(block, -2)], -2)
    torch.testing.assert_close(block_sums(W, rows, columns, block), expected)


@pytest.mark.usefixtures("coarsely")
def test_a_text_that_has_grown_call_by_call_is_one_map():
    model = gh.LanguageModel(
        gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, context_length=400)
    )
    cache = model.new_cache()
    tokens = torch.randint(11, (2, 311))
    with torch.no_grad(), gh.watch(model, keep="weights", layers="blocks.0") as seen:
        for part in tokens.split([211, 97, 1, 1, 1], 1):
            model(part, cache=cache)
    W = seen["blocks.0.attention"].weights
    P = W.dense()
    for index in ((0, 0), (1, 2)):
        one = W.head(*index)
        assert one.shape == (311, 311)
        torch.testing.assert_close(one.dense(), P[index])
        atlas = Atlas(one)
        check(atlas, P[index], 1e-5)
        atlas.overview()
        check(atlas, P[index], 1e-5)
        assert one.seen(range(200, 212)) == range(212)
        assert one.seen(range(309, 311)) == range(311)
        assert not one.seen(range(4, 4))
    with pytest.raises(ValueError, match=r"before the queries, \[2, 3\], got \[0\]"):
        W.head(0)


def test_a_normalizer_without_a_logsumexp_has_no_lazy_matrix_to_draw():
    with pytest.raises(ValueError, match="needs the normalizer .*SoftmaxOne.* got Sparsemax"):
        gh.Attention(normalizer=gh.Sparsemax()).weights(*inputs())


def test_levels_go_down_to_one_tile():
    for tokens, levels in ((1, 1), (256, 1), (257, 2), (512, 2), (513, 3), (1024, 3), (1025, 4)):
        x = torch.zeros(tokens, 1)
        for keys in (1, tokens):
            atlas = Atlas(gh.Attention().weights(x, x[:keys]).head())
            assert atlas.levels == levels
            assert atlas.size(levels - 1) == (1, 1)


@pytest.mark.parametrize(
    ("tile", "error", "sentence"),
    [
        ((3, 0, 0), ValueError, r"Atlas.tile\(level\) must be a whole number below 3, got 3"),
        ((-1, 0, 0), ValueError, r"tile\(level\) must be a whole number of at least 0, got -1"),
        ((0, 3, 0), ValueError, r"tile\(row\) must be a whole number below 3, got 3"),
        ((1, 0, 2), ValueError, r"tile\(column\) must be a whole number below 2, got 2"),
        ((0, 0.5, 0), TypeError, r"tile\(row\) must be a whole number"),
    ],
)
def test_a_tile_that_is_not_there_is_refused(tile, error, sentence):
    atlas = Atlas(gh.Attention().weights(*inputs()).head(0, 0))
    assert (atlas.queries, atlas.keys) == (QUERIES, KEYS)
    with pytest.raises(error, match=sentence):
        atlas.tile(*tile)


def test_what_is_not_one_head_is_refused():
    W = gh.Attention().weights(*inputs())
    with pytest.raises(ValueError, match=r"one head, \[queries, keys\], got \[2, 4, 5"):
        Atlas(W)
    with pytest.raises(ValueError, match=r"at least one query and one key, got \[5, 0\]"):
        Atlas(gh.Attention().weights(torch.ones(5, 2), torch.ones(0, 2)).head())


@pytest.mark.usefixtures("coarsely")
def test_a_coarse_tile_of_many_weights_waits_for_the_overview(monkeypatch):
    monkeypatch.setattr("glasshead.studio.atlas._AT_ONCE", 2**18)
    W = gh.Attention(mask=gh.causal()).weights(*inputs()).head(0, 0)
    atlas = Atlas(W)
    with pytest.raises(NotYetError, match="a tile of level 2 needs the overview, which is not"):
        atlas.tile(2, 0, 0)
    atlas.tile(0, 2, 1)
    atlas.tile(1, 1, 1)  # at the edge, few enough
    assert not atlas.ready
    atlas.overview()
    assert atlas.ready
    torch.testing.assert_close(atlas.tile(2, 0, 0).double(), of_blocks(W.dense(), 2), **NEAR)


def test_what_is_given_may_be_written_to():
    atlas = Atlas(gh.Attention().weights(*inputs()).head(0, 0))
    first = atlas.tile(0, 0, 0).clone()
    atlas.tile(0, 0, 0).zero_()
    assert torch.equal(atlas.tile(0, 0, 0), first)


def test_atlases_share_a_cache_and_nothing_else():
    W, cache = gh.Attention().weights(*inputs()), TileCache()
    first, second = Atlas(W.head(0, 0), cache), Atlas(W.head(1, 3), cache)
    torch.testing.assert_close(first.tile(0, 1, 1).double(), W[0, 0, 256:512, 256:512], **NEAR)
    torch.testing.assert_close(second.tile(0, 1, 1).double(), W[1, 3, 256:512, 256:512], **NEAR)
    assert (len(cache), cache.size) == (2, 2 * 256 * 256 * 4)

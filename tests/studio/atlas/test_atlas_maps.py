"""Atlas: the maps and tiles of stored weights, against the library; how long they are kept.

Tiles are kept within their bytes, the longest unused go, and none is computed twice at once.
"""

import gc
import itertools
import threading
import weakref

import pytest
import torch

import glasshead as gh
from glasshead.statistics import PooledMap
from glasshead.studio.atlas import Atlas, TileCache, stop_if
from glasshead.studio.background_jobs import Cancelled, NotYet, Refusal, Work
from glasshead.studio.studio import Studio
from glasshead.studio.views import atlas as atlas_kept
from glasshead.studio.views.atlas import Atlases, stored_atlas
from studio.atlas.conftest import HEADS, KEYS, QUERIES, TEXTS
from studio.atlas.small_atlases import inputs, of_blocks


def joined(atlases, text, layer, head, level):
    """All tiles of a level, side by side."""
    rows, columns = atlases.atlas(text, layer, head, Work()).size(level)
    return torch.cat(
        [
            torch.cat(
                [
                    atlases.tile(text, layer, head, (level, row, column), Work())
                    for column in range(columns)
                ],
                1,
            )
            for row in range(rows)
        ]
    )


def test_stored_weights_are_matrices_with_heads(atlases):
    told = atlases.opened(None, Work())
    assert told == {
        "length": None,
        "of": None,
        "glued": False,
        "layers": [{"name": str(number), "heads": HEADS} for number in range(TEXTS)],
        "heads": {str(number): [*range(HEADS)] for number in range(TEXTS)},
        "trouble": None,
    }
    assert atlases.tokens(None, 0, 7, Work()) == {"tokens": []}


def test_a_map_tells_its_size_and_its_scale(atlases, weights):
    told = atlases.map(None, 1, 2, Work())
    tops, floor = told.pop("tops"), told.pop("floor")
    size = {"queries": QUERIES, "keys": KEYS, "levels": 3, "coarse": 0, "finest": 0}
    assert told == {**size, "ready": False, "most": None}
    assert tops == sorted(tops, reverse=True)
    assert (tops[:4], floor) == ([1, 0.5, 0.2, 0.1], 1e-5)
    assert tops[-1] < 1 / KEYS < tops[-4]
    expected = of_blocks(weights[1, 2], 2).max().item() / 4
    assert atlases.overview(None, 1, 2, Work()) == {"most": pytest.approx(expected, rel=1e-5)}
    told = atlases.map(None, 1, 2, Work())
    assert (told["ready"], told["most"]) == (True, pytest.approx(expected, rel=1e-5))


@pytest.mark.parametrize("surveyed", [False, True])
@pytest.mark.parametrize("level", range(3))
def test_tiles_are_the_blocks_of_their_head(atlases, weights, level, surveyed):
    if surveyed:
        atlases.overview(None, 1, 2, Work())
    found = joined(atlases, None, 1, 2, level)
    torch.testing.assert_close(
        found.double(), of_blocks(weights[1, 2], level), rtol=1e-5, atol=1e-7
    )


def test_a_tile_is_the_pooled_map_of_its_part(tmp_path):
    query, key = torch.randn(1, 1, 512, 3), torch.randn(1, 1, 512, 3)
    attention = gh.Attention(mask=gh.causal())
    attention.weights(query, key).save(tmp_path / "w.safetensors")
    expected = PooledMap(256, 256).of(attention.trace(query, key, key))[0, 0]
    found = Atlases(Studio(tmp_path / "w.safetensors")).tile(None, 0, 0, (1, 0, 0), Work())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("leading", [(), (HEADS,), (2, TEXTS, HEADS)])
def test_stored_weights_of_any_axes(leading, tmp_path):
    W = gh.Attention().weights(torch.randn(*leading, 7, 3), torch.randn(*leading, 11, 3))
    W.save(tmp_path / "w.safetensors")
    atlases = Atlases(Studio(tmp_path / "w.safetensors"))
    told = atlases.opened(None, Work())
    every = W.dense().reshape(-1, 7, 11)
    heads = leading[-1] if leading else 1
    assert len(told["layers"]) * heads == len(every)
    for layer, head in itertools.product(range(len(told["layers"])), range(heads)):
        tile = atlases.tile(None, layer, head, (0, 0, 0), Work())
        torch.testing.assert_close(tile, every[layer * heads + head])


@pytest.mark.parametrize(("layer", "head"), [(TEXTS, 0), (0, HEADS)])
def test_there_is_no_such_head(atlases, layer, head):
    with pytest.raises(Refusal, match=r"must be from 0 to \d, got \d"):
        atlases.map(None, layer, head, Work())


def test_a_tile_that_takes_the_overview_waits_for_it(atlases, monkeypatch):
    monkeypatch.setattr("glasshead.studio.atlas._AT_ONCE", 0)
    with pytest.raises(NotYet, match=r"needs an overview\. Compute it first"):
        atlases.tile(None, 0, 0, (2, 0, 0), Work())
    atlases.overview(None, 0, 0, Work())
    assert atlases.tile(None, 0, 0, (2, 0, 0), Work()).shape == (131, 254)


def test_what_nobody_waits_for_is_left(atlases):
    work = Work()
    work.cancel()
    with pytest.raises(Cancelled):
        atlases.tile(None, 0, 0, (0, 0, 0), work)
    with pytest.raises(Cancelled):
        atlases.overview(None, 0, 0, work)
    assert not atlases.atlas(None, 0, 0, Work()).ready


def open_anew(atlases):
    """Let the weights go, as where their file was written again, and ask for a map again."""
    atlases._studio.subject._open.clear()
    gc.collect()
    atlases.atlas(None, 0, 0, Work())
    gc.collect()


def test_few_maps_are_kept_and_no_longer_than_their_weights(atlases, monkeypatch):
    monkeypatch.setattr(atlas_kept, "MOST", 2)
    first = atlases.atlas(None, 0, 0, Work())
    assert atlases.atlas(None, 0, 1, Work()) is not first
    assert atlases.atlas(None, 0, 0, Work()) is first
    atlases.atlas(None, 0, 2, Work())
    assert atlases.atlas(None, 0, 0, Work()) is first
    gone = weakref.ref(first)
    del first
    open_anew(atlases)
    assert gone() is None


def test_the_map_of_a_matrix_without_heads_goes_with_its_weights(tmp_path):
    x = torch.randn(13, 5)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    atlases = Atlases(Studio(tmp_path / "kept.safetensors"))
    gone = weakref.ref(atlases.atlas(None, 0, 0, Work()))
    open_anew(atlases)
    assert gone() is None


def test_a_file_holds_all_tiles_of_the_levels_that_so_many_have_room_for(atlases, weights):
    answers = list(stored_atlas(atlases, None, [(1, 2), (0, 0)], Work(), tiles=7))
    told = {(path, *given.values()): answer for path, given, answer in answers}
    assert told["atlas/read",]["heads"] == {"1": [2], "0": [0]}
    # 3 x 4 tiles of single weights are too many; 2 x 2 and 1 are not.
    assert told["atlas/map", 1, 2]["finest"] == 1
    assert told["atlas/map", 1, 2]["ready"]
    tiles = [key for key in told if key[:3] == ("atlas/tile", 1, 2)]
    assert len(tiles) == 5
    expected = of_blocks(weights[1, 2], 1)[256:, :256].float()
    torch.testing.assert_close(told["atlas/tile", 1, 2, 1, 1, 0], expected, rtol=1e-5, atol=1e-7)
    coarsest = [
        given["level"]
        for path, given, _ in stored_atlas(atlases, None, [(0, 0)], Work(), tiles=0)
        if path == "atlas/tile"
    ]
    assert coarsest == [2]


SIZE = 4 * 25


def tile():
    return torch.zeros(5, 5)


def test_the_bound_holds_and_the_longest_unused_go_first():
    cache, made = TileCache(3 * SIZE + 1), []

    def get(key):
        cache.get(key, lambda: made.append(key) or tile())
        assert cache.size == len(cache) * SIZE <= cache.limit

    for key in "abcadaeb":
        get(key)
    assert "".join(made) == "abcdeb"
    cache.get("large", lambda: torch.zeros(10, 10))
    assert (len(cache), cache.size) == (3, 3 * SIZE)


def test_an_atlas_keeps_no_more_than_its_cache_may():
    cache = TileCache(3 * 2**18)
    atlas = Atlas(gh.Attention().weights(*inputs()).head(0, 0), cache)
    for row in range(3):
        for column in range(4):
            atlas.tile(0, row, column)
            assert cache.size <= cache.limit
    assert len(cache) >= 3


def run(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_many_ask_at_once_is_computed_once():
    cache, all_there, made, found = TileCache(), threading.Barrier(7), [], []

    def make():
        made.append(None)
        assert not threading.Event().wait(0.1)  # the others ask meanwhile
        return tile()

    def ask():
        all_there.wait()
        found.append(cache.get("a", make))

    run([threading.Thread(target=ask) for _ in range(7)])
    assert len(made) == 1
    assert all(one is found[0] for one in found)
    assert len(found) == 7


def test_who_waited_for_what_failed_computes_it():
    cache, begun, asked, found = TileCache(), threading.Event(), threading.Event(), []

    def fails():
        begun.set()
        asked.wait()
        raise Cancelled("gone")

    def first():
        with pytest.raises(Cancelled, match="gone"):
            cache.get("a", fails)
        found.append("refused")

    def second():
        begun.wait()
        found.append(cache.get("a", tile, lambda _: asked.set()))

    run([threading.Thread(target=first), threading.Thread(target=second)])
    assert "refused" in found
    assert len(found) == 2
    assert len(cache) == 1


def test_who_waits_may_go():
    cache, begun, go_on = TileCache(), threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait()
        return tile()

    maker = threading.Thread(target=cache.get, args=("a", slow))
    maker.start()
    begun.wait()
    with pytest.raises(Cancelled):
        cache.get("a", tile, lambda _: stop_if(lambda: True))
    go_on.set()
    maker.join()
    assert len(cache) == 1


@pytest.mark.parametrize(("limit", "error"), [(-1, ValueError), (1.5, TypeError)])
def test_a_limit_is_a_whole_number(limit, error):
    with pytest.raises(error, match=r"TileCache\(limit\) must be a whole number of at least 0"):
        TileCache(limit)

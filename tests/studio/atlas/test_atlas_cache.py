"""Tiles are kept within their bytes, the longest unused go, and none is computed twice at once."""

import threading

import pytest
import torch

import glasshead as gh
from glasshead.studio.atlas import Atlas
from glasshead.studio.atlas_tiles import TileCache, stop_if
from glasshead.studio.background_jobs import Cancelled
from studio.atlas.small_atlases import inputs

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
    with pytest.raises(error, match=r"TileCache\(limit\) takes a whole number of at least 0"):
        TileCache(limit)

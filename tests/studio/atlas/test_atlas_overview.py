"""The overview tells how far it is, ends when it is not wanted, and is made once."""

import subprocess
import sys
import threading

import pytest
import torch

import glasshead as gh
from glasshead.studio.atlas import Atlas
from glasshead.studio.atlas_tiles import Cancelled, run_parallel
from studio.atlas.small_atlases import inputs


class Counted:
    """Weights that count the parts of them that are computed."""

    def __init__(self, weights):
        self._weights, self._lock = weights, threading.Lock()
        self.parts = self.pairs = 0

    def __getattr__(self, name):
        return getattr(self._weights, name)

    def tile(self, rows, columns):
        with self._lock:
            self.parts += 1
            self.pairs += len(rows) * len(columns)
        return self._weights.tile(rows, columns)


def counted(mask=None):
    return Counted(gh.Attention(mask=mask or gh.causal()).weights(*inputs(521, 521)).head(1, 1))


@pytest.mark.usefixtures("finely")
def test_it_tells_the_share_of_the_work_that_is_done():
    told = []
    Atlas(counted()).overview(told.append)
    assert len(told) == -(-521 // 16) + 1
    assert told == sorted(told)
    assert told[-2:] == [1.0, 1.0]
    # 256 of 521 queries are the upper half of a triangle, a quarter of it.
    assert told[15] == pytest.approx(0.25, abs=0.03)


@pytest.mark.usefixtures("finely")
def test_what_nobody_sees_is_not_computed():
    weights = counted()
    Atlas(weights).overview()
    assert 521 * 522 / 2 < weights.pairs < 0.56 * 521**2
    weights = counted(gh.window(5))
    Atlas(weights).overview()
    assert weights.pairs < 0.1 * 521**2


@pytest.mark.usefixtures("finely")
def test_it_ends_when_it_is_cancelled_and_can_be_made_again():
    weights = counted()
    atlas = Atlas(weights)
    with pytest.raises(Cancelled, match="cancelled before it was done"):
        atlas.overview(cancelled=lambda: weights.parts > 20)
    # Each thread ends after the part that it is at.
    assert 20 < weights.parts <= 20 + 2 * torch.get_num_threads()
    assert not atlas.ready
    atlas.overview(cancelled=lambda: False)
    assert atlas.ready
    before = weights.parts
    told = []
    atlas.overview(told.append, cancelled=lambda: False)
    assert weights.parts == before
    assert told == [1.0]


@pytest.mark.usefixtures("finely")
def test_a_tile_ends_when_it_is_cancelled():
    weights = counted()
    atlas = Atlas(weights)
    with pytest.raises(Cancelled):
        atlas.tile(0, 0, 0, cancelled=lambda: True)
    assert weights.parts == 0
    with pytest.raises(Cancelled):
        atlas.tile(0, 1, 1, cancelled=lambda: weights.parts > 10)
    assert 10 < weights.parts <= 10 + 2 * torch.get_num_threads()
    P = weights.dense()[256:512, 256:512]
    torch.testing.assert_close(atlas.tile(0, 1, 1).double(), P, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("finely")
def test_who_asks_while_it_is_made_waits_or_goes():
    weights = counted()
    atlas, begun, go_on = Atlas(weights), threading.Event(), threading.Event()

    def first(_):
        begun.set()
        go_on.wait()

    maker = threading.Thread(target=atlas.overview, args=(first,))
    maker.start()
    begun.wait()
    looks = []
    with pytest.raises(Cancelled):
        atlas.overview(cancelled=lambda: looks.append(None) or len(looks) > 2)
    other = threading.Thread(target=atlas.overview)
    other.start()
    go_on.set()
    maker.join()
    other.join()
    assert atlas.ready
    once = counted()
    Atlas(once).overview()
    assert weights.parts == once.parts


def test_an_error_of_one_part_is_that_of_all_and_the_rest_is_left_out():
    done = []

    def work(number):
        if number == 3:
            raise KeyError(number)
        threading.Event().wait(0.01)
        done.append(number)

    with pytest.raises(KeyError):
        list(run_parallel(work, range(1000)))
    # What is asked for next comes after all that had been left.
    assert list(run_parallel(lambda number: -number, range(3))) == [0, -1, -2]
    assert len(done) < 500


def test_threads_of_its_own_leave_those_of_pytorch_alone():
    before = torch.get_num_threads()
    assert set(run_parallel(lambda _: torch.get_num_threads(), range(9))) == {1}
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *later] == [before] * 2


FORKED = """
import os, signal, sys
from glasshead.studio.atlas_tiles import run_parallel
before = list(run_parallel(abs, range(3)))
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(list(run_parallel(abs, range(3))) != before)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def test_a_child_process_has_threads_of_its_own():
    assert subprocess.run([sys.executable, "-c", FORKED], check=False).returncode == 0

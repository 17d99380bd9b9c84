"""Readings: each once for all who ask, within the memory, and those used last are kept."""

import contextlib
import threading

import pytest

from glasshead.studio.background_jobs import Cancelled, Work
from glasshead.studio.cache import SizedCache
from studio.asking import Asked, soon


class Sized:
    def __init__(self, size):
        self.size = size


def test_the_reading_that_was_used_longest_ago_is_forgotten_first():
    readings = SizedCache(10)
    for key in "abc":
        readings.get(key, lambda: Sized(3))
    kept = readings.get("a", lambda: pytest.fail("it is there"))
    assert kept.size == 3
    with readings.reserved(4):
        assert ["a" in readings, "b" in readings, "c" in readings] == [True, False, True]
        readings.get("d", lambda: Sized(4))
    assert "d" in readings
    assert "c" not in readings


@contextlib.contextmanager
def being_read(readings, *told):
    """Meanwhile somebody reads "a", who has told so much of it; what he has read, in the end."""
    work, begun, go, results = Work(), threading.Event(), threading.Event(), []

    def slow():
        for each in told:
            work.tell(*each)
        begun.set()
        assert go.wait(60)
        return Sized(1)

    reading = threading.Thread(target=lambda: results.append(readings.get("a", slow, work=work)))
    reading.start()
    try:
        assert begun.wait(60)
        yield results
    finally:
        go.set()
        reading.join(60)


def leave(readings):
    """Ask for "a" as somebody who does not wait any more."""
    gone = Work()
    gone.cancel()
    with pytest.raises(Cancelled):
        readings.get("a", lambda: pytest.fail("it is read once"), gone.follow, gone)


def test_who_asks_for_what_is_being_read_waits_for_it_and_is_told():
    readings, second, found = SizedCache(10), Asked(None), []

    def wait():
        once = lambda: pytest.fail("it is read once")  # noqa: E731 - it is not called
        found.append(readings.get("a", once, second.follow, second))

    waiting = threading.Thread(target=wait)
    with being_read(readings, ("heads.reading", 1, 3)) as results:
        waiting.start()
        assert soon(lambda: bool(second.told))
        leave(readings)
        assert not found
    waiting.join(60)
    assert set(second.told) == {("heads.reading", 1, 3)}
    assert found == results
    assert len(found) == 1


def test_who_waits_for_what_tells_nothing_may_leave():
    readings = SizedCache(10)
    with being_read(readings):
        leave(readings)


def test_who_waits_reads_himself_where_the_first_has_left():
    readings = SizedCache(10)
    with pytest.raises(Cancelled):
        readings.get("a", _leave)
    assert readings.get("a", lambda: Sized(2)).size == 2


def _leave():
    raise Cancelled

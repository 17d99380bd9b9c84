"""Ctrl-C at any line of a call that threads share arrives, and no result is partial."""

import sys
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.engines.streaming import passes
from glasshead.engines.streaming import threads as workers

FOLDER = str(Path(workers.__file__).parent)
# The sink keeps it from being a plain call.
ATTENTION = gh.Attention(normalizer=gh.SoftmaxOne(0.0), mask=gh.causal(), engine="streaming")

pytestmark = [
    # Where ctypes ignores an error, it says so.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(workers._openmp() is None, reason="there is no OpenMP that calls back"),
]


@pytest.fixture
def inputs(monkeypatch):
    # Python hands units of long calls to the kernels, in each thread.
    monkeypatch.setattr(passes, "LONGEST", 2**20)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield torch.randn(3, 1, 5, 601, 32).unbind(0)
    torch.set_num_threads(before)


def interrupted(place, call):
    """Call with an interrupt at the given event of this thread; whether there was so many."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        del argument
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        if event in ("call", "line"):
            seen += 1
            if seen == place:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        arrived = True
    else:
        arrived = False
    finally:
        sys.settrace(before)
    assert arrived == (seen >= place), f"of the interrupt at event {place} nothing was heard"
    return arrived


# Steps that have no factor in common, so that each run begins elsewhere.
@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_at_any_line_arrives(inputs, step):
    expected = ATTENTION(*inputs)
    place = 1
    while interrupted(place, lambda: ATTENTION(*inputs)):
        place += step
    assert place > 150
    assert torch.equal(ATTENTION(*inputs), expected)


@pytest.mark.parametrize("late", [False, True])
def test_a_second_interrupt_while_the_first_is_handled_gives_no_partial_result(
    inputs, monkeypatch, late
):
    expected, end = ATTENTION(*inputs), workers._Shared.end

    def interrupted_end(shared):
        if late:
            end(shared)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers._Shared, "end", interrupted_end)
    for place in range(100, 200, 7):
        interrupted(place, lambda: ATTENTION(*inputs))
    monkeypatch.undo()
    assert torch.equal(ATTENTION(*inputs), expected)


def test_work_that_was_not_finished_is_no_result():
    with pytest.raises(RuntimeError, match="of 7 units of work 0 were finished"):
        workers.share(range(7), next, 3)

"""An interrupt at any line of a watch or an intervention leaves nothing behind."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

import glasshead as gh
import glasshead.watching
from glasshead.watching.interception.session import THREADS
from watching.torch.explicit import nothing_is_open

HOME = str(Path(glasshead.watching.__file__).parent)
PASSES = 3


class Named(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class ByAnotherName(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch._C._nn.scaled_dot_product_attention(x, x, x)


class ByHand(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ x.mT, -1) @ x


class Steps(nn.Sequential):
    """Attention through functions in each pass, and in the last one also by hand."""

    def __init__(self) -> None:
        super().__init__(Named(), ByAnotherName(), ByHand())
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        x = self[1](self[0](x))
        return self[2](x) if self.passes == PASSES else x


def watched() -> list[int]:
    """Watch a few passes; return how many calls each attention was seen to have."""
    model = Steps()
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(PASSES):
            model(torch.ones(2, 3, 5, 7))
    return [len(one) for one in seen.values()]


def ablated() -> None:
    model = Named()
    with gh.ablate(model, {"": [1]}):
        model(torch.ones(2, 3, 5, 7))


def nested() -> None:
    model = Named()
    with gh.watch(model, [gh.Entropy()]):
        ablated()
        model(torch.ones(2, 3, 5, 7))


@contextmanager
def interrupted(where: Callable[[FrameType], bool], home: str) -> Iterator[None]:
    """Raise a KeyboardInterrupt at the first line of a file or folder that a function selects."""

    def line(frame: FrameType, event: str, given: Any) -> Any:
        if event == "line" and where(frame):
            # The error ends tracing.
            raise KeyboardInterrupt
        return line

    def call(frame: FrameType, event: str, given: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(home) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def lines(run: Callable[[], object]) -> list[tuple[str, int, int]]:
    """Return where to interrupt a run: each line the first and the last time that it is reached."""
    reached: dict[tuple[str, int], int] = {}

    def count(frame: FrameType) -> bool:
        place = frame.f_code.co_filename, frame.f_lineno
        reached[place] = reached.get(place, 0) + 1
        return False

    with interrupted(count, HOME):
        run()
    return [(*place, n) for place, last in reached.items() for n in sorted({1, last})]


def leaves_nothing(run: Callable[[], object], file: str, number: int, times: int) -> bool:
    """Interrupt a run at a line, and return whether the next watch is as if it had not been."""
    left = times

    def where(frame: FrameType) -> bool:
        nonlocal left
        left -= frame.f_lineno == number
        return left == 0

    try:
        with interrupted(where, file):
            run()
    except KeyboardInterrupt:
        pass
    finally:
        # A block of PyTorch's own.
        torch.set_grad_enabled(True)
    clean = nothing_is_open() and not _get_current_function_mode_stack()
    return clean and not THREADS.opened and watched() == [PASSES, PASSES, 1]


@pytest.mark.parametrize("run", [watched, ablated, nested])
@pytest.mark.parametrize("share", [pytest.param(23, marks=pytest.mark.slow), 61])
def test_an_interrupt_at_any_line_leaves_nothing(run, share):
    run()
    places = lines(run)
    assert len(places) > 100
    failed = [place for place in places[::share] if not leaves_nothing(run, *place)]
    assert not failed

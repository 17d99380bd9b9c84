"""How the program ends: exit codes, Ctrl-C, and threads that would go on."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

DONE, CLOSED_PIPE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_IMPORTING = "<frozen importlib._bootstrap>"


@contextmanager
def interruptible() -> Iterator[None]:
    """End this process at a Ctrl-C that meets an import; elsewhere, raise a KeyboardInterrupt.

    Libraries that start others from C, as torch does numpy, take a KeyboardInterrupt for a library
    that is missing, and go on without it: the interruption would be lost, or become a traceback.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


_PATIENCE = 0.5


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """End the process at an interruption where a thread does not end soon by itself.

    A thread deep in a product of matrices sees no interruption; Python would wait for it, or take
    its interpreter away under it.
    """
    try:
        yield
    except KeyboardInterrupt:
        if _goes_on():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise


def _goes_on() -> bool:
    end = time.monotonic() + _PATIENCE
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    return any(thread.is_alive() for thread in others)

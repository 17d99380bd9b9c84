"""Leaving: the process ends when it is asked to, whatever its threads are doing."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from glasshead.cli.interrupting import INTERRUPTED

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

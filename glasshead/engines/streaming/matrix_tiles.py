"""Matrix tiles of the processor (AMX): whether this process may take them."""

import ctypes
import os
import sys
from functools import cache

from glasshead.engines.streaming.kernels import processor

# Of Linux on x86-64: the system call, its operation, and the state of the tiles.
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


def are_there() -> bool:
    """Return whether the processor and its machine code have products on matrix tiles."""
    needed = processor.MATRIX_TILES
    return processor.at_hand().matrix_tiles and all(map(processor.has, needed))


def refusal() -> str | None:
    """Return why products of bfloat16 are not computed on matrix tiles; None if they are.

    Linux is asked for permission once per process, by the first call that needs it. The permission
    is valid for the whole process, inherited by fork(2), and cleared by exec(3).
    """
    if not are_there():
        return "this processor has no matrix tiles (AMX)"
    if not sys.platform.startswith("linux"):
        return "only Linux is asked for matrix tiles (AMX)"
    number = _request()
    if number:
        # ENOSPC where the signal stack of a thread is too small for the tiles.
        return f"the system does not permit matrix tiles (AMX): {os.strerror(number)}"
    return None


@cache
def _request() -> int:
    """Ask for the state of the tiles, and return 0 or the number of an error."""
    system = ctypes.CDLL(None, use_errno=True)
    done = system.syscall(_ARCH_PRCTL, ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA))
    return ctypes.get_errno() if done else 0

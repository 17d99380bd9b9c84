"""The processor time that other programs take while this one measures."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# macOS: the flavor of `host_statistics` that counts ticks of all processors, and their frequency.
_HOST_CPU_LOAD_INFO, _MACH_TICKS = 3, 100


class Reading(NamedTuple):
    """Clocks at one moment, in seconds.

    Attributes:
        wall: A clock that never goes back.
        own: Processor time of this process.
        system: Busy and idle time of the processors that this process may use, summed; None if the
            system does not report it.
        processors: How many these are.
    """

    wall: float
    own: float
    system: tuple[float, float] | None
    processors: int


def reading() -> Reading:
    """Read the clocks of this process and of the system."""
    try:
        found = _of_linux() if sys.platform == "linux" else _of_macos()
    except (OSError, ValueError, AttributeError):
        found = None
    system, processors = found or (None, os.cpu_count() or 1)
    return Reading(time.perf_counter(), time.process_time(), system, processors)


class Stretch(NamedTuple):
    """The time between two readings.

    Attributes:
        wall: Its seconds.
        taken: How many processors other programs, or other virtual machines, kept busy; None if
            the system does not report it.
    """

    wall: float
    taken: float | None

    def disturbed(self, limit: float) -> bool:
        """Return whether others are known to have taken more than so many processors."""
        return self.taken is not None and self.taken > limit


def between(before: Reading, after: Reading) -> Stretch:
    """Return what other programs took between two readings.

    >>> between(Reading(0, 0, (10, 30), 2), Reading(3, 2, (15, 31), 2))
    Stretch(wall=3, taken=1.0)
    """
    wall = after.wall - before.wall
    if before.system is None or after.system is None:
        return Stretch(wall, None)
    busy, idle = (then - now for now, then in zip(before.system, after.system, strict=True))
    # The counters of some containers stand still.
    if not 0.5 < (busy + idle) / max(wall * after.processors, 1e-9) < 1.5:
        return Stretch(wall, None)
    return Stretch(wall, max(busy - (after.own - before.own), 0.0) / wall)


def mean_taken(stretches: Sequence[Stretch]) -> float:
    """Return how many processors others kept busy in stretches in which that is known."""
    taken = sum(one.wall * one.taken for one in stretches if one.taken is not None)
    return taken / sum(one.wall for one in stretches if one.taken is not None)


def _of_linux() -> tuple[tuple[float, float], int] | None:
    """Return busy and idle seconds of the processors at hand; time stolen from a guest is busy."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = map(str.split, Path("/proc/stat").read_text(encoding="ascii").splitlines())
    # user, nice, system, idle, iowait, irq, softirq, steal; a guest's are in user's already.
    rows = [list(map(int, line[1:9])) for line in lines if line and line[0] in mine]
    if not rows:
        return None
    second, idle = os.sysconf("SC_CLK_TCK"), sum(sum(row[3:5]) for row in rows)
    return ((sum(map(sum, rows)) - idle) / second, idle / second), len(rows)


def _of_macos() -> tuple[tuple[float, float], int] | None:
    """Return busy and idle seconds of all processors, as the Mach kernel counts them."""
    if sys.platform != "darwin":
        return None
    import ctypes

    system = ctypes.CDLL(None)
    ticks, count = (ctypes.c_uint32 * 4)(), ctypes.c_uint32(4)
    host = system.mach_host_self()
    if system.host_statistics(host, _HOST_CPU_LOAD_INFO, ticks, ctypes.byref(count)):
        return None
    user, kernel, idle, nice = ticks
    return ((user + kernel + nice) / _MACH_TICKS, idle / _MACH_TICKS), os.cpu_count() or 1

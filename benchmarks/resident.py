"""Resident memory on Linux: of this process now and at its peak, and of one of its own."""

import ctypes
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pairs import Figure, figure


def resident(field: str) -> int:
    """Resident memory in bytes: now (`VmRSS`) or at its peak (`VmHWM`).

    `ru_maxrss` of `getrusage` would also remember the process that started this one.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}: memory is measured on Linux.")


def reset_peak() -> None:
    """Give back what malloc keeps, and let the peak be what there is now."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak_of_child(script: str, kind: str, length: int) -> int:
    """The bytes that `python SCRIPT memory KIND LENGTH` prints, which held them at its peak.

    The median of three processes, because the heap of each is laid out by chance.
    """
    command = [sys.executable, script, "memory", kind, str(length)]
    printed = (
        subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(3)
    )
    return statistics.median_low(int(one.split()[-1]) for one in printed)


def against_eager(script: str, kinds: Sequence[str], size: int, than: str) -> list[Figure]:
    """What ours and eager hold at the peak beyond a process of kind "plain", and their ratio."""
    peaks = {kind: peak_of_child(script, kind, size) for kind in kinds}
    ours, eager = (peaks[kind] - peaks["plain"] for kind in ("ours", "eager"))
    about = f"more at the peak than {than} alone"
    return [
        figure("ours", ours / 2**20, "MiB", about=about),
        figure("eager", eager / 2**20, "MiB", about=about),
        figure("ours against eager", ours / eager, "×", at_most=0.1),
    ]

"""Out-of-memory errors, and how much memory is available."""

import re
from pathlib import Path

try:
    import resource
except ImportError:  # there is none on Windows
    resource = None

# On a GPU, on a CPU, and on a CPU of Windows.
_OF_PYTORCH = re.compile("out of memory|can't allocate memory|not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python or PyTorch says that memory could not be allocated.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"))
    True
    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: not enough memory: you tried …"))
    True
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OF_PYTORCH.search(str(error)) is not None


def available_memory() -> int | None:
    """Return how many bytes this process may still allocate, or None if it is not known."""
    limits = [_of_machine(), _of_group(), _of_process()]
    return min((one for one in limits if one is not None), default=None)


def _of_machine() -> int | None:
    """Return the memory that the machine has free or in caches."""
    kilobytes = re.findall(
        r"^(?:MemAvailable|SwapFree): *(\d+) kB", _text("/proc/meminfo"), re.MULTILINE
    )
    return 1024 * sum(map(int, kilobytes)) if kilobytes else None


def _of_group() -> int | None:
    """Return the memory that a container's limit leaves."""
    most = _text("/sys/fs/cgroup/memory.max").strip()
    used = re.search(r"^anon (\d+)", _text("/sys/fs/cgroup/memory.stat"), re.MULTILINE)
    return max(0, int(most) - int(used[1])) if most.isdigit() and used else None


def _of_process() -> int | None:
    """Return the memory that `ulimit -v` leaves."""
    size = _text("/proc/self/statm").split()
    if resource is None or not size:
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    left = most - int(size[0]) * resource.getpagesize()
    return None if most == resource.RLIM_INFINITY else max(0, left)


def _text(file: str) -> str:
    """Read a file of the system, or return "" where there is none."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:
        return ""

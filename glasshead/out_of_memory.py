"""Out of memory: the one fault of which a smaller task is the remedy."""

import re
from pathlib import Path

try:
    import resource
except ImportError:  # there is none on Windows
    resource = None

_OF_PYTORCH = re.compile("out of memory|can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or PyTorch, which has a RuntimeError for it, could not get the memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"))
    True
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OF_PYTORCH.search(str(error)) is not None


def available_memory() -> int | None:
    """Return how many bytes this process may still take, as far as the system tells; else None."""
    told = [_of_machine(), _of_group(), _of_process()]
    return min((one for one in told if one is not None), default=None)


def _of_machine() -> int | None:
    """What is free, or would be given up by caches."""
    kilobytes = re.findall(
        r"^(?:MemAvailable|SwapFree): *(\d+) kB", _text("/proc/meminfo"), re.MULTILINE
    )
    return 1024 * sum(map(int, kilobytes)) if kilobytes else None


def _of_group() -> int | None:
    """What a container leaves."""
    most = _text("/sys/fs/cgroup/memory.max").strip()
    used = re.search(r"^anon (\d+)", _text("/sys/fs/cgroup/memory.stat"), re.MULTILINE)
    return max(0, int(most) - int(used[1])) if most.isdigit() and used else None


def _of_process() -> int | None:
    """What `ulimit -v` leaves."""
    size = _text("/proc/self/statm").split()
    if resource is None or not size:
        return None
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    left = most - int(size[0]) * resource.getpagesize()
    return None if most == resource.RLIM_INFINITY else max(0, left)


def _text(file: str) -> str:
    """What a file of the system says; nothing where there is none."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError:
        return ""

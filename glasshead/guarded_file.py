"""Files that are read only where they are regular, and no larger than their kind may be.

A named pipe would be waited for, and a device may never end. So may what the kernel makes while it
is read, as /proc/kmsg, which says that it is a regular file of no bytes: such are refused, and no
more is read of any file than it says that it has.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

# The most bytes of each kind of file. The largest in use: an index of weights has 14 MB, a
# tokenizer 35 MB.
JSON_BYTES, TOKENIZER_BYTES, LOG_BYTES = 2**25, 2**26, 2**28

_OF_THE_KERNEL = (Path("/proc"), Path("/sys"))
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(file: Path, most: int | None = None) -> os.stat_result:
    """Raise where a file, or what a link leads to, is not regular or is too large.

    For libraries that open a file by its name; `read_regular` and `open_regular` check by
    themselves.

    Args:
        file: Which one.
        most: How many bytes it may have; None: any number.

    Returns: what the file system tells of it.

    Errors: an OSError whose `strerror` says what is wrong, as of `os.stat` too.

    >>> check_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] it is a device, not a regular file: '/dev/null'
    """
    return _checked(os.stat(file), file, most)  # noqa: PTH116 - as os.fstat below


def open_regular(file: Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading, without ever waiting for one that is not regular.

    Errors: as of `check_regular`, and an OSError where it cannot be opened.
    """
    # Before it is opened, which alone makes some devices do something.
    check_regular(file, most)
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        # Another may have taken its place since.
        _checked(os.fstat(descriptor), file, most)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(file: Path, most: int | None = None, count: int | None = None) -> bytes:
    """Read the bytes of a file, or the first `count` of them.

    Errors: as of `open_regular`.
    """
    with open_regular(file, most) as opened:
        size = os.fstat(opened.fileno()).st_size
        return opened.read(size if count is None else min(count, size))


def _checked(state: os.stat_result, file: Path, most: int | None) -> os.stat_result:
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if kind != stat.S_IFREG:
        name = _KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"it is {name}, not a regular file", str(file))
    if not state.st_size and any(file.resolve().is_relative_to(made) for made in _OF_THE_KERNEL):
        raise OSError(errno.EINVAL, "it is made by the kernel, not a regular file", str(file))
    if most is not None and state.st_size > most:
        raise OSError(
            errno.EFBIG, f"it has {state.st_size:,} bytes, and takes at most {most:,}", str(file)
        )
    return state

"""Guarded file access: regular files only, bounded sizes, atomic writes, JSON objects."""

import errno
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from glasshead.drawing.printable import printable

# The most bytes of each kind of file. The largest in use: an index of weights has 14 MB, a
# tokenizer 35 MB.
JSON_BYTES, TOKENIZER_BYTES, LOG_BYTES = 2**25, 2**26, 2**28

# Windows has no such flag, and opens files and pipes at once.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
# Seconds between tries to replace a file that another program reads, as Windows keeps it meanwhile.
_PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0)

_OF_THE_KERNEL = (Path("/proc"), Path("/sys"))
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_regular(file: Path, most: int | None = None) -> os.stat_result:
    """Check that a file, or the target of a link, is regular and not too large.

    For libraries that open a file by its name; `read_regular` and `open_regular` check by
    themselves.

    Args:
        file: Which one.
        most: How many bytes it may have; None: any number.

    Returns: the result of `os.stat`.

    Errors: an OSError whose `strerror` says what is wrong, as of `os.stat` too.

    >>> check_regular(Path(os.devnull))
    Traceback (most recent call last):
    OSError: [Errno 22] it is a device, not a regular file: ...
    """
    return _checked(os.stat(file), file, most)  # noqa: PTH116 - as os.fstat below


def open_regular(file: Path, most: int | None = None) -> BinaryIO:
    """Open a file for reading, without ever waiting for one that is not regular.

    Errors: as of `check_regular`, and an OSError where it cannot be opened.
    """
    # Checked before it is opened, as opening some devices has effects.
    check_regular(file, most)
    descriptor = opened_at_once(file, os.O_RDONLY)
    try:
        # Checked again, as it may have been replaced meanwhile.
        _checked(os.fstat(descriptor), file, most)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def opened_at_once(file: str | Path, flags: int) -> int:
    """Open a file or a named pipe without waiting for a writer, and return its descriptor.

    Reading it then waits for a writer who is there, but has sent nothing yet.
    """
    descriptor = os.open(file, flags | _AT_ONCE)
    # On Windows, a regular file cannot be asked to block, as it always does.
    if _AT_ONCE:
        os.set_blocking(descriptor, True)
    return descriptor


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
            errno.EFBIG,
            f"it has {state.st_size:,} bytes, more than the {most:,} that are allowed",
            str(file),
        )
    return state


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends without an error.

    Until then an older file stays as it was, and whatever happens nothing is left beside it. A link
    stays a link, and who may read the older file may read the new one.

    Errors: an OSError, as the file system words it; another where a device or a pipe would be
    replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "words.txt") as temporary:
    ...         _ = temporary.write_text("Hello shiny sun!")
    ...     [file.name for file in Path(folder).iterdir()]
    ['words.txt']
    """
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, "its links lead in a circle", str(path))
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "a file that is not regular is there", str(path))
    temporary = place.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        temporary.touch()
        mode = stat.S_IMODE((place if place.exists() else temporary).stat().st_mode)
        yield temporary
        temporary.chmod(mode)
        _move(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _move(temporary: Path, place: Path) -> None:
    """Move a file to its place; on Windows, wait for those who read the older one, but not long."""
    for pause in _PAUSES if sys.platform == "win32" else ():
        try:
            temporary.replace(place)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    temporary.replace(place)


def read_object(file: Path, otherwise: str) -> dict[str, Any]:
    """Read a JSON object from a file.

    Args:
        file: Which one.
        otherwise: The alternative to mending it, for the error.

    Errors: a ValueError that names the file, and the line where there is one, where it holds none;
    an OSError where it cannot be read, or is no regular file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "config.json"
    >>> _ = file.write_text('{"steps": 3}')
    >>> read_object(file, "train again")
    {'steps': 3}
    """
    name = printable(str(file))
    try:
        value = json.loads(read_regular(file, JSON_BYTES).decode())
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{name} is broken JSON in line {error.lineno} ({error.msg}). Fix it, or {otherwise}."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text. Fix it, or {otherwise}.") from error
    except (ValueError, RecursionError) as error:
        # Brackets nested too deeply, or a number of thousands of digits.
        raise ValueError(f"{name} is broken JSON ({error}). Fix it, or {otherwise}.") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {name}. Check the folder's name.") from error
    except OSError as error:
        raise type(error)(
            f"{name} cannot be read ({error.strerror}). Fix it, or {otherwise}."
        ) from error
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - what the file has is a value
            f"{name} must hold a JSON object, got {type(value).__name__}. "
            f"{otherwise[0].upper() + otherwise[1:]}."
        )
    return value

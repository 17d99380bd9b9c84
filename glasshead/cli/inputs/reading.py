"""Reading: the bytes of a file that a user names."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from glasshead.cli.inputs.naming import STANDARD_INPUT
from glasshead.drawing.printable import printable
from glasshead.guarded_file import open_regular
from glasshead.tasks.data import files

# More than this is no table for a reader, and a pipe may never end.
_MOST_BYTES = 2**30


def shown(path: Path) -> str:
    """A path as errors show it."""
    return "standard input" if path == STANDARD_INPUT else printable(str(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, or of standard input.

    Errors: an OSError, worded for the user, where it is not there, is a folder or a device, or
    cannot be read; a ValueError where it is larger than 1 GiB, or a pipe that nobody fills.
    """
    try:
        with _opened(path) as file:
            state = os.fstat(file.fileno())
            # What a regular file says that it has is all that is read of it.
            size = state.st_size if stat.S_ISREG(state.st_mode) else _MOST_BYTES + 1
            too_large = stat.S_ISREG(state.st_mode) and size > _MOST_BYTES
            content = b"" if too_large else file.read(size)
            is_pipe = stat.S_ISFIFO(state.st_mode)
    except FileNotFoundError as error:
        parent = path.parent
        hint = "check its name" if parent.is_dir() else f"there is no folder {shown(parent)} either"
        raise FileNotFoundError(f"there is no file {shown(path)}: {hint}.") from error
    except IsADirectoryError as error:
        raise IsADirectoryError(f"{shown(path)} is a folder: name a file in it.") from error
    except PermissionError as error:
        raise PermissionError(
            f"{shown(path)} may not be read by this user: change its permissions."
        ) from error
    except OSError as error:
        raise OSError(f"{shown(path)} cannot be read: {error.strerror}.") from error
    if too_large or len(content) > _MOST_BYTES:
        raise ValueError(
            f"expected at most 1 GiB, and {shown(path)} is larger, or never ends: keep only what "
            f"you need of it."
        )
    if is_pipe and not content:
        raise ValueError(
            f"expected a file, and {shown(path)} is a pipe into which nobody writes: fill it "
            f"first, or name a file."
        )
    return content


def _opened(path: Path) -> BinaryIO:
    if path == STANDARD_INPUT:
        return _standard_input()
    state = path.stat()
    if stat.S_ISFIFO(state.st_mode):
        return open(path, "rb", opener=_at_once)
    # /dev/stdin is another name of a terminal.
    if stat.S_ISCHR(state.st_mode) and sys.stdin is not None and _is(0, state):
        return _standard_input()
    return open_regular(path)


def _standard_input() -> BinaryIO:
    # Of devices a terminal ends, and what is nothing.
    if stat.S_ISCHR(os.fstat(0).st_mode) and not (os.isatty(0) or _is(0, Path(os.devnull).stat())):
        raise OSError(errno.EINVAL, "it is a device, not a file")
    return open(0, "rb", closefd=False)


def _is(descriptor: int, state: os.stat_result) -> bool:
    return os.path.samestat(os.fstat(descriptor), state)


def _at_once(name: str, flags: int) -> int:
    """Open a file; a pipe too, which would otherwise wait for somebody to write into it."""
    descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    # A writer who is there, but has sent nothing yet, is waited for.
    os.set_blocking(descriptor, True)
    return descriptor


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark; .gz and .xz are unpacked.

    Errors: as for `read_bytes`, and a ValueError that names the line where it is not UTF-8, or
    where a file is not packed as its name says.
    """
    if path != STANDARD_INPUT and files.packing(path):
        return files.read_text(files.existing(path))
    content = read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, and got the byte "
            f"0x{content[error.start]:02x}: save the file as UTF-8."
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, and got the byte 0x00: save the "
            f"file as UTF-8."
        )
    return text

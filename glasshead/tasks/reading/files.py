"""Files: what a name stands for, and the text that is in it."""

import gzip
import lzma
import os
import zlib
from pathlib import Path
from typing import BinaryIO

from glasshead.drawing.printable import printable

FileName = str | os.PathLike[str]

_OPEN = {".gz": gzip.open, ".xz": lzma.open}
# What gzip and lzma raise for bytes that are not theirs, or that end too early.
_BROKEN = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)


def shown(path: Path) -> str:
    """A path as errors show it."""
    return printable(str(path))


def existing(name: FileName) -> Path:
    """The path of a file, which is there.

    Errors: an OSError where it is not there, a folder, or neither; a ValueError for an empty name
    and for -, which would be standard input.

    >>> existing("-")
    Traceback (most recent call last):
    ValueError: expected the name of a file, and got '-': standard input is not read, name a file.
    """
    if os.fspath(name) in {"", "-"}:
        hint = "standard input is not read, name a file." if name else "name one."
        raise ValueError(f"expected the name of a file, and got {os.fspath(name)!r}: {hint}")
    path = Path(name)
    try:
        there, folder, ordinary = path.exists(), path.is_dir(), path.is_file()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not there:
        parent = path.parent
        hint = "check its name" if parent.is_dir() else f"there is no folder {shown(parent)}"
        raise FileNotFoundError(f"there is no file {shown(path)}: {hint}.")
    if folder:
        raise IsADirectoryError(f"{shown(path)} is a folder: name a file in it.")
    if not ordinary:
        raise OSError(f"{shown(path)} is no ordinary file: write it to one, and name that.")
    return path


def ending(path: Path) -> str:
    """How the name ends, in small letters, without the .gz or .xz of a packed file.

    >>> ending(Path("reviews.JSONL.xz")), ending(Path("train.de"))
    ('.jsonl', '.de')
    """
    unpacked = path.with_suffix("") if packing(path) else path
    return unpacked.suffix.lower()


def packing(path: Path) -> str:
    """How a file is packed, ".gz" or ".xz"; "" where it is not."""
    suffix = path.suffix.lower()
    return suffix if suffix in _OPEN else ""


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked, to be read and closed."""
    return _OPEN.get(packing(path), open)(path, "rb")  # type: ignore[return-value]


def read_text(path: Path) -> str:
    """All characters of a UTF-8 file as they are, but for a byte order mark.

    Errors: a ValueError where it is empty, is not packed as its name says, or is not UTF-8, with
    the line; an OSError where it cannot be read.
    """
    try:
        with opened(path) as file:
            content = file.read()
    except _BROKEN as error:
        raise ValueError(
            f"{shown(path)} is no whole {packing(path)} file ({error}): pack it again."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    text = _decoded(path, content)
    if not text.strip():
        raise ValueError(f"{shown(path)} is empty: name a file with text in it.")
    return text


def _decoded(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
        place = content.find(b"\0")
    except UnicodeDecodeError as error:
        text, place = "", error.start
        # A mark at the beginning was taken off, and not counted.
        place += 3 if content.startswith(b"\xef\xbb\xbf") else 0
    if place >= 0:
        line = content.count(b"\n", 0, place) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, and got the byte "
            f"0x{content[place]:02x}: save the file as UTF-8."
        )
    return text


def _unreadable(path: Path, error: OSError) -> OSError:
    return type(error)(
        f"{shown(path)} cannot be read ({error.strerror or error}): check the file and its "
        f"permissions."
    )

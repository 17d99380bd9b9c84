"""The user's text files, read no further than is allowed."""

import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from glasshead.drawing.printable import printable
from glasshead.files import check_regular, open_regular

FileName = str | os.PathLike[str]

SETTING = "GLASSHEAD_MAX_TEXT_BYTES"
_MOST = 2**30
# How many times its own size a packed file may hold, and how much it may in any case.
_TIMES, _SMALL = 100, 2**26
# A row or a line takes memory beside its characters, and is counted so.
_OF_A_LINE = 128
LONGEST_LINE = 2**25

_PACKINGS = (".gz", ".xz")
_BLOCK = 2**18
# What xz takes to unpack what `xz -9` has packed is 65 MiB.
_XZ_MEMORY = 2**28
# What gzip and lzma raise for bytes that are not theirs, or that end too early.
_BROKEN = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)


class Allowance:
    """How much text the files that are read together may still hold, once it is unpacked.

    It is 1 GiB, or what the environment variable GLASSHEAD_MAX_TEXT_BYTES says; each line counts
    for 128 bytes beside its own. Where nothing is said, a packed file holds at most 100 times as
    many bytes as it has, or 64 MiB: text is packed to a tenth, and what is packed to a thousandth
    is to fill the memory.

    Args:
        most: Another number of bytes.

    Errors: a ValueError where the variable is no whole number.
    """

    def __init__(self, most: int | None = None) -> None:
        said = _said() if most is None else most
        self.most = self._left = _MOST if said is None else said
        self._times = _TIMES if said is None else None

    def spend(self, count: int, path: Path) -> None:
        """Take note of bytes that were read; raise a ValueError where they are too many."""
        self._left -= count
        if self._left < 0:
            raise ValueError(
                f"{shown(path)} holds too much text, as at most {self.most:,} bytes are read of "
                f"all files together once they are unpacked: give less, or allow more by the "
                f"environment variable {SETTING}."
            )

    def check_packed(self, count: int, size: int, path: Path) -> None:
        """Raise a ValueError where a file of some size has unpacked to too many bytes."""
        if self._times is not None and count > (most := max(_SMALL, self._times * size)):
            raise ValueError(
                f"{shown(path)} unpacks to more than {most:,} bytes, though it has {size:,}: "
                f"unpack it first, or allow as many bytes as it holds by the environment variable "
                f"{SETTING}."
            )

    def check(self, count: int, path: Path) -> None:
        """Raise a ValueError where as many bytes would be too many, before any is read."""
        if count > self._left:
            self.spend(count, path)


def _said() -> int | None:
    written = os.environ.get(SETTING, "").strip()
    if not written:
        return None
    if not (written.isascii() and written.isdecimal() and 0 < len(written) <= 18):
        raise ValueError(
            f"{SETTING} takes a whole number of bytes, as in {_MOST}, and got "
            f"{printable(written[:40])!r}: correct or unset it."
        )
    return int(written)


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
    return suffix if suffix in _PACKINGS else ""


def read_text(path: Path, allowance: Allowance | None = None, most: int | None = None) -> str:
    """All characters of a UTF-8 file as they are, but for a byte order mark.

    Args:
        path: The file.
        allowance: How much may be read, with other files; None: of this one alone.
        most: How many bytes the file itself may have; None: any number.

    Errors: a ValueError where it is empty, holds more than is allowed, is not packed as its name
    says, or is not UTF-8, with the line; an OSError where it cannot be read.
    """
    count = _measured(path, allowance or Allowance(most), most=most)
    content = bytearray()
    for block in _again(path, count):
        content += block
    text = content.decode("utf-8-sig")
    if not text or text.isspace():
        raise _empty(path)
    return text


def lines_of(path: Path, allowance: Allowance | None = None, newline: str = "\n") -> Iterator[str]:
    r"""The lines of a UTF-8 file with their ends, of which one at a time is held.

    Args:
        path: The file.
        allowance: How much may be read, with other files; None: of this one alone.
        newline: What ends a line; "": "\n", "\r\n" and "\r".

    Errors: as of `read_text`, and a ValueError for a line of more than 32 MiB.
    """
    count = _measured(path, allowance or Allowance(), of_a_line=_OF_A_LINE)
    blank = True
    stream = io.BufferedReader(_Stream(_again(path, count)), _BLOCK)
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline=newline) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise too_long(path, number)
            blank = blank and line.isspace()
            yield line
    if blank:
        raise _empty(path)


def too_long(path: Path, line: int) -> ValueError:
    """What is wrong with a file of which a line, or a row, does not end."""
    return ValueError(
        f"{shown(path)}, line {line}: expected lines of at most {LONGEST_LINE:,} characters, and "
        f"got a longer one: break it, or close the quotes that hold it together."
    )


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file to read from."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] - any that is written
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        self._blocks.close()  # type: ignore[attr-defined] - that of a generator
        super().close()


def _measured(
    path: Path, allowance: Allowance, *, most: int | None = None, of_a_line: int = 0
) -> int:
    """How many bytes a file has once it is unpacked, all of which are allowed and UTF-8.

    Nothing of it is held, so that a small file which unpacks to a large one takes no memory.
    """
    decoder, line, count = codecs.getincrementaldecoder("utf-8")(), 1, 0
    try:
        size = check_regular(path, most).st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if not packing(path):
        allowance.check(size, path)
    for block in _blocks(path):
        lines = block.count(b"\n")
        count += len(block)
        allowance.spend(len(block) + of_a_line * lines, path)
        if packing(path):
            allowance.check_packed(count, size, path)
        _check(path, decoder, block, line)
        line += lines
    _check(path, decoder, b"", line)
    return count


def _again(path: Path, count: int) -> Iterator[bytes]:
    """The bytes of a file that was measured."""
    for block in _blocks(path):
        count -= len(block)
        if count < 0:
            raise ValueError(f"{shown(path)} has grown while it was read: read it again.")
        yield block


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, unpacked."""
    try:
        with open_regular(path) as file:
            yield from _unpacked(file, packing(path))
    except _BROKEN as error:
        raise ValueError(
            f"{shown(path)} is no whole {packing(path)} file ({error}): pack it again."
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _check(path: Path, decoder: codecs.IncrementalDecoder, block: bytes, line: int) -> None:
    """Raise where a block, which begins on a line, goes on with what is not UTF-8 text."""
    content, place = block, block.find(b"\0")
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        # The beginning of a character may be that of the block before.
        if place < 0 or error.start < place:
            content, place = error.object, error.start
    if place >= 0:
        line += content.count(b"\n", 0, place)
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, and got the byte "
            f"0x{content[place]:02x}: save the file as UTF-8."
        )


def _unpacked(file: BinaryIO, packing: str) -> Iterator[bytes]:
    if packing == ".gz":
        with gzip.GzipFile(fileobj=file) as unpacked:
            while block := unpacked.read(_BLOCK):
                yield block
    elif packing == ".xz":
        yield from _of_xz(file)
    else:
        # A file that the kernel makes as it is read may never end, and says that it has no bytes.
        left = os.fstat(file.fileno()).st_size
        while block := file.read(min(left, _BLOCK)):
            left -= len(block)
            yield block


def _of_xz(file: BinaryIO) -> Iterator[bytes]:
    """What one stream after another holds; `lzma` would take any memory that a file asks for."""
    packed = file.read(_BLOCK)
    while True:
        unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
        while not unpacker.eof:
            if unpacker.needs_input and not packed:
                raise EOFError("it ends before its end marker")
            if block := unpacker.decompress(packed, _BLOCK):
                yield block
            packed = file.read(_BLOCK) if unpacker.needs_input else b""
        packed = unpacker.unused_data or file.read(_BLOCK)
        # Zeros may stand between streams, and behind the last one.
        while packed and not packed.lstrip(b"\0"):
            packed = file.read(_BLOCK)
        packed = packed.lstrip(b"\0")
        if not packed:
            return


def _empty(path: Path) -> ValueError:
    return ValueError(f"{shown(path)} is empty: name a file with text in it.")


def _unreadable(path: Path, error: OSError) -> OSError:
    return type(error)(
        f"{shown(path)} cannot be read ({error.strerror or error}): check the file and its "
        f"permissions."
    )

"""Reading the user's text files within a memory limit, unpacking .gz and .xz."""

import codecs
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from glasshead.drawing.printable import printable
from glasshead.files import check_regular, open_regular
from glasshead.message import Message

FileName = str | os.PathLike[str]

SETTING = "GLASSHEAD_MAX_TEXT_BYTES"
_MOST = 2**30
# Maximum compression ratio of a packed file, and the unpacked size that is always allowed.
_TIMES, _SMALL = 100, 2**26
# Memory overhead of a row or a line, in bytes.
_LINE_OVERHEAD = 128
LONGEST_LINE = 2**25

_PACKINGS = (".gz", ".xz")
_BLOCK = 2**18
# Unpacking the output of `xz -9` takes 65 MiB.
_XZ_MEMORY = 2**28
# Errors of gzip and lzma for malformed or truncated files.
_BROKEN = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError)


class Allowance:
    """A budget of unpacked bytes, shared by the files that are read together.

    It is 1 GiB, or the value of the environment variable GLASSHEAD_MAX_TEXT_BYTES; each line counts
    128 bytes more. By default, a packed file may unpack to at most 100 times its size, or 64 MiB:
    text compresses to about a tenth, and a file compressed to a thousandth is a decompression bomb.

    Args:
        most: The budget in bytes, instead of the default.
        default: The budget where the environment variable is not set; `math.inf` for texts that
            are not held in memory.

    Errors: a ValueError if the environment variable is no whole number.
    """

    def __init__(self, most: int | None = None, *, default: float = _MOST) -> None:
        limit = _limit_of_environment() if most is None else most
        self.most = self._left = default if limit is None else limit
        self._times = _TIMES if limit is None else None

    def spend(self, count: int, path: Path) -> None:
        """Subtract bytes that were read.

        Errors: a ValueError if the budget is exceeded.
        """
        self._left -= count
        if self._left < 0:
            raise ValueError(
                Message(
                    "{path} must fit into at most {most:,} bytes of all files together, unpacked. "
                    "Give less, or allow more with the environment variable {variable}.",
                    path=shown(path),
                    most=self.most,
                    variable=SETTING,
                )
            )

    def check_packed(self, count: int, size: int, path: Path) -> None:
        """Check the compression ratio of a file of `size` bytes.

        Errors: a ValueError if it has unpacked to too many bytes.
        """
        if self._times is not None and count > (most := max(_SMALL, self._times * size)):
            raise ValueError(
                Message(
                    "{path} may unpack to at most {most:,} bytes, but its {size:,} bytes unpack "
                    "to more. Unpack it first, or allow its size with the environment variable "
                    "{variable}.",
                    path=shown(path),
                    most=most,
                    size=size,
                    variable=SETTING,
                )
            )

    def check(self, count: int, path: Path) -> None:
        """Check that the budget suffices for a number of bytes, before reading them.

        Errors: a ValueError if it does not.
        """
        if count > self._left:
            self.spend(count, path)


def _limit_of_environment() -> int | None:
    written = os.environ.get(SETTING, "").strip()
    if not written:
        return None
    if not (written.isascii() and written.isdecimal() and 0 < len(written) <= 18):
        raise ValueError(
            Message(
                "{variable} must be a whole number of bytes, as in {example}, got {written}. "
                "Correct or unset it.",
                variable=SETTING,
                example=_MOST,
                written=repr(printable(written[:40])),
            )
        )
    return int(written)


def shown(path: Path) -> str:
    """Return a path as printable text, for error messages."""
    return printable(str(path))


def no_such_file(path: Path) -> FileNotFoundError:
    """Return the error for a file that is not there, or not even its folder."""
    hint = Message("Check its name")
    if not path.parent.is_dir():
        hint = Message("There is no folder {name} either", name=shown(path.parent))
    return FileNotFoundError(
        Message("there is no file {path}. {hint}.", path=shown(path), hint=hint)
    )


def is_a_folder(path: Path) -> IsADirectoryError:
    """Return the error for a folder where a file is expected."""
    return IsADirectoryError(Message("{path} is a folder. Name a file in it.", path=shown(path)))


def existing(name: FileName) -> Path:
    """Check that a file exists and return its path.

    Errors: an OSError if it does not exist or is not a regular file; a ValueError for an empty
    name and for -, which would be standard input.

    >>> existing("-")
    Traceback (most recent call last):
    ValueError: expected the name of a file, got '-'. Standard input is not read, so name a file.
    """
    if os.fspath(name) in {"", "-"}:
        hint = Message("Name one.")
        if name:
            hint = Message("Standard input is not read, so name a file.")
        raise ValueError(
            Message(
                "expected the name of a file, got {name}. {hint}",
                name=repr(os.fspath(name)),
                hint=hint,
            )
        )
    path = Path(name)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise no_such_file(path) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise is_a_folder(path)
    if not stat.S_ISREG(mode):
        raise OSError(
            Message(
                "{path} is not a regular file. Write it to one, and name that.", path=shown(path)
            )
        )
    return path


def ending(path: Path) -> str:
    """Return the lowercase suffix of a file name, ignoring a .gz or .xz of a packed file.

    >>> ending(Path("reviews.JSONL.xz")), ending(Path("train.de"))
    ('.jsonl', '.de')
    """
    unpacked = path.with_suffix("") if packing(path) else path
    return unpacked.suffix.lower()


def packing(path: Path) -> str:
    """Return the compression of a file by its suffix, ".gz" or ".xz", or ""."""
    suffix = path.suffix.lower()
    return suffix if suffix in _PACKINGS else ""


def read_text(path: Path, allowance: Allowance | None = None, most: int | None = None) -> str:
    """Read a UTF-8 file as it is, without a byte order mark.

    Args:
        path: The file.
        allowance: Budget shared with other files; None: one for this file.
        most: Maximum size of the file in bytes; None: any.

    Errors: a ValueError if it is empty, exceeds the budget, is not packed as its name says, or
    is not UTF-8, with the line; an OSError if it cannot be read.
    """
    count = _measured(path, allowance or Allowance(most), most=most)
    content = bytearray()
    for block in _again(path, count):
        content += block
    text = content.decode("utf-8-sig")
    if not text or text.isspace():
        raise _empty(path)
    return text


def blocks_of_text(path: Path, allowance: Allowance) -> Iterator[str]:
    """Iterate over a UTF-8 file as it is, in blocks, holding one at a time.

    Errors: as of `read_text`.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    blank = True
    for block in _again(path, _measured(path, allowance)):
        text = decoder.decode(block)
        blank = blank and not text.strip()
        yield text
    if blank:
        raise _empty(path)


def lines_of(path: Path, allowance: Allowance | None = None, newline: str = "\n") -> Iterator[str]:
    r"""Iterate over the lines of a UTF-8 file with their line ends, holding one at a time.

    Args:
        path: The file.
        allowance: Budget shared with other files; None: one for this file.
        newline: The line end; "": "\n", "\r\n" and "\r".

    Errors: as of `read_text`, and a ValueError for a line of more than 32 MiB.
    """
    count = _measured(path, allowance or Allowance(), of_a_line=_LINE_OVERHEAD)
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
    """Return the error for a line or a row that is too long."""
    return ValueError(
        f"{shown(path)}, line {line}: expected lines of at most {LONGEST_LINE:,} characters, got "
        "a longer one. Break it, or close the quotes that hold it together."
    )


class _Stream(io.RawIOBase):
    """A readable file object over blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] - a writable buffer
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
    """Return the unpacked size of a file, and check that it is UTF-8 and within the budget.

    The content is discarded, so that a decompression bomb takes no memory.
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
    """Read the blocks of a measured file again."""
    for block in _blocks(path):
        count -= len(block)
        if count < 0:
            raise ValueError(
                Message("{path} has grown while it was read. Read it again.", path=shown(path))
            )
        yield block


def _blocks(path: Path) -> Iterator[bytes]:
    """Read the unpacked blocks of a file."""
    try:
        with open_regular(path) as file:
            yield from _as_utf8(_unpacked(file, packing(path)))
    except _BROKEN as error:
        raise ValueError(
            Message(
                "{path} is not a whole {kind} file ({error}). Pack it again.",
                path=shown(path),
                kind=packing(path),
                error=error,
            )
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _as_utf8(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Encode UTF-16 with a byte order mark, as Excel saves "Unicode text", as UTF-8."""
    first = next(blocks, b"")
    if not first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        yield from chain([first], blocks)
        return
    decoder = codecs.getincrementaldecoder("utf-16")(errors="surrogatepass")
    for block in chain([first], blocks):
        yield decoder.decode(block).encode(errors="surrogatepass")
    # Half a character at the end is no UTF-8 either.
    if decoder.getstate()[0]:
        yield b"\xff"


def _check(path: Path, decoder: codecs.IncrementalDecoder, block: bytes, line: int) -> None:
    """Check that a block, which begins on line `line`, continues UTF-8 text.

    Errors: a ValueError with the line and the byte.
    """
    content, place = block, block.find(b"\0")
    try:
        decoder.decode(block, final=not block)
    except UnicodeDecodeError as error:
        # The invalid character may begin in the block before.
        if place < 0 or error.start < place:
            content, place = error.object, error.start
    if place >= 0:
        raise not_text(shown(path), content, place, line)


def not_text(name: str, content: bytes, place: int, line: int = 1) -> ValueError:
    """Return the error for a byte that is no UTF-8 text, of content that begins on `line`."""
    line += content.count(b"\n", 0, place)
    return ValueError(
        f"{name}, line {line}: expected UTF-8 text, got the byte 0x{content[place]:02x}. Save the "
        "file as UTF-8."
    )


def _unpacked(file: BinaryIO, packing: str) -> Iterator[bytes]:
    if packing == ".gz":
        with gzip.GzipFile(fileobj=file) as unpacked:
            while block := unpacked.read(_BLOCK):
                yield block
    elif packing == ".xz":
        yield from _of_xz(file)
    else:
        # Virtual files, of size 0, may never end.
        left = os.fstat(file.fileno()).st_size
        while block := file.read(min(left, _BLOCK)):
            left -= len(block)
            yield block


def _of_xz(file: BinaryIO) -> Iterator[bytes]:
    """Unpack concatenated xz streams with a memory limit, which `lzma.open` lacks."""
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
        # Streams may be padded with zeros.
        while packed and not packed.lstrip(b"\0"):
            packed = file.read(_BLOCK)
        packed = packed.lstrip(b"\0")
        if not packed:
            return


def _empty(path: Path) -> ValueError:
    return ValueError(f"{shown(path)} is empty. Name a file with text in it.")


def _unreadable(path: Path, error: OSError) -> OSError:
    return type(error)(
        f"{shown(path)} cannot be read ({error.strerror or error}). Check the file and its "
        "permissions."
    )

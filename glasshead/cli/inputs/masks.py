"""Masks from array files, safetensors, tables and JSON."""

import io
import json
import math
import re
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from glasshead.cli.inputs.files import STANDARD_INPUT, ParseError, read_bytes, read_text, shown
from glasshead.cli.inputs.messages import malformed_json
from glasshead.cli.inputs.tensors import is_tensors_file, read_tensors
from glasshead.drawing.printable import nearest
from glasshead.explanation.choices import listed, quoted
from glasshead.message import Message

_MOST_BYTES = 2**30
_OPENING = b"\x93NUMPY"
_BLOCK = 2**20
# Deflate makes at most so many bytes of one.
_RATIO = 1032
# What begins the entry of a member in the list of a .zip file, and how many entries are read.
_ENTRY, _MOST_ENTRIES = b"PK\x01\x02", 1000
_HEADERS = {b"\1\0": npy.read_array_header_1_0, b"\2\0": npy.read_array_header_2_0}
_CUT_OFF = Message(" is malformed or cut off. Write it again with numpy.save.")


def read_npy(content: bytes) -> np.ndarray:
    """Read the array of a .npy file.

    Errors: a ParseError if it is none, holds Python objects, or is cut off.
    """
    file = io.BytesIO(content)
    shape, fortran_order, dtype, size = _header(file, len(content))
    numbers = bytearray(memoryview(content)[file.tell() : file.tell() + size])
    return _array(numbers, shape, fortran_order, dtype)


def read_npz(content: bytes) -> np.ndarray:
    """Read the only array of a .npz file.

    Its header says how large the array is, and is checked against what the archive says; of neither
    is memory taken before the numbers are there.

    Errors: a ParseError if it is none, has another number of arrays, holds Python objects, would
    unpack to more than 1 GiB, or its header describes another array than it holds.
    """
    if content.count(_ENTRY) > _MOST_ENTRIES:
        raise ParseError(Message(" must have one array, got many. Save one with numpy.save."))
    try:
        with (
            zipfile.ZipFile(io.BytesIO(content)) as archive,
            archive.open(member := _only_member(archive)) as file,
        ):
            shape, fortran_order, dtype, size = _header(file, member.file_size, exact=True)
            numbers = _read(file, size)
    except (ParseError, MemoryError):
        raise
    except Exception as error:
        # Of the archive, and of each way to pack a member.
        raise ParseError(Message(" is not a .npz file. Write it with numpy.savez.")) from error
    return _array(numbers, shape, fortran_order, dtype)


def _only_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the archive entry of its only array."""
    members = archive.infolist()
    if len(members) != 1:
        names = [member.filename.removesuffix(".npy") for member in members]
        raise ParseError(
            Message(
                " must have one array, got {names}. Save one with numpy.save.",
                names=listed(names) or Message("nothing"),
            )
        )
    (member,) = members
    if member.file_size > _MOST_BYTES:
        raise ParseError(Message(" unpacks to more than 1 GiB. Keep only what you need of it."))
    most = _RATIO * (member.compress_size + 1)
    if member.compress_type == zipfile.ZIP_DEFLATED and member.file_size > most:
        raise ParseError(_CUT_OFF)
    return member


def _header(
    file: IO[bytes], length: int, *, exact: bool = False
) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Read the header of an array: shape, order, type and size in bytes.

    Args:
        file: At the beginning; afterwards at the first number.
        length: How many bytes there are.
        exact: Whether nothing may follow the numbers.
    """
    if file.read(len(_OPENING)) != _OPENING:
        raise ParseError(Message(" is not a .npy file. Write it with numpy.save."))
    try:
        read = _HEADERS[file.read(2)]
        with warnings.catch_warnings():
            # Of what Python thinks of the header as a program.
            warnings.simplefilter("ignore")
            shape, fortran_order, dtype = read(file)
        size = math.prod(shape) * dtype.itemsize
        rest = length - file.tell()
    except Exception as error:
        # The header is read as Python is, by a tokenizer and a parser with errors of their own.
        raise ParseError(_CUT_OFF) from error
    if dtype.hasobject:
        raise ParseError(
            Message(
                " must not hold pickled Python objects, which could run anything. Save an array "
                "of numbers."
            )
        )
    if min(shape, default=0) < 0 or size > rest or (exact and size != rest):
        raise ParseError(_CUT_OFF)
    return shape, fortran_order, dtype, size


def _read(file: IO[bytes], size: int) -> bytearray:
    """Read up to `size` bytes, as many as are really there."""
    content = bytearray()
    while block := file.read(min(_BLOCK, size - len(content))):
        content += block
    # The end of the member, where its sum is checked.
    file.read(1)
    return content


def _array(
    numbers: bytearray, shape: tuple[int, ...], fortran_order: bool, dtype: np.dtype
) -> np.ndarray:
    try:
        flat = np.frombuffer(numbers, dtype) if numbers else np.empty(math.prod(shape), dtype)
        return flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    except (ValueError, MemoryError, OverflowError) as error:
        raise ParseError(_CUT_OFF) from error


_WORDS = {"true": True, "false": False}
_SEPARATOR = re.compile(r"\s*[,;\t]\s*|\s+")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def table_mask(text: str) -> list[np.ndarray]:
    r"""Parse a table with cells separated by commas, semicolons, tabs or spaces.

    Blank lines, and what follows a #, are left out.

    Errors: a ParseError that opens with the line, if a cell is no number or a row is shorter or
    longer than the first.

    >>> [row.tolist() for row in table_mask("1,0\n1,1\n")]
    [[1, 0], [1, 1]]
    """
    rows: list[np.ndarray] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.partition("#")[0].strip().rstrip(",;")
        if not cells:
            continue
        row = np.array([_number(cell, number) for cell in _SEPARATOR.split(cells)])
        if rows and len(row) != len(rows[0]):
            raise ParseError(
                Message(
                    ", line {number}: expected {count} numbers as on line {first}, got {count2}. "
                    "Fill up the shorter rows.",
                    number=number,
                    count=len(rows[0]),
                    first=first,
                    count2=len(row),
                )
            )
        first = first or number
        rows.append(row)
    if not rows:
        raise ParseError(Message(" has no mask. Give it one row of numbers per query."))
    return rows


def json_mask(text: str) -> list[Any]:
    """Parse nested lists of numbers, true and false; -Infinity and "-inf" are −∞.

    Errors: a ParseError that says the line where the JSON is malformed, or what is no number.

    >>> json_mask('[[0, "-inf"], [0, 0]]')
    [[0, -inf], [0, 0]]
    """
    try:
        whole = json.loads(text)
        return _lists(whole)
    except json.JSONDecodeError as error:
        raise ParseError(malformed_json(error)) from error
    except RecursionError as error:
        raise ParseError(Message(": expected lists of numbers, got too many brackets.")) from error
    except ParseError:
        raise
    except ValueError as error:
        raise ParseError(
            Message(": expected numbers of at most 4,300 digits, got a longer one.")
        ) from error


def _lists(value: Any) -> list[Any]:
    if not isinstance(value, list):
        written = json.dumps(value, ensure_ascii=False)[:40]
        raise ParseError(
            Message(
                ": expected nested lists of numbers, as in [[1, 0], [1, 1]], got {written}.",
                written=written,
            )
        )
    return [_lists(item) if isinstance(item, list) else _of_json(item) for item in value]


def _of_json(item: Any) -> float | bool:
    if isinstance(item, str):
        return _number(item, None)
    if not isinstance(item, bool | int | float):
        return _lists(item)  # type: ignore[return-value]
    return item if isinstance(item, bool) or abs(item) < 2**62 else float(item)


def _number(cell: str, line: int | None) -> float | bool:
    word = cell.strip().strip('"').lower().replace("−", "-").replace("∞", "inf")
    if word in _WORDS:
        return _WORDS[word]
    if _WHOLE.fullmatch(word):
        return int(word)
    try:
        if "_" not in word:
            return float(word)
    except ValueError:
        pass
    where = "" if line is None else Message(", line {line}", line=line)
    got = quoted(cell) if cell else Message("an empty cell")
    raise ParseError(
        Message(
            "{where}: expected a number, true, false or -inf, got {got}. Write one row of them "
            "per query.",
            where=where,
            got=got,
        )
    )


_PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")


def read_mask(path: Path, name: str | None = None) -> Any:
    """Read a mask: a tensor, an array, or rows of untyped numbers.

    Args:
        path: The file; what is called .npy, .npz or .safetensors is that, what opens with a bracket
            is JSON, and any other is a table.
        name: Which tensor of a safetensors file is meant.

    Errors: an OSError if the file cannot be read; a ValueError with the file, and the line where
    there are some, where it is malformed, has several arrays, or is pickled.
    """
    suffix = path.suffix.lower()
    if path != STANDARD_INPUT and is_tensors_file(path):
        return _tensor(path, name)
    if name is not None:
        raise ValueError(
            Message(
                "--tensor needs a safetensors file, got {path}. Omit it.",
                path=shown(path),
            )
        )
    if suffix in _PICKLED:
        raise ValueError(
            Message(
                "{path} must not be a pickle, which could run anything. Save the mask with "
                "safetensors.torch.save_file or numpy.save.",
                path=shown(path),
            )
        )
    try:
        if suffix == ".npy":
            return read_npy(read_bytes(path))
        if suffix == ".npz":
            return read_npz(read_bytes(path))
        text = read_text(path)
        is_json = suffix == ".json" or text.lstrip()[:1] in ("[", "{")
        return json_mask(text) if is_json else table_mask(text)
    except ParseError as error:
        raise ValueError(Message("{path}{error}", path=shown(path), error=error)) from error


def _tensor(path: Path, name: str | None) -> Any:
    tensors = read_tensors(path)
    if name is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if name is not None and name in tensors:
        return tensors[name]
    has = listed(tensors) or Message("nothing")
    if name is None:
        raise ValueError(
            Message(
                "{path} must have one tensor, got {has}. Name one with --tensor NAME.",
                path=shown(path),
                has=has,
            )
        )
    alike = nearest(name, tensors)
    hint = Message("Name one of them.")
    if alike:
        hint = Message("Did you mean {name}?", name=alike)
    raise ValueError(
        Message(
            "{path} has no tensor {name}, but {has}. {hint}",
            path=shown(path),
            name=name,
            has=has,
            hint=hint,
        )
    )

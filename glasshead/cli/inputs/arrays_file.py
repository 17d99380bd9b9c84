"""Arrays file: what NumPy has saved, never unpickled, and no more of it than is really there."""

import io
import math
import warnings
import zipfile
from typing import IO

import numpy as np
from numpy.lib import format as npy

from glasshead.cli.inputs.malformed import Malformed
from glasshead.cli.inputs.wording import listed

_MOST_BYTES = 2**30
_OPENING = b"\x93NUMPY"
_BLOCK = 2**20
# Deflate makes at most so many bytes of one.
_RATIO = 1032
# What begins the entry of a member in the list of a .zip file, and how many entries are read.
_ENTRY, _MOST_ENTRIES = b"PK\x01\x02", 1000
_HEADERS = {b"\1\0": npy.read_array_header_1_0, b"\2\0": npy.read_array_header_2_0}
_CUT_OFF = " is malformed or cut off: write it anew by numpy.save."


def read_npy(content: bytes) -> np.ndarray:
    """The array of a .npy file.

    Errors: a Malformed where it is none, holds Python objects, or is cut off.
    """
    file = io.BytesIO(content)
    shape, fortran_order, dtype, size = _header(file, len(content))
    numbers = bytearray(memoryview(content)[file.tell() : file.tell() + size])
    return _array(numbers, shape, fortran_order, dtype)


def read_npz(content: bytes) -> np.ndarray:
    """The one array of a .npz file.

    Its header says how large the array is, and is checked against what the archive says; of neither
    is memory taken before the numbers are there.

    Errors: a Malformed where it is none, has another number of arrays, holds Python objects, would
    unpack to more than 1 GiB, or its header tells of another array than it holds.
    """
    if content.count(_ENTRY) > _MOST_ENTRIES:
        raise Malformed(": expected one array, and it has many: save one by numpy.save.")
    try:
        with (
            zipfile.ZipFile(io.BytesIO(content)) as archive,
            archive.open(member := _only_member(archive)) as file,
        ):
            shape, fortran_order, dtype, size = _header(file, member.file_size, exact=True)
            numbers = _read(file, size)
    except (Malformed, MemoryError):
        raise
    except Exception as error:
        # Of the archive, and of each way to pack a member.
        raise Malformed(" is no .npz file: write it by numpy.savez.") from error
    return _array(numbers, shape, fortran_order, dtype)


def _only_member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """What the archive says of its one array."""
    members = archive.infolist()
    if len(members) != 1:
        names = [member.filename.removesuffix(".npy") for member in members]
        raise Malformed(
            f": expected one array, and it has {listed(names) or 'none'}: save one by numpy.save."
        )
    (member,) = members
    if member.file_size > _MOST_BYTES:
        raise Malformed(" unpacks to more than 1 GiB: keep only what you need of it.")
    most = _RATIO * (member.compress_size + 1)
    if member.compress_type == zipfile.ZIP_DEFLATED and member.file_size > most:
        raise Malformed(_CUT_OFF)
    return member


def _header(
    file: IO[bytes], length: int, *, exact: bool = False
) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """The shape, order and type of an array, and how many bytes its numbers take.

    Args:
        file: At the beginning; afterwards at the first number.
        length: How many bytes there are.
        exact: Whether nothing may follow the numbers.
    """
    if file.read(len(_OPENING)) != _OPENING:
        raise Malformed(" is no .npy file: write it by numpy.save.")
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
        raise Malformed(_CUT_OFF) from error
    if dtype.hasobject:
        raise Malformed(
            " holds pickled Python objects, which could run anything, and is not read: save "
            "an array of numbers."
        )
    if min(shape, default=0) < 0 or size > rest or (exact and size != rest):
        raise Malformed(_CUT_OFF)
    return shape, fortran_order, dtype, size


def _read(file: IO[bytes], size: int) -> bytearray:
    """As many bytes as are really there, up to `size`."""
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
        raise Malformed(_CUT_OFF) from error

"""Arrays file: what NumPy has saved, never unpickled."""

import io
import zipfile
import zlib

import numpy as np
from numpy.lib import format as npy

from glasshead.cli.inputs.malformed import Malformed
from glasshead.cli.inputs.wording import listed

_MOST_BYTES = 2**30
_OPENING = b"\x93NUMPY"


def read_npy(content: bytes) -> np.ndarray:
    """The array of a .npy file.

    Errors: a Malformed where it is none, holds Python objects, or is cut off.
    """
    if not content.startswith(_OPENING):
        raise Malformed(" is no .npy file: write it by numpy.save.")
    try:
        return npy.read_array(io.BytesIO(content), allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise Malformed(
                " holds pickled Python objects, which could run anything, and is not read: save "
                "an array of numbers."
            ) from error
        raise Malformed(" is malformed or cut off: write it anew by numpy.save.") from error
    except (
        EOFError,
        KeyError,
        MemoryError,
        OSError,
        OverflowError,
        RecursionError,
        SyntaxError,
        TypeError,
    ) as error:
        raise Malformed(" is malformed or cut off: write it anew by numpy.save.") from error


def read_npz(content: bytes) -> np.ndarray:
    """The one array of a .npz file.

    Errors: a Malformed where it is none, has another number of arrays, holds Python objects, or
    would unpack to more than 1 GiB.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if len(members) != 1:
                raise Malformed(
                    f": expected one array, and it has {listed(names) or 'none'}: save one by "
                    "numpy.save."
                )
            if members[0].file_size > _MOST_BYTES:
                raise Malformed(" unpacks to more than 1 GiB: keep only what you need of it.")
            unpacked = archive.read(members[0])
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        OSError,
        RuntimeError,
    ) as error:
        raise Malformed(" is no .npz file: write it by numpy.savez.") from error
    return read_npy(unpacked)

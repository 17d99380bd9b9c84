"""Safetensors files with a JSON description, written atomically, never unpickled."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from glasshead.files import check_regular, whole_file

_ENTRY, _VERSION = "glasshead", 1
# The class whose `load` reads each kind, all of them in `glasshead` itself.
READERS = {
    "observation": "Observation",
    "weights": "Weights",
    "joined weights": "JoinedWeights",
    "watch": "Seen",
    "statistics of a corpus": "CorpusResult",
    "statistics of a model": "CorpusResult",
}


def write(
    file: str | os.PathLike[str],
    kind: str,
    description: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write tensors and their description; an older file is replaced only by a complete one.

    Args:
        file: Where; its folder must be there.
        kind: The kind of file, a key of `READERS`.
        description: A description in JSON.
        tensors: The numbers, by names that the description refers to.

    Errors: an OSError where the file cannot be written; nothing is left behind.
    """
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
    data = json.dumps({"kind": kind, "version": _VERSION, **description}, allow_nan=False)
    try:
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}: make it first.")
        with whole_file(path) as beside:
            save_file(_separate(tensors), beside, metadata={_ENTRY: data})
    except (SafetensorError, RuntimeError) as error:
        raise OSError(f"{path} cannot be written ({error}): name another place.") from error
    except OSError as error:
        if not error.strerror:
            raise
        raise type(error)(
            f"{path} cannot be written ({error.strerror}): name another place."
        ) from error


def read(
    file: str | os.PathLike[str],
    *kinds: str,
    check: Callable[[dict[str, list[int]]], None] | None = None,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the description and the tensors of a file that `write` has written.

    Args:
        file: Where it is.
        kinds: The accepted kinds; the description names the one found, as "kind".
        check: Called with the shape of each tensor before any is read; what it raises is raised.

    Errors: an OSError where the file cannot be read, or is no regular file; a ValueError where it
    is not safetensors, was written by something else, or holds another kind, with the class that
    reads that.
    """
    with _opened(file) as opened:
        description = _parse(Path(file), kinds, (opened.metadata() or {}).get(_ENTRY))
        if check is not None:
            check({name: opened.get_slice(name).get_shape() for name in opened.keys()})  # noqa: SIM118 - it is no dict
        # Copied, as products may round otherwise on the alignment of mapped memory.
        tensors = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118 - it is no dict
    return description, tensors


def description_of(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the description of a file of any kind that has a reader, without its tensors.

    Errors: as of `read`.
    """
    with _opened(file) as opened:
        return _parse(Path(file), tuple(READERS), (opened.metadata() or {}).get(_ENTRY))


@contextmanager
def _opened(file: str | os.PathLike[str]) -> Iterator[Any]:
    """Open a safetensors file, turning its errors into an OSError or a ValueError."""
    path = Path(file)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: check its name.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as opened:
            yield opened
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}).") from error
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read ({error.strerror or error}): save it anew, or name another."
        ) from error
    except (KeyError, AttributeError, RuntimeError) as error:
        # Raised for dtypes that torch does not know.
        raise ValueError(f"{path} has numbers that torch cannot read ({error}).") from error


@contextmanager
def understood(file: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Turn any error caused by a corrupted description into a ValueError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{Path(file)} has a description of {kind} that cannot be understood ({error}): "
            f"save it anew."
        ) from error


def to_json(value: Any) -> Any:
    """Convert a number, or a tuple of them, to JSON without loss.

    >>> to_json((0, 1.5, math.inf))
    [0, 1.5, {'float': 'inf'}]
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has neither inf nor nan
    return [to_json(part) for part in value] if isinstance(value, tuple | list) else value


def from_json(data: Any) -> Any:
    """Convert back what `to_json` returned.

    >>> from_json([0, 1.5, {"float": "inf"}])
    (0, 1.5, inf)
    """
    if isinstance(data, dict):
        return float(data["float"])
    return tuple(from_json(part) for part in data) if isinstance(data, list) else data


def _parse(path: Path, kinds: tuple[str, ...], data: str | None) -> dict[str, Any]:
    """Parse the metadata, and check its kind and version."""
    one_reader = len({READERS.get(kind) for kind in kinds}) == 1
    expected = f"no {kinds[0]}" if one_reader else "nothing"
    try:
        description = json.loads(data or "")
        found, version = description["kind"], description["version"]
        newer = version > _VERSION
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError(
            f"{path} holds {expected} that glasshead has saved: its metadata does not tell of one."
        ) from None
    if found not in kinds:
        if not isinstance(found, str) or found not in READERS:
            raise ValueError(
                f"{path} holds {expected}, but something that this glasshead does not know: update "
                f"glasshead, or name another file."
            )
        raise ValueError(
            f"{path} holds {expected}, but {found}: load it as what it is, by "
            f"gh.{READERS[found]}.load or by gh.load."
        )
    if newer:
        raise ValueError(
            f"{path} was written by a newer glasshead, in version {version} of its form, and this "
            f"one reads version {_VERSION}: update glasshead."
        )
    return description


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detach tensors for safetensors: on the CPU, contiguous, sharing no memory."""
    separate, known = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        storage = own.untyped_storage()
        if storage.data_ptr() in known or storage.nbytes() != own.numel() * own.itemsize:
            own = own.clone(memory_format=torch.contiguous_format)
        known.add(own.untyped_storage().data_ptr())
        separate[name] = own
    return separate

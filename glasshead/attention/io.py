"""Files of tensors with a JSON description, and recipes and observations in them."""

import json
import math
import os
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from safetensors.torch import save_file
from torch import Tensor, nn

import glasshead.statistics as own
from glasshead.files import check_regular, whole_file
from glasshead.recipe.part import PARTS, Part
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic, TopKeys
from glasshead.statistics.base import check_name
from glasshead.statistics.reductions import Reduction

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

    Errors: an OSError if the file cannot be written; nothing is left behind.
    """
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file in it.")
    data = json.dumps({"kind": kind, "version": _VERSION, **description}, allow_nan=False)
    try:
        if not path.resolve().parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}. Create it first.")
        with whole_file(path) as beside:
            save_file(_separate(tensors), beside, metadata={_ENTRY: data})
    except (SafetensorError, RuntimeError) as error:
        raise OSError(f"{path} cannot be written ({error}). Name another place.") from error
    except OSError as error:
        if not error.strerror:
            raise
        raise type(error)(
            f"{path} cannot be written ({error.strerror}). Name another place."
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

    Errors: an OSError if the file cannot be read, or is no regular file; a ValueError if it
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


def packed(kind: str, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of the file that `write` would write."""
    data = json.dumps({"kind": kind, "version": _VERSION, **description}, allow_nan=False)
    return save_bytes(_separate(tensors), metadata={_ENTRY: data})


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and the tensors in bytes of `packed`, from a process of ours."""
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    return json.loads(header["__metadata__"][_ENTRY]), load_bytes(data)


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
        raise FileNotFoundError(f"there is no file {path}. Check its name.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file in it.")
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as opened:
            yield opened
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}).") from error
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read ({error.strerror or error}). Save it again, or name another "
            "file."
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
            f"{Path(file)} has a description of {kind} that cannot be read ({error}). Save it "
            "again."
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
    expected = f"the kind {kinds[0]!r}" if one_reader else "something that glasshead saved"
    try:
        description = json.loads(data or "")
        found, version = description["kind"], description["version"]
        newer = version > _VERSION
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError(
            f"{path} must hold {expected}, got a file without glasshead's metadata."
        ) from None
    if found not in kinds:
        if not isinstance(found, str) or found not in READERS:
            raise ValueError(
                f"{path} must hold {expected}, got a kind that this glasshead does not know. "
                "Update glasshead, or name another file."
            )
        raise ValueError(
            f"{path} must hold {expected}, got the kind {found!r}. Load it with "
            f"gh.{READERS[found]}.load or gh.load."
        )
    if newer:
        raise ValueError(
            f"{path} must be in version {_VERSION} of its format or an older one, got {version}. "
            "Update glasshead."
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


def serialize(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a value to JSON; tensors are added to `tensors`, named by `place`.

    Args:
        value: None, a number, a word, a tensor, a part of a recipe, or a tuple of these.
        place: Where the value belongs, such as "mask".
        tensors: Those found so far.

    Errors: a TypeError for a custom part, which could not be rebuilt.

    >>> import glasshead as gh
    >>> tensors = {}
    >>> serialize(gh.causal() & ~gh.padding([3]), "mask", tensors)["is"], tensors
    ('AllOf', {'mask.masks.1.mask.lengths': tensor([3])})
    """
    if isinstance(value, Tensor):
        tensors[place] = value
        return {"tensor": place}
    if isinstance(value, tuple):
        return [serialize(one, f"{place}.{number}", tensors) for number, one in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return to_json(value)
    name = value.class_name if isinstance(value, Part) else type(value).__name__
    if not isinstance(value, Part) or value.is_custom:
        raise TypeError(
            f"Weights.save needs settings of glasshead's own parts, got {name} in its "
            f"{place.split('.', 1)[0]}. Save W.dense(), or parts of it."
        )
    data = {
        argument: serialize(getattr(value, argument), f"{place}.{argument}", tensors)
        for argument in value.saved
    }
    module = cast("nn.Module", value)  # where anything of it is learned
    learned = {name: module.get_parameter(name) for name in value.learned}
    tensors |= {f"{place}.{name}": parameter for name, parameter in learned.items()}
    # PyTorch may round a product otherwise where an operand requires a gradient.
    trained = {name: parameter.requires_grad for name, parameter in learned.items()}
    return {"is": name, "of": data, "trained": trained}


def deserialize(data: Any, place: str, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild the value that `serialize` has described.

    Errors: any, if the description was not made by `serialize`.
    """
    if isinstance(data, list):
        return tuple(
            deserialize(one, f"{place}.{number}", tensors) for number, one in enumerate(data)
        )
    if not isinstance(data, dict) or "float" in data:
        return from_json(data)
    if "tensor" in data:
        return tensors[data["tensor"]]
    kind = PARTS[data["is"]]
    arguments = {
        argument: deserialize(data["of"][argument], f"{place}.{argument}", tensors)
        for argument in kind.saved
    }
    if not kind.learned:
        return kind(**arguments)
    # On the meta device, initialization does not advance the random generator.
    with torch.device("meta"):
        part = cast("nn.Module", kind(**arguments))
    state = {name: tensors[f"{place}.{name}"] for name in kind.learned}
    _check_shapes(part, state)
    part.load_state_dict(state, strict=False, assign=True)
    for name in kind.learned:
        part.get_parameter(name).requires_grad_(data["trained"][name] is True)
    return part


def _check_shapes(part: nn.Module, state: Mapping[str, Tensor]) -> None:
    for name, tensor in state.items():
        expected = part.get_parameter(name)
        if (
            expected.shape != tensor.shape
            or expected.is_floating_point() != tensor.is_floating_point()
        ):
            raise ValueError(
                f"{name} must be {list(expected.shape)}, got {tensor.dtype} {list(tensor.shape)}"
            )


_OBSERVATION_KIND = "observation"
_OWN: dict[str, type[Statistic]] = {
    name: kind
    for name in own.__all__
    if isinstance(kind := getattr(own, name), type) and issubclass(kind, Statistic)
}
_OWN_VALUES = {TopKeys.__name__: TopKeys}


@dataclass(frozen=True)
class UnknownStatistic(Statistic):
    """Custom statistic read from a file, which keeps its name and axes but not its class.

    Attributes:
        name: The name of its class.
        unit, axes, gives_keys: As of any statistic.
    """

    name: str
    unit: str  # type: ignore[misc]
    axes: tuple[str, ...]  # type: ignore[misc]
    gives_keys: bool = False  # type: ignore[misc]
    differentiable: ClassVar[bool] = False

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        raise self._refusal()

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        raise self._refusal()

    def joined(self, first: Any, second: Any) -> Any:
        raise self._refusal()

    def _refusal(self) -> ValueError:
        return ValueError(
            f"{self.name} was saved by its name alone, so it can be neither read nor added. "
            "Observe it again, and add before saving."
        )

    def __repr__(self) -> str:
        return f"{self.name}(…)"


def parts(value: Any) -> list[tuple[str, Tensor]]:
    """Split a value of several tensors into named parts, by field or by index."""
    names = getattr(value, "_fields", range(len(value)))
    return [(str(name), part) for name, part in zip(names, value, strict=True)]


def save_observation(
    file: str | os.PathLike[str],
    context: Tensor,
    statistics: Mapping[str, Statistic],
    values: Mapping[str, Any],
) -> None:
    """Write the context, statistics and values of an observation."""
    tensors = {"context": context, **tensors_of(values)}
    write(file, _OBSERVATION_KIND, {"statistics": describe_values(statistics, values)}, tensors)


def tensors_of(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Collect every tensor by name, `name.field` where a value has several."""
    tensors: dict[str, Tensor] = {}
    for name, value in values.items():
        several = [("", value)] if isinstance(value, Tensor) else parts(value)
        tensors |= {f"{name}.{part}" if part else name: tensor for part, tensor in several}
    return tensors


def describe_values(
    statistics: Mapping[str, Statistic], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe statistics and their values as JSON."""
    data = {}
    for name, statistic in statistics.items():
        value = values[name]
        data[name] = describe(statistic)
        if not isinstance(value, Tensor):
            data[name]["value"] = type(value).__name__ if hasattr(value, "_fields") else None
            data[name]["parts"] = [part for part, _ in parts(value)]
    return data


def found(
    data: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Statistic], dict[str, Any]]:
    """Rebuild statistics and their values by name.

    Errors: any, if the description is corrupted.
    """
    statistics = {name: described(one) for name, one in data.items()}
    for name, statistic in statistics.items():
        check_name(name, statistic)
    return statistics, {name: _value(name, one, tensors) for name, one in data.items()}


def load_observation(
    file: str | os.PathLike[str],
) -> tuple[Tensor, dict[str, Statistic], dict[str, Any]]:
    """Read the context, statistics and values of an observation."""
    description, tensors = read(file, _OBSERVATION_KIND)
    with understood(file, _OBSERVATION_KIND):
        statistics, values = found(description["statistics"], tensors)
        context = tensors["context"]
        if context.ndim < 2:
            raise ValueError(f"a context must have at least two axes, got {context.ndim}")
        return context, statistics, values


def describe(statistic: Statistic) -> dict[str, Any]:
    """Describe a statistic as JSON; one of a user's own by its name, without its fields."""
    kind = type(statistic)
    if isinstance(statistic, UnknownStatistic) or _OWN.get(kind.__name__) is not kind:
        name = statistic.name if isinstance(statistic, UnknownStatistic) else kind.__name__
        return {
            "class": name,
            "unit": statistic.unit,
            "axes": list(statistic.axes),
            "gives_keys": statistic.gives_keys,
        }
    # Every built-in statistic is a dataclass.
    named = fields(statistic)  # type: ignore[arg-type]
    return {
        "class": kind.__name__,
        "fields": {field.name: to_json(getattr(statistic, field.name)) for field in named},
    }


def described(data: Mapping[str, Any]) -> Statistic:
    """Rebuild the statistic that `describe` has described."""
    if "fields" not in data:
        name, unit, axes = str(data["class"]), str(data["unit"]), tuple(map(str, data["axes"]))
        # Earlier files mark places of keys by their unit alone.
        return UnknownStatistic(name, unit, axes, bool(data.get("gives_keys", unit == "key")))
    kind = _OWN[data["class"]]
    return kind(**{name: from_json(value) for name, value in data["fields"].items()})


def _value(name: str, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    if "parts" not in data:
        return tensors[name]
    several = [tensors[f"{name}.{part}"] for part in data["parts"]]
    if data["value"] is None:
        return tuple(several)
    kind = _OWN_VALUES.get(data["value"]) or namedtuple(data["value"], data["parts"])  # noqa: PYI024 - a custom type, whose fields are known at run time only
    return kind(*several)

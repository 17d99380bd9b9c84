"""Serialization of recipes and observations: JSON, and the tensors it refers to."""

import os
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

import glasshead.statistics as own
from glasshead.attention.tensor_files import from_json, read, to_json, understood, write
from glasshead.recipe.part import PARTS, Part
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic, TopKeys
from glasshead.statistics.base import check_name
from glasshead.statistics.reductions import Reduction


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
            f"Weights.save takes a recipe of glasshead's own parts, and its "
            f"{place.split('.', 1)[0]} has a {name}, which a file cannot make again: save "
            f"W.dense(), or parts of it."
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

    Errors: any, where the description was not made by `serialize`.
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
                f"{name} takes {list(expected.shape)}, and got {tensor.dtype} {list(tensor.shape)}"
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
        unit, axes: As of any statistic.
    """

    name: str
    unit: str  # type: ignore[misc]
    axes: tuple[str, ...]  # type: ignore[misc]
    differentiable: ClassVar[bool] = False

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        raise self._refusal()

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        raise self._refusal()

    def joined(self, first: Any, second: Any) -> Any:
        raise self._refusal()

    def _refusal(self) -> ValueError:
        return ValueError(
            f"{self.name} was kept by its name alone when it was saved, and can neither be taken "
            f"nor added: observe it anew, and add before saving."
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
        data[name] = _describe(statistic)
        if not isinstance(value, Tensor):
            data[name]["value"] = type(value).__name__ if hasattr(value, "_fields") else None
            data[name]["parts"] = [part for part, _ in parts(value)]
    return data


def found(
    data: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Statistic], dict[str, Any]]:
    """Rebuild statistics and their values by name.

    Errors: any, where the description is corrupted.
    """
    statistics = {name: _statistic(one) for name, one in data.items()}
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
            raise ValueError(f"a context has two axes at least, and not {context.ndim}")
        return context, statistics, values


def _describe(statistic: Statistic) -> dict[str, Any]:
    """Describe a statistic as JSON."""
    kind = type(statistic)
    if isinstance(statistic, UnknownStatistic) or _OWN.get(kind.__name__) is not kind:
        name = statistic.name if isinstance(statistic, UnknownStatistic) else kind.__name__
        return {"class": name, "unit": statistic.unit, "axes": list(statistic.axes)}
    # Every built-in statistic is a dataclass.
    named = fields(statistic)  # type: ignore[arg-type]
    return {
        "class": kind.__name__,
        "fields": {field.name: to_json(getattr(statistic, field.name)) for field in named},
    }


def _statistic(data: Mapping[str, Any]) -> Statistic:
    if "fields" not in data:
        return UnknownStatistic(
            str(data["class"]), str(data["unit"]), tuple(map(str, data["axes"]))
        )
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

"""An observation in a file: tensors, and which statistic each belongs to."""

import os
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

import glasshead.statistics as own
from glasshead.attention.files import from_json, read, to_json, understood, write
from glasshead.recipe.problem import Problem
from glasshead.recipe.trace import Trace
from glasshead.statistics import Statistic, TopKeys
from glasshead.statistics.base import check_name
from glasshead.statistics.reductions import Reduction

_KIND = "observation"
_OWN: dict[str, type[Statistic]] = {
    name: kind
    for name in own.__all__
    if isinstance(kind := getattr(own, name), type) and issubclass(kind, Statistic)
}
_OWN_VALUES = {TopKeys.__name__: TopKeys}


@dataclass(frozen=True)
class Kept(Statistic):
    """A statistic of a user's own as a file knows it: what it was called, and not how it is made.

    Attributes:
        name: The name of its class.
        unit, axes: As of any statistic.
    """

    name: str
    unit: str  # type: ignore[misc]
    axes: tuple[str, ...]  # type: ignore[misc]
    differentiable: ClassVar[bool] = False

    def of(self, trace: Trace) -> Any:
        del trace
        raise self._refusal()

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        del problem
        raise self._refusal()

    def finish(self, problem: Problem, *reduced: tuple[Tensor, ...]) -> Any:
        del problem, reduced
        raise self._refusal()

    def joined(self, first: Any, second: Any) -> Any:
        del first, second
        raise self._refusal()

    def _refusal(self) -> ValueError:
        return ValueError(
            f"{self.name} was kept by its name alone when it was saved, and can neither be taken "
            f"nor added: observe it anew, and add before saving."
        )

    def __repr__(self) -> str:
        return f"{self.name}(…)"


def parts(value: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a value that is several, by the names of its fields or their places."""
    names = getattr(value, "_fields", range(len(value)))
    return [(str(name), part) for name, part in zip(names, value, strict=True)]


def save(
    file: str | os.PathLike[str],
    context: Tensor,
    statistics: Mapping[str, Statistic],
    values: Mapping[str, Any],
) -> None:
    """Write the parts of an observation."""
    tensors = {"context": context, **tensors_of(values)}
    write(file, _KIND, {"statistics": described(statistics, values)}, tensors)


def tensors_of(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Every tensor by its name, `name.field` where a value has several."""
    tensors: dict[str, Tensor] = {}
    for name, value in values.items():
        several = [("", value)] if isinstance(value, Tensor) else parts(value)
        tensors |= {f"{name}.{part}" if part else name: tensor for part, tensor in several}
    return tensors


def described(statistics: Mapping[str, Statistic], values: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON says of statistics and their values."""
    told = {}
    for name, statistic in statistics.items():
        value = values[name]
        told[name] = _told(statistic)
        if not isinstance(value, Tensor):
            told[name]["value"] = type(value).__name__ if hasattr(value, "_fields") else None
            told[name]["parts"] = [part for part, _ in parts(value)]
    return told


def found(
    told: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Statistic], dict[str, Any]]:
    """Statistics and their values again, by name.

    Errors: whatever a description that was tampered with leads to.
    """
    statistics = {name: _statistic(one) for name, one in told.items()}
    for name, statistic in statistics.items():
        check_name(name, statistic)
    return statistics, {name: _value(name, one, tensors) for name, one in told.items()}


def load(
    file: str | os.PathLike[str],
) -> tuple[Tensor, dict[str, Statistic], dict[str, Any]]:
    """The parts of an observation: its context, what was asked, and each value."""
    description, tensors = read(file, _KIND)
    with understood(file, _KIND):
        statistics, values = found(description["statistics"], tensors)
        context = tensors["context"]
        if context.ndim < 2:
            raise ValueError(f"a context has two axes at least, and not {context.ndim}")
        return context, statistics, values


def _told(statistic: Statistic) -> dict[str, Any]:
    """What JSON says of a statistic."""
    kind = type(statistic)
    if isinstance(statistic, Kept) or _OWN.get(kind.__name__) is not kind:
        name = statistic.name if isinstance(statistic, Kept) else kind.__name__
        return {"class": name, "unit": statistic.unit, "axes": list(statistic.axes)}
    # A dataclass, as all of our own are.
    named = fields(statistic)  # type: ignore[arg-type]
    return {
        "class": kind.__name__,
        "fields": {field.name: to_json(getattr(statistic, field.name)) for field in named},
    }


def _statistic(told: Mapping[str, Any]) -> Statistic:
    if "fields" not in told:
        return Kept(str(told["class"]), str(told["unit"]), tuple(map(str, told["axes"])))
    kind = _OWN[told["class"]]
    return kind(**{name: from_json(value) for name, value in told["fields"].items()})


def _value(name: str, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    if "parts" not in told:
        return tensors[name]
    several = [tensors[f"{name}.{part}"] for part in told["parts"]]
    if told["value"] is None:
        return tuple(several)
    kind = _OWN_VALUES.get(told["value"]) or namedtuple(told["value"], told["parts"])  # noqa: PYI024 - of a user's own, whose fields no type checker knows
    return kind(*several)

"""Result: what a corpus showed of each layer and head."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.attention.files import read, understood, write
from glasshead.attention.frame import import_pandas
from glasshead.attention.saved_observation import described, found
from glasshead.statistics import Statistic
from glasshead.watching.summary import Summary

if TYPE_CHECKING:
    import pandas as pd

_KIND = "statistics of a corpus"


class CorpusResult:
    """Each statistic of a corpus, `[heads, …]` in float64, by the names of layer and statistic.

    It is no `Mapping`, as torchmetrics would take those apart.

    Attributes:
        documents: How many there were.
        statistics: What was asked, by name.

    >>> import glasshead as gh
    >>> entropy = torch.tensor([0.5, 1.5], dtype=torch.float64)
    >>> result = CorpusResult({"layers.0": {"entropy": entropy}}, {"entropy": gh.Entropy()}, 7)
    >>> result["layers.0"]["entropy"].mean().item()
    1.0
    >>> print(result)
    The statistics of 7 documents in 1 layer
    layers.0: entropy [2]
    """

    def __init__(
        self,
        values: Mapping[str, Mapping[str, Tensor]],
        statistics: Mapping[str, Statistic],
        documents: int,
    ) -> None:
        self._values = {layer: dict(own) for layer, own in values.items()}
        self.statistics, self.documents = dict(statistics), documents

    def __getitem__(self, layer: str) -> dict[str, Tensor]:
        if layer not in self._values:
            raise KeyError(f"{layer!r} was not seen; there is {', '.join(self._values)}.")
        return self._values[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        """The names of the layers."""
        return list(self._values)

    def stacked(self, asked: "str | Statistic") -> Float[Tensor, "layers heads *rest"]:
        """One statistic of all layers.

        Errors: a KeyError for what was not asked; a ValueError where layers are of unlike shapes.
        """
        name = self._name(asked)
        values = [own[name] for own in self._values.values()]
        if len({value.shape for value in values}) > 1:
            shapes = {layer: list(own[name].shape) for layer, own in self._values.items()}
            raise ValueError(
                f"stacked takes layers of one shape, and {name!r} is {shapes}: take each by its "
                f"name."
            )
        return torch.stack(values)

    def summary(self) -> Summary:
        """A table for each statistic that is a number a head: layers × heads."""
        values = {
            name: [own[name].tolist() for own in self._values.values()] for name in self._flat
        }
        return Summary(tuple(self), values, self.statistics)

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """A pandas table with a row for each layer and head, and each place of further axes.

        Args:
            names: Names, or statistics, of the same axes; without any, all that are a number a
                head.

        Errors: a KeyError for what was not asked, a ValueError where the axes differ, an
        ImportError where there is no pandas.
        """
        pandas = import_pandas()
        asked = [self._name(name) for name in names] or self._flat
        axes = list({self._axes(name) for name in asked})
        if len(axes) != 1:
            raise ValueError(
                f"to_frame() takes statistics of the same axes together, and got "
                f"{', '.join(asked) or 'none that is a number a head'}: ask for each on its own."
            )
        tables = []
        for own in self._values.values():
            shape = own[asked[0]].shape
            index = pandas.MultiIndex.from_product(map(range, shape), names=["head", *axes[0]])
            columns = {name: own[name].cpu().reshape(-1).numpy() for name in asked}
            tables.append(pandas.DataFrame(columns, index=index))
        return pandas.concat(tables, keys=list(self), names=["layer"])

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write safetensors: `layer.statistic` each, and what they are as JSON in the metadata.

        Errors: an OSError where the file cannot be written; then an older one is as it was.
        """
        told = described(self.statistics, next(iter(self._values.values()), {}))
        tensors = {
            f"{layer}.{name}": value
            for layer, own in self._values.items()
            for name, value in own.items()
        }
        description = {"layers": list(self), "documents": self.documents, "statistics": told}
        write(file, _KIND, description, tensors)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "CorpusResult":
        """Read what `save` has written; nothing in the file is run.

        Errors: an OSError where the file cannot be read; a ValueError where it holds no such thing.
        """
        description, tensors = read(file, _KIND)
        with understood(file, _KIND):
            values, statistics = {}, {}
            for layer in map(str, description["layers"]):
                own = {
                    name: tensors[f"{layer}.{name}"] for name in map(str, description["statistics"])
                }
                statistics, values[layer] = found(description["statistics"], own)
            return cls(values, statistics, int(description["documents"]))

    def __repr__(self) -> str:
        layers = "1 layer" if len(self) == 1 else f"{len(self)} layers"
        documents = "1 document" if self.documents == 1 else f"{self.documents} documents"
        lines = [f"The statistics of {documents} in {layers}"]
        for layer, own in self._values.items():
            shapes = (f"{name} {list(value.shape)}" for name, value in own.items())
            lines.append(f"{layer}: {', '.join(shapes)}")
        return "\n".join(lines if len(lines) < 9 else [*lines[:4], "…", *lines[-3:]])

    @property
    def _flat(self) -> list[str]:
        """Which are a number a head."""
        return [name for name in self.statistics if not self._axes(name)]

    def _axes(self, name: str) -> tuple[str, ...]:
        """Of the value, after that of the heads; a mean has none for queries."""
        return tuple(axis for axis in self.statistics[name].axes if axis != "query")

    def _name(self, asked: "str | Statistic") -> str:
        name = asked
        if not isinstance(asked, str):
            name = next((n for n, one in self.statistics.items() if one == asked), None)
        if not isinstance(name, str) or name not in self.statistics:
            raise KeyError(f"{asked!r} was not asked; there is {', '.join(self.statistics)}.")
        return name

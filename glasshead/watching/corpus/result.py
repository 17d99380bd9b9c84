"""Corpus results: the statistics of each layer and head over a corpus; and `load`, for any file."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

import glasshead.statistics as known_statistics
from glasshead.attention import JoinedWeights, Observation, Weights
from glasshead.attention.io import (
    READERS,
    UnknownStatistic,
    describe_values,
    description_of,
    found,
    read,
    understood,
    write,
)
from glasshead.attention.observe import import_pandas
from glasshead.recipe.validation import whole_number
from glasshead.statistics import Statistic
from glasshead.watching.seen import Seen, Summary, counted

if TYPE_CHECKING:
    import pandas as pd


class Layer(NamedTuple):
    """The shape of one layer.

    Attributes:
        heads: Number of heads.
        lengths: Number of queries and keys of each text, where all texts must have the same; None
            where they need not.
    """

    heads: int
    lengths: tuple[int, int] | None = None


@dataclass(frozen=True)
class CorpusLayout:
    """The order of layers, whose heads are concatenated along one axis.

    Attributes:
        layers: Layers by name.

    >>> first, second = CorpusLayout({"a": Layer(3)}), CorpusLayout({"b": Layer(2)})
    >>> first.merged(second).places
    {'a': slice(0, 3, None), 'b': slice(3, 5, None)}
    """

    layers: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def heads(self) -> int:
        """Total number of heads."""
        return sum(layer.heads for layer in self.layers.values())

    @property
    def places(self) -> dict[str, slice]:
        """Slice of each layer along the axis of heads."""
        places, begin = {}, 0
        for name, layer in self.layers.items():
            places[name] = slice(begin, begin + layer.heads)
            begin += layer.heads
        return places

    def merged(self, other: "CorpusLayout") -> "CorpusLayout":
        """Return the layers of this layout, followed by those only the other has.

        Errors: a ValueError if the two disagree on a layer.
        """
        layers = dict(self.layers)
        for name, layer in other.layers.items():
            layers[name] = _same(name, layers.get(name, layer), layer)
        return CorpusLayout(layers)

    def moved(
        self, sums: Float[Tensor, " heads *rest"], old: "CorpusLayout", fill: float
    ) -> Float[Tensor, " all_heads *rest"]:
        """Rearrange sums from an older layout to this one; new layers are filled with `fill`."""
        if old == self:
            return sums
        moved = sums.new_full((self.heads, *sums.shape[1:]), fill)
        places = self.places
        for name, place in old.places.items():
            moved[places[name]] = sums[place]
        return moved

    def tensor(self, device: torch.device | str) -> Tensor:
        """Serialize the layout to a byte tensor, which ranks can exchange."""
        text = json.dumps([[name, *layer] for name, layer in self.layers.items()])
        return torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Deserialize a layout from the tensor of `tensor`."""
        layers = json.loads(bytes(tensor.to(torch.uint8).tolist()))
        return cls(
            {
                name: Layer(heads, None if lengths is None else (lengths[0], lengths[1]))
                for name, heads, lengths in layers
            }
        )


def _same(name: str, one: Layer, other: Layer) -> Layer:
    if one.heads != other.heads:
        raise ValueError(
            f"a corpus must be of one model, but {name!r} has {one.heads} heads and "
            f"{other.heads}. Use another CorpusStatistics for another model."
        )
    if None not in (one.lengths, other.lengths) and one.lengths != other.lengths:
        raise ValueError(
            "a PooledMap of a corpus needs texts of one length, as its blocks are parts of the "
            f"text, but {name!r} had one of {_lengths(one)} and one of {_lengths(other)}. Cut "
            "them to one length, or omit the map."
        )
    return one if one.lengths is not None else other


def _lengths(layer: Layer) -> str:
    queries, keys = layer.lengths or (0, 0)
    return f"{queries} tokens" if queries == keys else f"{queries} queries on {keys} keys"


_KIND, OF_A_MODEL = "statistics of a corpus", "statistics of a model"
"""File kinds that can be read: that of `CorpusResult.save`, and that of the command `observe` for
a model."""


class LayerStatistics(dict[str, Tensor]):
    """The statistics of one layer, `[heads, …]` each: `.entropy` or `[gh.Entropy()]`, as in `Seen`.

    Attributes:
        statistics: The statistics by name.
    """

    def __init__(self, values: Mapping[str, Tensor], statistics: Mapping[str, Statistic]) -> None:
        super().__init__(values)
        self.statistics = dict(statistics)

    def __getitem__(self, asked: "str | Statistic") -> Tensor:
        return super().__getitem__(_name_of(asked, self.__dict__.get("statistics", {})))

    def __getattr__(self, name: str) -> Tensor:
        if name in self:
            return self[name]
        raise AttributeError(f"{name!r} was not requested. Use one of {', '.join(self)}.")

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self])


class CorpusResult:
    """The statistics of a corpus, `[heads, …]` in float64, by layer and statistic name.

    `result["layers.0"].entropy` is the entropy of one layer, `result.stacked("entropy")` of all. It
    is not a `Mapping`, because torchmetrics would flatten it.

    Attributes:
        documents: Number of documents.
        statistics: The statistics by name.
        tokens: The text of each token, if a single text was read.
        source: Metadata of the model and the texts, such as their names.

    >>> import glasshead as gh
    >>> entropy = torch.tensor([0.5, 1.5], dtype=torch.float64)
    >>> result = CorpusResult({"layers.0": {"entropy": entropy}}, {"entropy": gh.Entropy()}, 7)
    >>> result["layers.0"].entropy.mean().item()
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
        *,
        tokens: Sequence[str] | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self._values = {layer: LayerStatistics(own, statistics) for layer, own in values.items()}
        self.statistics, self.documents = dict(statistics), documents
        self.tokens = None if tokens is None else tuple(tokens)
        self.source = dict(source or {})

    def __getitem__(self, layer: str) -> LayerStatistics:
        if layer not in self._values:
            raise KeyError(f"{layer!r} was not observed. Use one of {', '.join(self._values)}.")
        return self._values[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        """Return the names of the layers."""
        return list(self._values)

    def stacked(self, asked: "str | Statistic") -> Float[Tensor, "layers heads *rest"]:
        """Stack one statistic over all layers.

        Errors: a KeyError for a missing statistic; a ValueError if layers differ in shape.
        """
        name = _name_of(asked, self.statistics)
        values = [own[name] for own in self._values.values()]
        if len({value.shape for value in values}) > 1:
            shapes = {layer: list(own[name].shape) for layer, own in self._values.items()}
            raise ValueError(
                f"stacked needs layers of one shape, but {name!r} is {shapes}. Get each by its "
                "name."
            )
        return torch.stack(values)

    def summary(self) -> Summary:
        """Return a table, layers × heads, for each statistic with one number per head."""
        values = {
            name: [own[name].tolist() for own in self._values.values()] for name in self._flat
        }
        return Summary(tuple(self), values, self.statistics)

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """Return a pandas table with a row for each layer, head and index of further axes.

        If the keys are the tokens of one text, the column `token` holds them.

        Args:
            names: Names, or statistics, of the same axes; without any, all with one number per
                head.

        Errors: a KeyError for a missing statistic, a ValueError if the axes differ, an
        ImportError without pandas.
        """
        pandas = import_pandas()
        asked = [_name_of(name, self.statistics) for name in names] or self._flat
        axes = list({self._axes(name) for name in asked})
        if len(axes) != 1:
            raise ValueError(
                "to_frame() needs statistics of the same axes, got "
                f"{', '.join(asked) or 'none that is a number a head'}. Ask for each on its own."
            )
        tables = []
        for own in self._values.values():
            shape = own[asked[0]].shape
            index = pandas.MultiIndex.from_product(map(range, shape), names=["head", *axes[0]])
            columns = {name: own[name].cpu().reshape(-1).numpy() for name in asked}
            tables.append(pandas.DataFrame({**self._written(axes[0], shape), **columns}, index))
        return pandas.concat(tables, keys=list(self), names=["layer"])

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write safetensors: `layer.statistic` each, and what they are as JSON in the metadata.

        Errors: an OSError if the file cannot be written; then an older one is as it was.
        """
        described = describe_values(self.statistics, next(iter(self._values.values()), {}))
        tensors = {
            f"{layer}.{name}": value
            for layer, own in self._values.items()
            for name, value in own.items()
        }
        description = {"layers": list(self), "documents": self.documents, "statistics": described}
        known = {"written_tokens": self.tokens, "source": self.source or None}
        description |= {name: value for name, value in known.items() if value is not None}
        write(file, _KIND, description, tensors)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "CorpusResult":
        """Read a file of `save`, or of the command `observe` for a model; no code is run.

        Errors: an OSError if the file cannot be read; a ValueError for any other file.
        """
        description, tensors = read(file, _KIND, OF_A_MODEL)
        of_a_model = description["kind"] == OF_A_MODEL
        with understood(file, description["kind"]):
            described = description.get("asked" if of_a_model else "statistics")
            values, statistics = {}, {}
            for layer in map(str, description["layers"]):
                names = description["statistics"]
                own = {name: tensors[f"{layer}.{name}"] for name in map(str, names)}
                if not all(value.ndim for value in own.values()):
                    raise ValueError(f"{layer!r} has a number without heads")
                statistics, values[layer] = (
                    (_as_written(names), own) if described is None else found(described, own)
                )
            source = description.get("source")
            if of_a_model:
                source = {name: description[name] for name in description.keys() - _NOT_SOURCE}
            return cls(
                values,
                statistics,
                whole_number(description["pieces" if of_a_model else "documents"], "documents"),
                tokens=_checked_tokens(description.get("written_tokens")),
                source=source,
            )

    def __repr__(self) -> str:
        documents, layers = counted(self.documents, "document"), counted(len(self), "layer")
        lines = [f"The statistics of {documents} in {layers}"]
        for layer, own in self._values.items():
            shapes = (f"{name} {list(value.shape)}" for name, value in own.items())
            lines.append(f"{layer}: {', '.join(shapes)}")
        return "\n".join(lines if len(lines) < 9 else [*lines[:4], "…", *lines[-3:]])

    @property
    def _flat(self) -> list[str]:
        """Names of the statistics with one number per head."""
        return [name for name in self.statistics if not self._axes(name)]

    def _axes(self, name: str) -> tuple[str, ...]:
        """Return the axes of a value after that of heads; the query axis is averaged out."""
        return tuple(axis for axis in self.statistics[name].axes if axis != "query")

    def _written(self, axes: tuple[str, ...], shape: Sequence[int]) -> dict[str, Any]:
        """Return a column of tokens, where the last axis indexes the tokens of one text.

        A text that was read in chunks of one length has no single token per position.
        """
        keys = shape[-1]
        if axes != ("key",) or self.tokens is None or not keys <= len(self.tokens) < 2 * keys:
            return {}
        return {"token": list(self.tokens[:keys]) * shape[0]}


# Keys of a model's file that describe its values, not their source.
_NOT_SOURCE = {"kind", "version", "layers", "statistics", "asked", "written_tokens"}


def _name_of(asked: "str | Statistic", statistics: Mapping[str, Statistic]) -> str:
    """Return the name of a statistic.

    Errors: a KeyError if it was not recorded.
    """
    name = asked
    if not isinstance(asked, str):
        name = next((n for n, one in statistics.items() if one == asked), None)
    if not isinstance(name, str) or name not in statistics:
        raise KeyError(f"{asked!r} was not requested. Use one of {', '.join(statistics)}.")
    return name


def _as_written(described: Mapping[str, Any]) -> dict[str, Statistic]:
    """Return the statistics of an older file, which names them as the command line does."""
    without_arguments = {"entropy", "log-sum-exp", "max-score", "max-weight", "mean-distance"}
    statistics: dict[str, Statistic] = {}
    for name, one in described.items():
        kind, axes = str(one["written"]), tuple(map(str, one["axes"][1:]))
        statistics[name] = (
            getattr(known_statistics, kind.title().replace("-", ""))()
            if kind in without_arguments
            else UnknownStatistic(kind, str(one["unit"]), axes)
        )
    return statistics


def _checked_tokens(tokens: Any) -> tuple[str, ...] | None:
    if tokens is None:
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError("its tokens are not a list of texts")
    return tuple(tokens)


def load(
    file: str | os.PathLike[str],
) -> "Observation | Weights | JoinedWeights | Seen | CorpusResult":
    """Read a file written by `save` or `glasshead observe --save`.

    The file gives the type: an `Observation` or the `Weights` of one attention, the `JoinedWeights`
    of a text that grew call by call, the `Seen` of a watched model, or the `CorpusResult` of a
    corpus. No code of the file is run.

    Errors: an OSError if the file cannot be read; a ValueError if it holds none of these.

    >>> import tempfile
    >>> import torch
    >>> import glasshead as gh
    >>> x, file = torch.eye(3), Path(tempfile.mkdtemp()) / "seen.safetensors"
    >>> gh.Attention(mask=gh.causal()).observe(x, x, x, [gh.Entropy()]).save(file)
    >>> print(gh.load(file))
    Observation of 3 queries
    context  [3, 3]
    entropy  [3]     0.000 … 1.058  mean 0.570  nats
    """
    description = description_of(file)
    reader = READERS[description["kind"]]
    if reader == Weights.__name__ and "recipe" not in description:
        raise ValueError(
            f"{Path(file)} holds the parameters of a model, without its config. Load the folder "
            "that it is in, for example with gh.Writer.load."
        )
    kinds = Observation, Weights, JoinedWeights, Seen, CorpusResult
    return next(kind for kind in kinds if reader == kind.__name__).load(file)

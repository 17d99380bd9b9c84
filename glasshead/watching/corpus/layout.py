"""Layout: whose heads stand where in the sums of a corpus, which processes have to agree on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor


class Layer(NamedTuple):
    """What is known of a layer.

    Attributes:
        heads: How many.
        lengths: How many queries and keys each of its texts has, where that must be the same of
            all; None where it need not.
    """

    heads: int
    lengths: tuple[int, int] | None = None


@dataclass(frozen=True)
class Layout:
    """Layers in their order; the heads of all of them follow each other in one axis.

    Attributes:
        layers: By name.

    >>> first, second = Layout({"a": Layer(3)}), Layout({"b": Layer(2)})
    >>> first.merged(second).places
    {'a': slice(0, 3, None), 'b': slice(3, 5, None)}
    """

    layers: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def heads(self) -> int:
        """Of all layers together."""
        return sum(layer.heads for layer in self.layers.values())

    @property
    def places(self) -> dict[str, slice]:
        """Where the heads of each layer stand."""
        places, begin = {}, 0
        for name, layer in self.layers.items():
            places[name] = slice(begin, begin + layer.heads)
            begin += layer.heads
        return places

    def merged(self, other: "Layout") -> "Layout":
        """The layers of this one, then those that only the other has.

        Errors: a ValueError where a layer is another in both.
        """
        layers = dict(self.layers)
        for name, layer in other.layers.items():
            layers[name] = _same(name, layers.get(name, layer), layer)
        return Layout(layers)

    def moved(
        self, sums: Float[Tensor, "heads *rest"], old: "Layout", fill: float
    ) -> Float[Tensor, "all_heads *rest"]:
        """Sums that lie as in an older layout, as they lie here; `fill` stands for new layers."""
        if old == self:
            return sums
        moved = sums.new_full((self.heads, *sums.shape[1:]), fill)
        places = self.places
        for name, place in old.places.items():
            moved[places[name]] = sums[place]
        return moved

    def tensor(self, device: torch.device | str) -> Tensor:
        """The same as bytes in a tensor, which processes can exchange."""
        told = json.dumps([[name, *layer] for name, layer in self.layers.items()])
        return torch.tensor(list(told.encode()), dtype=torch.uint8, device=device)

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """What such a tensor tells."""
        told = json.loads(bytes(tensor.to(torch.uint8).tolist()))
        return cls(
            {
                name: Layer(heads, None if lengths is None else (lengths[0], lengths[1]))
                for name, heads, lengths in told
            }
        )


def _same(name: str, one: Layer, other: Layer) -> Layer:
    if one.heads != other.heads:
        raise ValueError(
            f"a corpus takes what was seen of one model, and {name!r} has {one.heads} heads and "
            f"{other.heads}: take another CorpusStatistics for another model."
        )
    if None not in (one.lengths, other.lengths) and one.lengths != other.lengths:
        raise ValueError(
            f"a PooledMap of a corpus takes texts of one length, as its blocks are parts of the "
            f"text, and {name!r} had one of {_lengths(one)} and one of {_lengths(other)}: cut them "
            f"to one length, or leave the map out."
        )
    return one if one.lengths is not None else other


def _lengths(layer: Layer) -> str:
    queries, keys = layer.lengths or (0, 0)
    return f"{queries} tokens" if queries == keys else f"{queries} queries on {keys} keys"

"""Projections: one matrix product for all that is made from one input."""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import NamedTuple, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class _Place(NamedTuple):
    """Which of the stacked maps an output is made by, and which rows of it."""

    stack: int
    start: int
    stop: int


class Projections(nn.Module):
    """Several linear maps, x ↦ x Wᵀ + b each, stacked where they read inputs of one width.

    Neighbours of one width share a matrix, their rows one below the other. Where they are given
    the same input too, as in self-attention, one product makes them all; in cross-attention, keys
    and values are made together.

    Args:
        inputs: The width of each input.
        outputs: The width of each output.
        bias: Whether each map adds a bias.

    >>> import torch
    >>> projections = Projections((7, 5, 5), (6, 4, 4))
    >>> projections.stacks
    ModuleList(
      (0): Linear(in_features=7, out_features=6, bias=True)
      (1): Linear(in_features=5, out_features=8, bias=True)
    )
    >>> words, others = torch.rand(3, 7), torch.rand(3, 5)
    >>> [x.shape[-1] for x in projections(words, others, others)]
    [6, 4, 4]
    """

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], *, bias: bool = True) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        stacks, places = [], []
        for width, run in groupby(zip(inputs, outputs, strict=True), lambda pair: pair[0]):
            stops = list(accumulate(output for _, output in run))
            starts = [0, *stops[:-1]]
            places += [_Place(len(stacks), *rows) for rows in zip(starts, stops, strict=True)]
            stacks.append(nn.Linear(width, stops[-1], bias=bias))
        self.stacks = nn.ModuleList(stacks)
        self.places = tuple(places)

    def forward(
        self, *given: Float[Tensor, "*batch _width"]
    ) -> list[Float[Tensor, "*batch _output"]]:
        """The outputs of the first maps, one for each input that is given."""
        outputs: list[Tensor] = []
        while len(outputs) < len(given):
            outputs += self._product(given, len(outputs))
        return outputs

    @property
    def one(self) -> bool:
        """Whether all maps are stacked in one matrix."""
        return len(self.stacks) == 1

    def together(self, x: Float[Tensor, "*batch _width"]) -> Float[Tensor, "*batch _outputs"]:
        """The outputs of all maps, side by side, where these are stacked in one matrix."""
        stack = cast("nn.Linear", self.stacks[0])
        return F.linear(x, stack.weight, stack.bias)

    def _product(self, given: Sequence[Tensor], first: int) -> Sequence[Tensor]:
        """The output of map `first`, and of those after it that one product makes with it."""
        x, after = given[first], first + 1
        while after < len(given) and given[after] is x:
            after += 1
        places = self.places[first:after]
        weight, bias = self._rows(_Place(places[0].stack, places[0].start, places[-1].stop))
        return F.linear(x, weight, bias).split([p.stop - p.start for p in places], -1)

    def _rows(self, place: _Place) -> tuple[Tensor, Tensor | None]:
        linear = cast("nn.Linear", self.stacks[place.stack])
        weight, bias = linear.weight, linear.bias
        if (place.start, place.stop) != (0, len(weight)):
            weight = weight[place.start : place.stop]
            bias = None if bias is None else bias[place.start : place.stop]
        return weight, bias

    def maps(self) -> list[tuple[Float[Tensor, "output input"], Float[Tensor, " output"] | None]]:
        """The weight and the bias of each map, views into what is stacked."""
        return [self._rows(place) for place in self.places]

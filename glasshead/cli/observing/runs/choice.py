"""Choice: whose keys and map are drawn, of all layers and heads."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glasshead.cli.observing.options import check_place


@dataclass(frozen=True)
class Choice:
    """A head of a layer, a layer, or all.

    Attributes:
        layer: Counted from 0; None: the mean over all.
        head: Of the layer; None: the mean over all.
    """

    layer: int | None
    head: int | None

    def check(self, layers: int, heads: int) -> None:
        """Raise a ValueError where there are fewer."""
        check_place("layer", self.layer, layers)
        check_place("head", self.head, heads)

    def mean(self, values: Float[Tensor, "layers heads *rest"]) -> Float[Tensor, "*rest"]:
        """The mean over what is chosen."""
        return self.rows(values).mean(0)

    def rows(self, values: Float[Tensor, "layers heads *rest"]) -> Float[Tensor, "rows *rest"]:
        """A row for each layer, the mean over its heads; or for each head of the one layer."""
        if self.layer is None:
            return values.mean(1)
        heads = values[self.layer]
        return heads if self.head is None else heads[self.head : self.head + 1]

    def names(self, layers: int, heads: int) -> list[str]:
        """What the rows are called."""
        if self.layer is None:
            return [f"layer {layer}" for layer in range(layers)]
        return [f"head {head}" for head in (range(heads) if self.head is None else [self.head])]

    def said(self, layers: int, heads: int) -> str:
        """Of whom the mean is."""
        if self.head is not None or (self.layer is not None and heads == 1):
            return f"of layer {self.layer}, head {self.head or 0}"
        if self.layer is not None:
            return f"mean over the {heads} heads of layer {self.layer}"
        if layers == heads == 1:
            return "of the one head"
        return f"mean over all {layers * heads} heads"

    def said_of_rows(self) -> str:
        """Of whom each row is."""
        if self.layer is None:
            return "in each layer, mean over its heads"
        return f"in {'each head of ' if self.head is None else ''}layer {self.layer}"

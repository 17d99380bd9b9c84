"""Base class of the parts of a recipe: saving, description in words, selection of a head."""

from dataclasses import replace
from typing import Any, ClassVar

from jaxtyping import Shaped
from torch import Tensor

from glasshead.recipe.tile import Tile, with_heads


class HeadIndex:
    """Index of one head of one batch row of a problem.

    Args:
        tile: All pairs of the whole problem.
        batch: A place along each batch axis.
        head: Which query head.

    >>> import torch
    >>> place = HeadIndex(Tile(range(5), range(5), offset=torch.tensor([1, 4])), (1,), 2)
    >>> x = torch.randn(2, 3, 5, 7)
    >>> place.offset, place.of_row(torch.tensor([11, 13])), place.of_scores(x).equal(x[1, 2])
    (4, tensor(13), True)
    """

    def __init__(self, tile: Tile, batch: tuple[int, ...], head: int) -> None:
        self.tile, self._batch, self._head = tile, batch, head
        self.offset = self.in_row(tile.offset)

    def in_row(self, values: int | Tensor) -> int:
        """Select the batch row's number of `[*#batch]`; a single number broadcasts."""
        return int(self.of_row(values)) if isinstance(values, Tensor) else values

    def of_row(self, tensor: Shaped[Tensor, "*leading"], axes: int = 0) -> Tensor:
        """Select the batch row of `[*#batch, …]`, keeping `axes` trailing axes."""
        return _part(tensor, self._batch, axes)

    def number(self, per_head: Any) -> Any:
        """Select the head's number of a tensor `[heads]`; anything else is of every head."""
        if not isinstance(per_head, Tensor) or not per_head.ndim:
            return per_head
        return float(per_head.detach()[self._head])

    def of_scores(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """Select the head of a tensor that broadcasts to `[*batch, heads, …]`."""
        tensor = tensor[(None,) * max(0, 2 - tensor.ndim)]
        return _part(tensor, (*self._batch, self._head), 2)

    def of_given(self, tensor: Shaped[Tensor, "*leading"]) -> Shaped[Tensor, "#queries #keys"]:
        """Select the head of a tensor in the layout of the caller's scores, maybe without heads."""
        return self.of_scores(with_heads(tensor, headed=self.tile.headed))

    def whole(self, tile: Tile) -> Tile:
        """Return the tile with the offset and layout of the whole problem, over all heads."""
        return replace(tile, offset=self.tile.offset, headed=self.tile.headed)


def _part(tensor: Tensor, places: tuple[int, ...], axes: int) -> Tensor:
    """Index the leading axes of `[*#leading, …]`; axes of size 1 or missing ones broadcast."""
    leading = tensor.shape[: tensor.ndim - axes]
    aligned = places[len(places) - len(leading) :]
    index = tuple(0 if size == 1 else at for size, at in zip(leading, aligned, strict=True))
    return tensor[index]


class Description:
    """A sentence about a part: English with named placeholders, translated by whoever shows it.

    `make translations` collects the sentences of our own; one that is in no catalogue is shown as
    it is. A value may be a description, too.

    >>> Description("It sees {count} keys.", count=3).places
    {'count': 3}
    """

    def __init__(self, sentence: str, /, **places: object) -> None:
        self.sentence, self.places = sentence, places


PARTS: "dict[str, type[Part]]" = {}
_COMPUTES = ("visible", "forward", "features", "normalize")
_WORDS = ("describe", "expanded", "written")


class Part:
    """Base class of scores, biases, masks and normalizers.

    A class that states `saved` itself is one of our own, whose behavior is known. A subclass of
    one may differ in anything: it is custom, as is one that a user writes from scratch.

    Attributes:
        saved: The arguments, which are attributes too, that make such a part again from a file.
        learned: Its parameters, by their names in a state dict.
        is_custom: Whether nothing is known of it but its base class.
    """

    saved: ClassVar[tuple[str, ...]]
    learned: ClassVar[tuple[str, ...]] = ()
    is_custom: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.is_custom = "saved" not in own
        if "saved" in own:
            PARTS.setdefault(cls.__name__, cls)
        if any(name in own for name in _COMPUTES):
            # The words of a base class do not hold for one that computes something else.
            family = next(base for base in reversed(cls.__mro__) if Part in base.__bases__)
            for name in _WORDS:
                if name not in own and hasattr(family, name):
                    setattr(cls, name, getattr(family, name))

    def describe(self) -> Description | str | None:
        """Describe what the part does and why, for `explain`; None if that is not known.

        A subclass inherits it with the method that computes: one that overrides `visible`,
        `forward`, `features` or `normalize` alone is described as any part of its kind.
        """
        return None

    @property
    def class_name(self) -> str:
        """Return the name of the class that defines the part."""
        return type(self).__name__

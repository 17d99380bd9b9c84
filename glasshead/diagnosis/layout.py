"""Layout: what the axes of a mask stand for."""

from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """What the axes of a mask stand for.

    Attributes:
        shape: The mask's own.
        by_key: Whether its last axis is the only one of queries or keys: `[keys]`, `[batch, keys]`.
        queries: How many there will be; None where that is not known.
        keys: How many there will be.
        offset: The position of query 0 among the keys, or None where it is not stated.
    """

    shape: tuple[int, ...]
    by_key: bool
    queries: int | None
    keys: int
    offset: int | None = None

    @property
    def position(self) -> int:
        """Where query 0 is expected among the keys: by default the last query sees every key."""
        if self.offset is not None:
            return self.offset
        return self.keys - (self.queries or self.keys)

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes before those of queries and keys."""
        return self.shape[:-1] if self.by_key else self.shape[:-2]

    def pairs(self, cells: Shaped[Tensor, "..."]) -> Shaped[Tensor, "*leading queries keys"]:
        """Cells of the mask's own axes, with an axis for queries, and all that are known."""
        if self.by_key:
            return cells[..., None, :].expand(*self.leading, 1, self.keys)
        queries = cells.shape[-2] if self.queries is None else self.queries
        return cells.expand(*self.leading, queries, self.keys)

    def told(self, place: tuple[int, ...]) -> str:
        """A place of the mask in words.

        >>> Layout((2, 3, 5, 7), False, 5, 7).told((1, 0, 4, 6))
        'query 4, key 6 (batch row 1, head 0)'
        """
        inner = ("key",) if self.by_key else ("query", "key")
        leading = place[: len(self.leading)]
        words = [
            f"{name} {index}" for name, index in zip(inner, place[len(leading) :], strict=False)
        ]
        around = [f"{name} {index}" for name, index in zip(self._names(), leading, strict=True)]
        if not words:
            return ", ".join(around) or "the mask"
        return ", ".join(words) + (f" ({', '.join(around)})" if around else "")

    def _names(self) -> tuple[str, ...]:
        count = len(self.leading)
        if self.by_key:
            return ("batch row",) * count
        if count == 1:
            return ("row",)
        return (*("batch row",) * (count - 1), "head")[:count]

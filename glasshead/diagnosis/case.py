"""Case: a mask whose axes and meaning are known, as all findings read it."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.laying import LaidOut
from glasshead.diagnosis.layout import Layout
from glasshead.diagnosis.meaning import Meaning
from glasshead.diagnosis.rows import Edge, Rows, last_edge

# Fewer queries than this share do not make a diagonal.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Case:
    """A mask whose meaning is known.

    Attributes:
        laid: The mask, and its axes.
        meaning: What it says.
        visible: Which pairs are visible.
    """

    laid: LaidOut
    meaning: Meaning
    visible: Bool[Tensor, "*leading queries keys"]

    @property
    def layout(self) -> Layout:
        """What its axes stand for."""
        return self.laid.layout

    @cached_property
    def rows(self) -> Rows:
        """What each query sees."""
        return Rows.of(self.visible)

    @cached_property
    def seen(self) -> Bool[Tensor, "*leading keys"]:
        """Which keys any query sees."""
        return self.visible.any(-2)

    @cached_property
    def uniform(self) -> bool:
        """Whether all queries see the same keys."""
        return self.visible.shape[-2] == 1 or bool((self.visible == self.visible[..., :1, :]).all())

    @cached_property
    def edge(self) -> Edge | None:
        """The diagonal where most queries see their last key, or None where there is none."""
        if self.uniform:
            return None
        edge = last_edge(self.rows)
        enough = (
            edge is not None and edge.share >= _SHARE and edge.count >= min(2, self.queries - 1)
        )
        return edge if enough else None

    @property
    def queries(self) -> int:
        """How many queries there are; 1 where all see the same and their number is not known."""
        return self.visible.shape[-2]

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return self.visible.shape[-1]

    def place(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """A place among the pairs `[*leading, query, key]` as one of the mask's own axes."""
        leading = len(self.layout.leading)
        return (*index[:leading], *index[leading + 1 :]) if self.layout.by_key else index

    def told(self, index: tuple[int, ...]) -> str:
        """A place among the pairs in words."""
        return self.layout.told(self.place(index))

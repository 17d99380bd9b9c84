"""Patterns: what the heads of a model look at, by layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention.to_pandas import import_pandas
from glasshead.drawing import Document, Table
from glasshead.watching.summary import short

if TYPE_CHECKING:
    import pandas as pd

_SHARES = ("vertical", "slash", "vertical_slash", "a_shape")


@dataclass(frozen=True, eq=False)
class Pattern:
    """The lines of one layer, the best first; of two and three axes there are no heads.

    Attributes:
        columns: The keys of the vertical lines.
        column_mass: What each received from the last queries.
        distances: i - j of the slashes, query i being at the position that it has among the keys;
            below 0 of keys that come later.
        distance_mass: What the last queries gave at each.
        shares: Of the mass, what vertical lines alone recover, what slashes alone do, what both do,
            and what the A-shape does.
    """

    columns: Int[Tensor, "*batch heads vertical"]
    column_mass: Float[Tensor, "*batch heads vertical"]
    distances: Int[Tensor, "*batch heads slash"]
    distance_mass: Float[Tensor, "*batch heads slash"]
    shares: Float[Tensor, "*batch heads 4"]

    @property
    def headed(self) -> Float[Tensor, "texts heads 4"]:
        """The shares with one axis before that of heads."""
        shares = self.shares
        shares = shares.unsqueeze(-2) if shares.ndim < 3 else shares
        return shares.reshape(-1, *shares.shape[-2:])


@dataclass(frozen=True, eq=False, repr=False)
class Patterns(Mapping[str, Pattern]):
    """The pattern of each layer, by its name, that print as a table of layers × heads.

    Attributes:
        of_layers: By name.
        lines: How many vertical lines and how many slashes.
        window: How many of the last queries chose them.
        enough: The share of the mass from which on a shape is called a pattern.

    >>> import torch
    >>> import glasshead as gh
    >>> rule, x = gh.Attention(mask=gh.window(before=1) & gh.causal()), torch.eye(7)[None, None]
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(x, x, x)
    >>> gh.patterns(seen, vertical=1, slash=2, window=5)        # itself, and the one before
    What the last 5 queries look at
    ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
    <BLANKLINE>
    1 vertical, 2 slash, and the share of the mass that they hold
    layer      head 0
    ───────────────────────
    the model  A-shape 100%
    """

    of_layers: dict[str, Pattern]
    lines: tuple[int, int]
    window: int
    enough: float

    def __getitem__(self, name: str) -> Pattern:
        return self.of_layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.of_layers)

    def __len__(self) -> int:
        return len(self.of_layers)

    def kinds(self, name: str) -> list[str]:
        """Of each head of a layer, by the mean of its shares over the batch."""
        return [self._kind(shares)[0] for shares in self[name].headed.mean(0).tolist()]

    def to_frame(self) -> "pd.DataFrame":
        """A pandas table: a row for each layer, text of the batch and head.

        Errors: an ImportError where there is no pandas.
        """
        rows = {
            (name, text, head): [self._kind(shares)[0], *shares]
            for name, pattern in self.items()
            for text, heads in enumerate(pattern.headed.tolist())
            for head, shares in enumerate(heads)
        }
        pandas = import_pandas()
        index = pandas.MultiIndex.from_tuples(list(rows), names=["layer", "batch", "head"])
        return pandas.DataFrame(list(rows.values()), index=index, columns=["kind", *_SHARES])

    def document(self) -> Document:
        """The same as a document for the terminal or a page."""
        heads = max(len(self.kinds(name)) for name in self)
        names, pattern = short(list(self))
        rows = [
            [layer or "the model", *map(self._cell, self[name].headed.mean(0).tolist())]
            for layer, name in zip(names, self, strict=True)
        ]
        vertical, slash = self.lines
        table = Table(
            ["layer", *(f"head {head}" for head in range(heads))],
            [[*row, *[""] * (heads + 1 - len(row))] for row in rows],
            caption=f"{vertical} vertical, {slash} slash{pattern and f' of {pattern}'}, and the "
            f"share of the mass that they hold",
        )
        return Document([table], title=f"What the last {self.window} queries look at")

    def _kind(self, shares: list[float]) -> tuple[str, float]:
        """What a head is, and the share of its mass that says so."""
        _, _, both, a_shape = shares
        if not both:
            return "empty", 0.0
        if a_shape >= self.enough:
            return "A-shape", a_shape
        return ("vertical-slash" if both >= self.enough else "dense"), both

    def _cell(self, shares: list[float]) -> str:
        kind, share = self._kind(shares)
        return f"{kind} {share:.0%}"

    def __str__(self) -> str:
        return self.document().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()

"""Sparse attention patterns: vertical lines, slashes and the A-shape of each head."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from glasshead.attention.observe import import_pandas
from glasshead.drawing import Document, Table
from glasshead.recipe.validation import positive, whole_number
from glasshead.watching.analytics.stacks import (
    LazyWeights,
    check_of_itself,
    check_one_text,
    chosen,
    per_row,
    zeros,
)
from glasshead.watching.padding import last_real
from glasshead.watching.seen import Printed, Seen, short

if TYPE_CHECKING:
    import pandas as pd


_SHARES = ("vertical", "slash", "vertical_slash", "a_shape")


@dataclass(frozen=True, eq=False)
class Pattern:
    """The pattern of one layer, best lines first; inputs of two or three axes have no heads.

    Attributes:
        columns: Keys of the vertical lines.
        column_mass: Mass that each of them receives from the last queries.
        distances: Distances i - j of the slashes, with query i at its position among the keys;
            negative for later keys.
        distance_mass: Mass of the last queries at each distance.
        shares: Shares of the mass recovered by vertical lines, by slashes, by both, and by the
            A-shape.
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
class Patterns(Printed, Mapping[str, Pattern]):
    """The patterns of all layers by name, printed as a table of layers × heads.

    Attributes:
        of_layers: Patterns by layer name.
        lines: Number of vertical lines and of slashes.
        window: Number of last queries that chose them.
        enough: Threshold of the share of the mass for a head to have a pattern.

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
        """Return the kind of each head of a layer, by the mean of its shares over the batch."""
        return [self._kind(shares)[0] for shares in self[name].headed.mean(0).tolist()]

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table with a row per layer, text of the batch and head.

        Errors: an ImportError without pandas.
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
        heads = max(len(self.kinds(name)) for name in self)
        names, pattern = short(list(self))
        rows = [
            [layer or "the model", *self._cells(name)]
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
        """Classify a head by its shares; return its kind and the deciding share."""
        _, _, both, a_shape = shares
        if not both:
            return "empty", 0.0
        if a_shape >= self.enough:
            return "A-shape", a_shape
        return ("vertical-slash" if both >= self.enough else "dense"), both

    def _cells(self, name: str) -> list[str]:
        kinds = map(self._kind, self[name].headed.mean(0).tolist())
        return [f"{kind} {share:.0%}" for kind, share in kinds]


# Elements of one block of rows.
_NUMBERS = 2**22


@torch.no_grad()
def patterns(
    seen: Seen,
    *,
    vertical: int = 8,
    slash: int = 8,
    window: int = 64,
    over: str = "window",
    enough: float = 0.9,
    layers: str | Sequence[str] | None = None,
) -> Patterns:
    """Find the keys and the distances that hold most of each head's attention.

    Of the weights P of the last `window` queries, the sum over a key's column is its mass as a
    vertical line, and the sum over the pairs of one distance i - j is its mass as a slash. The best
    of both are what a sparse kernel would compute. They are compared with a fixed shape, the A: as
    many of the first keys, and of the nearest distances.

    A head is "A-shape" if that shape alone recovers `enough` of the mass, else "vertical-slash" if
    its best lines do, else "dense"; "empty" if its queries see nothing.

    Args:
        seen: The result of a watch with `keep="weights"`; the last text counts.
        vertical, slash: Number of keys and of distances to choose, at most.
        window: Number of last queries that choose them, without padding.
        over: "window" measures the shares on these queries, "text" on all, block by block, in
            O(tokens) memory.
        enough: Threshold of the share of the mass, from 0 to 1.
        layers: Patterns of names, as of `watch`; None: all.

    Errors: a TypeError or ValueError if an argument is invalid, the weights were not kept, or an
    attention is cross-attention, for which distances have no meaning.

    Source: Jiang et al. 2024 (MInference 1.0), section 3, and the appendix's algorithm for
    vertical-slash heads, whose window is 64. There, a search in advance finds the kinds of heads;
    the share that decides here is our own.

    >>> import glasshead as gh
    >>> rule = gh.Attention(mask=gh.causal())
    >>> key = torch.zeros(1, 1, 13, 2)
    >>> key[..., 4, 0] = 9.0                                    # all look at key 4 once it is there
    >>> query = torch.ones(1, 1, 13, 2)
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(query, key, key)
    >>> found = gh.patterns(seen, vertical=1, slash=1, window=5)
    >>> found[""].columns, found[""].column_mass
    (tensor([[[4]]]), tensor([[[4.9154]]]))
    >>> found
    What the last 5 queries look at
    ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━
    <BLANKLINE>
    1 vertical, 1 slash, and the share of the mass that they hold
    layer      head 0
    ─────────────────────────────
    the model  vertical-slash 98%
    """
    vertical = whole_number(vertical, "vertical", least=1)
    slash = whole_number(slash, "slash", least=1)
    window = whole_number(window, "window", least=1)
    if over not in ("window", "text"):
        raise ValueError(f"over takes 'window' or 'text', and got {over!r}.")
    if positive(enough, "enough") > 1:
        raise ValueError(f"enough takes a share of at most 1, and got {enough}.")
    layers_of = chosen(seen, layers, "patterns")
    for name, watched in layers_of.items():
        check_of_itself(name, watched, "patterns")
        check_one_text(name, watched, "patterns")
    found = {
        name: _of(_Counted(watched.weights, watched.real), (vertical, slash), window, over)
        for name, watched in layers_of.items()
    }
    return Patterns(found, (vertical, slash), window, enough)


@dataclass(frozen=True, eq=False)
class _Counted:
    """Weights whose padded rows count as empty.

    Attributes:
        weights: Weights of all rows.
        real: Which rows are real tokens; None: all.
    """

    weights: LazyWeights
    real: Bool[Tensor, "texts tokens"] | None

    def last(self, count: int) -> "_Counted":
        """Restrict the weights to the last `count` real tokens of each text."""
        real = self.real
        if real is None:
            real = torch.ones(1, self.weights.shape[-2], dtype=torch.bool)
        return _Counted(self.weights, last_real(real, count))

    def blocks(self) -> Iterator[tuple[range, Float[Tensor, "... rows keys"]]]:
        """Yield the counted rows in blocks."""
        W = self.weights
        *leading, queries, keys = W.shape
        rows = range(queries)
        if self.real is not None:
            places = self.real.any(0).nonzero()[:, 0].tolist()
            rows = range(places[0], places[-1] + 1) if places else range(0)
        height = max(1, _NUMBERS // max(1, torch.Size(leading).numel() * keys))
        for start in range(rows.start, rows.stop, height):
            block = range(start, min(start + height, rows.stop))
            tile = W.tile(block, range(keys))
            if self.real is not None:
                tile = tile * per_row(self.real, W)[..., block.start : block.stop, :].to(tile)
            yield block, tile


def _of(counted: _Counted, lines: tuple[int, int], window: int, over: str) -> Pattern:
    """Find the pattern of each head of one layer."""
    W, last = counted.weights, counted.last(window)
    keys = W.shape[-1]
    columns, diagonals = _sums(last)
    distances = _distances(W, diagonals)
    vertical, slash = _best(columns, lines[0]), _best(diagonals, lines[1])
    # With padding, the first key is the first that receives any mass; in causal attention, the
    # nearest distances are those to earlier keys.
    received = columns.cumsum(-1) > 0
    first = _best(received.to(columns) * torch.arange(keys, 0, -1).to(columns), lines[0])
    nearest = _best((diagonals > 0).to(columns) / (1 + distances.abs()), lines[1])
    no_column, no_diagonal = torch.zeros_like(columns).bool(), torch.zeros_like(diagonals).bool()
    of_columns, on_diagonals = no_column.scatter(-1, vertical, 1), no_diagonal.scatter(-1, slash, 1)
    shapes = [
        (of_columns, no_diagonal),
        (no_column, on_diagonals),
        (of_columns, on_diagonals),
        (no_column.scatter(-1, first, 1), no_diagonal.scatter(-1, nearest, 1)),
    ]
    return Pattern(
        columns=vertical,
        column_mass=columns.gather(-1, vertical),
        distances=distances.gather(-1, slash),
        distance_mass=diagonals.gather(-1, slash),
        shares=_shares(last if over == "window" else counted, shapes),
    )


def _distances(W: LazyWeights, diagonals: Float[Tensor, "... lines"]) -> Int[Tensor, "... lines"]:
    """Return i + offset - j on each diagonal."""
    offset = W.offset
    if isinstance(offset, Tensor):
        own = diagonals.ndim - offset.ndim
        offset = offset.to(diagonals.device).reshape(*offset.shape, *[1] * own)
    places = torch.arange(diagonals.shape[-1], device=diagonals.device)
    return (W.shape[-2] - 1 - places + offset).expand(diagonals.shape)


def _best(mass: Float[Tensor, "... n"], count: int) -> Int[Tensor, "... best"]:
    """Return the indices of the largest; of equals, the first."""
    return mass.sort(stable=True, dim=-1, descending=True).indices[..., :count]


def _sums(rows: _Counted) -> tuple[Float[Tensor, "... keys"], Float[Tensor, "... lines"]]:
    """Sum rows over each column, and over each diagonal, with index queries - 1 - i + j."""
    W = rows.weights
    *leading, queries, keys = W.shape
    if not queries or not keys:
        raise ValueError(
            f"patterns takes a text of a token at least, and got {queries} queries on {keys} keys."
        )
    columns = zeros(W, *leading, keys)
    diagonals = zeros(W, *leading, queries + keys - 1)
    for block, tile in rows.blocks():
        height = len(block)
        columns += tile.sum(-2)
        # Shift each row one place further to the right than the one below, so that diagonals
        # become columns.
        padded = F.pad(tile.flip(-2), (0, height)).flatten(-2)[..., :-height]
        first = queries - block.stop
        diagonals[..., first : first + keys + height - 1] += padded.unflatten(
            -1, (height, keys + height - 1)
        ).sum(-2)
    return columns, diagonals


def _shares(
    rows: _Counted,
    shapes: Sequence[tuple[Bool[Tensor, "... keys"], Bool[Tensor, "... lines"]]],
) -> Float[Tensor, "... shapes"]:
    """Return the share of the mass in marked columns or on marked diagonals; 0 for no mass."""
    W = rows.weights
    *leading, queries, keys = W.shape
    total, held = zeros(W, *leading), zeros(W, *leading, len(shapes))
    for block, tile in rows.blocks():
        total += tile.sum((-2, -1))
        for place, (columns, diagonals) in enumerate(shapes):
            of_rows = diagonals.unfold(-1, keys, 1)
            slashes = of_rows[..., queries - block.stop : queries - block.start, :].flip(-2)
            shown = columns.unsqueeze(-2) | slashes
            held[..., place] += (tile * shown).sum((-2, -1))
    share = held / total.unsqueeze(-1)
    return torch.where(total.unsqueeze(-1) == 0, 0.0, share)

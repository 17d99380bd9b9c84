"""Matrices too large to be drawn: rows left out, and cells pooled."""

from dataclasses import dataclass
from math import ceil, fsum

from glasshead.drawing.block import Words


def truncate_places(count: int, most: int, always: int | None = None) -> list[int | None]:
    """Return the places that stay: the first and the last ones, and None for those left out.

    Args:
        count: The number of places.
        most: The most places that stay, at least 1.
        always: One that stays wherever it lies.

    Returns:
        Places from 0, with None if some are left out.

    Example:
        >>> truncate_places(3, 4)
        [0, 1, 2]
        >>> truncate_places(10, 4)
        [0, 1, None, 8, 9]
        >>> truncate_places(10, 4, always=5)
        [0, 1, None, 5, None, 8, 9]
    """
    if count <= most:
        return list(range(count))
    first, last = range((most + 1) // 2), range(count - most // 2, count)
    kept = sorted({*first, *last} | (set() if always is None else {always}))
    places: list[int | None] = []
    for previous, place in zip([-1, *kept], [*kept, count], strict=True):
        if place - previous > 1:
            places.append(None)
        if place < count:
            places.append(place)
    return places


Value = float | None
Matrix = tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Grid:
    """Cells of a heat map as they are drawn.

    Attributes:
        values: Weights, row by row; None if a pair is hidden.
        rows: A name for each row.
        columns: A name for each column.
        row_block: The number of matrix rows averaged in one row; the last may have fewer.
        column_block: The number of matrix columns summed in one column; the last may have fewer.
        highlight: The row here that is marked, or None.
    """

    values: Matrix
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_block: int = 1
    column_block: int = 1
    highlight: int | None = None

    @property
    def largest(self) -> float:
        """Return the largest weight, or 0.0 if all are hidden."""
        return max(
            (value for row in self.values for value in row if value is not None), default=0.0
        )

    @property
    def hides(self) -> bool:
        """Return whether any pair is hidden."""
        return any(value is None for row in self.values for value in row)


def pooled(grid: Grid, most_rows: int, most_columns: int) -> Grid:
    """Pool a grid to at most this many rows and columns.

    A cell is the sum over a block of columns, averaged over a block of rows: a row of weights that
    sums to one still does. Hidden pairs weigh nothing; where a whole block is hidden, so is its
    cell.

    Args:
        grid: The cells, not pooled yet.
        most_rows: The most rows, at least 1.
        most_columns: The most columns, at least 1.

    Returns:
        The grid itself where it fits. Names become ranges such as "12–23", counted from 0.

    Example:
        >>> grid = Grid(((0.5, 0.25, 0.25), (1.0, None, None)), ("a", "b"), ("c", "d", "e"))
        >>> small = pooled(grid, 1, 2)
        >>> small.values, small.rows, small.columns
        (((0.875, 0.125),), ('0–1',), ('0–1', '2'))
    """
    row_block = ceil(len(grid.rows) / most_rows)
    column_block = ceil(len(grid.columns) / most_columns)
    if row_block == column_block == 1:
        return grid
    summed = [sum_columns(row, column_block) for row in grid.values]
    return Grid(
        values=tuple(
            _mean(summed[start : start + row_block]) for start in range(0, len(summed), row_block)
        ),
        rows=_names(grid.rows, row_block),
        columns=_names(grid.columns, column_block),
        row_block=row_block,
        column_block=column_block,
        highlight=None if grid.highlight is None else grid.highlight // row_block,
    )


def sum_columns(row: tuple[Value, ...], block: int) -> tuple[Value, ...]:
    """Sum a row over blocks of columns."""
    if block == 1:
        return row
    return tuple(_total(row[start : start + block]) for start in range(0, len(row), block))


def _mean(rows: list[tuple[Value, ...]]) -> tuple[Value, ...]:
    """Average rows, cell by cell."""
    if len(rows) == 1:
        return rows[0]
    totals = (_total(cells) for cells in zip(*rows, strict=True))
    return tuple(None if total is None else total / len(rows) for total in totals)


def _total(cells: tuple[Value, ...]) -> Value:
    """Sum what is not hidden; None if all is."""
    seen = [cell for cell in cells if cell is not None]
    return fsum(seen) if seen else None


def _names(names: tuple[str, ...], block: int) -> tuple[str, ...]:
    """Name blocks by the places that they span."""
    if block == 1:
        return names
    ends = ((start, min(start + block, len(names)) - 1) for start in range(0, len(names), block))
    return tuple(f"{start}" if start == end else f"{start}–{end}" for start, end in ends)


def pooling_said(drawn: Grid, whole: Grid, words: Words) -> str:
    """Say how a grid was pooled, or nothing where it was not.

    Example:
        >>> whole = Grid(((1.0, 2.0, 3.0),), ("a",), ("b", "c", "d"))
        >>> pooling_said(pooled(whole, 1, 2), whole, Words())
        'Each cell is the sum over ≤ 2 columns. Places are counted from 0.'
    """
    if drawn.row_block == drawn.column_block == 1:
        return ""
    if drawn.row_block == 1:
        phrase = words.pooled_columns
    elif drawn.column_block == 1:
        phrase = words.pooled_rows
    else:
        phrase = words.pooled_both
    note = phrase.format(
        rows=_size(drawn.row_block, len(whole.rows)),
        columns=_size(drawn.column_block, len(whole.columns)),
    )
    return f"{note} {words.counted_from_zero}"


def _size(block: int, count: int) -> str:
    """Write the size of blocks; the last one may be smaller."""
    return f"≤ {block}" if count % block else f"{block}"

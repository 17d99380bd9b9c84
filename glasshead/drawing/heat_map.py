"""HeatMap: a matrix of weights in colour."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from rich.text import Text

from glasshead.drawing.block import Block, Canvas
from glasshead.drawing.checks import check_caption, check_row, texts
from glasshead.drawing.heat_map_html import heat_map_html
from glasshead.drawing.heat_map_lines import heat_map_lines
from glasshead.drawing.pooling import Grid, Matrix, Value
from glasshead.drawing.words import ENGLISH, Words


@dataclass(frozen=True)
class HeatMap(Block):
    """A matrix of weights, each cell painted by its weight: the deeper, the more.

    In a terminal the cells hold their numbers where there is room, else they are narrow, else
    blocks of them are pooled: a sum over columns, a mean over rows. Without colours, numbers or
    shades of grey speak.

    Args:
        values: Weights, at least 0, row by row, or anything with `.tolist()`, such as a tensor
            `[rows, columns]`. None and NaN stand for hidden pairs.
        rows: A name for each row, such as the tokens of the queries.
        columns: A name for each column, such as the tokens of the keys.
        caption: What the map shows.
        highlight_row: A row to mark, counted from 0.
        top: The weight that is painted deepest; None takes the largest that is drawn.

    Raises:
        TypeError: values are not numbers, or names not strings.
        ValueError: the matrix is empty or ragged, has a negative or infinite weight, or its names
            do not match.

    Example:
        >>> weights = HeatMap([[1.0, None], [0.25, 0.75]], ["a", "b"], ["a", "b"], highlight_row=1)
        >>> print(weights.as_text())
               a      b
          a  1.00     ·
        ▸ b  0.25   0.75
        · hidden
    """

    values: Any
    rows: Sequence[str]
    columns: Sequence[str]
    _: KW_ONLY
    caption: str | None = None
    highlight_row: int | None = None
    top: float | None = None

    def __post_init__(self) -> None:
        matrix = _matrix(self.values)
        rows, columns = texts(self.rows, "HeatMap rows"), texts(self.columns, "HeatMap columns")
        if (len(rows), len(columns)) != (len(matrix), len(matrix[0])):
            raise ValueError(
                f"HeatMap expects a name for each of {len(matrix)} rows and {len(matrix[0])} "
                f"columns, got {len(rows)} and {len(columns)}; pass as many names as it has."
            )
        check_caption(self.caption, "HeatMap")
        check_row(self.highlight_row, len(rows), "HeatMap")
        if self.top is not None and not 0 < self.top < math.inf:
            raise ValueError(
                f"HeatMap top must be above 0 and finite, got {self.top}; "
                "leave it out for the largest weight."
            )
        for name, value in (("values", matrix), ("rows", rows), ("columns", columns)):
            object.__setattr__(self, name, value)

    @property
    def grid(self) -> Grid:
        """The cells before any pooling."""
        return Grid(
            self.values, tuple(self.rows), tuple(self.columns), highlight=self.highlight_row
        )

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw the map within the width and the height of the canvas."""
        return heat_map_lines(self.grid, self.caption, self.top, canvas)

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the map as a painted `table`, in a frame that scrolls sideways."""
        return heat_map_html(self.grid, self.caption, self.top, words)


def _matrix(values: Any) -> Matrix:
    """Return the weights as tuples, each row as long as the first."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise TypeError(
            f"HeatMap values must be a matrix, got {type(listed).__name__}; "
            "pass a list of rows or a tensor."
        )
    matrix = tuple(_row(row, place) for place, row in enumerate(listed))
    if not matrix or not matrix[0]:
        raise ValueError("HeatMap values must have at least one row and one column, got none.")
    for place, row in enumerate(matrix):
        if len(row) != len(matrix[0]):
            raise ValueError(
                f"HeatMap values must be rows of one length, got {len(matrix[0])} in row 0 "
                f"and {len(row)} in row {place}; fill hidden pairs with None."
            )
    return matrix


def _row(row: Any, place: int) -> tuple[Value, ...]:
    """Return one row of weights."""
    listed = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise TypeError(
            f"HeatMap values must be rows of numbers, got {type(listed).__name__} as row {place}; "
            "pass one matrix, such as the weights of one head."
        )
    return tuple(_weight(value, place, column) for column, value in enumerate(listed))


def _weight(value: Any, row: int, column: int) -> Value:
    """Return one weight, or None where it is hidden."""
    if value is None:
        return None
    try:
        weight = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        weight = None
    if weight is None or isinstance(value, str):
        raise TypeError(
            f"HeatMap values must be numbers, got {type(value).__name__} in row {row}, "
            f"column {column}; pass one matrix, such as the weights of one head."
        )
    if weight < 0 or math.isinf(weight):
        raise ValueError(
            f"HeatMap values must be finite and at least 0, got {weight} in row {row}, "
            f"column {column}; pass weights, and None for hidden pairs."
        )
    return None if math.isnan(weight) else weight

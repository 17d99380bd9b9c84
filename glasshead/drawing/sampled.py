"""Heat maps of matrices of any size: some rows, and sums over blocks of columns."""

from collections.abc import Callable, Sequence

from glasshead.drawing.block import Block
from glasshead.drawing.document import Paragraph
from glasshead.drawing.heat_map import HeatMap

_ROWS, _COLUMNS = 24, 32


def sampled_map(
    row: Callable[[int], Sequence[float]], rows: int, columns: int, *, of: str
) -> Block:
    """Draw a matrix of weights by at most 24 of its rows and 32 blocks of its columns.

    The rows are evenly spaced, the first and the last among them. A block is summed, so that a row
    of the map adds up to what the row of the matrix does. Only the rows that are drawn are read.

    Args:
        row: Returns a row of the matrix.
        rows, columns: Its shape, each at least 1.
        of: What it is, for the caption.

    Returns: a `HeatMap`, or a sentence where a weight is negative, as of a custom normalizer.

    >>> print(sampled_map(lambda i: [0.25] * 4, 2, 4, of="Weights of head 0").as_text())
    Weights of head 0
          0     1     2     3
    0  0.25  0.25  0.25  0.25
    1  0.25  0.25  0.25  0.25
    """
    count = min(rows, _ROWS)
    drawn = [round(place * (rows - 1) / max(1, count - 1)) for place in range(count)]
    size = -(-columns // _COLUMNS)
    starts = range(0, columns, size)
    values = []
    for place in drawn:
        numbers = row(place)
        values.append([sum(numbers[start : start + size]) for start in starts])
    notes = [f"{count} of {rows} rows"] if count < rows else []
    notes += [f"sums over {size} columns"] if size > 1 else []
    caption = ", ".join([of, *notes])
    if any(value < 0 for numbers in values for value in numbers):
        return Paragraph(f"{of}: some weights are negative, and a map shows none of those.")
    return HeatMap(values, [*map(str, drawn)], [*map(str, starts)], caption=caption)

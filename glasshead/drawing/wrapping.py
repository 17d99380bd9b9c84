"""Wrapping: lines of at most a width, broken where each script allows."""

import re
from collections.abc import Iterator
from math import ceil

from rich.cells import cell_len, split_graphemes

MEASURE = 84
"""The most cells in a line of running text: longer lines lose the eye on its way back."""

# Chinese text breaks between any two characters, but no line begins with the first or ends with
# the second.
_CLOSING = frozenset(",.;:!?)]}%…·，。、；：？！）】」』》〉”’ー～")
_OPENING = frozenset("([{（【「『《〈“‘")


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """Break a text into lines.

    Lines break at spaces and between Chinese, Japanese and Korean characters, not before a comma
    or after an opening bracket. What is still too long is cut. Spaces inside a line stay as they
    are.

    Args:
        text: A printable text without line breaks.
        width: The most cells in a line, at least 4.
        hang: How far all lines but the first are moved in, less than `width` - 2.

    Returns:
        At least one line.

    Example:
        >>> wrap("score = query · key / 2", 14, hang=2)
        ['score = query', '  · key / 2']
        >>> wrap("注意力，就是加權。", 8)
        ['注意力，', '就是加', '權。']
    """
    lines, current, space = [], "", ""
    for piece in _pieces(text):
        if not piece.strip(" "):
            space = piece
            continue
        if current.strip(" ") and cell_len(current + space + piece) > width:
            lines.append(current)
            current, space = " " * hang, ""
        current += space + piece
        space = ""
        while cell_len(current) > width:
            head, current = _cut(current, width)
            lines.append(head)
            current = " " * hang + current
    return [*lines, current]


def collapse(text: str) -> str:
    r"""Return a text whose line breaks, tabs and runs of spaces are single spaces, as in HTML.

    Example:
        >>> collapse(" one\n  two ")
        'one two'
    """
    return re.sub("[ \t\n\r\f]+", " ", text).strip(" ")


def chunks(text: str, width: int, most: int) -> list[str]:
    """Cut a label into short lines, about equally long, for the head of a narrow column.

    Args:
        text: A printable text.
        width: The cells of a line; one character that is wider has a line of its own.
        most: The most lines; the last one is "…" where more would be needed.

    Returns:
        At most `most` lines, none for an empty text.

    Example:
        >>> chunks("translator", 4, 3), chunks("shiny", 1, 3)
        (['tran', 'slat', 'or'], ['s', 'h', '…'])
    """
    needed = max(1, ceil(cell_len(text) / width))
    lines = _chopped(text, ceil(cell_len(text) / needed))
    if len(lines) > needed:
        lines = _chopped(text, width)
    return lines if len(lines) <= most else [*_chopped(text, width)[: most - 1], "…"]


def _chopped(text: str, width: int) -> list[str]:
    """Cut a text into lines that are full."""
    lines: list[str] = []
    size = width
    for start, end, cells in split_graphemes(text)[0]:
        if size + cells > width:
            lines.append("")
            size = 0
        lines[-1] += text[start:end]
        size += cells
    return lines


def _pieces(text: str) -> Iterator[str]:
    """Split a text into what stays together: words, runs of spaces, single wide characters."""
    piece, last, last_cells = "", "", 0
    for start, end, cells in split_graphemes(text)[0]:
        character = text[start:end]
        if piece and _may_break(last, last_cells, character, cells):
            yield piece
            piece = ""
        piece += character
        last, last_cells = character, cells
    if piece:
        yield piece


def _may_break(before: str, before_cells: int, after: str, after_cells: int) -> bool:
    """Say whether a line may end between two characters."""
    if (before == " ") != (after == " "):
        return True
    if before == " " or after in _CLOSING or before in _OPENING:
        return False
    return before_cells == 2 or after_cells == 2


def _cut(text: str, width: int) -> tuple[str, str]:
    """Cut a line that has no place to break."""
    kept, size = 0, 0
    for _, end, cells in split_graphemes(text)[0]:
        if size + cells > width:
            break
        kept, size = end, size + cells
    return text[:kept], text[kept:]

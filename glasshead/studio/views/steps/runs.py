"""Runs: a line of a formula as pieces of text, each on the line, below or above it."""

import re
from html import unescape

from glasshead.drawing.text import scripted

_MARK = re.compile(r"<(/?)(su[bp])>")

Run = tuple[str, str]
"""A text, and where it stands: "", "sub", "sup", or "sup sub" for the index of a power."""


def runs(line: str) -> list[Run]:
    """A line as it is set in HTML, without its markup.

    >>> runs("p_j = e^s_j")
    [('p', ''), ('j', 'sub'), (' = e', ''), ('s', 'sup'), ('j', 'sup sub')]
    """
    found: list[Run] = []
    places: list[str] = []
    done = 0
    html = scripted(line)
    for mark in [*_MARK.finditer(html), None]:
        text = html[done : mark.start() if mark else None]
        if text:
            found.append((unescape(text), " ".join(places)))
        if mark is None:
            break
        if mark[1]:
            places.pop()
        else:
            places.append(mark[2])
        done = mark.end()
    return found

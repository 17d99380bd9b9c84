"""Lines: the texts of a command, or those that standard input goes on giving."""

import queue
import sys
import threading
from collections.abc import Iterator, Sequence

# How many lines are worked on at once, where they are there.
_AT_ONCE = 64


def texts_of(arguments: Sequence[str] | None) -> Iterator[list[str]]:
    """The texts, some at a time: the arguments, or else the lines of standard input.

    As many lines as are there are given at once, and a single one does not wait for another: so a
    file is read fast, and whoever types is answered line by line.

    Errors: a ValueError where a line is not UTF-8.

    >>> list(texts_of(["Guten Morgen", "Danke"]))
    [['Guten Morgen', 'Danke']]
    """
    if arguments:
        yield list(arguments)
        return
    lines = _arriving()
    number, ended = 0, False
    while not ended:
        some = [lines.get()]
        while len(some) < _AT_ONCE and some[-1] is not None and not lines.empty():
            some.append(lines.get())
        ended = some[-1] is None
        texts = []
        for line in some[: len(some) - ended]:
            number += 1
            texts.append(_decoded(line or b"", number))
        if texts:
            yield texts


def _arriving() -> "queue.Queue[bytes | None]":
    """The lines as they come, and None at their end."""
    lines: queue.Queue[bytes | None] = queue.Queue(maxsize=4 * _AT_ONCE)

    def read() -> None:
        try:
            for line in sys.stdin.buffer:
                lines.put(line)
        finally:
            lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"standard input, line {number}: expected UTF-8 text, and got the byte "
            f"0x{line[error.start]:02x}: save it as UTF-8."
        ) from error

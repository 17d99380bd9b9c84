"""Lines: the texts of a command, or those that standard input goes on giving."""

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# How many lines are worked on at once, where they are there, and how long one may be, in bytes.
_AT_ONCE, _LONGEST = 64, 2**22


@dataclass(frozen=True)
class Lines:
    """Some texts, and what errors call each of them."""

    texts: list[str]
    names: list[str]

    def name(self, number: int) -> str:
        """What errors call one of them, counted from 1."""
        return self.names[number - 1]


def texts_of(arguments: Sequence[str] | None) -> Iterator[Lines]:
    """The texts, some at a time: the arguments, or else the lines of standard input.

    As many lines as are there are given at once, and a single one does not wait for another: so a
    file is read fast, and whoever types is answered line by line.

    Errors: a ValueError where a line is not UTF-8; an OSError where standard input is closed,
    or cannot be read.

    >>> list(texts_of(["Guten Morgen", "Danke"]))
    [Lines(texts=['Guten Morgen', 'Danke'], names=['text 1', 'text 2'])]
    """
    if arguments:
        yield Lines([*arguments], [f"text {number}" for number in range(1, len(arguments) + 1)])
        return
    if sys.stdin is None:
        raise OSError("standard input is closed: give a TEXT, or the file that has them by <FILE.")
    lines = _arriving()
    number, ended = 0, False
    while not ended:
        some = [lines.get()]
        while len(some) < _AT_ONCE and some[-1] is not None and not lines.empty():
            some.append(lines.get())
        ended = some[-1] is None
        found = Lines([], [])
        for number, line in enumerate(filter(None, some), number + 1):  # noqa: B020 - it goes on
            name = f"standard input, line {number}"
            if isinstance(line, OSError):
                raise OSError(f"{name} cannot be read ({line.strerror}): give it a file.") from line
            if len(line) > _LONGEST:
                raise ValueError(
                    f"{name}: expected a line of at most {_LONGEST:,} bytes, and got a longer one: "
                    f"break it."
                )
            found.names.append(name)
            found.texts.append(_decoded(line, name, "utf-8-sig" if number == 1 else "utf-8"))
        if found.texts:
            yield found


def _arriving() -> "queue.Queue[bytes | OSError | None]":
    """The lines as they come, what keeps them from coming, and None at their end."""
    lines: queue.Queue[bytes | OSError | None] = queue.Queue(maxsize=4 * _AT_ONCE)

    def read() -> None:
        try:
            # Not by `sys.stdin`, whose lock a waiting thread would hold when the program ends.
            with open(0, "rb", closefd=False) as file:
                # A line that never ends is not waited for.
                while line := file.readline(_LONGEST + 1):
                    lines.put(line)
                    if len(line) > _LONGEST:
                        break
        except OSError as error:
            lines.put(error)
        finally:
            lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _decoded(line: bytes, name: str, encoding: str) -> str:
    try:
        return line.decode(encoding).rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: expected UTF-8 text, and got the byte 0x{error.object[error.start]:02x}: "
            "save it as UTF-8."
        ) from error

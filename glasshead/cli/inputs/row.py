"""Row: one line of a vectors file, whatever its format."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A token of a file, its numbers, and the line where it stands."""

    line: int
    token: str
    numbers: list[float]

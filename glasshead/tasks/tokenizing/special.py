"""Special tokens: those that no text has, and that are put in by number."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokens:
    """The numbers of special tokens; where there is none of a kind, the end stands in.

    Attributes:
        pad: What fills up short rows.
        unknown: What stands for what has no token.
        start: What a text begins after.
        end: What ends it.
        ends: All that end it, `end` among them.
        before: What stands before a text that is read, such as `start`; nothing with most.
    """

    pad: int
    unknown: int
    start: int
    end: int
    ends: tuple[int, ...]
    before: tuple[int, ...] = ()

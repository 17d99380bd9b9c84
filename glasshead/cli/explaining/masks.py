"""Masks as the command line writes them: causal, window:3, causal+window:2:2."""

import re
from typing import TYPE_CHECKING

import glasshead as gh
from glasshead.cli.inputs.wording import nearest, quoted

if TYPE_CHECKING:
    from glasshead import Mask

_WINDOW = re.compile(r"window:([0-9]{1,9})(?::([0-9]{1,9}))?")
_FORMS = "none, causal, window:BEFORE or window:BEFORE:AFTER, or several with + between them"

# How many keys before and after its own a query sees; None: all of them.
Band = tuple[int | None, int | None]


def parse_mask(written: str) -> tuple[Band, ...]:
    """The bands of a mask; a pair must lie in each of them to be seen.

    Errors: a ValueError where it is not of a known form.

    >>> parse_mask("none"), parse_mask("causal+window:2:2")
    ((), ((None, 0), (2, 2)))
    """
    if written == "none":
        return ()
    return tuple(_band(part, written) for part in written.split("+"))


def build_mask(bands: tuple[Band, ...]) -> "Mask | None":
    """The mask that sees what lies in all of the bands.

    >>> build_mask(parse_mask("causal+window:2:2"))
    causal() & window(before=2, after=2)
    """
    mask = None
    for before, after in bands:
        band = gh.window(before=before, after=after)
        mask = band if mask is None else mask & band
    return mask


def _band(part: str, written: str) -> Band:
    if part == "causal":
        return None, 0
    window = _WINDOW.fullmatch(part)
    if window:
        return int(window[1]), int(window[2] or 0)
    raise ValueError(f"--mask takes {_FORMS}, and got {quoted(written)}: {_remedy(part)}")


def _remedy(part: str) -> str:
    if part.startswith("window"):
        return "write how many tokens before its own a word sees, as in window:3."
    if part == "none":
        return "none stands alone."
    alike = nearest(part, ["none", "causal", "window:3"])
    return f"did you mean {alike}?" if alike else "try causal."

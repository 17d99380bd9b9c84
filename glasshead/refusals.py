"""Errors that state that an input is wrong; all others are bugs, and show their traceback."""

import dis
from pathlib import Path

from glasshead.extras import MissingLibraryError
from glasshead.message import Message

_PACKAGE = str(Path(__file__).parent)


def is_refusal(error: BaseException) -> bool:
    """Return whether an error is about an input: a file, or what the package raises on purpose.

    A bug may raise a ValueError or TypeError too, as `int("")` or `zip(a, b, strict=True)` do. A
    refusal is of a class of the package, carries a `Message`, or comes from a `raise` statement of
    the package.

    >>> is_refusal(FileNotFoundError(2, "No such file or directory", "a.csv"))
    True
    >>> try:
    ...     int("")
    ... except ValueError as error:
    ...     is_refusal(error)
    False
    """
    if isinstance(error, OSError | MissingLibraryError):
        return True
    if not isinstance(error, ValueError | TypeError):
        return False
    has_message = isinstance(next(iter(error.args), None), Message)
    return has_message or type(error).__module__.startswith("glasshead.") or _is_raised_here(error)


def _is_raised_here(error: BaseException) -> bool:
    """Return whether the innermost frame of an error is a `raise` statement of the package."""
    place = error.__traceback__
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    code = place.tb_frame.f_code
    is_ours = code.co_filename.startswith(_PACKAGE)
    return is_ours and dis.opname[code.co_code[place.tb_lasti]] == "RAISE_VARARGS"

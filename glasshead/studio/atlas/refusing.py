"""Why a tile is not given: nobody wants it any more, or it cannot be had yet."""

from collections.abc import Callable

Cancel = Callable[[], bool] | None


class Cancelled(Exception):  # noqa: N818 - no error, but an answer to who asked for it
    """The work was ended by who had asked for it."""


class NotYetError(RuntimeError):
    """A tile of so many weights that it comes from the overview, which is not there yet."""


def stop_if(cancelled: Cancel) -> None:
    """Raise `Cancelled` where `cancelled()` says so.

    >>> stop_if(None), stop_if(lambda: False)
    (None, None)
    """
    if cancelled is not None and cancelled():
        raise Cancelled("the work was cancelled before it was done.")

"""Page file: a page written whole or not at all."""

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from glasshead.cli.inputs.naming import STANDARD_INPUT
from glasshead.cli.inputs.reading import shown


def check_target(path: Path) -> None:
    """Raise where a page cannot be at `path`: it is a folder, a device, or below a file.

    Errors: an OSError that says which, and what to do.
    """
    try:
        there = path.exists()
    except OSError as error:
        raise _refusal(path, error) from error
    if path.is_dir():
        raise IsADirectoryError(
            f"--html takes a file to write, and {shown(path)} is a folder: name a file in it, as "
            f"in {shown(path / 'page.html')}."
        )
    if there and not path.is_file():
        raise OSError(f"--html takes a file to write, and {shown(path)} is none: name another.")
    # Moving a page into its place asks for no permission to write there, and root needs none.
    if there and not (os.access(path, os.W_OK) and path.stat().st_mode & 0o222):
        raise PermissionError(
            f"--html takes a file to write, and {shown(path)} is protected from writing: change "
            f"its permissions, or name another."
        )
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(
            f"--html cannot be {shown(path)}: {shown(above)} is a file and no folder."
        )


def check_apart(path: Path, sources: Iterable[Path | None]) -> None:
    """Raise a ValueError where a page would take the place of a file that it is made from."""
    for source in sources:
        if source in (None, STANDARD_INPUT):
            continue
        if path.exists() and source.exists() and path.samefile(source):
            raise ValueError(
                f"--html takes another place than {shown(source)}, which is read: name a new file."
            )


def write_page(path: Path, page: str) -> None:
    """Write a page; folders that are missing are made.

    The page is written beside its place and then moved there, so that nobody, not even a reader of
    an older page, ever finds half of it.

    Errors: an OSError where it cannot be written; nothing is left behind.
    """
    check_target(path)
    try:
        # A link stays a link to the page.
        place = path.resolve()
        beside = place.with_name(f".{secrets.token_hex(8)}.tmp")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_text(page, encoding="utf-8")
            if place.exists():
                beside.chmod(stat.S_IMODE(place.stat().st_mode))
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(path, error) from error
    except RuntimeError as error:
        raise OSError(f"--html cannot be {shown(path)}: its links lead in a circle.") from error


def _refusal(path: Path, error: OSError) -> OSError:
    return OSError(
        f"the page cannot be written to {shown(path)} ({error.strerror}): name another place."
    )

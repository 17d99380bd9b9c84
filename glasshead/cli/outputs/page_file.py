"""Page file: a page written whole or not at all, and where a file may be written."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from glasshead.cli.inputs.naming import STANDARD_INPUT
from glasshead.cli.inputs.reading import shown
from glasshead.whole_file import whole_file


@dataclass(frozen=True)
class Kind:
    """What errors say of a file that is to be written.

    Attributes:
        option: What asks for it.
        noun: What it is.
        example: A name that it may have.
    """

    option: str
    noun: str
    example: str


PAGE = Kind("--html", "the page", "page.html")
OBSERVATION = Kind("--save", "the observation", "seen.safetensors")
PICTURE = Kind("--png", "the picture", "space.png")


def check_target(path: Path, kind: Kind = PAGE) -> None:
    """Raise where a file cannot be at `path`: it is a folder, a device, or below a file.

    Errors: an OSError that says which, and what to do.
    """
    try:
        there = path.exists()
    except OSError as error:
        raise _refusal(path, error, kind) from error
    opening = f"{kind.option} takes a file to write, and {shown(path)} is"
    if path.is_dir():
        raise IsADirectoryError(
            f"{opening} a folder: name a file in it, as in {shown(path / kind.example)}."
        )
    if there and not path.is_file():
        raise OSError(f"{opening} none: name another.")
    # Moving a page into its place asks for no permission to write there, and root needs none.
    if there and not (os.access(path, os.W_OK) and path.stat().st_mode & 0o222):
        raise PermissionError(
            f"{opening} protected from writing: change its permissions, or name another."
        )
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(
            f"{kind.option} cannot be {shown(path)}: {shown(above)} is a file and no folder."
        )


def check_apart(path: Path, sources: Iterable[Path | None], kind: Kind = PAGE) -> None:
    """Raise a ValueError where a file would take the place of one that it is made from."""
    for source in sources:
        if source in (None, STANDARD_INPUT):
            continue
        if path.exists() and source.exists() and path.samefile(source):
            raise ValueError(
                f"{kind.option} takes another place than {shown(source)}, which is read: name a "
                f"new file."
            )


def write_page(path: Path, page: str) -> None:
    """Write a page, as `write_bytes` does."""
    write_bytes(path, page.encode(), PAGE)


def write_bytes(path: Path, content: bytes, kind: Kind) -> None:
    """Write a file; folders that are missing are made.

    It is written beside its place and then moved there, so that nobody, not even a reader of
    an older one, ever finds half of it.

    Errors: an OSError where it cannot be written; nothing is left behind.
    """
    check_target(path, kind)
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise _refusal(path, error, kind) from error
    except RuntimeError as error:
        raise OSError(
            f"{kind.option} cannot be {shown(path)}: its links lead in a circle."
        ) from error


def _refusal(path: Path, error: OSError, kind: Kind = PAGE) -> OSError:
    return OSError(
        f"{kind.noun} cannot be written to {shown(path)} ({error.strerror}): name another place."
    )

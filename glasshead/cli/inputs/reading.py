"""Reading: the bytes of a file that a user names."""

from pathlib import Path

from glasshead.drawing.printable import printable

# More than this is no table for a reader, and a device such as /dev/zero never ends.
_MOST_BYTES = 2**30


def shown(path: Path) -> str:
    """A path as errors show it."""
    return printable(str(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Errors: an OSError, worded for the user, where it is not there, is a folder, or cannot be read;
    a ValueError where it is larger than 1 GiB.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        parent = path.parent
        hint = "check its name" if parent.is_dir() else f"there is no folder {shown(parent)} either"
        raise FileNotFoundError(f"there is no file {shown(path)}: {hint}.") from error
    except IsADirectoryError as error:
        raise IsADirectoryError(f"{shown(path)} is a folder: name a file in it.") from error
    except PermissionError as error:
        raise PermissionError(
            f"{shown(path)} may not be read by this user: change its permissions."
        ) from error
    except OSError as error:
        raise OSError(f"{shown(path)} cannot be read: {error.strerror}.") from error
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{shown(path)} is larger than 1 GiB: keep only the rows that you need.")
    return content


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Errors: as for `read_bytes`, and a ValueError that names the line where it is not UTF-8.
    """
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: expected UTF-8 text, and got the byte "
            f"0x{content[error.start]:02x}: save the file as UTF-8."
        ) from error

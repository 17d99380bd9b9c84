"""Files that are written whole or not at all."""

import errno
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of `path` when the block has ended well.

    Until then an older file stays as it was, and whatever happens nothing is left beside it. A link
    stays a link, and who may read the older file may read the new one.

    Errors: an OSError, as the file system words it; another where a device or a pipe would be
    replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "words.txt") as beside:
    ...         _ = beside.write_text("Hello shiny sun!")
    ...     [file.name for file in Path(folder).iterdir()]
    ['words.txt']
    """
    place = path.resolve()
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "a file that is not regular is there", str(path))
    beside = place.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        beside.touch()
        mode = stat.S_IMODE((place if place.exists() else beside).stat().st_mode)
        yield beside
        beside.chmod(mode)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)

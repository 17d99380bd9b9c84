"""What the examples that train, tell and draw share: their arguments, the picture, and errors."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from glasshead.files import whole_file


def file_and_seed(arguments: Sequence[str], file: Path, seed: int) -> tuple[Path, int]:
    """The file that a picture is written to, and the seed; those given stand for what is not asked.

    >>> file_and_seed(["heads.png", "3"], Path("build/a.png"), 2)
    (...Path('heads.png'), 3)
    >>> file_and_seed([], Path("build/a.png"), 2)
    (...Path('build/a.png'), 2)
    >>> file_and_seed(["2"], Path("build/a.png"), 2)
    Traceback (most recent call last):
    ValueError: expected a file that ends in .png, and perhaps a seed, got 2.
    """
    name, number, *_ = (*arguments, *(str(file), str(seed))[len(arguments) :], "")
    # PyTorch has no longer seeds.
    whole = number.isdecimal() and int(number) < 2**63
    if len(arguments) > 2 or not name.lower().endswith(".png") or not whole:
        raise ValueError(
            f"expected a file that ends in .png, and perhaps a seed, got {' '.join(arguments)}."
        )
    return Path(name), int(number)


@contextmanager
def picture_file(file: Path) -> Iterator[Path]:
    """Where to write a picture, which is moved to its file at the end.

    It is opened before training, so that nobody waits for a picture that cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as beside:
        yield beside


def refused(example: str, error: Exception) -> int:
    """Tell in a sentence what is wrong, and return the exit code."""
    sentence = str(error)
    if isinstance(error, OSError):
        sentence = f"the picture cannot be written: {error.strerror}. Name another file."
    print(f"{example}: error: {sentence}", file=sys.stderr)
    return 2

"""Extras: libraries that only some commands need."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_LIBRARIES = {
    "train": ("lightning", "tokenizers", "matplotlib", "sacrebleu", "torchmetrics"),
    "hf": ("transformers", "torchmetrics"),
    "studio": ("fastapi", "uvicorn"),
}


def check_extra(extra: str, command: str, libraries: Sequence[str] = ()) -> None:
    """Raise a ValueError where a library that a command needs is not installed.

    Args:
        extra: What brings it.
        command: What needs it.
        libraries: Which of the extra it needs; all, if not given.

    >>> check_extra("train", "glasshead train")
    """
    missing = [name for name in libraries or _LIBRARIES[extra] if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"{command} takes {', '.join(missing)}, not installed here: pip install "
            f"'glasshead[{extra}]'."
        )


def check_extra_of(folder: Path, command: str) -> None:
    """Raise a ValueError where a library is not installed that opens the model in a folder.

    Args:
        folder: Of a run, or of a model of Hugging Face.
        command: What opens it.
    """
    from glasshead.tasks.run_folder import is_of_huggingface

    check_extra("hf" if is_of_huggingface(folder) else "train", command)

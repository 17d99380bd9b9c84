"""Optional libraries: which extra brings each, and one sentence where one is missing."""

from collections.abc import Sequence
from importlib.util import find_spec

EXTRAS = {
    "studio": ("fastapi", "uvicorn"),
    "png": ("matplotlib",),
    "flow": ("networkx",),
    "hf": ("pydantic", "tokenizers", "torchmetrics", "transformers"),
    "train": (
        "lightning",
        "matplotlib",
        "pydantic",
        "sacrebleu",
        "tokenizers",
        "torchmetrics",
    ),
}
"""The libraries of each extra, the smaller extras first."""


class MissingLibraryError(ImportError):
    """A library is not installed that an extra of the package brings."""


def require(what: str, *libraries: str) -> None:
    """Check that libraries are installed, without importing them.

    Args:
        what: What needs them, for the message.
        libraries: Names of modules.

    Errors: a MissingLibraryError that says how to install those that are missing.

    >>> require("glasshead train", "lightning", "tokenizers")
    """
    absent = [name for name in libraries if not is_installed(name)]
    if absent:
        raise missing(what, absent)


def is_installed(library: str) -> bool:
    """Return whether a library is installed, without importing it.

    >>> is_installed("tokenizers")
    True
    """
    return find_spec(library) is not None


def missing(what: str, libraries: Sequence[str]) -> MissingLibraryError:
    """Return the error for libraries that are not installed.

    >>> print(missing("gh.Writer", ["tokenizers"]))
    gh.Writer needs tokenizers, not installed here. Run pip install 'glasshead[hf]'.
    """
    return MissingLibraryError(
        f"{what} needs {', '.join(libraries)}, not installed here. Run pip install "
        f"'glasshead[{extra_of(libraries)}]'."
    )


def missing_for(what: str, error: ModuleNotFoundError) -> ImportError:
    """Return the error to raise where an import failed: itself, if no extra brings the module."""
    library = (error.name or "").partition(".")[0]
    known = any(library in libraries for libraries in EXTRAS.values())
    return missing(what, [library]) if known else error


def extra_of(libraries: Sequence[str]) -> str:
    """Return the smallest extra that brings these libraries, or several with commas between them.

    Errors: a KeyError for a library that no extra brings.

    >>> extra_of(["tokenizers"]), extra_of(["tokenizers", "lightning"]), extra_of(["uvicorn"])
    ('hf', 'train', 'studio')
    >>> extra_of(["transformers", "matplotlib"])
    'png,hf'
    """
    for extra, brought in EXTRAS.items():
        if set(libraries) <= set(brought):
            return extra
    first = {name: extra for extra in reversed(EXTRAS) for name in EXTRAS[extra]}
    smallest = {first[name] for name in libraries}
    return ",".join(extra for extra in EXTRAS if extra in smallest)

"""The studio's views, their sample texts, and the tokens stored beside a file of weights."""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from glasshead.drawing import printable
from glasshead.files import read_regular
from glasshead.tasks.data.sentences import HELD_OUT

if TYPE_CHECKING:
    from glasshead.studio.subject import Kind


# Characters of a token that are shown, and bytes of the largest file that is read.
_LONGEST = 64
_LARGEST = 2**23


def stored_tokens(weights: Path, keys: int) -> tuple[tuple[str, ...], str | None]:
    """Read the tokens in `weights.tokens.json` beside `weights.safetensors`, one per key.

    Args:
        weights: The file of weights.
        keys: Number of keys of the weights.

    Returns:
        The tokens, long ones truncated, and an error message, None where there is no such file.
    """
    file = weights.with_suffix(".tokens.json")
    try:
        state = file.stat()
    except OSError:
        return (), None
    return _tokens(file, keys, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=2)
def _tokens(file: Path, keys: int, size: int, _modified: int) -> tuple[tuple[str, ...], str | None]:
    try:
        found = json.loads(read_regular(file).decode()) if size <= _LARGEST else None
    except (ValueError, RecursionError):
        held = "broken JSON"
    except OSError as error:
        held = error.strerror
    else:
        if not isinstance(found, list) or not all(isinstance(token, str) for token in found):
            held = "something else" if size <= _LARGEST else f"{size:,} bytes"
        elif len(found) != keys:
            held = f"{len(found):,}"
        else:
            return tuple(token[:_LONGEST] for token in found), None
    return (), (
        f"{printable(file.name)} takes a JSON list of {keys:,} strings, one a key, and has "
        f"{held}: mend or remove it; numbers stand for the tokens meanwhile."
    )


VIEWS = ("steps", "heads", "alignment", "atlas", "training")
_OF: "dict[str, tuple[Kind | None, ...]]" = {
    "steps": (None, "classify", "translate", "write", "model", "weights"),
    "heads": ("classify", "translate", "write", "model"),
    "alignment": ("translate",),
    "atlas": ("classify", "translate", "write", "model", "weights"),
    "training": ("classify", "translate", "write"),
}
_STORY = (
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big red ball. She wanted to play with it, but it was too high."
)
_REVIEW = "The film was not bad at all. I would watch it again, and so would my sister."


def why_not(view: str, kind: "Kind | None") -> str | None:
    """Return the name of the string that says why a view is unavailable; None where it is not.

    >>> why_not("alignment", "write"), why_not("steps", None)
    ('alignment.none', None)
    """
    return None if kind in _OF[view] else f"{view}.none"


def samples(kind: "Kind | None") -> dict[str, str]:
    """Return the initial text of each view for a kind of subject."""
    text = {"translate": HELD_OUT.german, "classify": _REVIEW}.get(kind or "", _STORY)
    return {"heads": text, "atlas": text, "alignment": HELD_OUT.german}

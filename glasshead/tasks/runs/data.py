"""Data: what every task is trained on, in words that JSON holds."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from glasshead.recipe.validation import whole_number

# The most that each takes: tokenizers set aside memory for each token of a vocabulary at once, and
# what is made up is held in memory.
_MOST = {
    "vocabulary": 2**20,
    "stories": 10**6,
    "made_up": 10**6,
    "batch_size": 2**20,
    "batch_tokens": 2**24,
    "first": 2**24,
    "last": 2**24,
    "blocks": 10**6,
}


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Which files, and what of them is held out.

    Attributes:
        files: What is trained on; none: what the task makes up.
        held_out_files: What is validated with; none: a share of what is trained on.
        held_out: That share, which is then never trained on.
        sha256: Of all examples; resuming sees by it that they are the same.

    Errors: a ValueError or TypeError that names what is wrong.
    """

    # What is found out when a run begins, and nobody sets.
    found: ClassVar[tuple[str, ...]] = ("sha256",)

    files: tuple[str, ...] = ()
    held_out_files: tuple[str, ...] = ()
    held_out: float = 0.1
    sha256: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(self.files))
        object.__setattr__(self, "held_out_files", tuple(self.held_out_files))
        if self.held_out_files and not self.files:
            raise ValueError(
                "--held-out takes files beside those that are trained on, and there are none: name "
                "these too, or leave it out."
            )
        if not isinstance(self.held_out, float) or not 0 < self.held_out < 1:
            raise ValueError(
                f"held_out takes a share between 0 and 1, as in 0.1, and got {self.held_out!r}."
            )

    def check_whole(self, names: Sequence[str], least: int) -> None:
        """Raise a ValueError or TypeError for what is no whole number from `least` to its bound."""
        for name in names:
            whole_number(getattr(self, name), name, least=least, most=_MOST[name])

    def check_kinds(self, tokenizers: Sequence[str], columns: Sequence[str]) -> None:
        """Raise a ValueError or TypeError for a tokenizer or a column that is none."""
        tokenizer, lowercase = (getattr(self, name) for name in ("tokenizer", "lowercase"))
        if tokenizer not in tokenizers:
            raise ValueError(
                f"tokenizer takes one of {', '.join(tokenizers)}, and got {tokenizer!r}."
            )
        for name in columns:
            column = getattr(self, name)
            if not isinstance(column, str):
                raise TypeError(f"{name} takes the name of a column, and got {column!r}.")
        if not isinstance(lowercase, bool):
            raise TypeError(f"lowercase takes true or false, and got {lowercase!r}.")


def digest(*parts: Sequence[str]) -> str:
    """A number that no other texts have, nor the same ones otherwise divided.

    >>> digest(["a", "b"], ["c"]) == digest(["a"], ["b", "c"])
    False
    """
    whole = hashlib.sha256()
    for part in parts:
        whole.update(str(len(part)).encode())
        for text in part:
            whole.update(hashlib.sha256(text.encode()).digest())
    return whole.hexdigest()

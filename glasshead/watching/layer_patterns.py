"""The layers of a model that a user selects, by patterns of module names."""

import warnings
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from glasshead.watching.errors import UnseenError


class Layers:
    """The layers of a model selected by patterns of module names.

    A pattern such as "model.layers.1*" selects modules, and every attention within them. `*`
    matches anything, dots included, `?` one character, `[01]` one of a set.

    Args:
        patterns: One pattern, or several; None: all layers.
        names: Names of all modules of the model.
        argument: The name of the argument that they were given by.

    Errors: a TypeError for a pattern that is no string, a ValueError for one that matches nothing.
    """

    def __init__(
        self, patterns: str | Sequence[str] | None, names: Iterable[str], argument: str = "layers"
    ) -> None:
        self._named: dict[str, list[str]] | None = None
        if patterns is None:
            return
        names = list(names)
        self._named = {pattern: _outermost(pattern, names) for pattern in _texts(patterns)}
        for pattern, named in self._named.items():
            if not named:
                raise ValueError(
                    f"{argument} must be names of the model's modules, such as {_some(names)}, "
                    f"got {pattern!r}, which names none."
                )

    def __contains__(self, name: str) -> bool:
        if self._named is None:
            return True
        return any(_within(name, layer) for named in self._named.values() for layer in named)

    def touch(self, name: str) -> bool:
        """Return whether a module, or one within it, is selected."""
        inner = (layer for named in (self._named or {}).values() for layer in named)
        return name in self or any(_within(layer, name) for layer in inner)

    def check_seen(self, seen: Iterable[str], others: Iterable[str] = (), why: str = "") -> None:
        """Check that every pattern, and every layer of a pattern, has shown attention.

        Args:
            seen: Names of modules whose attention was seen.
            others: Names of attentions that were not selected, for the error.
            why: A possible reason, in sentences.

        Errors: an `UnseenError` for a pattern without any; for one layer of several it is a
        warning, as models may have layers of several kinds.
        """
        seen = list(seen)
        for pattern, named in (self._named or {}).items():
            blind = [layer for layer in named if not any(_within(name, layer) for name in seen)]
            if len(blind) == len(named):
                raise UnseenError(
                    f"watch observed no attention in the modules that layers={pattern!r} matches "
                    f"({_some(named)}); it observed {_some(seen or [*others])}. "
                    f"{why and why + ' '}Correct the pattern, or run the matched layers."
                )
            numbered = [layer for layer in blind if layer.rpartition(".")[2].isdigit()]
            if numbered:
                warnings.warn(
                    f"watch observed no attention in {_some(numbered)}, which layers={pattern!r} "
                    "matches.",
                    stacklevel=5,
                )


def _texts(patterns: Any) -> list[str]:
    given = [patterns] if isinstance(patterns, str) else patterns
    several = isinstance(given, list | tuple) and len(given) > 0
    if not several or not all(isinstance(one, str) for one in given):
        raise TypeError(
            "layers must be a pattern such as 'model.layers.*', or a list of them, got "
            f"{patterns!r}."
        )
    return list(given)


def _outermost(pattern: str, names: list[str]) -> list[str]:
    """Return the names that match a pattern, except those within another match."""
    named: list[str] = []
    for name in names:
        if fnmatchcase(name, pattern) and not any(_within(name, other) for other in named):
            named.append(name)
    return named


def _within(name: str, layer: str) -> bool:
    return name == layer or not layer or name.startswith((f"{layer}.", f"{layer}#"))


def _some(names: Sequence[str]) -> str:
    """Quote the first three names."""
    shown = [repr(name) for name in names if name] or ["nothing"]
    return ", ".join(shown[:3]) + (" …" if len(shown) > 3 else "")

"""Assigning: `--set key=value` put where the key belongs."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from glasshead.models.config import closest

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def assigned(
    sections: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Iterable[str]],
    assignments: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """The sections with `key=value` put into the one that knows the key.

    Args:
        sections: Names and values, by section.
        known: The keys of each section.
        assignments: As they were typed. Numbers, true, false, none and JSON are read as such,
            all else as a word.

    Errors: a ValueError where one has no "=", or a key that no section knows.

    >>> assigned({"model": {"d_model": 8}}, {"model": ["d_model", "norm"]}, ["norm=rms"])
    {'model': {'d_model': 8, 'norm': 'rms'}}
    """
    changed = {name: dict(values) for name, values in sections.items()}
    for assignment in assignments:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise ValueError(
                f"--set takes key=value, as in --set steps=500, and got {assignment!r}: add the "
                "value."
            )
        home = next((name for name, keys in known.items() if key in keys), None)
        if home is None:
            every = [each for keys in known.values() for each in keys]
            raise ValueError(f"--set knows no {key!r}{closest(key, every)}")
        changed[home][key] = _value(text)
    return changed


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets without end
        return text

"""The settings of a watched server, from its environment."""

from collections.abc import Mapping
from typing import Any

import glasshead.statistics as own
from glasshead.statistics import Statistic

DEFAULT = "entropy,received,mass-on:0"
# How each statistic is written, its class, and how many numbers follow it.
_KINDS: dict[str, tuple[type[Statistic], str]] = {
    "entropy": (own.Entropy, ""),
    "received": (own.Received, ""),
    "max-weight": (own.MaxWeight, ""),
    "arg-max": (own.ArgMax, ""),
    "max-score": (own.MaxScore, ""),
    "mean-distance": (own.MeanDistance, ""),
    "log-sum-exp": (own.LogSumExp, ""),
    "mass-on": (own.MassOn, "several"),
    "top-k": (own.TopK, "one"),
}


def settings_of(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the choices of a watch, with the statistics by name.

    Errors: a ValueError if a setting is invalid.

    >>> settings_of({"GLASSHEAD_STATISTICS": "top-k:8"})["statistics"]
    {'top_k_8': TopK(k=8)}
    """
    written = environment.get("GLASSHEAD_STATISTICS") or DEFAULT
    layers = environment.get("GLASSHEAD_LAYERS")
    return {
        "statistics": dict(_statistic(one.strip()) for one in written.split(",")),
        "layers": None if not layers else layers.split(","),
        "budget": _number(environment, "GLASSHEAD_BUDGET", 2**28),
        "expiry": float(_number(environment, "GLASSHEAD_EXPIRY", 300)),
        "asked_only": environment.get("GLASSHEAD_REQUESTS", "asked") != "all",
    }


def _statistic(written: str) -> tuple[str, Statistic]:
    """Parse a statistic, such as "mass-on:0+1", and return its name and itself."""
    kind, _, numbers = written.partition(":")
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise ValueError(f"GLASSHEAD_STATISTICS must be some of {known}, got {written!r}.")
    make, takes = _KINDS[kind]
    parts = numbers.split("+") if numbers else []
    if not all(map(str.isdigit, parts)) or len(parts) != {"": 0, "one": 1}.get(takes, len(parts)):
        raise ValueError(
            "GLASSHEAD_STATISTICS must have numbers as in 'mass-on:0+1' and 'top-k:8', got "
            f"{written!r}."
        )
    given = [int(part) for part in parts]
    arguments: Any = {"": [], "one": given}.get(takes, [given])
    name = "_".join([kind.replace("-", "_"), *parts])
    return name, make(*arguments)


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    written = environment.get(name) or str(default)
    if not written.isdigit():
        raise ValueError(f"{name} must be a whole number, got {written!r}.")
    return int(written)

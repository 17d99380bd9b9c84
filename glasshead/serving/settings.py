"""The settings of a watched server, from its environment."""

from collections.abc import Mapping
from typing import Any

from glasshead.serving.watch_vllm import follows_from_chunks
from glasshead.statistics import Statistic
from glasshead.statistics.spelling import SPELLINGS, name_of

DEFAULT = "entropy,received,mass-on:0"


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
    kind, colon, argument = written.partition(":")
    if kind not in SPELLINGS:
        known = ", ".join(SPELLINGS)
        raise ValueError(f"GLASSHEAD_STATISTICS must be some of {known}, got {written!r}.")
    # A comma is between statistics.
    numbers = SPELLINGS[kind].numbers(argument.replace("+", ",") if colon else None)
    if numbers is None:
        raise ValueError(
            "GLASSHEAD_STATISTICS must have numbers as in 'mass-on:0+1' and 'top-k:8', got "
            f"{written!r}."
        )
    statistic = SPELLINGS[kind].build(numbers)
    if not follows_from_chunks(statistic):
        raise ValueError(
            "GLASSHEAD_STATISTICS must be statistics that follow from chunks of queries, got "
            f"{written!r}."
        )
    return name_of(written), statistic


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    written = environment.get(name) or str(default)
    if not written.isdigit():
        raise ValueError(f"{name} must be a whole number, got {written!r}.")
    return int(written)

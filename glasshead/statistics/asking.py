"""What is asked for, a list of statistics or a dict, made a dict that names each."""

import keyword
import re
from collections.abc import Mapping
from typing import Any

from glasshead.statistics.statistic import Statistic

# An observation has these names itself, or what was seen of a model.
_TAKEN = (
    "add",
    "alone",
    "batch",
    "context",
    "count",
    "end",
    "first_key",
    "heads",
    "index",
    "joined",
    "keys",
    "load",
    "name",
    "name_of",
    "position",
    "prefill",
    "queries",
    "save",
    "shape",
    "statistics",
    "steps",
    "texts",
    "to_frame",
    "values",
    "weights",
)


def named(statistics: Any) -> dict[str, Statistic]:
    """Each statistic by its name; from a list that is the name of its class, in snake case.

    Errors: a TypeError for what is not a statistic; a ValueError for one asked for twice, two of
    one class in a list, and for a name that cannot be an attribute of an observation.

    >>> from glasshead.statistics import Entropy, MassOn, TopK
    >>> named([Entropy(), TopK(3)])
    {'entropy': Entropy(), 'top_k': TopK(k=3)}
    >>> named({"sink": MassOn([0])})
    {'sink': MassOn(keys=(0,))}
    """
    asked = dict(statistics) if isinstance(statistics, Mapping) else _from_list(statistics)
    seen: list[Statistic] = []
    for name, statistic in asked.items():
        _check_statistic(statistic)
        check_name(name, statistic)
        if statistic in seen:
            raise ValueError(f"statistics takes each statistic once, and got {statistic!r} twice.")
        seen.append(statistic)
    return asked


def snake_case(name: str) -> str:
    """The name of a class as that of an attribute.

    >>> snake_case("LogSumExp"), snake_case("TopK"), snake_case("KLFromUniform")
    ('log_sum_exp', 'top_k', 'kl_from_uniform')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _from_list(statistics: Any) -> dict[str, Statistic]:
    if not isinstance(statistics, list | tuple):
        raise TypeError(
            "statistics takes a list such as [Entropy()], or a dict that names each, and got "
            f"{_shown(statistics)}."
        )
    asked: dict[str, Statistic] = {}
    for statistic in statistics:
        _check_statistic(statistic)
        name = snake_case(type(statistic).__name__)
        if asked.get(name, statistic) != statistic:
            raise ValueError(
                f"a list of statistics takes one of each class, and got {asked[name]!r} and "
                f"{statistic!r}: name each in a dict."
            )
        if name in asked:
            raise ValueError(f"statistics takes each statistic once, and got {statistic!r} twice.")
        asked[name] = statistic
    return asked


def _check_statistic(statistic: Any) -> None:
    if isinstance(statistic, Statistic):
        return
    if isinstance(statistic, type) and issubclass(statistic, Statistic):
        raise TypeError(
            f"statistics takes objects such as Entropy(), and got the class {statistic.__name__}: "
            f"write {statistic.__name__}()."
        )
    raise TypeError(f"statistics takes objects such as Entropy(), and got {_shown(statistic)}.")


def check_name(name: Any, statistic: Statistic) -> None:
    """Raise a ValueError where the name cannot be an attribute of an observation."""
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name[0] == "_"
    ):
        raise ValueError(
            f"a statistic takes a name that can stand after a dot, such as 'sink', and got "
            f"{name!r} for {statistic!r}."
        )
    if name in _TAKEN:
        raise ValueError(
            f"the name {name!r} is an observation's own, and was given to {statistic!r}: "
            f"name it otherwise, in a dict."
        )


def _shown(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 60 else f"{text[:57]}…"

"""Offering: what else can be chosen, beside what is."""

from typing import Any

from glasshead.explanation.choices import HARDENING, NORMALIZERS
from glasshead.studio.views.steps.asked import BETAS, StepsAsked
from glasshead.studio.views.steps.sums import decimal


def normalizers() -> list[dict[str, Any]]:
    """The normalizers, how they are called, and whether there is β = ∞ for them."""
    return [
        {"name": name, "said": said, "hardens": name in HARDENING}
        for name, said in NORMALIZERS.items()
    ]


def betas(asked: StepsAsked, dim: int) -> list[dict[str, Any]]:
    """The stops of β from soft to hard, each number once; the value of ∞ is None.

    Of two names for one number, such as 0.5 and 1/√4, the default's stays, or else "auto".

    >>> stops = betas(StepsAsked(text="Any other"), dim=4)
    >>> [stop["name"] for stop in stops][:6], stops[-1]
    (['0.05', '0.1', '0.2', '0.3', 'auto', '0.7'], {'name': 'inf', 'value': None, 'said': '∞'})
    >>> stops[4]
    {'name': 'auto', 'value': 0.5, 'said': '1/√4 = 0.5'}
    """
    auto = dim**-0.5
    numbers = {name: auto if name == "auto" else float(name) for name in BETAS}
    twin = next((name for name in BETAS if name != "auto" and numbers[name] == auto), None)
    hidden = "auto" if twin is not None and twin == asked.default_beta else twin
    stops = sorted((value, name) for name, value in numbers.items() if name not in (hidden, "inf"))
    offered: list[dict[str, Any]] = [
        {"name": name, "value": value, "said": f"1/√{dim} = " * (name == "auto") + decimal(value)}
        for value, name in stops
    ]
    if asked.normalizer in HARDENING:
        offered.append({"name": "inf", "value": None, "said": "∞"})
    return offered

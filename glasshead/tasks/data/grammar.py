"""Grammars of generated texts, in TOML files next to this one, and how their rules expand."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from random import Random
from typing import Any, TypeVar

_Choice = TypeVar("_Choice")

SLOT = re.compile(r"\{([^}]+)\}")
"""A slot of a line, such as {thing}: a fact, or another rule."""


def grammar(name: str) -> dict[str, Any]:
    """Read the grammar of a kind of texts: reviews, sentences or stories."""
    return tomllib.loads(files("glasshead.tasks.data").joinpath(f"{name}.toml").read_text("utf-8"))


def one_of(choices: Sequence[_Choice], random: Random) -> _Choice:
    """Choose uniformly at random.

    >>> one_of("abc", Random(0))
    'c'
    """
    # Only random() is guaranteed to stay the same across Python versions.
    return choices[int(random.random() * len(choices))]


def lines_of_rule(lines: str) -> list[str]:
    """Split the lines of a rule, without indentation."""
    return [line.strip() for line in lines.strip().splitlines()]


def expand(
    rule: str, lines: Mapping[str, Sequence[str]], facts: Mapping[str, str], random: Random
) -> str:
    """Choose a line of a rule at random, and fill its slots by facts or other rules.

    Args:
        rule: The rule to expand.
        lines: Alternative lines of each rule.
        facts: Values of the slots that are no rules.
        random: Chooses the lines.

    >>> expand("story", {"story": ["{name} {verb}."], "verb": ["ran"]}, {"name": "Lily"}, Random(0))
    'Lily ran.'
    """

    def filled(slot: re.Match[str]) -> str:
        name = slot[1]
        return facts[name] if name in facts else expand(name, lines, facts, random)

    return SLOT.sub(filled, one_of(lines[rule], random))

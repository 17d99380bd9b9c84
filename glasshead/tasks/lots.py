"""Lots: choices at random that stay the same wherever they are made."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

_Choice = TypeVar("_Choice")


def one_of(choices: Sequence[_Choice], random: Random) -> _Choice:
    """One of the choices, each as likely.

    >>> one_of("abc", Random(0))
    'c'
    """
    # Of its methods, random() alone is promised to stay as it is.
    return choices[int(random.random() * len(choices))]

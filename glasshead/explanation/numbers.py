"""Figures: numbers, sums and vectors written out, always to four decimals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from glasshead.drawing import number
from glasshead.explanation.translations import Say

MOST_TERMS = 8
"""A sum of more terms shows its first three."""
_FIRST = 3
_HUGE = 1e6


def figure(x: float) -> str:
    """Format a number to four decimals; in powers of ten where that would show too little.

    >>> [figure(x) for x in (0.22913, 1.35688, -12.5, 3.0, 1.8e-35, 4e11)]
    ['0.2291', '1.3569', '-12.5', '3', '1.8e-35', '400000000000']
    """
    if not 1 <= abs(x) < _HUGE:
        return number(x, digits=4)
    return number(x, digits=min(5 + math.floor(math.log10(abs(x))), 8))


def factor(x: float) -> str:
    """Format a number inside a product or a sum, with brackets where negative.

    >>> factor(0.5), factor(-0.5)
    ('0.5', '(-0.5)')
    """
    return f"({figure(x)})" if x < 0 else figure(x)


def short_vector(values: Sequence[float]) -> str:
    """Format a vector; of a long one only the first numbers.

    >>> short_vector([0.34, 0.22, 0.54]), short_vector([0.1] * 768)
    ('[0.34, 0.22, 0.54]', '[0.1, 0.1, 0.1, …]')
    """
    shown = list(values) if len(values) <= MOST_TERMS else [*values[:_FIRST]]
    written = [figure(value) for value in shown]
    return f"[{', '.join(written)}{', …' if len(values) > len(shown) else ''}]"


def total(terms: Sequence[str], say: Say, left_out: int = 0) -> str:
    """Join terms by +; of many only the first, with the number of the others.

    Args:
        terms: The formatted terms.
        say: The language.
        left_out: Number of further terms.

    >>> total(["1", "2"], Say("en")), total(["1"] * 768, Say("en"))
    ('1 + 2', '1 + 1 + 1 + … (765 more)')
    """
    shown = terms if len(terms) <= MOST_TERMS and not left_out else terms[:_FIRST]
    more = len(terms) - len(shown) + left_out
    return " + ".join([*shown, *and_more(more, say)]) or "0"


def and_more(count: int, say: Say) -> list[str]:
    """Return an ellipsis with the number of omitted terms; nothing where there are none.

    >>> and_more(765, Say("en"))
    ['… (765 more)']
    """
    if not count:
        return []
    more = say("{count} more", count=count)
    return [f"… ({more})"]


def products(left: Sequence[float], right: Sequence[float], say: Say) -> str:
    """Write out the sum of the products of two vectors.

    >>> products([0.53, 0.34], [0.34, -0.22], Say("en"))
    '0.53·0.34 + 0.34·(-0.22)'
    """
    pairs = zip(left, right, strict=True)
    return total([f"{factor(a)}·{factor(b)}" for a, b in pairs], say)


@dataclass(frozen=True)
class Figures:
    """The functions above in one language, with which a score writes out its computation."""

    say: Say

    def figure(self, x: float) -> str:
        return figure(x)

    def factor(self, x: float) -> str:
        return factor(x)

    def total(self, terms: Sequence[str]) -> str:
        return total(terms, self.say)

    def products(self, left: Sequence[float], right: Sequence[float]) -> str:
        return products(left, right, self.say)


def aligned(lines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Align equations `left = right` at their equals signs.

    >>> aligned([("s(sun)", "1"), ("s(shiny)", "2")])
    ('s(sun)   = 1', 's(shiny) = 2')
    """
    width = max((cell_len(left) for left, _ in lines), default=0)
    return tuple(f"{left}{' ' * (width - cell_len(left))} = {right}" for left, right in lines)

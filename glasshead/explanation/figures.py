"""Numbers written out, as the steps of an explanation show them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glasshead.drawing import number
from glasshead.explanation.translations import Say

MOST_TERMS = 8
"""A sum of more terms shows its first three."""
_FIRST = 3
_HUGE = 1e6


def figure(x: float, decimals: int) -> str:
    """Format a number; in powers of ten where its decimals would show too little.

    >>> [figure(x, 4) for x in (0.22913, 1.35688, -12.5, 3.0, 1.8e-35, 4e11)]
    ['0.2291', '1.3569', '-12.5', '3', '1.8e-35', '400000000000']
    """
    if not 1 <= abs(x) < _HUGE:
        return number(x, digits=decimals)
    whole = math.floor(math.log10(abs(x)))
    return number(x, digits=decimals + min(1 + whole, 4))


@dataclass(frozen=True)
class Figures:
    """A writer of numbers, of their products and sums.

    Attributes:
        say: The language.
        decimals: The most decimals of a number.
    """

    say: Say
    decimals: int

    def figure(self, x: float) -> str:
        """Format a number, as the function `figure`."""
        return figure(x, self.decimals)

    def factor(self, x: float) -> str:
        """Format a number inside a product or a sum, with brackets where negative.

        >>> Figures(Say("en"), decimals=4).factor(-0.5)
        '(-0.5)'
        """
        return f"({self.figure(x)})" if x < 0 else self.figure(x)

    def vector(self, values: Sequence[float]) -> str:
        """Format a vector; of a long one only the first numbers.

        >>> write = Figures(Say("en"), decimals=4)
        >>> write.vector([0.34, 0.22, 0.54]), write.vector([0.1] * 768)
        ('[0.34, 0.22, 0.54]', '[0.1, 0.1, 0.1, …]')
        """
        shown = list(values) if len(values) <= MOST_TERMS else [*values[:_FIRST]]
        more = ", …" if len(values) > len(shown) else ""
        return f"[{', '.join(map(self.figure, shown))}{more}]"

    def total(self, terms: Sequence[str], omitted: int = 0) -> str:
        """Join terms by +; of many only the first, with the number of the others.

        Args:
            terms: The formatted terms.
            omitted: Number of further terms.

        >>> write = Figures(Say("en"), decimals=4)
        >>> write.total(["1", "2"]), write.total(["1"] * 768)
        ('1 + 2', '1 + 1 + 1 + … (765 more)')
        """
        shown = terms if len(terms) <= MOST_TERMS and not omitted else terms[:_FIRST]
        more = len(terms) - len(shown) + omitted
        return " + ".join([*shown, *self.and_more(more)]) or "0"

    def and_more(self, count: int) -> list[str]:
        """Return an ellipsis with the number of omitted terms; nothing where there are none."""
        if not count:
            return []
        more = self.say("{count} more", count=count)
        return [f"… ({more})"]

    def products(self, left: Sequence[float], right: Sequence[float]) -> str:
        """Write out the sum of the products of two vectors.

        >>> Figures(Say("en"), decimals=4).products([0.53, 0.34], [0.34, -0.22])
        '0.53·0.34 + 0.34·(-0.22)'
        """
        pairs = zip(left, right, strict=True)
        return self.total([f"{self.factor(a)}·{self.factor(b)}" for a, b in pairs])

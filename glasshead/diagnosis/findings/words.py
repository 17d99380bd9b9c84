"""Words: counts and places as sentences have them."""

from collections.abc import Callable, Sequence


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun.

    >>> counted(1, "query", "queries"), counted(2100, "cell")
    ('1 query', '2,100 cells')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def listed(
    places: Sequence[tuple[int, ...]], told: Callable[[tuple[int, ...]], str], count: int
) -> str:
    """The first places in words, and how many more there are."""
    words = "; ".join(told(place) for place in places)
    more = count - len(places)
    return f"{words} and {more:,} more" if more > 0 else words

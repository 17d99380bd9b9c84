"""Elision: which rows or columns stay where not all have room."""


def elided(count: int, most: int, always: int | None = None) -> list[int | None]:
    """Return the places that stay: the first and the last ones, and None for those left out.

    Args:
        count: How many there are.
        most: How many have room, at least 1.
        always: One that stays wherever it lies.

    Returns:
        Places from 0, with None where some are left out.

    Example:
        >>> elided(3, 4)
        [0, 1, 2]
        >>> elided(10, 4)
        [0, 1, None, 8, 9]
        >>> elided(10, 4, always=5)
        [0, 1, None, 5, None, 8, 9]
    """
    if count <= most:
        return list(range(count))
    first, last = range((most + 1) // 2), range(count - most // 2, count)
    kept = sorted({*first, *last} | (set() if always is None else {always}))
    places: list[int | None] = []
    for previous, place in zip([-1, *kept], [*kept, count], strict=True):
        if place - previous > 1:
            places.append(None)
        if place < count:
            places.append(place)
    return places

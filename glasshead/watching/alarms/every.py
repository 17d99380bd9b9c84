"""Every: in which steps to look."""

from glasshead.recipe.validation import whole_number


class Every:
    """Step 1, and from then on the multiples of a number.

    Where steps are left out, the next one stands in; a step that is asked about again is not due
    again. Whoever begins later begins with a multiple.

    Args:
        steps: The number.

    Errors: a ValueError or TypeError where it is no whole number from 1.

    >>> every = Every(5)
    >>> [step for step in (1, 1, 2, 3, 4, 5, 6, 11, 12, 15) if every.due(step)]
    [1, 5, 11, 15]
    """

    def __init__(self, steps: int) -> None:
        self.steps = whole_number(steps, "every", least=1)
        self._next: int | None = None

    def due(self, step: int) -> bool:
        """Whether to look in this step, the last one that was asked about or a later one."""
        if self._next is None:
            self._next = 1 if step == 1 else -(-step // self.steps) * self.steps
        if step < self._next:
            return False
        self._next = (step // self.steps + 1) * self.steps
        return True

"""Refusing: why a model is not watched, as kinds that whoever watches can tell apart."""


class UnseenError(RuntimeError):
    """The model ran, and attention of it was not seen, or not as it is; the message says why."""


class BudgetError(ValueError):
    """What is kept of a model takes more memory than its `budget`."""

"""Launch: whether torchrun, or something like it, has started several processes."""

import os

# What it tells each of them.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def told_number(name: str, default: str = "") -> int:
    """A number that the launcher tells by a variable of the environment.

    Errors: a ValueError where it is none.
    """
    told = os.environ.get(name, default)
    if not told.isdecimal():
        raise ValueError(
            f"the launcher tells a whole number by {name}, and it is {told!r}: start with torchrun."
        )
    return int(told)


def started_together() -> int:
    """How many processes were started to do one work; 0 for one that is alone.

    >>> started_together()
    0
    """
    if not all(os.environ.get(name) for name in _TOLD):
        return 0
    count = told_number("WORLD_SIZE")
    return count if count > 1 else 0

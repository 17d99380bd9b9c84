"""Launch: whether torchrun, or something like it, has started several processes."""

import os

# What it tells each of them.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def started_together() -> int:
    """How many processes were started to do one work; 0 for one that is alone.

    >>> started_together()
    0
    """
    if not all(os.environ.get(name) for name in _TOLD):
        return 0
    count = int(os.environ["WORLD_SIZE"])
    return count if count > 1 else 0

"""Out of memory: the one fault of which a smaller task is the remedy."""

import re

_OF_PYTORCH = re.compile("out of memory|can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or PyTorch, which has a RuntimeError for it, could not get the memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"))
    True
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OF_PYTORCH.search(str(error)) is not None

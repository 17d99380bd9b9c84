"""One thread: a mode of PyTorch, which is one thread's own, that may be left in any other."""

import threading
from typing import Self


class OneThread:
    """What a mode of PyTorch is entered and left by.

    The stack of modes is each thread's own. A mode that is left in another thread finds nothing to
    do there: its own stack has ended with its thread, or tells nobody.
    """

    # Numbers of threads are given anew once a thread has ended; what is local to one is not.
    _entered = threading.local()

    def __enter__(self) -> Self:
        self._entered.__dict__.setdefault("modes", []).append(self)
        return super().__enter__()  # type: ignore[misc] - the mode's

    def __exit__(self, *error: object) -> None:
        modes = self._entered.__dict__.get("modes", [])
        if self in modes:
            modes.remove(self)
            super().__exit__(*error)  # type: ignore[misc] - the mode's

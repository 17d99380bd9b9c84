"""How the kernels are compiled: once a machine, to vector code, free of Python's lock."""

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {
    # Sums may be reordered, or no loop with a sum becomes vector code; NaN and infinities count.
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
}

# What Python calls. It is kept on disk until its own file changes: where a kernel that it calls has
# changed, its file is to change too.
entry = njit(cache=True, no_cfunc_wrapper=True, **_OPTIONS)
# What only other kernels call.
kernel = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)
# What puts several kernels together: a copy where it is called compiles sooner than twice over.
together = njit(inline="always", **_OPTIONS)


@kernel
def fill(numbers, value):
    """Every number becomes the value: a loop, which compiles sooner than an assignment."""
    for j in range(len(numbers)):
        numbers[j] = value

"""Arguments of the kernels, grouped in named tuples, and the options they are compiled with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

_OPTIONS: dict[str, Any] = {
    # Sums may be reordered, or no reduction loop is vectorized; NaN and infinities are kept.
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
}

# Called by other kernels only.
kernel = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)
# Inlined at each call, which compiles faster than a function of its own.
together = njit(inline="always", **_OPTIONS)


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that Python calls, and keep it on disk until its own file changes.

    Where a kernel that it calls has changed, its file is to change too.
    """
    compiled = njit(cache=True, no_cfunc_wrapper=True, **_OPTIONS)(function)
    on_disk = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if on_disk is not None:
        try:
            on_disk._load_index()  # noqa: SLF001 - Numba has no other name for it
        except Exception:  # noqa: BLE001 - unpickling may raise anything
            # Another version of this package has left it, with types that are no more.
            on_disk.flush()
    return compiled


@kernel
def fill(numbers, value):
    """Fill an array in a loop, which compiles sooner than an assignment."""
    for j in range(len(numbers)):
        numbers[j] = value


class KernelGrid(NamedTuple):
    """Numbers per pair of query and key, at any stride.

    Attributes:
        numbers: All of them, flat; of size 0 where there are none.
        first: The place of pair (0, 0); the next key is the next place.
        row: The step to the next query, 0 where nothing changes.
    """

    numbers: np.ndarray
    first: int
    row: int


class Matrix(NamedTuple):
    """Vectors in memory: a flat array, the stride from one vector to the next, and their width."""

    numbers: np.ndarray
    row: int
    width: int


class KernelRecipe(NamedTuple):
    """Inputs that define the scores of one head.

    Attributes:
        query: The queries.
        panels: The keys, packed by `pack`.
        keys: How many keys there are.
        bounds: The first key that each query sees, and the one after the last, `[2, queries]`.
        bias, visible: Added to the scores; which of them are not hidden.
        table: Added to the diagonals, `[queries + keys - 1]`, of size 0 where there is none.
        scale, softcap, sink: No softcap is 0, no sink -inf.
        offset: The position of query 0 among the keys.
    """

    query: Matrix
    panels: np.ndarray
    keys: int
    bounds: np.ndarray
    bias: KernelGrid
    visible: KernelGrid
    table: np.ndarray
    scale: float
    softcap: float
    sink: float
    offset: int


class Workspace(NamedTuple):
    """Scratch memory for one block at a time."""

    query: np.ndarray
    scores: np.ndarray
    product: np.ndarray
    groups: np.ndarray
    top_groups: np.ndarray
    order: np.ndarray
    columns: np.ndarray
    factors: np.ndarray


class KernelGradOutputs(NamedTuple):
    """Incoming gradients of one head.

    Attributes:
        context: Of the context; of no numbers where none arrives.
        logsumexp, entropy: Of each row's, `[queries]`.
        by_key: Of P·R, `[r, queries]`.
        per_key: R, `[r, keys]`.
    """

    context: Matrix
    logsumexp: np.ndarray
    entropy: np.ndarray
    by_key: np.ndarray
    per_key: np.ndarray


class KernelGradients(NamedTuple):
    """Output arrays for the gradients of one head; size 0 where not required.

    Attributes:
        query: `[queries, dim]`.
        key, value: Flat, in rows whose width is a multiple of a product's tile, to which
            those of all heads that read them are added.
        bias: Numbers for pairs.
        table: Along the diagonals, `[queries + keys - 1]`, in float64.
        sink: One number, in float64.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    bias: KernelGrid
    table: np.ndarray
    sink: np.ndarray


class BackwardWorkspace(NamedTuple):
    """Scratch memory for one block at a time: that of `Workspace`, and for its gradients."""

    query: np.ndarray
    scores: np.ndarray
    capped: np.ndarray
    gradient: np.ndarray
    context: np.ndarray
    product: np.ndarray

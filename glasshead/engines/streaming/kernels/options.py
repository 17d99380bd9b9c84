"""The options that the kernels are compiled with."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_OPTIONS: dict[str, Any] = {
    # Sums may be reordered, or no reduction loop is vectorized; NaN and infinities are kept.
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
    # Nothing is allocated: without Numba's runtime, machine code runs without Numba.
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

kernel = njit(**_OPTIONS)
# Inlined at each call, which compiles faster than a function of its own.
together = njit(inline="always", **_OPTIONS)


@kernel
def fill(numbers, value):
    """Fill an array in a loop, which compiles sooner than an assignment."""
    for j in range(len(numbers)):
        numbers[j] = value


@intrinsic
def as_matrix(typing_context: Any, flat: Any, rows: Any, columns: Any) -> Any:  # noqa: ARG001
    """View contiguous numbers as a matrix; NumPy's `reshape` would call Numba's runtime."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.return_type)(context, builder)
        source = context.make_array(flat)(context, builder, arguments[0])
        sizes = [
            context.cast(builder, arguments[i], signature.args[i], types.int64) for i in (1, 2)
        ]
        itemsize = context.get_abi_sizeof(context.get_data_type(flat.dtype))
        word = ir.IntType(64)(itemsize)
        populate_array(
            made,
            data=source.data,
            shape=sizes,
            strides=[builder.mul(sizes[1], word), word],
            itemsize=itemsize,
            meminfo=None,
        )
        return made._getvalue()  # noqa: SLF001 - Numba has no other name for it

    return types.Array(flat.dtype, 2, "C")(flat, rows, columns), code

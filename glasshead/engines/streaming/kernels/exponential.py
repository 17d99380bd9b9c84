"""The exponential of numbers up to 0, written so that a loop around it becomes vector code."""

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


class _Format(NamedTuple):
    """What the exponential needs to know of a floating-point format.

    Attributes:
        real, whole: The type, and the integer as wide.
        mantissa, bias: The bits of the fraction, and of 2⁰ in the exponent's field.
        log2_high, log2_low: ln 2 in two parts, of which the first times a small integer is exact.
        degree: Of the Taylor polynomial, on |r| <= ln(2)/2.
        least: Below it, the result is 0.
    """

    real: ir.Type
    whole: ir.IntType
    mantissa: int
    bias: int
    log2_high: float
    log2_low: float
    degree: int
    least: float


_SINGLE = _Format(
    ir.FloatType(), ir.IntType(32), 23, 127, 0.693359375, -2.12194440054690583e-4, 7, -87.3
)
_DOUBLE = _Format(
    ir.DoubleType(),
    ir.IntType(64),
    52,
    1023,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
    13,
    -708.0,
)
# No reassociation: the sum that rounds to an integer would be simplified away.
_STRICT = ("contract",)


@intrinsic
def exponential(typing_context: Any, x: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """e^x for x <= 0, to about an ulp; 0 where it would be subnormal, NaN where x is.

    x = n ln 2 + r, so that e^x = 2ⁿ e^r; e^r is a Taylor polynomial, 2ⁿ an exponent's field. The
    C library's function is a call, which no compiler turns into vector code.
    """
    if x not in (types.float32, types.float64):
        return None
    of = _SINGLE if x == types.float32 else _DOUBLE
    as_float = np.float32 if x == types.float32 else np.float64

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        def number(value: float) -> ir.Constant:
            return ir.Constant(of.real, float(as_float(value)))

        def times_plus(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(builder.fmul(a, b, flags=_STRICT), c, flags=_STRICT)

        (value,) = arguments
        # Adding 1.5 · 2^mantissa leaves the nearest integer in the last bits.
        magic = number(1.5 * 2.0**of.mantissa)
        rounded = times_plus(value, number(1 / math.log(2)), magic)
        n = builder.fsub(rounded, magic, flags=_STRICT)
        r = times_plus(n, number(-of.log2_high), value)
        r = times_plus(n, number(-of.log2_low), r)
        result = number(1 / math.factorial(of.degree))
        for power in reversed(range(of.degree)):
            result = times_plus(result, r, number(1 / math.factorial(power)))
        exponent = builder.add(builder.bitcast(rounded, of.whole), of.whole(of.bias))
        two_to_n = builder.bitcast(builder.shl(exponent, of.whole(of.mantissa)), of.real)
        result = builder.fmul(result, two_to_n, flags=_STRICT)
        return builder.select(
            builder.fcmp_ordered("<", value, number(of.least)), number(0.0), result
        )

    return x(x), code

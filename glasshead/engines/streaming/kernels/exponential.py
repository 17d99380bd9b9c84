"""The exponential function, as instructions that a compiler makes vector code of."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glasshead.engines.streaming.kernels.processor import at_hand


class _Format(NamedTuple):
    """Constants of a floating-point format that the exponential needs.

    Attributes:
        real, whole: The type, and the integer as wide.
        mantissa, bias: The bits of the fraction, and of 2⁰ in the exponent's field.
        log2_high, log2_low: ln 2 in two parts, of which the first times a small integer is exact.
        series: Of the polynomial of e^r with the least relative error on |r| <= ln(2)/2, by
            Remez' exchange, the constant 1 first: 3e-9, and 6e-20.
        least, least_power: Below it, e^x and 2^x are 0.
    """

    real: ir.Type
    whole: ir.IntType
    mantissa: int
    bias: int
    log2_high: float
    log2_low: float
    series: tuple[float, ...]
    least: float
    least_power: float


SINGLE = _Format(
    ir.FloatType(),
    ir.IntType(32),
    23,
    127,
    0.693359375,
    -2.12194440054690583e-4,
    (
        *(1.0, 1.0, 0.50000004357462656294, 0.16666364808738956911, 0.041664773315148213547),
        *(0.0083790590356911787929, 0.0014061422676135338258),
    ),
    -87.3,
    -126.0,
)
DOUBLE = _Format(
    ir.DoubleType(),
    ir.IntType(64),
    52,
    1023,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
    (
        *(1.0, 1.0, 0.49999999999999999805, 0.16666666666666713087, 0.041666666666667032792),
        *(0.0083333333333040228239, 0.001388888888869895936, 0.00019841269920585434309),
        *(2.4801587703064168462e-05, 2.7557214829795848557e-06, 2.7556940385556964264e-07),
        *(2.5118115489641349194e-08, 2.1020651066039177489e-09),
    ),
    -708.0,
    -1022.0,
)
# Whether the processor takes a number's fraction, and multiplies by 2 to the integer below another.
_SCALES = "avx512dq" in at_hand().needs
_SIXTEEN = ir.VectorType(ir.FloatType(), 16)
_SMALLEST = float(np.float32(SINGLE.least))
# Of 2^f with the least relative error on 0 <= f < 1, the constant 1 first: 8e-8.
_POWERS = (
    *(1.0, 0.6931513118176098, 0.24016445003927303, 0.055799913425224286),
    *(0.009017029962529613, 0.0018671302119512632),
)
# No reassociation: it would remove the addition that rounds to an integer.
STRICT = ("contract",)


@intrinsic
def exponential(typing_context: Any, x: Any) -> Any:  # noqa: ARG001 - Numba's protocol
    """Compute e^x for x <= 0, to about an ulp; 0 where it would be subnormal, NaN where x is.

    x = n ln 2 + r, so that e^x = 2ⁿ e^r; e^r is a polynomial, 2ⁿ an exponent's field. The
    C library's function is a call, which no compiler turns into vector code.
    """
    if x not in (types.float32, types.float64):
        return None
    of = SINGLE if x == types.float32 else DOUBLE

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return exponential_of(builder, of, *arguments)

    return x(x), code


def constant(kind: ir.Type, number: float) -> ir.Constant:
    """Return a constant, or a vector of it."""
    lanes = kind.count if isinstance(kind, ir.VectorType) else 0
    return ir.Constant(kind, [number] * lanes if lanes else number)


def exponential_of(builder: Any, of: _Format, value: Any) -> Any:
    """Return e^x of a number, or of each number of a vector."""
    if _SCALES and value.type == _SIXTEEN:
        is_some = builder.fcmp_unordered(">=", value, constant(_SIXTEEN, _SMALLEST))
        by_two = constant(_SIXTEEN, float(np.float32(1 / math.log(2))))
        return _scaled_power(builder, builder.fmul(value, by_two), is_some)
    as_float = np.float32 if of is SINGLE else np.float64

    def number(real: float) -> ir.Constant:
        return constant(value.type, float(as_float(real)))

    def times_plus(a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=STRICT), c, flags=STRICT)

    # Adding 1.5 · 2^mantissa leaves the nearest integer in the last bits.
    magic = number(1.5 * 2.0**of.mantissa)
    rounded = times_plus(value, number(1 / math.log(2)), magic)
    n = builder.fsub(rounded, magic, flags=STRICT)
    r = times_plus(n, number(-of.log2_high), value)
    r = times_plus(n, number(-of.log2_low), r)
    result = _times_two_to(builder, of, _polynomial(builder, of.series, r, number), rounded)
    return builder.select(builder.fcmp_ordered("<", value, number(of.least)), number(0.0), result)


def power_of_two(builder: Any, of: _Format, value: Any) -> tuple[Any, Any]:
    """Return 2^t of each number t <= 0 of a vector, 0 where it would be subnormal, and where not.

    As the exponential: t = n + f, and 2^f = e^(f ln 2) is a polynomial.
    """
    least = constant(value.type, of.least_power)
    is_some = builder.fcmp_unordered(">=", value, least)
    if _SCALES and value.type == _SIXTEEN:
        return _scaled_power(builder, value, is_some), is_some
    as_float = np.float32 if of is SINGLE else np.float64

    def number(real: float) -> ir.Constant:
        return constant(value.type, float(as_float(real)))

    magic = number(1.5 * 2.0**of.mantissa)
    rounded = builder.fadd(value, magic, flags=STRICT)
    n = builder.fsub(rounded, magic, flags=STRICT)
    r = builder.fmul(builder.fsub(value, n, flags=STRICT), number(math.log(2)), flags=STRICT)
    result = _times_two_to(builder, of, _polynomial(builder, of.series, r, number), rounded)
    return builder.select(is_some, result, number(0.0)), is_some


def _polynomial(
    builder: Any, series: tuple[float, ...], x: Any, number: Callable[[float], ir.Constant]
) -> Any:
    """Return the sum of factors times powers of x, the constant first, by Horner's rule."""
    result = number(series[-1])
    for factor in reversed(series[:-1]):
        product = builder.fmul(result, x, flags=STRICT)
        result = builder.fadd(product, number(factor), flags=STRICT)
    return result


def _times_two_to(builder: Any, of: _Format, value: Any, rounded: Any) -> Any:
    """Return a number times 2ⁿ, for an n in the last bits of what the magic addition left."""
    whole: ir.Type = of.whole
    if isinstance(value.type, ir.VectorType):
        whole = ir.VectorType(whole, value.type.count)
    exponent = builder.add(builder.bitcast(rounded, whole), constant(whole, of.bias))
    two_to_n = builder.bitcast(builder.shl(exponent, constant(whole, of.mantissa)), value.type)
    return builder.fmul(value, two_to_n, flags=STRICT)


def _scaled_power(builder: Any, value: Any, is_some: Any) -> Any:
    """Return 2^t of 16 numbers by AVX-512's own instructions: t = n + f with 0 <= f < 1.

    0 where it is to be nothing.
    """
    every = ir.Constant(ir.IntType(16), -1)

    def call(name: str, *given: Any, mask: Any = every) -> Any:
        given = (*given, constant(_SIXTEEN, 0.0), mask, ir.IntType(32)(4))
        kind = ir.FunctionType(_SIXTEEN, [one.type for one in given])
        name = f"llvm.x86.avx512.mask.{name}.ps.512"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)

    def number(real: float) -> ir.Constant:
        return constant(_SIXTEEN, float(np.float32(real)))

    # What the next integer below leaves; 8: without a word about what is not exact.
    fraction = call("reduce", value, ir.IntType(32)(8 + 1))
    result = _polynomial(builder, _POWERS, fraction, number)
    return call("scalef", result, value, mask=builder.bitcast(is_some, every.type))

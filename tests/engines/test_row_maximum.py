"""The largest number of a row, and the first place that holds it, by the processor's vectors."""

import math

import numba
import numpy as np
import pytest

from glasshead.engines.streaming.kernels.exponential import exponential
from glasshead.engines.streaming.kernels.weigh import largest_of, place_of


@numba.njit
def largest(numbers, first, count):
    return largest_of(numbers, first, count)


@numba.njit
def place(number, numbers, first, count):
    return place_of(number, numbers, first, count)


@numba.njit
def exponentials(numbers, results):
    for n in range(len(numbers)):
        results[n] = exponential(numbers[n])


# Nothing, less than a vector, whole vectors, four of them, and what is left over.
COUNTS = (0, 1, 7, 16, 17, 64, 67, 131)
REALS = (np.float32, np.float64)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("first", [0, 3])
def test_the_largest_wherever_it_is(real, count, first):
    for at in range(count):
        numbers = np.linspace(-5, 5, first + count + 2).astype(real)
        numbers[first + at] = 7
        assert largest(numbers, first, count) == 7
        assert place(real(7), numbers, first, count) == at


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("count", COUNTS)
def test_what_is_beyond_is_not_read(real, count):
    numbers = np.full(count + 5, 9, real)
    numbers[3 : 3 + count] = -2
    assert largest(numbers, 3, count) == (-2 if count else -math.inf)
    assert place(real(9), numbers, 3, count) == count


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("count", COUNTS[1:])
def test_nan_is_passed_over(real, count):
    numbers = np.full(count, np.nan, real)
    assert largest(numbers, 0, count) == -math.inf
    assert place(real(np.nan), numbers, 0, count) == count
    numbers[count // 2] = -3
    assert largest(numbers, 0, count) == -3
    assert place(real(-3), numbers, 0, count) == count // 2


@pytest.mark.parametrize("real", REALS)
def test_of_equals_the_first(real):
    numbers = np.zeros(131, real)
    numbers[[130, 97, 41, 23]] = 5
    for first, found in ((0, 23), (24, 41), (42, 97), (98, 130)):
        assert place(real(5), numbers, first, 131 - first) == found - first


@pytest.mark.parametrize(("real", "least", "ulps"), [(np.float32, -87, 1.3), (np.float64, -707, 1)])
def test_exponentials_to_about_an_ulp(real, least, ulps):
    numbers = np.concatenate([np.linspace(least, 0, 100_003), np.linspace(-2, 0, 10_007)])
    numbers = numbers.astype(real)
    results = np.empty_like(numbers)
    exponentials(numbers, results)
    exact = np.exp(numbers.astype(np.longdouble))
    assert (np.abs(results - exact) <= ulps * np.spacing(exact.astype(real))).all()
    assert results[-1] == 1


@pytest.mark.parametrize("real", REALS)
def test_exponentials_of_what_is_hidden_and_broken(real):
    results = np.empty(3, real)
    exponentials(np.array([-np.inf, np.nan, 0], real), results)
    assert results[0] == 0
    assert np.isnan(results[1])
    assert results[2] == 1

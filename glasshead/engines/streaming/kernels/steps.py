"""What happens to the scores of a block between the product and the normalizer."""

import numpy as np

from glasshead.engines.streaming.kernels.compiling import kernel
from glasshead.engines.streaming.kernels.exponential import exponential


@kernel
def cap(scores, softcap):
    """s = softcap · tanh(s / softcap), of what is vector code.

    Far from 0 by e^(-2|y|) for y = s / softcap; near to it, where that would lose the digits, by
    the series of tanh, whose next term is below 4e-15 of the sum.
    """
    real = scores.dtype.type
    one, most, factor = real(1), real(softcap), real(1 / softcap)
    for j in range(len(scores)):
        y = abs(scores[j]) * factor
        power = exponential(real(-2) * y)
        square = y * y
        series = real(62 / 2835) - square * real(1382 / 155925)
        series = real(-17 / 315) + square * series
        series = real(2 / 15) + square * series
        series = real(-1 / 3) + square * series
        size = y * (one + square * series) if y < real(0.1) else (one - power) / (one + power)
        scores[j] = most * (size if scores[j] >= 0 else -size)


@kernel
def add_table(scores, table, first):
    """s_ij += table_(first + last row - i + j), one number a diagonal, and -inf where that is."""
    hidden = scores.dtype.type(-np.inf)
    last = len(scores) - 1
    for i in range(len(scores)):
        place = first + last - i
        # What is wider than the table are columns that no key has.
        diagonal = table[place : place + scores.shape[1]]
        row = scores[i, : len(diagonal)]
        for j in range(len(row)):
            row[j] = hidden if diagonal[j] == hidden else row[j] + diagonal[j]


@kernel
def add_bias(scores, first, first_key, bias, bounds):
    """s_ij += bias_ij, and -inf where the bias is, whatever the score."""
    hidden = scores.dtype.type(-np.inf)
    for i in range(len(scores)):
        start, stop = bounds[0, first + i], bounds[1, first + i]
        row = scores[i, start - first_key : stop - first_key]
        place = bias.first + (first + i) * bias.row + start
        part = bias.numbers[place : place + len(row)]
        for j in range(len(row)):
            row[j] = hidden if part[j] == hidden else row[j] + part[j]


@kernel
def hide(scores, first, first_key, visible, bounds):
    """s_ij = -inf where pair (i, j) is not visible."""
    hidden = scores.dtype.type(-np.inf)
    for i in range(len(scores)):
        start, stop = bounds[0, first + i], bounds[1, first + i]
        row = scores[i, start - first_key : stop - first_key]
        place = visible.first + (first + i) * visible.row + start
        part = visible.numbers[place : place + len(row)]
        for j in range(len(row)):
            row[j] = row[j] if part[j] != 0 else hidden

"""What happens to the scores of a block between the product and the normalizer."""

import numpy as np

from glasshead.engines.streaming.kernels.compiling import kernel
from glasshead.engines.streaming.kernels.exponential import exponential


@kernel
def cap(scores, softcap):
    """s = softcap · tanh(s / softcap), by e^(-2|s| / softcap), which is vector code."""
    real = scores.dtype.type
    one, factor = real(1), real(-2 / softcap)
    for j in range(len(scores)):
        power = exponential(abs(scores[j]) * factor)
        size = real(softcap) * (one - power) / (one + power)
        scores[j] = size if scores[j] >= 0 else -size


@kernel
def add_table(scores, table, first):
    """s_ij += table_(first + last row - i + j): one number a diagonal."""
    last = len(scores) - 1
    for i in range(len(scores)):
        place = first + last - i
        # What is wider than the table are columns that no key has.
        diagonal = table[place : place + scores.shape[1]]
        row = scores[i, : len(diagonal)]
        for j in range(len(row)):
            row[j] += diagonal[j]


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

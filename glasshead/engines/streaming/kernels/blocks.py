"""A block: some queries, and the keys between the first and the last that they see."""

from glasshead.engines.streaming.kernels.compiling import entry, fill, kernel, together
from glasshead.engines.streaming.kernels.product import ROWS, multiply_tile
from glasshead.engines.streaming.kernels.steps import add_bias, add_table, cap, hide

# So many vectors stay in the nearest cache while a block passes over them.
_DEPTH = 128


@entry
def pack(matrix, count, width, panels):
    """Vectors as panels of `width` vectors each, transposed, the last one filled up with 0.

    A product that goes through a panel reads memory in order.
    """
    dim = matrix.width
    for first in range(0, count, width):
        many = min(width, count - first)
        panel = panels[first * dim : (first + width) * dim]
        if many < width:
            fill(panel, 0)
        for lane in range(many):
            place = (first + lane) * matrix.row
            vector = matrix.numbers[place : place + dim]
            for d in range(dim):
                panel[d * width + lane] = vector[d]


@kernel
def copy_rows(matrix, first, count, across, block):
    """The vectors from the first on, in rows of `across` numbers; the rest is 0."""
    dim = matrix.width
    for i in range(count):
        place = (first + i) * matrix.row
        vector = matrix.numbers[place : place + dim]
        row = block[i * across : (i + 1) * across]
        for d in range(dim):
            row[d] = vector[d]
        fill(row[dim:], 0)
    fill(block[count * across :], 0)


@kernel
def hull(bounds, first, last, width):
    """The keys between the first and the last that the queries see, made whole panels."""
    start, stop = -1, 0
    for i in range(first, last):
        if bounds[0, i] < bounds[1, i]:
            start = bounds[0, i] if start < 0 else min(start, bounds[0, i])
            stop = max(stop, bounds[1, i])
    if start < 0:
        return 0, 0
    return start // width * width, (stop + width - 1) // width * width


@together
def times_panels(block, rows, across, dim, panels, first_key, keys, width, scale, product):
    """scale · block · vectorsᵀ, `[rows, keys]`, of packed vectors and rows that fill tiles."""
    for j in range(0, keys, width):
        panel = (first_key + j) * dim
        for i in range(0, rows, ROWS):
            multiply_tile(
                block,
                i * across,
                across,
                1,
                panels,
                panel,
                width,
                dim,
                product,
                i * keys + j,
                keys,
                False,
                scale,
            )


@together
def score(recipe, first, last, first_key, keys, width, across, query, scores, capped):
    """β q·k of a block and what follows up to the normalizer; what is hidden within bounds is -inf.

    q goes to `query`, in rows of `across` numbers; what the softcap made of the scores is kept
    in `capped`, if that has room. Returns the scores as a matrix, of which the rows beyond the
    last query hold anything.
    """
    count = last - first
    rows = (count + ROWS - 1) // ROWS * ROWS
    dim = recipe.query.width
    real = query.dtype.type
    copy_rows(recipe.query, first, count, across, query[: rows * across])
    flat = scores[: rows * keys]
    times_panels(
        query,
        rows,
        across,
        dim,
        recipe.panels,
        first_key,
        keys,
        width,
        real(recipe.scale),
        flat,
    )
    if recipe.softcap > 0:
        cap(flat, recipe.softcap)
        for j in range(min(len(flat), len(capped))):
            capped[j] = flat[j]
    matrix = flat.reshape(rows, keys)
    seen = matrix[:count]
    if len(recipe.table):
        add_table(seen, recipe.table, recipe.bounds.shape[1] - last + first_key)
    if len(recipe.bias.numbers):
        add_bias(seen, first, first_key, recipe.bias, recipe.bounds)
    if len(recipe.visible.numbers):
        hide(seen, first, first_key, recipe.visible, recipe.bounds)
    return matrix


@together
def times_matrix(block, rows, across, first, count, matrix, product, width):
    """block · vectors, `[rows, dim]`, for the vectors from the first on, `count` in all.

    They pass by in parts that stay in the nearest cache.
    """
    deep = min(across, count - first)
    for k in range(0, deep, _DEPTH):
        depth = min(_DEPTH, deep - k)
        for j in range(0, matrix.width, width):
            place = (first + k) * matrix.row + j
            for i in range(0, rows, ROWS):
                multiply_tile(
                    block,
                    i * across + k,
                    across,
                    1,
                    matrix.numbers,
                    place,
                    matrix.row,
                    depth,
                    product,
                    i * matrix.width + j,
                    matrix.width,
                    k > 0,
                    1,
                )

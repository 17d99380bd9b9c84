"""Arguments of the kernels: named tuples of arrays and numbers."""

from typing import Any, NamedTuple

from glasshead.engines.streaming.kernels.layouts import (
    Booleans,
    Doubles,
    HalfPairs,
    Halves,
    RealMatrix,
    Reals,
    Whole,
    WholeMatrix,
)
from glasshead.engines.streaming.kernels.streamed import OutputSpec, Results


class KernelGrid(NamedTuple):
    """Numbers per pair of query and key, at any stride.

    Attributes:
        numbers: All of them, flat; of size 0 where there are none.
        first: The place of pair (0, 0); the next key is the next place.
        row: The step to the next query, 0 where nothing changes.
    """

    numbers: Reals
    first: int
    row: int


class VisibleGrid(NamedTuple):
    """Whether each pair of query and key is visible, laid out as a `KernelGrid`."""

    numbers: Booleans
    first: int
    row: int


class Matrix(NamedTuple):
    """Vectors in memory: a flat array, the stride from one vector to the next, and their width."""

    numbers: Reals
    row: int
    width: int


class HalfMatrix(NamedTuple):
    """Vectors of half precision, laid out as a `Matrix`, by their bits: NumPy has no bfloat16."""

    numbers: Halves
    row: int
    width: int


class Operand(NamedTuple):
    """Operand of a product: a matrix in a flat array.

    Attributes:
        numbers: The array, of numbers or of pairs of bfloat16.
        first: The place of the first number.
        row, column: The steps to the next row and to the next column. Of a right operand on matrix
            tiles: to the tile below, and to the tile on the right.
    """

    numbers: Any
    first: int
    row: int
    column: int


class Blocks(NamedTuple):
    """The blocks of queries that a kernel passes over.

    Attributes:
        width: The keys of a panel.
        height: The most queries of a block.
        first_row, step, last_row: The first query, the step to the next block, and the query after
            the last.
    """

    width: int
    height: int
    first_row: int
    step: int
    last_row: int


class Panels(NamedTuple):
    """Vectors as the right operand of a product: of these two, one is of size 0.

    Attributes:
        numbers: Packed by `pack`.
        pairs: Those of bfloat16, as rows of pairs that `pack` has packed.
        deep: The pairs of a row.
        tiled: Whether they are multiplied on matrix tiles, which they fill.
    """

    numbers: Reals
    pairs: HalfPairs
    deep: int = 0
    tiled: int = 0


class KernelRecipe(NamedTuple):
    """Inputs that define the scores of one head.

    Attributes:
        query: The queries; of no numbers where pairs of bfloat16 are all that is read of them.
        half_query: The queries as rows of pairs, where the keys are packed in pairs.
        panels: The keys.
        keys: How many keys there are.
        bounds: The first key that each query sees, and the one after the last, `[2, queries]`.
        bias, visible: Added to the scores; which of them are not hidden.
        table: Added to the diagonals, `[queries + keys - 1]`, of size 0 where there is none.
        scale, softcap, sink: No softcap is 0, no sink -inf.
        known: About the logsumexp of each row, `[queries]`; of size 0 if nobody knows it.
        offset: The position of query 0 among the keys.
        rows: Of which whole multiples a block has.
    """

    query: Matrix
    half_query: HalfPairs
    panels: Panels
    keys: int
    bounds: WholeMatrix
    bias: KernelGrid
    visible: VisibleGrid
    table: Reals
    known: Reals
    scale: float
    softcap: float
    sink: float
    offset: int
    rows: int


class Values(NamedTuple):
    """The values of a head; of no numbers and no pairs where no context is computed.

    Attributes:
        numbers: In rows whose width is a multiple of a product's tile.
        pairs: As pairs of rows, which are multiplied on matrix tiles, as wide as `numbers` says; of
            size 0 if they are not.
    """

    numbers: Matrix
    pairs: HalfPairs


class ForwardOutputs(NamedTuple):
    """Output arrays of one head: with the context flat in bfloat16, if `halves` is not empty."""

    results: Results
    halves: Halves


# What a row sums up in vectors, of each a vector: by lane, so that no part of a row ends with a sum
# over lanes.
MAXIMA, TOTALS, LOGS, FAR = range(4)
ROW_SUMS = 4


class Workspace(NamedTuple):
    """Scratch memory for one block at a time, and where rows of R begin and end, `spans`.

    `near` and `near_halves` are the same memory: the weights of some keys, rounded to bfloat16,
    take the place of their scores.
    """

    query: Reals
    scores: Reals
    near: Reals
    near_halves: Halves
    rounded: Halves
    product: Reals
    sums: Reals
    top_groups: Reals
    order: Reals
    columns: Doubles
    factors: Reals
    spans: WholeMatrix


class KernelGradOutputs(NamedTuple):
    """Incoming gradients of one head.

    Attributes:
        context: Of the context; of width 0 where none arrives.
        half_context: The same as rows of pairs, where the values are packed in pairs.
        logsumexp, entropy: Of each row's, `[queries]`.
        by_key: Of P·R, `[r, queries]`.
        per_key: R, `[r, keys]`.
    """

    context: Matrix
    half_context: HalfPairs
    logsumexp: Reals
    entropy: Reals
    by_key: RealMatrix
    per_key: RealMatrix


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

    query: RealMatrix
    key: Reals
    value: Reals
    bias: KernelGrid
    table: Doubles
    sink: Doubles


class BackwardPairs(NamedTuple):
    """Vectors of a head as pairs of rows, for products on matrix tiles; of size 0 without these."""

    query: HalfPairs
    key: HalfPairs
    context: HalfPairs


class BackwardVectors(NamedTuple):
    """Vectors of a head that a backward pass multiplies by.

    Attributes:
        key: The keys, in rows whose width is a multiple of a product's tile.
        values: The values; of size 0 where no gradient of the context arrives.
        pairs: Query, key and gradient of the context, for products on matrix tiles.
    """

    key: Matrix
    values: Panels
    pairs: BackwardPairs


class BackwardWorkspace(NamedTuple):
    """Scratch memory for one block at a time: that of `Workspace`, and for its gradients.

    On matrix tiles `rounded` has a block as bfloat16, and `turned` some of its columns as rows.
    """

    query: Reals
    scores: Reals
    capped: Reals
    gradient: Reals
    context: Reals
    product: Reals
    ones: Reals
    rounded: Halves
    turned: HalfPairs


class HeadCalls(NamedTuple):
    """Kernel calls that `share_heads` makes for each head.

    Attributes:
        words: The packed arguments of all calls, one after the other: addresses relative to a base.
        moves: Of each word, the index of its base, how far it moves from each batch row, key
            head, head of a group and stripe to the next, and whether it is the address of the word
            that is meant, `[words, 6]`.
        calls: Of each call its kernel's address, its first word and the one after its last, whether
            it is made once a key head, and if it depends on the numbers, how, `[calls, 6]`.
        least: Where in a thread's memory the smallest sizes stand that decide it, `[4]`.
        batch, kv_heads, group, stripes: The sizes of the problem.
        threads: The most threads that take part.
        room: The bytes of each thread's memory, which begins with the words of its call.
    """

    words: Whole
    moves: WholeMatrix
    calls: WholeMatrix
    least: Whole
    batch: int
    kv_heads: int
    group: int
    stripes: int
    threads: int
    room: int


# The columns of `PagedQueries.requests`: the first of its rows, their number, its keys, the
# position of its first query, the first of its blocks, and where its results begin.
(ROWS, QUERIES, KEYS, POSITION, BLOCKS) = range(5)
(ROW_STATISTICS, BY_KEY, TOP, TOP_KEYS, BY_QUERY) = range(5, 10)


class PagedQueries(NamedTuple):
    """Queries of requests, and how many keys they see.

    Attributes:
        requests: A row each, with these columns.
        blocks: The blocks of all requests, one request after the other.
        rows: Of each query the address in the first layer, and the step to the next layer.
        before: How many keys before its own a query sees; -1: all.
        itemsize: The bytes of a number.
    """

    requests: WholeMatrix
    blocks: Whole
    rows: WholeMatrix
    before: int
    itemsize: int


class PagedKeys(NamedTuple):
    """Keys in the blocks of a paged cache of each layer.

    Attributes:
        caches: The address of the first key of each layer.
        order: The places of a token's numbers in a block of a key head, `[tokens, dim]`.
        block_bytes, head_bytes: The steps to the next block, and to the next key head.
        heads: The number of key heads.
        halves: 0 for real numbers, 1 for bfloat16, 2 for float16.
        step: The step from each token of a vector's lanes to the next; 0 if there is none.
    """

    caches: Whole
    order: WholeMatrix
    block_bytes: int
    head_bytes: int
    heads: int
    halves: int
    step: int


class PagedRule(NamedTuple):
    """Numbers by which products become weights.

    Attributes:
        scale, softcap: As of a `KernelRecipe`.
        sinks, slopes: Of each layer and head; -inf is no sink. Of no size where there is no slope.
    """

    scale: float
    softcap: float
    sinks: RealMatrix
    slopes: RealMatrix


class PagedResults(NamedTuple):
    """Arrays that hold the results of all requests, layers and heads."""

    reals: Reals
    places: Whole
    sums: Doubles


class PagedRoom(NamedTuple):
    """Memory of each thread, and how it is divided.

    Attributes:
        numbers, whole: A row for each thread.
        groups: As many maxima as the largest weights are searched among.
        width, height: The keys of a panel, and the queries of a block.
        tile_rows: Of which whole multiples a block has.
    """

    numbers: RealMatrix
    whole: WholeMatrix
    groups: int
    width: int
    height: int
    tile_rows: int


class Nothing(NamedTuple):
    """Arrays of no numbers, of the types that a kernel cannot make."""

    pairs: HalfPairs
    halves: Halves
    booleans: Booleans


class PagedTask(NamedTuple):
    """Queries of requests, the paged cache of their keys, and the sums that are asked for.

    Attributes:
        queries, keys, rule: What is computed.
        group: The query heads of a key head.
        spec: Output specification of one head, without diagonals and maps.
        results: Where the results go.
        room: Scratch memory.
        nothing: Arrays of no numbers.
    """

    queries: PagedQueries
    keys: PagedKeys
    rule: PagedRule
    group: int
    spec: OutputSpec
    results: PagedResults
    room: PagedRoom
    nothing: Nothing


class PagedHead(NamedTuple):
    """The head of a request that is computed, in the memory of a thread.

    Attributes:
        layer: The number of the layer.
        request: A row of `PagedQueries.requests`.
        panels: The keys, from the first that a query sees.
        shifted: The same as of an array that begins with key 0.
        query: The queries, in rows.
        bounds: As of a `KernelRecipe`.
        table: The bias of each distance, if there are slopes.
        workspace: Memory for a block.
    """

    layer: int
    request: Whole
    panels: Reals
    shifted: Reals
    query: Reals
    bounds: WholeMatrix
    table: Reals
    workspace: Workspace


# The words that one call of `share_heads` has of its own, by their places: 0 as the base of what is
# no address, counters, the unit that is taken no more, the status of a kernel that failed, the
# address of the memory of all threads, each of which takes its own; the first row of the call, the
# one after its last, and the place of pair (0, 0) among those of `visible`; and the addresses of
# arrays.
(ZERO, NEXT_THREAD, NEXT_UNIT, STOP, STATUS, SCRATCH) = range(6)
(FIRST_ROW, LAST_ROW, FIRST_PAIR, FIRST_GIVEN) = range(6, 10)
# The columns of `HeadCalls.moves`.
(FROM, BY_BATCH, BY_KEY_HEAD, BY_HEAD, BY_STRIPE, LOADED) = range(6)
# Pairs of bfloat16 of at least these sizes, and products of sizes, multiply as float32 does.
LEAST_NORMAL, LEAST_PRODUCT = 2.0**-126, 2.0**-110
# A call that does not depend on whether pairs multiply exactly, as 0 and 1 do.
EITHER = -1

# The arguments of each kernel that Python calls.
ENTRIES: dict[str, tuple[Any, ...]] = {
    "widen": (HalfMatrix, int, int, int, Reals),
    "copy_rows": (Matrix, int, int, int, Reals),
    "pack": (Matrix, int, int, Reals),
    "pair_up": (HalfMatrix, int, int, int, HalfPairs, HalfPairs),
    "pair_rows": (HalfMatrix, int, int, HalfPairs),
    "forward_blocks": (KernelRecipe, Values, OutputSpec, ForwardOutputs, Workspace, Blocks),
    "backward_blocks": (
        *(KernelRecipe, BackwardVectors, RealMatrix, KernelGradOutputs, KernelGradients),
        *(BackwardWorkspace, Blocks),
    ),
    "share_heads": (HeadCalls, int),
    "paged_units": (PagedTask, int),
}

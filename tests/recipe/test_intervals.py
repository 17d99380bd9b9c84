"""Masks as one range of keys a query: the range says the same as the pairs, or is not told."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import Case, cases, masks
from glasshead.recipe.masks.base import CompositeMask, Not
from glasshead.recipe.masks.documents import Documents
from glasshead.recipe.masks.kinds import Keys
from glasshead.recipe.problem import split
from glasshead.recipe.tile import Intervals, Span
from hypothesis_profiles import examples


def everything(queries: int, keys: int, offset: int | torch.Tensor | None = None) -> gh.Tile:
    return gh.Tile(range(queries), range(keys), keys - queries if offset is None else offset)


@st.composite
def tiles(draw, case: Case) -> gh.Tile:
    """The whole, or a part of it."""
    whole = everything(case.queries, case.keys, case.offset)
    if draw(st.booleans()):
        return whole
    rows = sorted(draw(st.lists(st.integers(0, case.queries), min_size=2, max_size=2)))
    columns = sorted(draw(st.lists(st.integers(0, case.keys), min_size=2, max_size=2)))
    return gh.Tile(range(*rows), range(*columns), whole.offset)


@st.composite
def ranged(draw, case: Case) -> gh.Mask:
    """Masks that are mostly one range a query."""
    lengths = torch.tensor(draw(st.lists(st.integers(0, case.keys + 1), min_size=2, max_size=2)))
    ids = torch.arange(case.keys).expand(2, -1) // (1 + lengths[:, None])
    places = torch.arange(case.keys)
    some = st.sampled_from(
        [
            gh.causal(),
            gh.causal(lengths - 2),
            gh.window(draw(st.integers(0, 3)), draw(st.integers(0, 3))),
            gh.padding(lengths),
            gh.prefix(lengths.flip(0)),
            gh.documents(ids),
            gh.documents(ids % 2),
            Keys((places >= lengths[:, None] - 2) & (places < lengths.flip(0)[:, None])),
        ]
    )
    mask = draw(some)
    for how in draw(st.lists(st.sampled_from(["and", "or", "not"]), max_size=3)):
        mask = ~mask if how == "not" else mask & draw(some) if how == "and" else mask | draw(some)
    return mask


def pairs(intervals: Intervals, tile: gh.Tile) -> torch.Tensor:
    """The pairs that ranges show; whatever they promise of themselves is asked here too."""
    starts, stops = intervals
    assert starts.dtype == stops.dtype == torch.int64
    assert starts.shape == stops.shape
    assert starts.shape[-2:] == (tile.shape[0], 1)
    assert starts.ndim == 2 or starts.shape[-3] == 1
    assert bool(((tile.keys.start <= starts) & (starts <= stops) & (stops <= tile.keys.stop)).all())
    return (starts <= tile.columns()) & (tile.columns() < stops)


def assert_same(shown: torch.Tensor, expected: torch.Tensor, tile: gh.Tile) -> None:
    """Both are broadcast, and the same."""
    shape = torch.broadcast_shapes(shown.shape, expected.shape, tile.shape)
    assert torch.equal(shown.expand(shape), expected.expand(shape))


def assert_says_the_same(mask: gh.Mask, tile: gh.Tile) -> None:
    intervals = mask.intervals(tile)
    if intervals is not None:
        assert_same(pairs(intervals, tile), mask.visible(tile), tile)
    ranges, rest = split(mask, tile)
    shown = torch.ones((), dtype=torch.bool)
    if ranges is not None:
        shown = shown & pairs(ranges, tile)
    if rest is not None:
        shown = shown & rest.visible(tile)
    assert_same(shown, mask.visible(tile), tile)


@given(cases(), st.data())
@examples(300)
def test_ranges_say_the_same_as_the_pairs(case, data):
    mask = data.draw(masks(case.batch, case.heads, case.queries, case.keys))
    assert_says_the_same(mask, data.draw(tiles(case)))


@given(cases(batches=st.just((2,))), st.data())
@examples(300)
def test_ranges_that_are_told_say_the_same_as_the_pairs(case, data):
    mask, tile = data.draw(ranged(case)), data.draw(tiles(case))
    assert_says_the_same(mask, tile)
    if mask.intervals(tile) is None and could_be_told(mask, tile):
        shown = mask.visible(tile).expand(2, 1, *tile.shape).int()
        begins = torch.nn.functional.pad(shown, (1, 0)).diff(dim=-1) == 1
        assert bool((begins.sum(-1) > 1).any())


def could_be_told(mask: gh.Mask, tile: gh.Tile) -> bool:
    """Whether ranges may be missing only because some query sees no one range."""
    parts = (
        mask.masks
        if isinstance(mask, CompositeMask)
        else (mask.mask,)
        if isinstance(mask, Not)
        else ()
    )
    known = all(part.intervals(tile) is not None for part in parts)
    # Documents that are not in runs may look like one range to a part of the queries.
    return known and not isinstance(mask, Documents)


RUNS = gh.documents(torch.tensor([[4, 4, 4, 1, 1, 7, 7], [0, 0, 0, 0, 0, 9, 2]]))
TOLD = {
    "causal": (gh.causal(), [[0, 0, 0, 0, 0]], [[3, 4, 5, 6, 7]]),
    "window": (gh.window(before=2, after=1), [[0, 1, 2, 3, 4]], [[4, 5, 6, 7, 7]]),
    "padding": (gh.padding([3, 9]), [[0] * 5, [0] * 5], [[3] * 5, [7] * 5]),
    "prefix": (gh.prefix(2), [[0] * 5], [[2] * 5]),
    "causal & window & padding": (
        gh.causal() & gh.window(before=1) & gh.padding([3, 6]),
        [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]],
        [[3, 3, 3, 4, 5], [3, 4, 5, 6, 6]],
    ),
    "causal | prefix": (gh.causal() | gh.prefix(5), [[0] * 5], [[5, 5, 5, 6, 7]]),
    "documents": (RUNS, [[0, 3, 3, 5, 5], [0, 0, 0, 5, 6]], [[3, 5, 5, 7, 7], [5, 5, 5, 6, 7]]),
    "documents & causal": (
        RUNS & gh.causal(),
        [[0, 3, 3, 5, 5], [0, 0, 0, 5, 6]],
        [[3, 4, 5, 6, 7], [3, 4, 5, 6, 7]],
    ),
    "~padding": (~gh.padding([3, 7]), [[3] * 5, [7] * 5], [[7] * 5, [7] * 5]),
    "~causal": (~gh.causal(), [[3, 4, 5, 6, 7]], [[7] * 5]),
    "three that touch, in no order": (
        gh.prefix(1) | (gh.padding(7) & ~gh.padding(4)) | (gh.padding(4) & ~gh.padding(1)),
        [[0] * 5],
        [[7] * 5],
    ),
    "one that is empty": (gh.prefix(0) | gh.window(before=0), [[2, 3, 4, 5, 6]], [[3, 4, 5, 6, 7]]),
    "the opposite of nothing": (
        ~(gh.window(before=0) & gh.padding(2)),
        [[0] * 5],
        [[7] * 5],
    ),
    "keys": (
        Keys(torch.tensor([[0, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]]) == 1),
        [[1] * 5, [4] * 5],
        [[3] * 5, [7] * 5],
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_ranges_are_told(name):
    mask, starts, stops = TOLD[name]
    told = mask.intervals(everything(5, 7))
    assert told is not None
    assert told.starts.reshape(-1, 5).tolist() == starts
    assert told.stops.reshape(-1, 5).tolist() == stops
    assert split(mask, everything(5, 7))[1] is None


@pytest.mark.parametrize(
    "mask",
    [
        ~gh.window(before=1, after=1),
        gh.documents([0, 1, 0, 2, 2, 2, 2]),
        gh.documents(torch.tensor([[0, 0, 0, 0, 0, 0, 0], [1, 1, 2, 2, 2, 2, 1]])),
        gh.window(before=1) | gh.prefix(1),
        gh.padding(2) | (gh.padding(5) & ~gh.padding(3)),
        Keys(torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 0, 1, 0, 0, 0, 0]]) == 1),
        gh.dense(torch.ones(5, 7, dtype=torch.bool)),
        gh.dense(torch.ones(5, 7, dtype=torch.bool)) & gh.causal(),
        gh.dense(torch.ones(5, 7, dtype=torch.bool)) | gh.causal(),
        ~gh.dense(torch.ones(5, 7, dtype=torch.bool)),
    ],
    ids=str,
)
def test_ranges_that_are_none_are_not_told(mask):
    assert mask.intervals(everything(5, 7)) is None


def test_a_range_is_told_of_the_part_where_it_is_one():
    mask = ~gh.window(before=1, after=1)
    told = mask.intervals(gh.Tile(range(5), range(3, 5), offset=2))
    assert told is not None
    assert told.starts.flatten().tolist() == [4, 5, 5, 3, 3]
    assert told.stops.flatten().tolist() == [5, 5, 5, 4, 5]


@given(cases(), st.data())
@examples(200)
def test_the_key_range_of_documents_is_tight(case, data):
    ids = data.draw(st.lists(st.integers(0, 4), min_size=case.keys, max_size=case.keys))
    mask, tile = gh.documents(torch.tensor([ids, ids[::-1]])), data.draw(tiles(case))
    if case.batch != (2,):
        tile = gh.Tile(tile.queries, tile.keys, offset=case.seed % 5 - 2)
    shown = mask.visible(tile).flatten(0, -3).any(0).any(0).nonzero().flatten() + tile.keys.start
    told = mask.key_range(tile)
    ends = [*told[:1], *told[-1:]]
    assert ends == [*shown[:1].tolist(), *shown[-1:].tolist()]


def test_queries_outside_of_the_keys_belong_to_no_document():
    tile = everything(5, 3, torch.tensor([-1, 1]))
    told = gh.documents([6, 6, 2]).intervals(tile)
    assert told is not None
    assert (told.stops - told.starts).flatten(0, -3).squeeze(-1).tolist() == [
        [0, 2, 2, 1, 0],
        [2, 1, 0, 0, 0],
    ]


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
def test_ranges_of_no_queries_or_no_keys(sizes):
    tile = everything(*sizes, offset=1)
    ids = torch.arange(sizes[1]).expand(2, -1)
    for mask in (gh.causal(), gh.padding([1, 2]), gh.documents(ids), Keys(ids > 0)):
        assert_says_the_same(mask, tile)
        assert_says_the_same(~mask | mask, tile)
        assert 0 <= mask.key_range(tile).start <= mask.key_range(tile).stop <= sizes[1]


def test_an_empty_batch_has_ranges():
    tile = everything(3, 5)
    for mask in (gh.padding([]), gh.documents(torch.zeros(0, 5, dtype=torch.long))):
        assert_says_the_same(mask & gh.causal(), tile)
        assert mask.key_range(tile) == range(0)


def test_one_boolean_for_all_keys_is_a_range_of_them():
    tile = everything(2, 5)
    mask = Keys(torch.tensor([[True], [False]]))
    told = mask.intervals(tile)
    assert told is not None
    assert (told.stops - told.starts)[:, 0, 0, 0].tolist() == [5, 0]
    assert mask.key_range(tile) == range(5)
    assert_says_the_same(mask, gh.Tile(range(2), range(2, 5), offset=3))


def test_numbers_that_are_far_away_overflow_nowhere():
    tile = gh.Tile(range(1), range(5), offset=2**60)
    assert_says_the_same(gh.window(before=2**60, after=2**60 - 1), tile)


def test_ranges_are_told_without_the_matrix():
    tile = gh.Tile(range(10**9, 10**9 + 3), range(10**10), offset=0)
    told = (gh.causal() & gh.window(before=7) & gh.padding(10**9 + 2)).intervals(tile)
    assert told is not None
    assert told.starts.flatten().tolist() == [10**9 - 7, 10**9 - 6, 10**9 - 5]
    assert told.stops.flatten().tolist() == [10**9 + 1, 10**9 + 2, 10**9 + 2]


def test_the_split_of_masks():
    tile, ids = everything(3, 3), gh.documents([0, 1, 0])
    ranges, rest = split(gh.causal() & ids & gh.padding([1, 2]) & ~ids, tile)
    assert ranges is not None
    assert ranges.stops.flatten(0, -3).squeeze(-1).tolist() == [[1, 1, 1], [1, 2, 2]]
    assert repr(rest) == "documents(tensor[3]) & ~documents(tensor[3])"
    assert split(None, tile) == (None, None)
    assert split(ids, tile) == (None, ids)


UNREAD = [
    gh.causal() | gh.prefix(torch.tensor([2, 3])),
    ~gh.padding(torch.tensor([2, 3])),
    RUNS,
    Keys(torch.ones(2, 7, dtype=torch.bool)),
]


@pytest.mark.parametrize("mask", UNREAD, ids=str)
def test_numbers_that_are_not_there_are_not_read(mask):
    tile = everything(5, 7)
    assert mask.intervals(tile) is not None
    meta = gh.Tile(tile.queries, tile.keys, tile.offset, device=torch.device("meta"))
    assert mask.intervals(meta) is None
    assert gh.causal().intervals(meta) is not None


def test_ranges_are_traced_of_any_length(request):
    """What needs no look at the numbers in tensors has ranges there too, what does has none."""
    if request.config.getoption("jaxtyping_packages", default=None):
        pytest.skip("checks of shapes at run time cannot be traced")
    if torch.__version__ < (2, 9):
        pytest.skip(f"PyTorch {torch.__version__} does not compile & between two masks")

    def call(x, lengths, offset):
        keys, queries = x.shape
        tile = gh.Tile(Span(0, queries), Span(0, keys), keys - queries)
        shifted = gh.Tile(Span(0, queries), Span(0, keys), offset)
        mask = gh.causal() & gh.padding(lengths) & RUNS
        ranges, rest = split(mask, tile)
        assert rest is RUNS
        others = (
            gh.window(before=1, after=1).intervals(shifted),
            gh.padding(lengths).intervals(tile),
        )
        assert all(one.intervals(tile) is None for one in UNREAD)
        return ranges, others

    torch.compiler.reset()
    traces = []

    def count(graph, inputs):
        traces.append(graph)
        return graph

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=count)
    for keys, queries in ((7, 5), (11, 3), (13, 2)):
        inputs = torch.zeros(keys, queries), torch.tensor([3, 6]), torch.tensor([0, 2])
        torch.testing.assert_close(compiled(*inputs), call_plainly(*inputs))
    assert len(traces) == 1


def call_plainly(x, lengths, offset):
    keys, queries = x.shape
    tile, shifted = everything(queries, keys), everything(queries, keys, offset)
    return (
        (gh.causal() & gh.padding(lengths)).intervals(tile),
        (gh.window(before=1, after=1).intervals(shifted), gh.padding(lengths).intervals(tile)),
    )

"""The cost model: what it predicts, and what shipped profiles choose in the cells of the grid."""

import itertools

import pytest
import torch

import glasshead as gh
from glasshead.attention import profiles
from glasshead.attention.cost import Speed, Work, is_faster, work_of
from glasshead.engines.streaming.kernels import processor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def problem_of(length, *, heads=4, dim=64, dtype="float32", keys=None, rows=1, **settings):
    query, key = (
        torch.empty(rows, heads, size, dim, dtype=DTYPES[dtype], device="meta")
        for size in (length, keys or length)
    )
    return gh.Attention(**settings).problem(query, key, key)


@pytest.fixture(autouse=True)
def avx512(monkeypatch):
    """Vectors are padded to 32 numbers."""
    monkeypatch.setattr(processor, "at_hand", lambda: processor.SHIPPED[0])
    processor.columns_of.cache_clear()
    yield
    processor.columns_of.cache_clear()


def test_the_time_of_some_work():
    speed = Speed(call=3.0, pair=500.0, width=10.0, growth=0.25, whole=0.5)
    # 1000 pairs of 500 + 10 · 96 picoseconds are 1.46 µs; twice as many keys take 1.25 times that.
    assert speed.seconds(Work(1000, 96, 1024, whole=False)) == pytest.approx(4.46e-6)
    assert speed.seconds(Work(1000, 96, 2048, whole=False)) == pytest.approx(4.825e-6)
    assert speed.seconds(Work(1000, 96, 1024, whole=True)) == pytest.approx(3.73e-6)
    # Fewer keys than 1024 take as long each.
    assert speed.seconds(Work(1000, 96, 1, whole=False)) == pytest.approx(4.46e-6)


@pytest.mark.parametrize(
    ("settings", "pairs"),
    [
        ({}, 4 * 1024**2),
        # SDPA computes blocks of 256 queries.
        ({"mask": gh.causal()}, 4 * 1024 * 1280 / 2),
        ({"mask": gh.padding([307])}, 4 * 1024 * 307),
        ({"mask": gh.causal() & gh.window(before=5)}, 4 * 1024**2),
    ],
)
def test_the_pairs_that_sdpa_computes(settings, pairs):
    assert work_of(problem_of(1024, **settings), "fused").pairs == pairs


@pytest.mark.parametrize(
    ("length", "settings", "pairs"),
    [
        (1024, {}, 4 * 1024**2),
        # What is seen, and half of a block of 64 for each query.
        (1024, {"mask": gh.causal()}, 4 * (1024 * 1025 / 2 + 1024 * 32)),
        (1024, {"mask": gh.padding([307])}, 4 * 1024 * (307 + 32)),
        (1024, {"mask": gh.causal() & gh.window(before=5)}, 4 * (1024 * 6 - 15 + 1024 * 32)),
        # A query alone takes as long as 16.
        (1, {"keys": 1021}, 4 * 16 * 1021),
    ],
)
def test_the_pairs_that_streaming_computes(length, settings, pairs):
    assert work_of(problem_of(length, **settings), "streaming").pairs == pairs


def test_streaming_pads_the_context_to_a_tile():
    problem = problem_of(131, dim=48)
    assert work_of(problem, "streaming").width == 112
    assert work_of(problem, "fused").width == 96


def test_masks_and_biases_are_read_by_each_head():
    windowed = problem_of(131, mask=gh.causal() & gh.window(before=5), dtype="bfloat16")
    assert work_of(windowed, "fused").bytes == 2 * 4 * 131**2
    biased = problem_of(131, mask=gh.causal(), bias=gh.ALiBi(4))
    assert work_of(biased, "fused").bytes == 4 * 4 * 4 * 131**2
    assert work_of(biased, "streaming").bytes == 0


@pytest.mark.parametrize(
    ("ratios", "faster"),
    [
        ((0.5, 0.5), True),
        ((0.9, 1.03), True),
        ((0.9, 1.04), False),
        ((1.04, 0.5), False),
        ((0.99, 1.02), False),
        ((1.0, 1.0), False),
    ],
)
def test_an_engine_comes_first_if_no_pass_is_slower(ratios, faster):
    assert is_faster(ratios) is faster


GRID_LENGTHS, GRID_DIMS, GRID_HEADS = (
    (128, 256, 512, 1024, 2048, 4096, 8192),
    (32, 64, 128),
    (4, 16),
)


def faster(profile, length, **options):
    return is_faster(profile.ratios(problem_of(length, **options)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_streaming_comes_first_in_each_cell_of_the_grid_on_zen5(dtype):
    """It takes 0.02 to 0.9 × SDPA's time there."""
    profile = profiles.shipped("zen5")
    masks = (gh.causal(), None, gh.causal() & gh.window(before=256))
    for mask, length, dim, heads in itertools.product(masks, GRID_LENGTHS, GRID_DIMS, GRID_HEADS):
        assert faster(profile, length, heads=heads, dim=dim, mask=mask, dtype=dtype)


@pytest.mark.parametrize("name", ["zen4", "cascade-lake", "avx2"])
@pytest.mark.parametrize("dim", GRID_DIMS)
def test_long_causal_calls_in_float32_stream_where_they_were_measured_to_be_faster(name, dim):
    """They were from 2^24 scores on; 2^20 scores were not."""
    profile = profiles.shipped(name)
    for length, heads in ((1024, 16), (2048, 4), (4096, 1), (4096, 16), (8192, 4)):
        assert faster(profile, length, heads=heads, dim=dim, mask=gh.causal())
    assert not faster(profile, 512, heads=4, dim=dim, mask=gh.causal())
    assert not faster(profile, 128, heads=64, dim=dim)


@pytest.mark.parametrize(
    ("name", "dim", "mask", "dtype", "length", "expected"),
    [
        # AVX2: full calls take 1.05 to 1.15 × with gradients, but for heads of 32.
        ("avx2", 32, None, "float32", 4096, True),
        ("avx2", 64, None, "float32", 4096, False),
        ("avx2", 128, None, "float32", 8192, False),
        ("cascade-lake", 128, None, "float32", 4096, True),
        ("zen4", 128, None, "float32", 4096, True),
        # bfloat16: causal, and wide or long ones where the kernels take the processor's products.
        ("cascade-lake", 64, gh.causal(), "bfloat16", 4096, True),
        ("cascade-lake", 128, gh.causal(), "bfloat16", 4096, False),
        ("cascade-lake", 64, gh.causal(), "bfloat16", 8192, False),
        ("avx2", 64, gh.causal(), "bfloat16", 4096, True),
        ("avx2", 128, gh.causal(), "bfloat16", 4096, False),
        ("zen4", 128, gh.causal(), "bfloat16", 8192, True),
        ("cascade-lake", 64, None, "bfloat16", 4096, False),
        ("zen4", 128, None, "bfloat16", 4096, False),
        ("zen4", 64, gh.causal(), "float16", 4096, True),
    ],
)
def test_shipped_profiles_choose_what_was_measured(name, dim, mask, dtype, length, expected):
    found = faster(profiles.shipped(name), length, heads=16, dim=dim, mask=mask, dtype=dtype)
    assert found is expected


@pytest.mark.parametrize("name", ["zen5", "zen4", "cascade-lake", "avx2", "intel-amx", "default"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_windows_hide_is_skipped_on_each_processor(name, dtype):
    mask = gh.causal() & gh.window(before=256)
    assert faster(profiles.shipped(name), 4096, heads=4, mask=mask, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_stays_with_sdpa_but_for_what_is_hidden(dtype):
    default = profiles.default()
    masks = (gh.causal(), None, gh.padding([97]), gh.window(before=1500, after=1500))
    for mask, length in itertools.product(masks, (128, 4096)):
        assert not faster(default, length, heads=16, dtype=dtype, mask=mask)

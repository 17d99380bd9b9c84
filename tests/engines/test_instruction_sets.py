"""Kernels compute the same with each set of instructions of this processor, and each tile."""

import os

import pytest

import forked
from engines import random_settings
from glasshead.engines.streaming.kernels.processor import SHIPPED, TILES, has
from scripts import ROOT

# What the processor must have, beside what is hidden of it.
NEEDS = {
    "AMX": ("avx512bf16", "amx-tile", "amx-bf16"),
    "AVX512-BF16": ("avx512bf16",),
    "AVX-512": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "AVX2": ("avx2", "fma"),
}


@pytest.fixture(scope="session")
def kept(request, tmp_path_factory):
    """A folder of machine code that later sessions find: what is of other sources is not read."""
    cache = getattr(request.config, "cache", None)
    return tmp_path_factory.mktemp("tiles") if cache is None else cache.mkdir("tiles")


@pytest.mark.parametrize("tile", TILES)
def test_the_keys_of_a_panel_are_whole_tiles(tile):
    for itemsize in (4, 8):
        assert tile.vectors * tile.bytes // itemsize % tile.rows == 0


def test_the_random_settings_run_with_every_tile():
    shipped = [one for one in SHIPPED if one.triple.startswith("x86")]
    assert {one.tile for one in shipped} | {*random_settings.TILES.values()} == {*TILES}


# Kernels are compiled, each for some seconds, unless an earlier session did.
@pytest.mark.slow
@pytest.mark.parametrize("instructions", [*random_settings.HIDDEN, *random_settings.TILES])
def test_values_statistics_and_gradients_are_the_reference_s(instructions, kept):
    if not all(map(has, NEEDS.get(instructions, ()))):
        pytest.skip(f"this processor has no {instructions}")
    # In a fork that has imported PyTorch and Numba, and nothing of this library.
    done = forked.Process(
        *(ROOT / "tests/engines/random_settings.py", instructions, 50),
        fresh=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(kept / instructions)},
    ).ended(timeout=560)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("50 settings agree on")

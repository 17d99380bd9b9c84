"""Kernels compute the same with the register tile of each kind of processor, on this one, too."""

import os

import pytest

import forked
from glasshead.engines.streaming.kernels.processor import SHIPPED, TILES, at_hand
from scripts import ROOT

# Run in a process of its own, before the kernels are written for the processor at hand.
COMPARE = """
import sys
import torch
from glasshead.engines.streaming.kernels import processor

rows, vectors, size = map(int, sys.argv[1:4])
at_hand = processor.at_hand()
tile = processor.RegisterTile(rows, vectors, size)
own = at_hand._replace(
    name="own", triple="", tile=tile, half_products=False, matrix_tiles=False
)
# A kind that this processor can be has machine code in the package, if it is installed there.
for kind in processor.SHIPPED:
    if kind.tile == tile and kind.triple == at_hand.triple and all(map(processor.has, kind.needs)):
        own = kind
processor.at_hand = lambda: own

import glasshead as gh
from glasshead.attention import attention
from glasshead.engines.streaming.engine import Streaming

is_plain = Streaming.is_plain
dtype = getattr(torch, sys.argv[4])
masks = {"none": None, "causal": gh.causal(), "window": gh.causal() & gh.window(before=17)}
torch.manual_seed(0)
# Whole panels, of which heads lie side by side, and lengths that fill none.
for length, dim in ((64, 64), (131, 7)):
    for name, mask in masks.items():
        found = []
        inputs = [torch.randn(1, heads, length, dim, dtype=dtype) for heads in (6, 3, 3)]
        upstream = torch.randn(1, 6, length, dim, dtype=dtype)
        for engine, plain in (("streaming", False), ("streaming", True), ("reference", False)):
            Streaming.is_plain = is_plain if plain else lambda *_: False
            own_inputs = [x.clone().requires_grad_() for x in inputs]
            attention._REMEMBERED.clear()
            context = gh.Attention(mask=mask, engine=engine)(*own_inputs)
            context.backward(upstream)
            found.append([context.detach(), *(x.grad for x in own_inputs)])
        for part, ours, plainly, theirs in zip("context query key value".split(), *found):
            assert torch.equal(plainly, ours), (part, name, length)
            torch.testing.assert_close(
                ours, theirs, atol=2e-5 if dtype == torch.float32 else 1e-12, rtol=1e-5,
                msg=lambda text: f"{part}, {name}, {length} x {dim}: {text}",
            )
print("alike", own.tile)
"""


@pytest.fixture(scope="session")
def kept(request, tmp_path_factory):
    """A folder of machine code that later sessions find: what is of other sources is not read."""
    cache = getattr(request.config, "cache", None)
    return tmp_path_factory.mktemp("tiles") if cache is None else cache.mkdir("tiles")


def compared(tile, dtype, folder):
    """Compare in a fork that has imported PyTorch and Numba, and nothing of this library."""
    arguments = ("-c", COMPARE, *tile, dtype)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder)}
    return forked.Process(*arguments, fresh=True, cwd=ROOT, env=environment).ended(timeout=280)


@pytest.mark.parametrize("tile", TILES)
def test_the_keys_of_a_panel_are_whole_tiles(tile):
    for itemsize in (4, 8):
        assert tile.vectors * tile.bytes // itemsize % tile.rows == 0


def test_every_shipped_kind_has_one_of_these():
    assert {one.tile for one in SHIPPED} <= {*TILES}


# Kernels are compiled, each for some seconds, unless an earlier session did.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tile", TILES)
def test_values_and_gradients_are_the_reference_s(tile, dtype, kept):
    if tile == at_hand().tile:
        pytest.skip("the other tests run with this tile")
    done = compared(tile, dtype, kept / "x".join(map(str, tile)))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("alike")

"""Processors that the kernels are compiled for, and the one at hand."""

import platform
import sys
from functools import cache
from typing import NamedTuple

from llvmlite import binding


class RegisterTile(NamedTuple):
    """Register tile of a product: its rows, vectors per row, and bytes per vector.

    Keys come in panels of a row's numbers, which the backward pass takes as rows: so the rows
    divide these, in float32 and float64.

    Attributes:
        rows: Its rows, a multiple of which every block has.
        vectors, bytes: The vectors of a row, and the bytes of each.
        tall: The rows of a taller tile, which takes most rows of a block; 0 for none.
        unrolled: How many steps of its sums follow each other without a branch.
    """

    rows: int
    vectors: int
    bytes: int
    tall: int = 0
    unrolled: int = 1


class Processor(NamedTuple):
    """A kind of processor, as LLVM names it.

    Attributes:
        name: Of the files with its machine code.
        triple: Architecture, vendor and system; "" for the one at hand.
        cpu, features: What LLVM may use of it.
        tile: Of the products.
        needs: The features that tell such a processor, besides its architecture.
        half_products: Whether it multiplies pairs of bfloat16 (AVX512-BF16).
        matrix_tiles: Whether its machine code has products on matrix tiles (AMX), too: processors
            of the kind that have them run these where the system permits it.
    """

    name: str
    triple: str
    cpu: str
    features: str
    tile: RegisterTile
    needs: frozenset[str] = frozenset()
    half_products: bool = False
    matrix_tiles: bool = False


_AVX2 = frozenset({"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Eight sums wait for each other on Zen 3, whose loads and branches take turns with those of another
# thread on the same core.
_AVX512_TILE, _AVX_TILE = RegisterTile(8, 2, 64), RegisterTile(4, 2, 32, tall=6, unrolled=4)
# Arm has twice the registers of x86 without AVX.
_ARM_TILE, _SSE_TILE = RegisterTile(4, 4, 16), RegisterTile(4, 2, 16)
TILES = (_AVX512_TILE, _AVX_TILE, _ARM_TILE, _SSE_TILE)
# What products on matrix tiles need; the rows of a tile, and the words of a row; the rows and
# columns of a product on two by two of them.
MATRIX_TILES, SIDE, SQUARE = ("amx-tile", "amx-bf16"), 16, 32
# The keys of a block whose scores stay in the first cache, and how far apart rows of these are: an
# odd number of pairs of the cache's lines, as lines that are a power of two apart have few places.
NEAR, NEAR_ROW = 256, 288
_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

# Those whose machine code a wheel holds, the best first.
SHIPPED = (
    Processor(
        "x86_64-avx512bf16",
        _X86,
        "x86-64-v4",
        "-prefer-256-bit,+avx512bf16,+amx-tile,+amx-bf16",
        _AVX512_TILE,
        _AVX512 | {"avx512bf16"},
        half_products=True,
        matrix_tiles=True,
    ),
    Processor("x86_64-avx512", _X86, "x86-64-v4", "-prefer-256-bit", _AVX512_TILE, _AVX512),
    Processor("x86_64-avx2", _X86, "x86-64-v3", "", _AVX_TILE, _AVX2),
    Processor("aarch64", _ARM, "generic", "", _ARM_TILE),
)


@cache
def has(feature: str) -> bool:
    """Return whether the processor at hand has a feature that LLVM names."""
    return bool(binding.get_host_cpu_features().get(feature))


@cache
def at_hand() -> Processor:
    """Return the shipped kind that this processor is, or else a kind of its own."""
    features = binding.get_host_cpu_features()
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    for one in SHIPPED:
        same = one.triple.startswith(f"{machine}-") and sys.platform == "linux"
        if same and all(features.get(need) for need in one.needs):
            return one
    if features.get("avx512f"):
        tile = _AVX512_TILE
    elif features.get("avx"):
        tile = _AVX_TILE
    else:
        tile = _ARM_TILE if machine == "aarch64" else _SSE_TILE
    cpu = binding.get_host_cpu_name()
    half_products = tile == _AVX512_TILE and bool(features.get("avx512bf16"))
    return Processor(
        f"own-{cpu}",
        "",
        cpu,
        features.flatten(),
        tile,
        half_products=half_products,
        matrix_tiles=half_products and all(features.get(need) for need in MATRIX_TILES),
    )


@cache
def columns_of(itemsize: int) -> int:
    """Return how many columns a tile has for numbers of `itemsize` bytes."""
    tile = at_hand().tile
    return tile.vectors * tile.bytes // itemsize

"""The Triton kernel compiles ahead of time for the GPUs it is for, within a multiprocessor's means.

The limits: no number is spilled from the registers, of which a thread has 255; and at least two
blocks fit the shared memory of a multiprocessor, which is 164 KiB for compute capability 8.0 and
228 KiB for 9.0, beside what each block reserves.
"""

import inspect
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version

from engines.triton_engine.installed import require_triton

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
SHARED = {80: 80 * 1024, 90: 112 * 1024}
REGISTERS = 255
NOTHING = {
    **dict.fromkeys(("HAS_VISIBLE", "HAS_BIAS", "HAS_TABLE", "HAS_SOFTCAP", "HAS_SINK"), False),
    **dict.fromkeys(("ROWS", "SHIFTED", "KEYED", "FAR"), False),
    **dict.fromkeys(("RIGHT", "LEFT", "TOP", "MAP"), 0),
    **dict.fromkeys(("PAGED", "ALIGNED", "WIDEN"), False),
    **dict.fromkeys(("SIZE", "STEP"), 1),
}
PAGED = {"PAGED": True, "ALIGNED": True, "SIZE": 16}
SIX = {"ROWS": True, "KEYED": True, "FAR": True, "RIGHT": 1, "LEFT": 1}
VARIANTS = {
    "six statistics beside a known logsumexp": SIX | {"SHIFTED": True},
    "rows alone": SIX | {"LEFT": 0},
    "columns and a map": {"SHIFTED": True, "LEFT": 1, "MAP": 1},
    "eight statistics": SIX | {"SHIFTED": True, "TOP": 8, "MAP": 1},
    "a mask, biases and a softcap": SIX
    | {"HAS_VISIBLE": True, "HAS_BIAS": True, "HAS_TABLE": True, "HAS_SOFTCAP": True}
    | {"HAS_SINK": True, "LEFT": 0},
    "paged keys": SIX | PAGED | {"LEFT": 0},
    "paged keys with sinks and a softcap": SIX
    | PAGED
    | {"TOP": 8, "LEFT": 0}
    | {"HAS_TABLE": True, "HAS_SOFTCAP": True, "HAS_SINK": True},
    "columns of paged keys": PAGED | {"SHIFTED": True, "LEFT": 1},
}
TENSORS = {
    **dict.fromkeys(("bounds", "offsets", "units", "requests", "pages", "layers"), "i64"),
    **dict.fromkeys(("key_spans", "top_keys"), "i32"),
    **dict.fromkeys(("by_query", "cells"), "fp64"),
    "visible": "u8",
}
NUMBERS = ("scale", "softcap")


def compiled(capability, dtype, dim, variant):
    """The compiled kernel, as `passes.py` launches it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from glasshead.engines.triton.kernels import INTERPRETED, reduce_weights
    from glasshead.engines.triton.paged import block_of
    from glasshead.engines.triton.passes import blocks_for

    if INTERPRETED:
        pytest.skip("this process interprets Triton's kernels")
    top, pairs, paged = bool(variant.get("TOP")), "HAS_BIAS" in variant, "PAGED" in variant
    block = blocks_for(dtype, dim, top=top, pairs=pairs)
    if paged:
        block = block_of(dtype, dim, top=top, queries=1000)
    constants = NOTHING | variant | {"DIM": dim, "BLOCK_DIM": max(16, dim)}
    constants |= {"BLOCK_QUERIES": block.queries, "BLOCK_KEYS": block.keys}
    names = reduce_weights.arg_names
    pointers = names[: names.index("heads")] + names[names.index("units") : names.index("places")]
    signature = dict.fromkeys(names, "i32")
    signature |= {name: "*" + TENSORS.get(name, "fp32") for name in pointers}
    signature |= dict.fromkeys(("query", "key"), "*" + TYPES[dtype])
    signature |= {"query": "*i64"} if paged else {}
    signature |= dict.fromkeys(NUMBERS, "fp32") | dict.fromkeys(constants, "constexpr")
    # What torch allocates begins at such an address, and rows of vectors do.
    even = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    steps = "query_row", "key_row", "key_head", "page_step"
    even |= {(names.index(name),): [["tt.divisibility", 16]] for name in steps}
    values = {(names.index(name),): value for name, value in constants.items()}
    return triton.compile(
        ASTSource(reduce_weights, signature, values, even),
        target=GPUTarget("cuda", capability, 32),
        options={
            "num_warps": block.warps,
            "num_stages": block.stages,
            "enable_fp_fusion": True,
        },
    )


def registers(kernel, capability, folder):
    """The registers of a thread, and the bytes that it spills, as the assembler says."""
    from triton.backends.nvidia.compiler import get_ptxas

    # Triton 3.9 has an assembler of its own for some architectures.
    takes = inspect.signature(get_ptxas).parameters
    assembler = (get_ptxas(capability) if takes else get_ptxas()).path
    code = folder / "kernel.ptx"
    code.write_text(kernel.asm["ptx"])
    architecture = re.search(r"\.target (\w+)", kernel.asm["ptx"])[1]
    command = [assembler, "-v", f"--gpu-name={architecture}", code, "-o", folder / "kernel.cubin"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.search(r"Used (\d+) reg", told)[1]), int(re.search(r"(\d+) bytes spill", told)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="Triton's assembler is for Linux")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize(
    ("variant", "dtype", "dim"),
    [
        ("six statistics beside a known logsumexp", torch.bfloat16, 64),
        ("six statistics beside a known logsumexp", torch.bfloat16, 128),
        ("six statistics beside a known logsumexp", torch.float16, 256),
        ("six statistics beside a known logsumexp", torch.float32, 64),
        ("rows alone", torch.bfloat16, 128),
        ("columns and a map", torch.bfloat16, 128),
        ("eight statistics", torch.bfloat16, 128),
        ("a mask, biases and a softcap", torch.bfloat16, 128),
        ("paged keys", torch.bfloat16, 64),
        ("paged keys", torch.bfloat16, 128),
        ("paged keys", torch.float32, 128),
        ("paged keys with sinks and a softcap", torch.bfloat16, 64),
        ("columns of paged keys", torch.bfloat16, 128),
    ],
)
def test_it_compiles_within_limits(capability, variant, dtype, dim, tmp_path):
    require_triton()
    kernel = compiled(capability, dtype, dim, VARIANTS[variant])
    used, spilled = registers(kernel, capability, tmp_path)
    assert kernel.metadata.shared <= SHARED[capability]
    assert used <= REGISTERS
    known = version("triton")
    if dim == 256 and Version(known) < Version("3.7"):
        pytest.skip(f"Triton {known} spills {spilled} bytes of the widest heads")
    assert spilled == 0

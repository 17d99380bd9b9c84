"""The peak of the processor: fused multiply-adds that stay in the registers, on every core.

    python benchmarks/peak.py          prints GFLOP/s of float32, the best of some rounds

A loop of independent multiply-adds, as many as hide their latency, in LLVM's own terms: no memory
is read or written, so that no product can be faster.
"""

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from llvmlite import binding

from glasshead.engines.streaming.kernels.processor import at_hand
from glasshead.engines.streaming.machine_code import engine

# Latency 4, two units: at least eight; as many as the kernels' tile holds in registers.
_SUMS = 12


def _module(lanes: int) -> str:
    """LLVM's text of the loop: so many sums, each a vector of `lanes` float32."""
    vector = f"<{lanes} x float>"
    sums = range(_SUMS)
    phis = "\n".join(
        f"  %s{i} = phi {vector} [ zeroinitializer, %entry ], [ %t{i}, %loop ]" for i in sums
    )
    fmas = "\n".join(
        f"  %t{i} = call {vector} @llvm.fma({vector} %s{i}, {vector} %x, {vector} %y)" for i in sums
    )
    adds = "\n".join(
        f"  %a{i} = fadd {vector} {'%t0' if i == 1 else f'%a{i - 1}'}, %t{i}" for i in sums[1:]
    )
    return f"""
declare {vector} @llvm.fma({vector}, {vector}, {vector})
define void @peak(i64 %n, ptr %out) {{
entry:
  %x = load {vector}, ptr %out, align 4
  %y = load {vector}, ptr %out, align 4
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{fmas}
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{adds}
  store {vector} %a{_SUMS - 1}, ptr %out, align 4
  ret void
}}
"""


def peak(*, rounds: int = 100, steps: int = 200_000) -> float:
    """Measure float32 operations a second on as many threads as PyTorch uses, at their best.

    Each thread is timed by itself, by its own processor time, so that other programs do not count.
    """
    lanes = at_hand().tile.bytes // 4
    made = engine(at_hand().cpu, at_hand().features)
    made.add_module(binding.parse_assembly(_module(lanes)))
    made.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
    function = kind(made.get_function_address("peak"))
    threads = torch.get_num_threads()

    def best(_: int) -> float:
        numbers = (ctypes.c_float * lanes)(*[0.5] * lanes)
        least = float("inf")
        for _ in range(rounds):
            start = time.thread_time()
            function(steps, ctypes.addressof(numbers))
            least = min(least, time.thread_time() - start)
        return 2 * lanes * _SUMS * steps / least

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(best, range(threads)))


if __name__ == "__main__":
    print(f"{peak() / 1e9:.1f} GFLOP/s of float32, {torch.get_num_threads()} threads")

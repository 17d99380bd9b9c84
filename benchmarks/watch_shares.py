"""Where the time of a watch goes: a second pass over queries and keys, copies, and Python.

python benchmarks/watch_shares.py    some three minutes; a pass over 1024 tokens, and 32 steps

One thread, by its own processor time, so that other programs hardly count. The kernels that compute
statistics are timed by themselves, and operators that copy by PyTorch's profiler, less those of the
same work unwatched. The rest is Python and the operators that it calls.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import watch
from pairs import paired
from torch.profiler import ProfilerActivity, profile

from glasshead.engines.streaming.programs import Program

# The operators that move numbers and compute none.
COPIES = {"aten::copy_", "aten::cat", "aten::fill_", "aten::index_select", "aten::zero_"}
PAIRS, MICROSECONDS = 5, 1e-6


@contextmanager
def kernels() -> Iterator[list[float]]:
    """Yield the seconds that each program of kernels takes, while they run."""
    taken: list[float] = []
    run = Program.run

    def timed(self: Program, *given: Any, **options: Any) -> None:
        start = time.process_time()
        run(self, *given, **options)
        taken.append(time.process_time() - start)

    Program.run = timed
    try:
        yield taken
    finally:
        Program.run = run


def copying(work: Callable[[], object]) -> float:
    """Return the seconds of operators that copy."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    found = profiler.key_averages()
    return sum(one.self_cpu_time_total * MICROSECONDS for one in found if one.key in COPIES)


def shares(name: str, watched: Callable[[], object], plain: Callable[[], object]) -> None:
    """Print how the time that a watch adds divides."""
    times = paired(watched, plain, pairs=PAIRS, clock=time.process_time)
    alone = statistics.median(theirs for _, theirs in times)
    added = statistics.median(ours - theirs for ours, theirs in times)
    second_pass = []
    for _ in range(PAIRS):
        with kernels() as taken:
            watched()
        second_pass.append(sum(taken))
    copies = statistics.median(copying(watched) - copying(plain) for _ in range(PAIRS))
    kernel = statistics.median(second_pass)
    parts = {
        "second pass over queries and keys": kernel,
        "operators that copy": copies,
        "Python and other operators": added - kernel - copies,
    }
    print(f"{name}: {1e3 * alone:.1f} ms unwatched, {1e3 * added:.1f} ms more watched", flush=True)
    for part, seconds in parts.items():
        print(f"  {part:<34}{1e3 * seconds:9.2f} ms {100 * seconds / alone:6.1f} % of unwatched")


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    made = watch.model("plain", watch.SHORT)
    tokens = torch.randint(50257, (1, watch.SHORT))
    forward = (watch.run(kind, made, tokens) for kind in ("watched", "plain"))
    shares(f"forward pass, {watch.SHORT} tokens", *forward)
    told = tokens[:, : watch.TOLD]
    shares(
        f"{watch.STEPS} tokens generated after {watch.TOLD}",
        lambda: watch.generating(made, told, watched=True),
        lambda: watch.generating(made, told, watched=False),
    )


if __name__ == "__main__":
    main()

"""The sections of `benchmarks/observe.py` that each need a process of their own.

python benchmarks/observe_children.py window 16384      what a child does; it prints JSON
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from observe_cases import HEADS, SEVEN, SIX, Inputs, Options, inputs, progress
from pairs import Figure, Pair, figure, judged, paired, seconds_of
from resident import reset_peak, resident

import glasshead as gh

MIB = 2**20


def window(options: Options) -> list[Pair | Figure]:
    """A sliding window over long texts: time grows with the length, memory stays small."""
    lengths = (4096, 8192) if options.quick else (16384, 32768, 65536)
    rows: list[Pair | Figure] = []
    for length in lengths:
        progress(f"window(before=1023), T={length}")
        found = _child("window", str(length))
        about = "median of 5, one process a length"
        rows += [
            figure(f"T={length}, time", found["seconds"], "s", about=about),
            figure(
                f"T={length}, memory",
                found["peak"] / 2**30,
                "GiB",
                about="of the whole process, at its peak",
                at_most=2,
            ),
        ]
    short, long = lengths[0], lengths[-1]
    progress(f"window(before=1023), T={long} and T={short} in turn")
    each = _child("linear", str(long), str(short))["ratio"] * short / long
    about = f"T={long} against T={short}, in pairs: 1 is linear"
    rows.append(figure("time a query", each, "×", about=about, at_most=1.25))
    return rows


def memory(options: Options) -> list[Pair | Figure]:
    """A long causal text, forward and backward, beside what the matrix would take."""
    length = 8192 if options.quick else 32768
    progress(f"SIX and TopK(8), T={length}, forward and backward")
    found = _child("memory", str(length))
    extra = "peak, beyond inputs and results"
    forward, both = (found[part] / MIB for part in ("forward", "both"))
    one = HEADS * length**2 * 4 / 1e9
    return [
        figure(f"T={length}, forward", found["forward_seconds"], "s", about="exact, every pair"),
        figure(f"T={length}, forward", forward, "MiB", about=extra, at_most=64),
        figure(
            f"T={length}, results", found["results"] / MIB, "MiB", about="context and statistics"
        ),
        figure(f"T={length}, forward and backward", found["both_seconds"], "s"),
        figure(f"T={length}, forward and backward", both, "MiB", about=extra, at_most=64),
        figure(f"T={length}, eager", one, "GB", about="one matrix of weights, of several"),
    ]


def first(options: Options) -> list[Pair | Figure]:
    """What a first call waits for: machine code of a wheel, or compiled before, or now."""
    cold, cached, shipped = [], [], []
    turns = 1 if options.quick else 3
    for turn in range(turns):
        progress(f"first calls in fresh processes, {turn + 1} of {turns}")
        with tempfile.TemporaryDirectory() as folder:
            cache, wheel, nothing = (f"{folder}/{name}" for name in ("cache", "wheel", "nothing"))
            cold.append(_child("first", nothing, NUMBA_CACHE_DIR=cache)["seconds"])
            _child("ship", wheel, NUMBA_CACHE_DIR=cache)
            for _ in range(turns):
                cached.append(_child("first", nothing, NUMBA_CACHE_DIR=cache)["seconds"])
                shipped.append(_child("first", wheel, NUMBA_CACHE_DIR=nothing)["seconds"])
    about = "of a process, less a second call"
    medians = (statistics.median(times) for times in (shipped, cached, cold))
    names = {"machine code of a wheel": 0.5, "compiled before": 0.3, "compiling": None}
    return [
        figure(f"first observe, {name}", median, "s", about=about, at_most=limit)
        for (name, limit), median in zip(names.items(), medians, strict=True)
    ]


def _child(*arguments: str, **environment: str) -> dict[str, float]:
    """What a child process found."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )
    return json.loads(done.stdout)


def _windowed(length: int) -> Callable[[], object]:
    of = inputs(length)
    attention = gh.Attention(mask=gh.causal() & gh.window(before=1023))
    return lambda: attention.observe(*of, SIX)


def _window(length: int) -> dict[str, float]:
    _windowed(4096)()  # Compiles.
    call = _windowed(length)
    times = [seconds_of(call) for _ in range(5)]
    return {"seconds": statistics.median(times), "peak": resident("VmHWM")}


def _linear(long: int, short: int) -> dict[str, float]:
    times = paired(_windowed(long), _windowed(short), pairs=5)
    return {"ratio": judged("", times).ratio}


def _memory(length: int) -> dict[str, float]:
    """Peak resident memory of a call, less that before it, less that of its results.

    What counts as before is the process with its inputs (and the gradient that arrives) written,
    its kernels compiled and its threads started by a small problem of the same kind, and with
    what malloc had kept for later given back, so that nothing is used again uncounted. Results are
    what the caller is given: statistics, context, gradients.
    """
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    _call(attention, inputs(512), backward=False)
    _call(attention, inputs(512), backward=True)
    of = inputs(length)
    forward = _call(attention, of, backward=False)
    both = _call(attention, of, backward=True)
    return {
        "forward": forward["extra"],
        "forward_seconds": forward["seconds"],
        "results": forward["results"],
        "both": both["extra"],
        "both_seconds": both["seconds"],
    }


def _call(attention: gh.Attention, of: Inputs, *, backward: bool) -> dict[str, float]:
    for x in of:
        x.requires_grad_(backward)
    arriving = torch.randn_like(of[0]) if backward else None
    reset_peak()
    before = resident("VmRSS")
    results: list[torch.Tensor] = []

    def call() -> None:
        with torch.set_grad_enabled(backward):
            seen = attention.observe(*of, SEVEN)
        results.append(seen.context)
        for name in seen.statistics:
            value = seen[name]
            results.extend([value] if isinstance(value, torch.Tensor) else value)
        if backward:
            seen.context.backward(arriving)
            results.extend(x.grad for x in of if x.grad is not None)

    seconds = seconds_of(call)
    given = sum(x.numel() * x.element_size() for x in results)
    extra = resident("VmHWM") - before - given
    return {"extra": extra, "seconds": seconds, "results": given}


def _first(folder: str) -> dict[str, float]:
    """Time the first call, with the machine code of a folder."""
    from glasshead.engines.streaming import machine_code

    machine_code.SHIPPED_FOLDER = Path(folder)
    attention = gh.Attention(mask=gh.causal(), engine="streaming")
    of = inputs(64)
    times = [seconds_of(lambda: attention.observe(*of, SIX)) for _ in range(2)]
    return {"seconds": times[0] - times[1]}


def _ship(folder: str) -> dict[str, float]:
    """Put the kernels of float32 into a folder, as a wheel has them."""
    import numpy as np

    from glasshead.engines.streaming import machine_code
    from glasshead.engines.streaming.kernels.compiling import compiled
    from glasshead.engines.streaming.kernels.processor import at_hand

    real = np.dtype(np.float32)
    for entry in ("pack", "forward_blocks"):
        code = compiled(entry, real, at_hand())
        machine_code.save(Path(folder), entry, real, at_hand(), code)
    return {}


def main() -> None:
    """Do one thing, and print what was found."""
    torch.manual_seed(0)
    what, *rest = sys.argv[1:]
    if what == "memory":
        found = _memory(int(rest[0]))
    elif what in {"first", "ship"}:
        with torch.no_grad():
            found = {"first": _first, "ship": _ship}[what](*rest)
    else:
        with torch.no_grad():
            found = {"window": _window, "linear": _linear}[what](*map(int, rest))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

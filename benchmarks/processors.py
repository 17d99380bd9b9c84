"""What attention costs on each processor: stored figures, and the tables made of them.

    make bench-json    measures this machine, which must be quiet, in about five minutes
    make bench-page    writes the tables of docs/concepts/performance.md

`benchmarks/results/PROCESSOR.json` holds the figures of one processor, with date, versions and the
command of each.
"""

import argparse
import datetime as dt
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pairs import Figure, figure, paired, seconds_of, show
from torch.nn import functional as F

import glasshead as gh

RESULTS = Path(__file__).with_name("results")
PAGE = Path("docs/concepts/performance.md")
START, END = "<!-- tables: make bench-page -->", "<!-- end of tables -->"
FIELDS = "processor", "date", "torch", "threads", "figures"
_COMMAND = "processors.py --measure"
_SIX = [
    *(gh.LogSumExp(), gh.MaxWeight(), gh.Entropy(), gh.Received()),
    *(gh.MeanDistance(), gh.MassOn([0])),
]
_DTYPES = {"": torch.float32, "-bfloat16": torch.bfloat16}


def stored() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each processor's figures, by the name of its file."""
    for file in sorted(RESULTS.glob("*.json"), reverse=True):
        yield file.stem, json.loads(file.read_text(encoding="utf-8"))


def value_text(value: float | list[float]) -> str:
    """Write a figure as the pages do: 0.45, or a range."""
    numbers = value if isinstance(value, list) else [value]
    return " to ".join(f"{number:.3g}" if number < 10 else f"{number:.1f}" for number in numbers)


def tables() -> str:
    """Return one table per processor, in Markdown."""
    parts = []
    for _, found in stored():
        parts.append(
            f"{found['processor']}, {found['date']}, torch {found['torch']}, "
            f"{found['threads']} threads:\n"
        )
        parts.append("| work | figure | command in `benchmarks/` |\n|---|---|---|")
        parts += (
            f"| {one['work']} | {value_text(one['value'])} {one['unit']} | `{one['command']}` |"
            for one in found["figures"]
        )
        parts.append("")
    return "\n".join(parts)


def write_page() -> None:
    """Put the tables between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n\n{tables()}\n{END}{after}", encoding="utf-8")


def measured() -> Iterator[tuple[str, Figure]]:
    """Measure attention, its statistics, and a watched model; medians of pairs."""
    yield from _of_calls()
    yield from _of_models()


def _ratio(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> float:
    return statistics.median(a / b for a, b in paired(ours, theirs, pairs=pairs))


def _of_calls() -> Iterator[tuple[str, Figure]]:
    causal = gh.Attention(mask=gh.causal())
    streaming, fused = (
        gh.Attention(mask=gh.causal(), engine=name) for name in ("streaming", "fused")
    )

    def against(key: str, work: str, call: Callable[..., object], length: int, pairs: int) -> Any:
        for suffix, dtype in _DTYPES.items():
            inputs = [torch.randn(1, 8, length, 64).to(dtype) for _ in range(3)]
            sdpa = partial(_sdpa, *inputs)
            with torch.no_grad():
                ratio = _ratio(partial(call, *inputs), sdpa, pairs)
            name = f"{work}, {length} tokens" + (", bfloat16" if suffix else "")
            yield f"{key}-{length}{suffix}", figure(name, ratio, "× SDPA")

    yield from against("call", "call", causal, 512, 101)
    yield from against("call", "call", causal, 4096, 11)
    six = "call and six statistics in one pass"
    yield from against("six", six, partial(_six, streaming), 4096, 11)
    beside = "six statistics in addition to the fused kernel"
    yield from against("beside", beside, partial(_six, fused), 4096, 11)
    leaves = [torch.randn(1, 8, 4096, 64, requires_grad=True) for _ in range(3)]

    def both(call: Callable[..., Any]) -> object:
        return torch.autograd.grad(call(*leaves).sum(), leaves)

    ratio = _ratio(partial(both, causal), partial(both, _sdpa), 5)
    yield "gradients-4096", figure("call and its gradients, 4096 tokens", ratio, "× SDPA")
    tiny = [torch.randn(1, 8, 16, 64) for _ in range(3)]
    with torch.no_grad():
        times = paired(partial(causal, *tiny), partial(_sdpa, *tiny), pairs=101, calls=100)
    ours, theirs = (1e6 * statistics.median(column) for column in zip(*times, strict=True))
    yield "call-16", figure("call, 16 tokens", ours, "µs")
    yield "sdpa-16", figure("SDPA, 16 tokens", theirs, "µs")


def _sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _six(attention: gh.Attention, query: torch.Tensor, *inputs: torch.Tensor) -> object:
    key, value = inputs
    return attention.observe(query, key, value, _SIX)


def _of_models() -> Iterator[tuple[str, Figure]]:
    """GPT-2's size, as in `watch.py`: entropy, received mass and the mass on the first token."""
    import watch
    import watch_peers

    tokens = torch.randint(50257, (1, watch.SHORT))
    made = watch.model("plain", watch.SHORT)
    plain = watch.run("plain", made, tokens)
    plain()
    yield "plain-1024", figure("unwatched model, 1024 tokens", seconds_of(plain), "s")
    for suffix, dtype in _DTYPES.items():
        made = made.to(dtype)
        ratio = _ratio(watch.run("watched", made, tokens), watch.run("plain", made, tokens), 7)
        name = "watched model, 1024 tokens" + (", bfloat16" if suffix else "")
        yield f"watch-1024{suffix}", figure(name, ratio, "× unwatched")
    made = made.float()
    told = tokens[:, : watch.TOLD]
    ratio = _ratio(
        partial(watch.generating, made, told, watched=True),
        partial(watch.generating, made, told, watched=False),
        5,
    )
    yield "generate-32", figure("watched model, 32 generated tokens", ratio, "× unwatched")
    names = {"eager": "eager with all weights", "lens": "TransformerLens, all patterns"}
    for kind in watch_peers.KINDS[1:]:
        ratio = _ratio(watch_peers.forward(kind, tokens, watch.SHORT), plain, 5)
        yield f"{kind}-1024", figure(f"{names[kind]}, 1024 tokens", ratio, "× unwatched")
    del made, plain
    script, names = watch_peers.__file__, {**names, "watched": "watched model"}
    alone = watch_peers.peak_of_child(script, "plain", watch.LONG)
    for kind in watch_peers.KINDS:
        more = (watch_peers.peak_of_child(script, kind, watch.LONG) - alone) / 2**30
        key = f"{'watch' if kind == 'watched' else kind}-memory-4096"
        yield key, figure(f"{names[kind]}, 4096 tokens, additional memory", more, "GiB")


def record(name: str | None) -> Path:
    """Measure all figures, and store them by the name of the processor's profile."""
    from glasshead.attention import profiles

    name = name or profiles.kind_at_hand()
    file = RESULTS / f"{name}.json"
    processor = profiles.machine().processor
    if file.exists():
        processor = json.loads(file.read_text(encoding="utf-8"))["processor"]
    start, rows = time.perf_counter(), []
    torch.manual_seed(0)
    for key, one in measured():
        rows.append((key, one))
        print(f"{time.perf_counter() - start:5.0f} s  {one.name}: {one.value:.4g} {one.unit}")
    found = {
        "processor": processor,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "torch": torch.__version__.partition("+")[0].rpartition(".")[0],
        "threads": torch.get_num_threads(),
        "figures": [
            {
                "key": key,
                "work": one.name,
                "value": float(f"{one.value:.3g}"),
                "unit": one.unit,
                "command": _COMMAND,
            }
            for key, one in rows
        ],
    }
    file.write_text(written(found), encoding="utf-8")
    show(processor, [one for _, one in rows])
    return file


def written(found: dict[str, Any]) -> str:
    """Write figures as JSON, one a line."""
    head = json.dumps({key: found[key] for key in FIELDS[:-1]}, indent=1, ensure_ascii=False)
    rows = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in found["figures"])
    return f'{head[:-2]},\n "figures": [\n{rows}\n ]\n}}\n'


def main() -> None:
    """Measure this processor, or write the page."""
    parser = argparse.ArgumentParser(description="Measure this processor, or write the page.")
    parser.add_argument("--measure", action="store_true", help="measure, and store the figures")
    parser.add_argument("--name", help="of the file, if not that of the processor's profile")
    options = parser.parse_args()
    if options.measure:
        print(f"Wrote {record(options.name)}; make bench-page writes the tables.")
    else:
        write_page()


if __name__ == "__main__":
    main()

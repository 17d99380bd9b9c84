"""What a corpus takes: the statistics of all heads, beside the hidden states they are made from.

    python benchmarks/corpus.py MODEL.bin FILE… [--ray]

A model of llama2.c reads files of texts as a stream. Told are the tokens, the size of the file of
statistics, what the hidden states of every layer would take in float32, and the memory beyond the
model at the peak. With `--ray`, workers of Ray Data read the same rows, to the same bits.
"""

import argparse
import tempfile
import time
from importlib import import_module
from pathlib import Path

import torch
from pairs import Figure, figure, report
from resident import reset_peak, resident

import glasshead as gh
from glasshead.tasks.data.texts import read_lines
from glasshead.tasks.write import Writer

RESULTS = Path("build/benchmarks/corpus.json")
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0])]


def streamed(writer: Writer, files: list[Path]) -> tuple[gh.CorpusResult, list[Figure]]:
    """Read the files in one process."""
    reset_peak()
    before, start = resident("VmRSS"), time.perf_counter()
    result = gh.observe_texts(writer.model, files, STATISTICS, tokenizer=writer.tokenizer)
    seconds, memory = time.perf_counter() - start, resident("VmHWM") - before
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seen.safetensors"
        result.save(file)
        size = file.stat().st_size
    tokens, width = result.source["tokens"], writer.model.config.d_model
    states = 4 * tokens * width * len(result)
    layers, heads, positions = result.stacked("received").shape
    about = f"{layers} layers × {heads} heads × {positions} positions, 3 statistics, float64"
    return result, [
        figure("tokens", tokens / 1e6, "million", about=f"in {result.documents:,} chunks"),
        figure("statistics", size / 1e3, "kB", about=about),
        figure("hidden states", states / 1e6, "MB", about=f"{layers} layers × {width}, float32"),
        figure("hidden states against statistics", states / size, "×"),
        figure("memory", memory / 2**20, "MiB", about="beyond the model, at the peak"),
        figure("time", seconds, "s", about="tokenizing twice included"),
    ]


def by_ray(writer: Writer, files: list[Path], rows: int, workers: int) -> list[Figure]:
    """Read the rows by workers of Ray Data, and in one process.

    Errors: a SystemExit where their bits differ.
    """
    ray, data = import_module("ray"), import_module("ray.data")
    texts = [{"text": line} for file in files for line in read_lines(file) if line.strip()]
    ray.init(
        num_cpus=workers + 1, include_dashboard=False, logging_level="error", log_to_driver=False
    )
    options = {"tokenizer": writer.tokenizer, "rows": rows}
    data.DataContext.get_current().enable_progress_bars = False
    one = gh.observe_dataset(writer.model, iter(texts), STATISTICS, **options)
    start = time.perf_counter()
    dataset = data.from_items(texts)
    many = gh.observe_dataset(writer.model, dataset, STATISTICS, workers=workers, **options)
    seconds = time.perf_counter() - start
    same = all(
        torch.equal(many[layer][name], one[layer][name]) for layer in one for name in one[layer]
    )
    if not same or many.source != one.source:
        raise SystemExit("The workers of Ray gave other bits than one process.")
    about = f"{workers} workers, {len(texts):,} rows, the bits of one process"
    return [
        figure("Ray Data: tokens", many.source["tokens"] / 1e6, "million", about=about),
        figure("Ray Data: time", seconds, "s"),
    ]


def main() -> None:
    """Read a corpus, and tell what it takes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    writer = Writer.load(asked.model)
    if asked.ray:
        rows = by_ray(writer, asked.files, asked.rows, asked.workers)
    else:
        _, rows = streamed(writer, asked.files)
    report(f"A corpus, torch {torch.__version__}", rows, RESULTS)


if __name__ == "__main__":
    main()

"""What a watch of vLLM costs: processor time, time to the first token, and memory at the peak.

python benchmarks/serving.py                   measures every work, and prints a table of Markdown
python benchmarks/serving.py decode many       these works
python benchmarks/serving.py --rounds 9        pairs of runs, with and without a watch; 5 if omitted

Each work is a process of its own. The model is a random Llama of 8 layers and 25 million
parameters, made in a temporary folder. docs/how-to/serving.md describes an environment with vLLM.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from resident import reset_peak, resident

import glasshead as gh

TWO = ("model.layers.2.*", "model.layers.6.*")


class Work(NamedTuple):
    """Requests that come at the same time, and what is watched of them."""

    requests: int = 16
    prompt: int = 64
    new: int = 130
    dtype: str = "float32"
    window: int | None = None
    layers: tuple[str, ...] | None = None
    statistics: int = 3

    def __str__(self) -> str:
        parts = [f"{self.requests} requests: {self.prompt} tokens, {self.new} new ones"]
        parts += [f"windows of {self.window} keys"] if self.window else []
        parts += [self.dtype] if self.dtype != "float32" else []
        parts += [f"{self.statistics} statistics of two layers"] if self.layers else []
        return "; ".join(parts)


WORKS = {
    "decode": Work(),
    "bfloat16": Work(dtype="bfloat16"),
    "two-layers": Work(layers=TWO, statistics=2),
    "prefill": Work(prompt=500, new=8),
    "windows": Work(prompt=500, new=8, window=128),
    "many": Work(requests=64),
}


class Run(NamedTuple):
    """One run: processor seconds, seconds to the first token, bytes at the peak, and the tokens."""

    processor: float
    first: float
    peak: int
    tokens: list[list[int]]


def model(folder: Path, window: int | None) -> Path:
    """Write the model."""
    import transformers

    more = {} if window is None else {"sliding_window": window}
    family = "Llama" if window is None else "Mistral"
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=2048,
        hidden_size=512,
        intermediate_size=1344,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=4096,
        initializer_range=0.06,
        tie_word_embeddings=False,
        **more,
    )
    getattr(transformers, f"{family}ForCausalLM")(config).save_pretrained(folder)
    return folder


def measure(work: Work, folder: Path, rounds: int) -> dict[str, Any]:
    """Run the work in pairs, without and with a watch."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CACHE_ROOT", str(folder.parent / "cache"))
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found] - of another environment

    llm = LLM(
        model=str(model(folder, work.window)),
        skip_tokenizer_init=True,
        dtype=work.dtype,
        max_model_len=work.prompt + work.new + 8,
        max_num_batched_tokens=4096,
        max_num_seqs=work.requests,
        enable_prefix_caching=False,
        disable_log_stats=True,
        block_size=32,
    )
    random = torch.Generator().manual_seed(1)
    prompts = torch.randint(2, 2000, (work.requests, work.prompt), generator=random).tolist()
    params = SamplingParams(temperature=0, max_tokens=work.new, ignore_eos=True, detokenize=False)
    wanted = [gh.Entropy(), gh.MassOn([0]), gh.Received()][: work.statistics]
    engine, names = llm.llm_engine, iter(range(10**9))

    def run() -> Run:
        reset_peak()
        wall, processor = time.perf_counter(), time.process_time()
        firsts, tokens = {}, {}
        for prompt in prompts:
            engine.add_request(str(next(names)), {"prompt_token_ids": prompt}, params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                firsts.setdefault(output.request_id, time.perf_counter() - wall)
                tokens[output.request_id] = [*output.outputs[0].token_ids]
        return Run(
            time.process_time() - processor,
            statistics.median(firsts.values()),
            resident("VmHWM"),
            [*tokens.values()],
        )

    def watched() -> Run:
        with gh.watch_vllm(llm, wanted, layers=work.layers):
            return run()

    run()
    watched()
    pairs = [(run(), watched()) for _ in range(rounds)]
    if any(one.tokens != other.tokens for one, other in pairs):
        raise SystemExit("The tokens differ.")
    both = [*zip(*pairs, strict=True)]
    return {
        "ratios": sorted(other.processor / one.processor for one, other in pairs),
        # Other programs can only make it longer.
        "first": [min(one.first for one in several) for several in both],
        "peak": [statistics.median(one.peak for one in several) for several in both],
    }


def row(work: Work, found: dict[str, Any]) -> str:
    """Return a row of the table."""
    ratios, (plain, watched) = found["ratios"], found["peak"]
    first = " and ".join(f"{1000 * one:.0f}" for one in found["first"])
    ratio = f"{statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {work} | {ratio} | {first} | {plain / 2**20:.0f}, +{(watched - plain) / 2**20:.0f} |"


def main() -> None:
    """Measure each work in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("works", nargs="*", help=f"some of {', '.join(WORKS)}; all if omitted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", type=Path, help="measure one work in this process, as JSON")
    asked = parser.parse_args()
    unknown = [name for name in asked.works if name not in WORKS]
    if unknown:
        parser.error(f"works must be some of {', '.join(WORKS)}, got {unknown[0]!r}.")
    if asked.here:
        print(json.dumps(measure(WORKS[asked.works[0]], asked.here, asked.rounds)))
        return
    print("| work | processor time | first token, ms | memory, MiB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.works or WORKS:
            place = str(Path(folder) / name)
            command = [sys.executable, __file__, name, "--rounds", str(asked.rounds)]
            done = subprocess.run([*command, "--here", place], check=True, stdout=subprocess.PIPE)
            print(row(WORKS[name], json.loads(done.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()

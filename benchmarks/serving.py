"""What a watch of vLLM costs: processor time in pairs of runs, with and without, in turn.

The watch's own clock gives a second ratio, of one run alone, which other work on the machine
changes less.

python benchmarks/serving.py MODEL --prompt 64 --new 200 --requests 16 --rounds 5 [--layers …]

MODEL is a folder of a model that vLLM reads. In an environment with vLLM: docs/how-to/serving.md.
"""

import argparse
import os
import resource
import statistics
import time

import torch

import glasshead as gh


def main() -> None:
    """Print medians of pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=200)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", nargs="*", default=None)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--statistics", type=int, default=3, choices=(1, 2, 3))
    parser.add_argument("--eager", action="store_true")
    asked = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found] - of another environment

    llm = LLM(
        model=asked.model,
        dtype=asked.dtype,
        max_model_len=asked.prompt + asked.new + 8,
        enforce_eager=asked.eager,
        max_num_batched_tokens=4096,
        max_num_seqs=asked.requests,
        enable_prefix_caching=False,
        disable_log_stats=True,
        block_size=32,
    )
    random = torch.Generator().manual_seed(1)
    prompts = [
        {"prompt_token_ids": torch.randint(2, 2000, (asked.prompt,), generator=random).tolist()}
        for _ in range(asked.requests)
    ]
    params = SamplingParams(temperature=0, max_tokens=asked.new, ignore_eos=True)
    wanted = [gh.Entropy(), gh.MassOn([0]), gh.Received()][: asked.statistics]

    def run() -> tuple[float, float, list[list[int]]]:
        wall, processor = time.perf_counter(), time.process_time()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        tokens = [list(one.outputs[0].token_ids) for one in outputs]
        return time.perf_counter() - wall, time.process_time() - processor, tokens

    run()
    with gh.watch_vllm(llm, wanted, layers=asked.layers):
        run()
    plain, watched, walls, own = [], [], [], []
    before = peak = 0
    for _ in range(asked.rounds):
        one = run()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with gh.watch_vllm(llm, wanted, layers=asked.layers) as seen:
            other = run()
        own.append(other[1] / (other[1] - seen.seconds))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if one[2] != other[2]:
            raise SystemExit("the tokens differ")
        plain.append(one[1])
        watched.append(other[1])
        walls.append(other[0] / one[0])
    ratios = sorted(b / a for a, b in zip(plain, watched, strict=True))
    print(
        f"prompts of {asked.prompt}, {asked.new} new, {asked.requests} requests, {asked.dtype}: "
        f"processor time {statistics.median(plain):.2f} and {statistics.median(watched):.2f} s, "
        f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"by the watch's own clock {statistics.median(own):.3f}; wall ratio "
        f"{statistics.median(walls):.3f}; peak memory {before / 1024:.0f} and {peak / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()

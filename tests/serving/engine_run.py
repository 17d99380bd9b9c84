"""Run a small model in vLLM with and without a watch, and print what differs as JSON.

python engine_run.py FOLDER FAMILY [eager] [chunks] [prefix] [apart] [preempted] [bfloat16] [two]
"""

import json
import os
import sys
from pathlib import Path

import torch

NEW = 41
STATISTICS = ("entropy", "received", "max_weight", "log_sum_exp", "sink", "some", "top_k")


def environment(*, apart: bool) -> None:
    """Set what vLLM reads from the environment, before it is imported."""
    os.environ.setdefault("VLLM_CACHE_ROOT", str(Path(sys.argv[1]) / "cache"))
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="1" if apart else "0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_LOGGING_LEVEL="ERROR",
    )


def exact(problem, statistics, heads, window) -> dict:
    """Compute statistics in float64 from the queries and keys of a layer, by hand."""
    q, k = problem.query[0].double(), problem.key[0].double()
    scores = q @ k.repeat_interleave(heads // len(k), 0).mT * problem.scale
    if problem.softcap:
        scores = problem.softcap * torch.tanh(scores / problem.softcap)
    i, j = torch.arange(scores.shape[1])[:, None] + problem.offset, torch.arange(scores.shape[2])
    hidden = (j > i) | ((j <= i - window) if window else torch.tensor(False))
    scores = scores.masked_fill(hidden, -torch.inf)
    sink = getattr(problem.normalizer, "sink", None)
    every = scores
    if sink is not None:
        every = torch.cat([scores, sink.double()[:, None, None].expand(*scores.shape[:2], 1)], -1)
    lse = every.logsumexp(-1)
    weights = (scores - lse[..., None]).exp()
    return {
        "entropy": torch.special.entr(weights).sum(-1),
        "received": weights.sum(-2),
        "max_weight": weights.amax(-1),
        "log_sum_exp": lse,
        "sink": weights[..., 0],
        "some": weights[..., 1] + weights[..., 5],
        "top_k": weights.topk(3, -1).values,
    }


def main() -> None:  # noqa: C901, PLR0915 - a script
    folder, family, *options = sys.argv[1:]
    on = set(options)
    environment(apart="apart" in on)
    from vllm import LLM, SamplingParams

    import glasshead as gh
    from serving.small_models import WINDOW, small_model

    path = Path(folder) / family
    if not path.exists():
        small_model(Path(folder), family)
    llm = LLM(
        model=str(path),
        dtype="bfloat16" if "bfloat16" in on else "float32",
        max_model_len=640,
        enforce_eager="eager" in on,
        max_num_batched_tokens=64 if "chunks" in on else 2048,
        max_num_seqs=16,
        block_size=32,
        enable_prefix_caching="prefix" in on,
        enable_chunked_prefill="chunks" in on,
        disable_log_stats=True,
        tensor_parallel_size=2 if "two" in on else 1,
        **({"num_gpu_blocks_override": 24} if "preempted" in on else {}),
    )
    random = torch.Generator().manual_seed(1)
    lengths = (17, 40, 96, 131, 64, 200, 33, 301, 12, 77, 150, 90, 55, 128, 31, 260)
    if "preempted" in on:
        # Short prompts are admitted together, and grow beyond the blocks, windows too.
        lengths = (17, 31, 30, 29, 28, 27, 96, 131) * 3
    prompts = [torch.randint(2, 211, (n,), generator=random).tolist() for n in lengths]
    beginning = prompts[7][:101]
    if "prefix" in on:
        prompts = [beginning + prompt for prompt in prompts]
    params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)

    def run(params=params):
        if "prefix" in on:
            llm.reset_prefix_cache()
            once = SamplingParams(temperature=0, max_tokens=1)
            llm.generate([{"prompt_token_ids": beginning}], once, use_tqdm=False)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        return llm.generate(given, params, use_tqdm=False)

    def tokens(outputs):
        return [list(one.outputs[0].token_ids) for one in outputs]

    statistics = {
        "entropy": gh.Entropy(),
        "received": gh.Received(),
        "max_weight": gh.MaxWeight(),
        "log_sum_exp": gh.LogSumExp(),
        "sink": gh.MassOn([0]),
        "some": gh.MassOn([1, 5]),
        "top_k": gh.TopK(3),
    }
    plain = tokens(run())
    with gh.watch_vllm(llm, statistics, keep="weights") as seen:
        watched = run()
    worst = dict.fromkeys(STATISTICS, 0.0)
    firsts, preemptions, layers = {}, 0, {}
    for output, prompt in zip(watched, prompts, strict=True):
        request = seen[output.request_id]
        firsts[request.first_query] = firsts.get(request.first_query, 0) + 1
        preemptions += request.preemptions
        for name, layer in request.items():
            W, (call,) = layer.weights, layer
            own = W._problem.mask
            window = WINDOW if "before" in repr(own) and getattr(own, "before", None) else 0
            layers[name] = [*call.shape[:2], window]
            assert call.shape[-1] == len(prompt) + NEW - 1 - request.first_query, call.shape
            assert (call.position, call.keys) == (request.first_query, len(prompt) + NEW - 1)
            for what, wanted in exact(W._problem, statistics, call.shape[1], window).items():
                got = call[what].weights if what == "top_k" else call[what]
                assert got[0].shape == wanted.shape, (what, got.shape, wanted.shape)
                worst[what] = max(worst[what], float((got[0].double() - wanted).abs().max()))
    of_transformers = {}
    if family == "Llama" and not on & {"prefix", "bfloat16"}:
        text = prompts[3] + tokens(watched)[3][:-1]
        request = seen[watched[3].request_id]
        of_transformers = beside_transformers(path, prompts[3], text, request)
    found = {
        "equal": tokens(watched) == plain == tokens(run()),
        "requests": len(seen),
        "worst": worst,
        "firsts": firsts,
        "preemptions": preemptions,
        "layers": layers,
        "of_transformers": of_transformers,
        "wrapped": wrapped(llm) if not on & {"apart", "two"} else [],
    }
    if "prefix" in on:
        skipping = SamplingParams(
            temperature=0, max_tokens=2, ignore_eos=True, skip_reading_prefix_cache=True
        )
        with gh.watch_vllm(llm, [gh.Entropy()], layers="model.layers.1") as seen:
            whole = run(skipping)
        found["skipping"] = [seen[one.request_id].first_query for one in whole]
        found["of_pattern"] = [*seen[whole[0].request_id]]
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def beside_transformers(path, prompt, text, request) -> dict[str, float]:
    """Return the largest differences from what `gh` sees of the model in transformers."""
    import transformers

    import glasshead as gh

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad(), gh.watch(model, [gh.Entropy(), gh.Received()]) as seen:
        model.generate(
            torch.tensor([prompt]),
            max_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert [*seen] == [*request]
    tokens = torch.tensor([text])
    roles, wanted = gh.head_roles(request, tokens), gh.head_roles(model, tokens)
    return {
        "records": max(
            float((seen[name][one] - request[name][one]).abs().max())
            for name in seen
            for one in ("entropy", "received")
        ),
        "roles": max(
            float((roles.scores[role] - scores).nan_to_num().abs().max())
            for role, scores in wanted.scores.items()
        ),
    }


def wrapped(llm) -> list[str]:
    """Return what of the engine is still wrapped."""
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    runner = worker.model_runner
    context = runner.vllm_config.compilation_config.static_forward_context
    layers = ((name, getattr(layer, "impl", None)) for name, layer in context.items())
    found = [name for name, impl in layers if impl is not None and "forward" in vars(impl)]
    return found + (["execute_model"] if "execute_model" in vars(runner) else [])


if __name__ == "__main__":
    main()

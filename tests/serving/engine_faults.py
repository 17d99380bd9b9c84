"""Run a small model in vLLM while parts of the watch fail, and print what happens as JSON.

python engine_faults.py FOLDER FAMILY faults
"""

import json
import sys
import warnings
from pathlib import Path

import torch

from serving.engine_run import environment, wrapped

NEW = 41


def raising(*_args, **_kwargs):
    raise RuntimeError("of the test")


def main() -> None:  # noqa: C901, PLR0915 - a script
    environment(apart=False)
    from vllm import LLM, SamplingParams

    import glasshead as gh
    from glasshead.serving.engine_watcher import EngineWatcher
    from glasshead.serving.served_layers import ServedLayer
    from glasshead.serving.settling import Settler
    from glasshead.watching.errors import UnseenError
    from serving.small_models import small_model

    path = Path(sys.argv[1]) / sys.argv[2]
    if not path.exists():
        small_model(Path(sys.argv[1]), sys.argv[2])
    llm = LLM(
        model=str(path),
        dtype="float32",
        max_model_len=256,
        enforce_eager=True,
        block_size=32,
        disable_log_stats=True,
        enable_prefix_caching=False,
    )
    random = torch.Generator().manual_seed(1)
    prompts = [torch.randint(2, 211, (n,), generator=random).tolist() for n in (17, 40, 96, 31, 5)]
    params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)

    def run():
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(given, params, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in outputs]

    plain = run()
    statistics = [gh.Entropy(), gh.Received()]

    def watched(**choices):
        said, tokens = "", None
        try:
            with gh.watch_vllm(llm, statistics, **choices) as seen:
                # The engine reports what has finished in its next step.
                tokens = (run(), run())[0]
        except UnseenError as error:
            said = str(error)
        return {
            "equal": tokens == plain,
            "said": said,
            "wrapped": wrapped(llm),
            "left": len(seen),
        }

    found = {}
    for name, owner, method in (
        ("copy", EngineWatcher, "_copy"),
        ("settle", Settler, "settle"),
        ("before", EngineWatcher, "_before"),
        ("after", EngineWatcher, "_after"),
        ("compare", Settler, "mismatch"),
    ):
        usual = getattr(owner, method)
        setattr(owner, method, raising)
        found[name] = watched()
        setattr(owner, method, usual)
    usual = ServedLayer.problem
    ServedLayer.problem = lambda self, q, k, v, p: usual(self, 1.2 * q, k, v, p)
    found["scale"] = watched()
    # What is read of the keys is right for prompts, and wrong where texts have grown.
    ServedLayer.problem = lambda self, q, k, v, p: usual(self, q, k, v if p < 50 else -v, p)
    found["late"] = watched()
    ServedLayer.problem = usual

    with gh.watch_vllm(llm, statistics) as seen:
        tokens = run()
    found["afterwards"] = {"equal": tokens == plain, "errors": len(seen.errors)}

    engine, done = llm.llm_engine, {}
    with gh.watch_vllm(llm, statistics) as seen:
        for number, prompt in enumerate(prompts):
            engine.add_request(f"r{number}", {"prompt_token_ids": prompt}, params)
        for step in range(200):
            if step == 9:
                engine.abort_request(["r0"])
            for output in engine.step():
                if output.finished:
                    done[output.request_id] = list(output.outputs[0].token_ids)
            if not engine.has_unfinished_requests():
                break
    found["aborted"] = {
        "equal": [done.get(f"r{n}") for n in range(1, 5)] == plain[1:],
        "queries": seen["r0"]["model.layers.0.self_attn"].entropy.shape[-1],
    }

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found["budget"] = watched(budget=3000)
    found["budget"]["warned"] = next(
        (str(one.message) for one in warned if "watch_vllm" in str(one.message)), ""
    )
    for name, layers, inner in (
        ("second", None, lambda: gh.watch_vllm(llm, statistics).__enter__()),
        ("pattern", "encoder.*", run),
        ("nothing", None, list),
    ):
        try:
            with gh.watch_vllm(llm, statistics, layers=layers):
                inner()
        except (ValueError, UnseenError) as error:
            found[name] = str(error)
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

"""What it costs to watch a model of GPT-2's size: time in pairs, memory in a process each.

python benchmarks/watch.py                        all of it, some fifteen minutes
python benchmarks/watch.py costs --loaded         what `costs` measures, on a machine that is busy
python benchmarks/watch.py memory watched 4096    what a child process does; it prints bytes
python benchmarks/watch.py ranks FOLDER           what each rank does; the first prints seconds
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attention_maps
import torch
from pairs import Figure, Pair, figure, judged, paired, report, show
from resident import peak_of_child, resident

import glasshead as gh

RESULTS = Path("build/benchmarks/watch.json")
SHORT, LONG, TOLD, STEPS, LAYERS = 1024, 4096, 64, 32, 4
DTYPES = {"": torch.float32, ", bfloat16": torch.bfloat16}
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0])]
KINDS = ("plain", "watched", "eager")
Works = Callable[[], object]


def model(kind: str, length: int, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """GPT-2 with random weights: 12 layers of 12 heads, 768 wide.

    Args:
        kind: One of `KINDS`, or "explicit", for attention as products and a softmax.
        length: The most tokens that it reads.
        dtype: Of its weights.
    """
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    mode = "eager" if kind in ("eager", "explicit") else "sdpa"
    torch.manual_seed(0)
    config = GPT2Config(n_positions=length, reorder_and_upcast_attn=kind == "explicit")
    made = GPT2LMHeadModel(config)
    made.set_attn_implementation(mode)
    return torch.nn.Module.to(made.eval(), dtype)


def run(kind: str, made: torch.nn.Module, tokens: torch.Tensor) -> Callable[[], Any]:
    """One forward pass, that keeps what its user has asked for."""

    def plain() -> object:
        with torch.no_grad():
            return made(tokens, use_cache=False)

    def watched() -> object:
        with torch.no_grad(), gh.watch(made, STATISTICS) as seen:
            made(tokens, use_cache=False)
        return seen

    def eager() -> object:
        with torch.no_grad():
            return made(tokens, use_cache=False, output_attentions=True)

    return {"plain": plain, "watched": watched, "eager": eager}[kind]


def costs(clock: Callable[[], float] = time.perf_counter, skip: str = "") -> list[Pair]:
    """Return the costs of a watched model against the same unwatched, with the limits to hold.

    Those of bfloat16 are missing where PyTorch has no fast products of it: a pass over 4096 tokens
    takes a quarter of an hour there.

    Args:
        clock: By which the time is taken.
        skip: The name of a cost that was measured otherwise.
    """
    tokens = torch.randint(50257, (1, LONG))
    short, told = tokens[:, :SHORT], tokens[:, :TOLD]
    rows = []

    def pair(name: str, works: Iterable[Works], pairs: int, limit: float) -> None:
        watched, plain = works
        rows.append(judged(name, paired(watched, plain, pairs=pairs, clock=clock), ratio=limit))
        print(f"{name}: {rows[-1].ratio:.3f} ×", file=sys.stderr, flush=True)

    def both(made: torch.nn.Module, read: torch.Tensor) -> tuple[Works, Works]:
        return run("watched", made, read), run("plain", made, read)

    fast_halves = torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001 - PyTorch's own rule
    for note, dtype in DTYPES.items():
        if dtype == torch.bfloat16 and not fast_halves:
            print("bfloat16 is left out: this processor has no fast products", file=sys.stderr)
            continue
        made = model("plain", LONG, dtype)
        for length, pairs in ((SHORT, 9), (LONG, 5)):
            name = f"forward pass, {length} tokens{note}"
            if name != skip:
                pair(name, both(made, tokens[:, :length]), pairs, 1.25 if note else 1.15)
    made = model("plain", SHORT)
    pair(
        f"{STEPS} tokens generated after {TOLD}",
        (
            lambda watched=watched: generating(made, told, watched=watched)
            for watched in (True, False)
        ),
        pairs=7,
        limit=1.15,
    )
    torch.compiler.reset()
    code: Any = torch.compile(made, fullgraph=True)
    pair(f"forward pass, {SHORT} tokens, compiled", both(code, short), 9, 1.1)
    pair(
        f"{STEPS} tokens generated after {TOLD}, compiled, static cache",
        (lambda watched=watched: in_static_cache(made, told, watched) for watched in (True, False)),
        pairs=7,
        limit=1.15,
    )
    made = model("explicit", SHORT)
    pair(f"forward pass, {SHORT} tokens, explicit attention", both(made, short), 7, 1.3)
    pair(f"picture of {attention_maps.TOKENS} patches", a_picture(), 5, 1.25)
    return rows


def others() -> list[Pair]:
    """A pass against the eager mode, one that keeps queries and keys, and two ranks."""
    tokens = torch.randint(50257, (1, SHORT))
    sdpa = model("plain", SHORT)
    plain, watched = (run(kind, sdpa, tokens) for kind in ("plain", "watched"))
    return [
        judged(
            f"watched against eager with weights, T={SHORT}",
            paired(watched, run("eager", model("eager", SHORT), tokens), pairs=9),
            ratio=1.0,
        ),
        judged(
            f"keep='weights' alone against sdpa, T={SHORT}",
            paired(lambda: keeping(sdpa, tokens), plain, pairs=9),
        ),
        *tensor_parallel(),
    ]


def a_picture() -> tuple[Works, Works]:
    """A vision transformer on a picture of many patches, watched and not."""
    made, pixels = attention_maps.model("plain"), attention_maps.picture(attention_maps.TOKENS)
    plain = attention_maps.run("plain", made, pixels)

    def watched() -> object:
        with gh.watch(made, STATISTICS) as seen:
            plain()
        return seen

    return watched, plain


def tensor_parallel() -> list[Pair]:
    """A Llama on two ranks, watched against unwatched, and with all heads gathered on each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=TOLD,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        told = subprocess.run(
            [sys.executable, *launcher, __file__, "ranks", folder],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    watched, whole = json.loads(told.splitlines()[-1])
    name = f"two ranks of tensor parallel, T={SHORT}, watched"
    return [judged(f"{name} against not", watched), judged(f"{name} and gathered", whole)]


def _on_a_rank(folder: str) -> None:
    """Measure on each rank at once, and print the seconds of the first."""
    from torch import distributed
    from transformers import LlamaForCausalLM

    distributed.init_process_group("gloo")
    made = LlamaForCausalLM.from_pretrained(folder, tp_plan="auto").eval()
    tokens = torch.arange(SHORT)[None] % TOLD
    plain, watched = (run(kind, made, tokens) for kind in ("plain", "watched"))
    times = [paired(watched, plain, pairs=7), paired(lambda: watched().gather(), plain, pairs=7)]
    if distributed.get_rank() == 0:
        print(json.dumps(times))
    distributed.destroy_process_group()


def in_static_cache(made: torch.nn.Module, tokens: torch.Tensor, watched: bool = False) -> object:
    """Tokens one by one, in a cache of fixed size, by steps that `generate` compiles."""
    from transformers import CompileConfig

    config = CompileConfig(mode="default")
    # `generate` compiles on a GPU only, unless it is tested.
    vars(config)["_compile_all_devices"] = True

    def write() -> object:
        return made.generate(  # type: ignore[reportCallIssue]
            tokens,
            max_new_tokens=STEPS,
            min_new_tokens=STEPS,
            do_sample=False,
            pad_token_id=0,
            cache_implementation="static",
            compile_config=config,
        )

    if not watched:
        return write()
    with gh.watch(made, STATISTICS):
        return write()


def keeping(made: torch.nn.Module, tokens: torch.Tensor) -> object:
    """A pass that keeps the lazy weights of every layer."""
    with torch.no_grad(), gh.watch(made, keep="weights") as seen:
        made(tokens, use_cache=False)
    return seen


def generating(made: torch.nn.Module, tokens: torch.Tensor, *, watched: bool) -> object:
    """Tokens one by one, with a cache."""

    def write() -> object:
        return made.generate(  # type: ignore[reportCallIssue]
            tokens, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, pad_token_id=0
        )

    if not watched:
        return write()
    with gh.watch(made, STATISTICS):
        return write()


def memory() -> list[Figure]:
    """What a pass adds to the peak of a process, beyond the same without watching."""
    peaks = {kind: peak_of_child(__file__, kind, LONG) for kind in KINDS}
    watched, eager = (peaks[kind] - peaks["plain"] for kind in ("watched", "eager"))
    about = "more at the peak than sdpa alone"
    return [
        figure(f"T={LONG}, watched", watched / 2**20, "MiB", about=about),
        figure(f"T={LONG}, eager with weights", eager / 2**20, "MiB", about=about),
        figure(
            f"T={LONG}, watched against eager", watched / eager, "×", about="of these", at_most=0.1
        ),
    ]


def _peak(kind: str, length: int) -> int:
    """The most bytes that a process held while it made a pass, what is returned among them."""
    made = model(kind, length)
    run(kind, made, torch.randint(50257, (1, 64)))()  # what is compiled or loaded once
    kept = run(kind, made, torch.randint(50257, (1, length)))()
    del kept
    return resident("VmHWM")


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="*", help="costs, memory KIND LENGTH, or ranks FOLDER")
    parser.add_argument("--loaded", action="store_true", help="one thread, by processor time")
    asked = parser.parse_args()
    child = asked.child
    if child[:1] == ["ranks"]:
        _on_a_rank(child[1])
        return
    if child[:1] == ["memory"]:
        print(_peak(child[1], int(child[2])))
        return
    if asked.loaded:
        torch.set_num_threads(1)
    clock = time.process_time if asked.loaded else time.perf_counter
    title = f"GPT-2's size, 12 layers, torch {torch.__version__}, {torch.get_num_threads()} threads"
    rows = costs(clock)
    if not child:
        rows += others()
        show("memory", memory())
    report(title, rows, RESULTS)


if __name__ == "__main__":
    main()

"""What it costs to watch a model of GPT-2's size: time in pairs, memory in a process each.

python benchmarks/watch.py                        all of it, some ten minutes
python benchmarks/watch.py memory watched 4096    what a child process does; it prints bytes
python benchmarks/watch.py ranks FOLDER           what each rank does; the first prints seconds
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attention_maps
import torch
from pairs import Figure, Pair, figure, judged, paired, report, show
from resident import peak_of_child, resident

import glasshead as gh

RESULTS = Path("build/benchmarks/watch.json")
SHORT, LONG, TOLD, STEPS, LAYERS = 1024, 4096, 64, 32, 4
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0])]
KINDS = ("plain", "watched", "eager")


def model(kind: str, length: int) -> torch.nn.Module:
    """GPT-2 with random weights: 12 layers of 12 heads, 768 wide.

    Args:
        kind: One of `KINDS`, or "by hand", for attention as products and a softmax.
        length: The most tokens that it reads.
    """
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    mode = "eager" if kind in ("eager", "by hand") else "sdpa"
    torch.manual_seed(0)
    config = GPT2Config(n_positions=length, reorder_and_upcast_attn=kind == "by hand")
    made = GPT2LMHeadModel(config)
    made.set_attn_implementation(mode)
    return made.eval()


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


def time() -> list[Pair]:
    """A pass over a text, and steps with a cache, watched and not."""
    tokens = torch.randint(50257, (1, SHORT))
    sdpa, eager = model("plain", SHORT), model("eager", SHORT)
    plain, watched = (run(kind, sdpa, tokens) for kind in ("plain", "watched"))
    all_weights = run("eager", eager, tokens)
    by_hand = model("by hand", SHORT)
    return [
        judged(f"watched against sdpa, T={SHORT}", paired(watched, plain, pairs=15), ratio=1.25),
        judged(
            f"watched against eager with weights, T={SHORT}",
            paired(watched, all_weights, pairs=9),
            ratio=1.0,
        ),
        judged(
            f"keep='weights' alone against sdpa, T={SHORT}",
            paired(lambda: keeping(sdpa, tokens), plain, pairs=9),
        ),
        judged(
            f"attention by hand, watched against not, T={SHORT}",
            paired(run("watched", by_hand, tokens), run("plain", by_hand, tokens), pairs=7),
        ),
        judged(
            f"generate {STEPS} tokens after {TOLD}, watched against not",
            paired(
                lambda: generating(sdpa, tokens[:, :TOLD], watched=True),
                lambda: generating(sdpa, tokens[:, :TOLD], watched=False),
                pairs=7,
            ),
        ),
        *compiled(sdpa, tokens),
        a_picture(),
        *tensor_parallel(),
    ]


def compiled(made: torch.nn.Module, tokens: torch.Tensor) -> list[Pair]:
    """A compiled pass and compiled steps in a static cache, watched against unwatched."""
    torch.compiler.reset()
    code: Any = torch.compile(made, fullgraph=True)
    plain, watched = (run(kind, code, tokens) for kind in ("plain", "watched"))
    told = tokens[:, :TOLD]
    writing = (lambda: in_static_cache(made, told), lambda: in_static_cache(made, told, True))
    for once in (plain, watched, *writing):
        once()
    return [
        judged(
            f"compiled, watched against not, T={SHORT}",
            paired(watched, plain, pairs=9),
            ratio=1.15,
        ),
        judged(
            f"compiled, {STEPS} tokens in a static cache after {TOLD}, watched against not",
            paired(writing[1], writing[0], pairs=7),
        ),
    ]


def a_picture() -> Pair:
    """A vision transformer on a picture of many patches, watched against unwatched."""
    made, pixels = attention_maps.model("plain"), attention_maps.picture(attention_maps.TOKENS)
    plain = attention_maps.run("plain", made, pixels)

    def watched() -> object:
        with gh.watch(made, STATISTICS) as seen:
            plain()
        return seen

    return judged(
        f"a picture of {attention_maps.TOKENS} patches, watched against not",
        paired(watched, plain, pairs=5),
    )


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
    parser.add_argument("child", nargs="*", help="memory KIND LENGTH, or ranks FOLDER")
    child = parser.parse_args().child
    if child[:1] == ["ranks"]:
        _on_a_rank(child[1])
        return
    if child:
        print(_peak(child[1], int(child[2])))
        return
    title = f"GPT-2's size, 12 layers, torch {torch.__version__}, {torch.get_num_threads()} threads"
    figures = memory()
    report(title, time(), RESULTS)
    show("memory", figures)


if __name__ == "__main__":
    main()

"""Watching beside what others do to see weights: eager with its maps (BertViz), TransformerLens.

Wants `pip install transformer-lens` in the same environment.

python benchmarks/watch_peers.py                      all of it, some five minutes
python benchmarks/watch_peers.py memory lens 4096     what a child process does; it prints bytes
"""

import argparse
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from pairs import Figure, Pair, figure, judged, paired, report, show
from resident import peak_of_child, reset_peak, resident
from watch import LONG, SHORT, model, run

RESULTS = Path("build/benchmarks/watch_peers.json")
# TransformerLens is left out where it is not installed.
KINDS = ("watched", "eager", *(["lens"] if find_spec("transformer_lens") else []))


def lens(length: int) -> torch.nn.Module:
    """The same weights as a model of TransformerLens, which reads them from a folder."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        model("eager", length).save_pretrained(folder)  # type: ignore[reportCallIssue]
        words = Tokenizer(models.WordLevel({"<|endoftext|>": 0}, unk_token="<|endoftext|>"))
        end = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|endoftext|>")
        PreTrainedTokenizerFast(tokenizer_object=words, **end).save_pretrained(folder)
        bridge = import_module("transformer_lens.model_bridge").TransformerBridge
        return bridge.boot_transformers(folder)


def forward(kind: str, tokens: torch.Tensor, length: int) -> Callable[[], object]:
    """A forward pass that keeps what its user has asked for."""
    if kind != "lens":
        return run(kind, model(kind, length), tokens)
    made = lens(length)

    def cached() -> object:
        with torch.no_grad():
            return made.run_with_cache(  # type: ignore[reportCallIssue]
                tokens, names_filter=lambda name: name.endswith("hook_pattern")
            )

    return cached


def times() -> list[Pair]:
    """Each against the same model unwatched on its fused kernel."""
    tokens = torch.randint(50257, (1, SHORT))
    plain = forward("plain", tokens, SHORT)
    return [
        judged(
            f"{kind} against sdpa, T={SHORT}",
            paired(forward(kind, tokens, SHORT), plain, pairs=7),
        )
        for kind in KINDS
    ]


def memory() -> list[Figure]:
    """What a pass adds to the peak of a process, beyond the unwatched model's."""
    plain = peak_of_child(__file__, "plain", LONG)
    return [
        figure(
            f"T={LONG}, {kind}",
            (peak_of_child(__file__, kind, LONG) - plain) / 2**30,
            "GiB",
            about="more at the peak than sdpa alone",
        )
        for kind in KINDS
    ]


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="*", help="memory KIND LENGTH")
    child = parser.parse_args().child
    if child:
        tokens = torch.randint(50257, (1, int(child[2])))
        passed = forward(child[1], tokens, int(child[2]))
        reset_peak()
        kept = passed()
        print(resident("VmHWM"))
        del kept
        return
    title = f"GPT-2's size, 12 layers, torch {torch.__version__}, {torch.get_num_threads()} threads"
    figures = memory()
    report(title, times(), RESULTS)
    show("memory", figures)


if __name__ == "__main__":
    main()

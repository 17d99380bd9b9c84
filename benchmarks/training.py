"""What training costs against PyTorch's own layers in a plain loop: pairs in one run.

A step of `LanguageModel` against one of the same model from `nn.TransformerEncoderLayer`; and with
`--whole FILE` the whole of `glasshead train write FILE --preset nano`, process by process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pairs import Pair, judged, paired, report
from torch import nn
from torch.nn import functional as F
from torch_language_model import TorchLanguageModel, optimizer_of

import glasshead as gh

RESULTS = Path("build/benchmarks/training.json")
NANO = {"vocab_size": 69, "context_length": 64, "dropout": 0.0, "bias": False}
WIDER = {
    "vocab_size": 512,
    "context_length": 256,
    "d_model": 256,
    "num_heads": 8,
    "dropout": 0.0,
}


def stepping(model: nn.Module, tokens: torch.Tensor) -> Callable[[], None]:
    """A training step: forward, loss, backward, clipping, AdamW."""
    optimizer = optimizer_of(model, {"learning_rate": 1e-4, "betas": (0.9, 0.99)})

    def step() -> None:
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def pair(name: str, settings: dict, batch: int, pairs: int) -> Pair:
    """A step of both, from the same weights."""
    torch.manual_seed(0)
    ours = gh.LanguageModel(gh.LanguageModelConfig(**settings))
    theirs = TorchLanguageModel.like(ours)
    tokens = torch.randint(settings["vocab_size"], (batch, settings["context_length"] + 1))
    torch.testing.assert_close(ours(tokens[:, :-1]), theirs(tokens[:, :-1]))
    times = paired(stepping(ours, tokens), stepping(theirs, tokens), pairs=pairs)
    return judged(f"step, {name}", times, ratio=1.03)


def whole(file: Path, pairs: int) -> list[Pair]:
    """The command and the plain loop, each a process of its own."""
    told: list[dict[str, float]] = []

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            command = ["train", "write", str(file), "--run", str(run), "--preset", "nano"]
            process([sys.executable, "-m", "glasshead", *command])
            told.append(json.loads((run / "metrics.json").read_text())["last"])

    def theirs() -> None:
        script = Path(__file__).with_name("torch_language_model.py")
        told.append(json.loads(process([sys.executable, str(script), str(file)])))

    times = []
    for turn in range(pairs):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        taken = {}
        for run in order:
            start = time.perf_counter()
            run()
            taken[run] = time.perf_counter() - start
            print(f"{run.__name__}: {taken[run]:.1f} s, validation loss {told[-1]['loss']:.4f}")
        times.append((taken[ours], taken[theirs]))
    return [judged("2000 steps of nano, whole processes", times, ratio=1.03)]


def process(command: list[str]) -> str:
    """What a process prints; its errors are seen."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Time steps; with a file, whole trainings too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", type=Path, metavar="FILE")
    parser.add_argument("--pairs", type=int, default=3, help="of whole trainings")
    asked = parser.parse_args()
    rows = [
        pair("nano: 12 x 64 tokens, width 128", NANO, batch=12, pairs=101),
        pair("8 x 256 tokens, width 256", WIDER, batch=8, pairs=21),
    ]
    if asked.whole:
        rows += whole(asked.whole.resolve(), asked.pairs)
    report(
        f"LanguageModel against nn.TransformerEncoderLayer, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads",
        rows,
        RESULTS,
    )


if __name__ == "__main__":
    main()

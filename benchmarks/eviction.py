"""What a cache of a budget costs in quality: perplexity against memory, policy by policy.

python benchmarks/eviction.py             trains a model, some ten minutes, and measures
python benchmarks/eviction.py picture     draws docs/pictures/eviction.png from the last results

WikiText-2 is read from the folder that GLASSHEAD_DATA names. Each piece of the test text is fed as
it would be generated: its first half at once, its second half token by token, each told by what the
cache still holds. The model is kept in build/benchmarks/eviction_run.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

import glasshead as gh
from glasshead.layers import Policy
from glasshead.tasks.data.texts import read_texts
from glasshead.tasks.write import Writer

RUN = Path("build/benchmarks/eviction_run")
RESULTS = Path("build/benchmarks/eviction.json")
PICTURE = Path("docs/pictures/eviction.png")
SETTINGS = {
    "tokenizer": "bpe",
    "vocabulary": 2048,
    "batch_size": 8,
    "context_length": 512,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "steps": 700,
    "warmup": 50,
    "validate_every": 700,
}
COLORS = ("#0b6e99", "#6940a5", "#0f7b6c", "#d9730d", "#9b9a97")
PIECES, LENGTH, BUDGETS = 16, 512, (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Kept:
    """What was left of the quality, at what price.

    `memory` is a share of the bytes of all keys and values; votes and positions count.
    """

    policy: str
    budget: int
    perplexity: float
    memory: float


def policies(budget: int) -> dict[str, Policy]:
    """Each, so that it holds no more keys than these."""
    return {
        "H2O": gh.H2O(budget),
        "SnapKV": gh.SnapKV(budget, window=min(16, budget // 2)),
        "TOVA": gh.TOVA(budget),
        "Sinks": gh.Sinks(first=4, window=budget - 4),
        "the latest": gh.Sinks(first=0, window=budget),
    }


def trained(data: Path) -> Writer:
    """The model, trained if it is not there."""
    if not (RUN / "model.safetensors").exists():
        files = [str(data / "train.txt.xz"), "--held-out", str(data / "valid.txt.xz")]
        settings = [part for pair in SETTINGS.items() for part in ("--set", "{}={}".format(*pair))]
        command = ["train", "write", *files, "--run", str(RUN), "--preset", "tiny", *settings]
        subprocess.run([sys.executable, "-m", "glasshead", *command], check=True)
    return Writer.load(RUN)


@torch.inference_mode()
def kept(model: gh.LanguageModel, pieces: torch.Tensor, name: str, policy: Policy | None) -> Kept:
    """Half of each piece at once, then token by token; the loss of the second half."""
    cache, half, losses = gh.KVCache(policy), LENGTH // 2, []
    logits = model(pieces[:, :half], cache=cache)[:, -1]
    for place in range(half, LENGTH):
        losses.append(F.cross_entropy(logits, pieces[:, place]))
        logits = model(pieces[:, place : place + 1], cache=cache)[:, -1]
    assert policy is None or cache.count == policy.most
    whole = 2 * model.config.num_layers * whole_of(model) * pieces.shape[0] * LENGTH * 4
    share = 1.0 if policy is None else cache.memory / whole
    budget = LENGTH if policy is None else policy.most
    perplexity = math.exp(float(torch.stack(losses).mean()))
    return Kept(name, budget, perplexity, share)


def whole_of(model: gh.LanguageModel) -> int:
    """How many numbers the keys of a token have in a layer."""
    config = model.config
    return (config.num_kv_heads or config.num_heads) * config.width


def pieces_of(writer: Writer, file: Path) -> torch.Tensor:
    """Pieces of the test text, from all over it."""
    tokens = torch.tensor(writer.tokenizer.encode("".join(read_texts([str(file)], "text"))))
    starts = torch.linspace(0, len(tokens) - LENGTH, PIECES).long()
    return torch.stack([tokens[start : start + LENGTH] for start in starts])


def table(rows: list[Kept]) -> Table:
    """Perplexities, a policy a line and a budget a column."""
    columns = ["keys held", *map(str, BUDGETS), "all"]
    made = Table(*columns, title=f"perplexity of the second half of {PIECES} texts of {LENGTH}")
    whole = rows[0]
    for name in policies(BUDGETS[0]):
        of_name = [row for row in rows if row.policy == name]
        numbers = [f"{row.perplexity:.2f}" for row in (*of_name, whole)]
        made.add_row(name, *numbers)
    made.add_section()
    some = [next(row for row in rows if row.budget == budget) for budget in BUDGETS]
    made.add_row("memory, H2O", *[f"{row.memory:.0%}" for row in (*some, whole)])
    return made


def draw(rows: list[Kept], file: Path) -> None:
    """Perplexity against memory, a line a policy."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    colors = dict(zip(policies(32), COLORS, strict=True))
    whole = rows[0].perplexity
    axes.axhline(whole, color="#37352f", linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"all keys: {whole:.1f}",
        (0.01, whole),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        color="#37352f",
        fontsize=9,
    )
    for name, color in colors.items():
        line = [row for row in rows if row.policy == name]
        x, y = [row.memory for row in line], [row.perplexity for row in line]
        axes.plot(x, y, color=color, marker="o", markersize=5, linewidth=2, label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("memory, of that of all keys and values")
    axes.set_ylabel("perplexity of what follows")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#ecebea")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=150)
    print(f"wrote {file}")


def main() -> None:
    """Measure and draw, or draw alone."""
    if sys.argv[1:] == ["picture"]:
        rows = [Kept(**row) for row in json.loads(RESULTS.read_text(encoding="utf-8"))]
        Console(width=100).print(table(rows))
        draw(rows, PICTURE)
        return
    data = Path(os.environ["GLASSHEAD_DATA"]) / "wikitext2"
    writer = trained(data)
    model, pieces = writer.model.eval(), pieces_of(writer, data / "test.txt.xz")
    rows = [kept(model, pieces, "all", None)]
    for budget in BUDGETS:
        rows += [kept(model, pieces, *one) for one in policies(budget).items()]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    Console(width=100).print(table(rows))


if __name__ == "__main__":
    main()

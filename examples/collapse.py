"""Let language models collapse, and hear the alarm before their loss does.

    python examples/collapse.py [FILE.png] [--seeds 0 1 2] [--steps 800]

The task is to go on with a word of random letters that repeats, which takes attention; all models
are taught it by SGD with momentum. Some are taught with care: a warm-up, and gradients that are
clipped. Others have three times the learning rate and neither: they learn it too, then their scores
grow, their heads come to look at one key each, and the loss explodes. Told is when the alarm fired,
and when the loss was twice its minimum; drawn is how it went.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh
from glasshead.files import whole_file
from glasshead.watching.alarms import Every, HeadReading, Probe

FILE = Path("build") / "collapse.png"
LETTERS, PERIOD, LENGTH, BATCH = 16, 8, 48, 8
MODEL = {"d_model": 48, "num_heads": 3, "num_layers": 2, "dropout": 0.0}
EVERY = 5
ALARM = "#e0a100"


@dataclass(frozen=True)
class Teaching:
    """How models are taught.

    Attributes:
        name: For the reader.
        learning_rate: Of SGD with momentum.
        warmup: Over how many steps the learning rate rises.
        clip: The largest norm of a gradient.
        color: Of its pictures.
    """

    name: str
    learning_rate: float
    warmup: int
    clip: float
    color: str


TEACHINGS = (
    Teaching("healthy", learning_rate=0.1, warmup=100, clip=0.5, color="#2a7f62"),
    Teaching("too fast", learning_rate=0.3, warmup=0, clip=math.inf, color="#b3432b"),
)


@dataclass
class Run:
    """What came of a training.

    Attributes:
        teaching, seed: Which it was.
        losses: Of each step.
        readings: Of each head, every few steps.
        alarms: Those that the rule raised.
    """

    teaching: Teaching
    seed: int
    losses: list[float] = field(default_factory=list)
    readings: list[HeadReading] = field(default_factory=list)
    alarms: list[gh.Alarm] = field(default_factory=list)

    @property
    def alarmed(self) -> int | None:
        """The step of the first alarm."""
        return self.alarms[0].step if self.alarms else None

    @property
    def diverged(self) -> int | None:
        """The first step whose loss is above twice the least before it.

        >>> Run(TEACHINGS[0], 0, [4.0, 1.0, 1.9, 0.5, 0.9, 1.1]).diverged
        6
        """
        least = math.inf
        for step, loss in enumerate(self.losses, 1):
            if not loss <= 2 * least:
                return step
            least = min(least, loss)
        return None

    def said(self) -> str:
        """The run in a sentence."""
        fired = f"first alarm in step {self.alarmed}" if self.alarms else "no alarm"
        if self.diverged is None:
            after = f"the loss came to {self.losses[-1]:.2f} and stayed there"
        else:
            after = f"the loss was twice its minimum in step {self.diverged}"
        ahead = ""
        if self.ahead is not None:
            ahead = f", {abs(self.ahead)} steps {'later' if self.ahead >= 0 else 'before'}"
        return f"{self.teaching.name}, seed {self.seed}: {fired}; {after}{ahead}."

    @property
    def ahead(self) -> int | None:
        """By how many steps the alarm was ahead of the loss."""
        both = self.diverged is not None and self.alarmed is not None
        return self.diverged - self.alarmed if both else None  # type: ignore[reportOptionalOperand]


def words(generator: torch.Generator) -> Tensor:
    """Texts of a word each, again and again, `[batch, length + 1]`."""
    letters = torch.randint(LETTERS, (BATCH, PERIOD), generator=generator)
    return letters[:, torch.arange(LENGTH + 1) % PERIOD]


def taught(teaching: Teaching, seed: int, steps: int, console: Console) -> Run:
    """Teach a model, and watch it every few steps, for as long as its loss is a number."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    config = gh.LanguageModelConfig(vocab_size=LETTERS, context_length=LENGTH, **MODEL)
    model = gh.LanguageModel(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=teaching.learning_rate, momentum=0.9)
    run, rule, probe, every = Run(teaching, seed), gh.AlarmRule(), Probe(model), Every(EVERY)
    about = f"{teaching.name}, seed {seed}"
    for step in track(range(1, steps + 1), about, console=console, transient=True):
        risen = min(1.0, step / max(1, teaching.warmup))
        optimizer.param_groups[0]["lr"] = teaching.learning_rate * risen
        texts = words(generator)
        if every.due(step):
            probe.begin()
        logits = model(texts[:, :-1])
        readings = probe.end(step)
        loss = F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())
        run.losses.append(loss.item())
        run.readings += readings
        run.alarms += rule.feed(readings)
        if not math.isfinite(run.losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), teaching.clip)
        optimizer.step()
    return run


def picture(runs: Sequence[Run]) -> Figure:
    """A column for each run: its loss, and of each head the maximum score and the entropy."""
    figure = Figure(figsize=(2.5 * len(runs) + 0.6, 7.0), layout="constrained")
    grid: Any = figure.subplots(3, len(runs), sharey="row", sharex=True, squeeze=False)
    for run, (loss, score, entropy) in zip(runs, grid.T, strict=True):
        color = run.teaching.color
        loss.plot(range(1, len(run.losses) + 1), run.losses, color=color, linewidth=1.1)
        for axes, name in ((score, "max_score"), (entropy, "normalized_entropy")):
            for steps, values in _heads(run, name):
                axes.plot(steps, values, color=color, linewidth=0.9, alpha=0.65)
        said = "no alarm" if run.alarmed is None else f"alarm in step {run.alarmed}"
        ahead = "" if run.ahead is None else f", {run.ahead} ahead"
        loss.set_title(
            f"{run.teaching.name}, seed {run.seed}\n{said}{ahead}", loc="left", fontsize=10
        )
        for axes in (loss, score, entropy):
            _mark(axes, run)
        entropy.set_xlabel("step")
    for axes in grid[:2].flat:
        axes.set_yscale("log")
    grid[0, 0].set(ylabel="loss, nats", ylim=(0.25, 60))
    grid[1, 0].set(ylabel="maximum score", ylim=(0.1, 2e4))
    grid[2, 0].set(ylabel="entropy / ln(visible keys)", ylim=(-0.02, 1.05))
    for row, threshold in ((1, gh.AlarmRule().score), (2, gh.AlarmRule().entropy)):
        for axes in grid[row]:
            axes.axhline(threshold, color="#777777", linewidth=0.9, linestyle=(0, (1, 1.6)))
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2, linewidth=0.6)
        axes.tick_params(labelsize=8)
    keys = [
        Line2D([], [], color=ALARM, linewidth=1.6, label="first alarm"),
        Line2D(
            [], [], color="#333333", linestyle=(0, (3, 2)), label="loss above twice its minimum"
        ),
        Line2D([], [], color="#777777", linestyle=(0, (1, 1.6)), label="threshold of the rule"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _heads(run: Run, name: str) -> list[tuple[list[int], list[float]]]:
    """The steps and the values of each head."""
    heads: dict[tuple[str, int], tuple[list[int], list[float]]] = {}
    for one in run.readings:
        steps, values = heads.setdefault((one.layer, one.head), ([], []))
        steps.append(one.step)
        values.append(getattr(one, name))
    return list(heads.values())


def _mark(axes: Any, run: Run) -> None:
    """The alarm, and how long the loss took to follow."""
    if run.alarmed is not None:
        axes.axvline(run.alarmed, color=ALARM, linewidth=1.6)
    if run.ahead is not None:
        axes.axvline(run.diverged, color="#333333", linewidth=1.0, linestyle=(0, (3, 2)))
        axes.axvspan(run.alarmed, run.diverged, color=ALARM, alpha=0.18, linewidth=0)


def main(arguments: Sequence[str]) -> int:
    """Teach, tell and draw; the exit code is 2 where the picture cannot be written.

    >>> main(["--seeds", "0", "--steps", "2", f"{__file__}/picture.png"])
    2
    """
    parser = argparse.ArgumentParser(
        description="Let language models collapse, and hear the alarm first."
    )
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help="for the picture")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=800)
    asked = parser.parse_args(arguments)
    if asked.steps < 1:
        parser.error(f"--steps must be at least 1, got {asked.steps}.")
    console = Console(stderr=True)
    runs = []
    try:
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        # Opened before training, so that nobody waits for a picture that cannot be written.
        with whole_file(asked.file) as beside:
            for teaching in TEACHINGS:
                for seed in asked.seeds:
                    runs.append(taught(teaching, seed, asked.steps, console))
                    print(runs[-1].said(), flush=True)
            picture(runs).savefig(beside, format="png", dpi=130)
    except OSError as error:
        print(f"{asked.file} cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    print(f"wrote {asked.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Why scores are divided by √d: the same training with the division and without it.

    python examples/without_scaling.py [FILE.png [SEED]]

An attention learns which of eleven words is asked for, in about a minute on two cores. The queries
and keys are 256 numbers wide, so that without the division the scores lie about 16 from 0: nearly
all weight goes to one word, mostly the wrong one, the derivatives are near 0, and training takes
about twice as many steps.
`glasshead train write --set score_scale=1` trains a language model without the division.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.drawing import Table
from picture_command import file_and_seed, picture_file, refused

FILE, SEED = Path("build") / "without_scaling.png", 0
WIDTH, WORDS, LABELS, BATCH, STEPS = 256, 11, 7, 32, 400
SCORES = {"divided by √d": gh.ScaledDot, "not divided": gh.Dot}
COLORS = {"divided by √d": "#1b6ca8", "not divided": "#e08214"}


def losses(name: str, seed: int = SEED, steps: int = STEPS, width: int = WIDTH) -> list[float]:
    """Train one attention; return its loss at each step.

    A question is the vector of the word that is asked for, turned by a rotation that has to be
    learned. The values are the labels of the words, so that the context is a probability of each.

    >>> divided, not_divided = (losses(name, steps=20, width=64) for name in SCORES)
    >>> all(one < other for one, other in zip(divided, not_divided, strict=True))
    True
    """
    torch.manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(width, width))[0]
    to_query, to_key = (nn.Linear(width, width, bias=False) for _ in range(2))
    for layer in (to_query, to_key):
        nn.init.normal_(layer.weight, std=width**-0.5)
    attention = gh.Attention(score=SCORES[name]())
    optimizer = torch.optim.Adam([*to_query.parameters(), *to_key.parameters()], lr=1e-3)
    found, row = [], torch.arange(BATCH)
    for _ in track(range(steps), f"{name:13}", console=Console(stderr=True)):
        words = torch.randn(BATCH, WORDS, width)
        labels = torch.randint(LABELS, (BATCH, WORDS))
        asked = torch.randint(WORDS, (BATCH,))
        query = to_query(words[row, asked] @ rotation)[:, None]
        context = attention(query, to_key(words), F.one_hot(labels, LABELS).float())[:, 0]
        loss = F.nll_loss(context.clamp(min=1e-6).log(), labels[row, asked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def smooth(curve: Sequence[float], over: int = 20) -> list[float]:
    """The mean of each step and those before it.

    >>> smooth([4.0, 2.0, 0.0], over=2)
    [4.0, 3.0, 1.0]
    """
    spans = [curve[max(0, end - over) : end] for end in range(1, len(curve) + 1)]
    return [sum(span) / len(span) for span in spans]


def table(curves: dict[str, list[float]]) -> Table:
    """The losses side by side, at a few steps.

    >>> print(table({"divided by √d": [2.0, 1.0], "not divided": [9.0, 8.0]}).as_text())
    step  divided by √d  not divided
    ────────────────────────────────
    1              2.00         9.00
    2              1.50         8.50
    """
    means = {name: smooth(curve) for name, curve in curves.items()}
    length = len(next(iter(means.values())))
    shown = sorted({1, *range(max(1, length // 8), length + 1, max(1, length // 8))})
    rows = [[str(step), *(f"{curve[step - 1]:.2f}" for curve in means.values())] for step in shown]
    return Table(["step", *means], rows)


def picture(curves: dict[str, list[float]]) -> Figure:
    """The two losses by step."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot(smooth(curve), color=COLORS[name], linewidth=2.2, label=name)
    axes.set(xlabel="step", ylabel="loss, in nats", ylim=(0, None), xlim=(0, None))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(f"Scores of vectors of {WIDTH} numbers", loc="left")
    return figure


def main(arguments: Sequence[str]) -> int:
    """Train both, and draw; the exit code is 2 where the picture cannot be written.

    >>> main(["one.png", "1", "2"])
    2
    """
    try:
        file, seed = file_and_seed(arguments, FILE, SEED)
        with picture_file(file) as beside:
            curves = {name: losses(name, seed) for name in SCORES}
            picture(curves).savefig(beside, format="png", dpi=120)
    except (ValueError, OSError) as error:
        return refused("without_scaling", error)
    print(table(curves).as_text())
    print(f"\nwrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

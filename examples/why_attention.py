"""Why attention: one vector for a whole sentence, against a look back at each of its words.

    python examples/why_attention.py [FILE.png]

Two models learn to say sentences backwards, in a minute or two. They differ in the bridge between
reading and writing alone, which is step 10 of the ladder. Told is how much each gets right by the
length of the sentence, in a table and a picture, and where the one with attention looks.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.drawing import Block, Document, Heading, HeatMap, Paragraph, Table
from glasshead.ladder import (
    AttentionContext,
    FixedContext,
    SequenceToSequence,
    sentences_to_reverse,
)
from picture_command import picture_file, refused

FILE = Path("build") / "why_attention.png"
TEXT = "attention"
VOCABULARY, WIDTH = 21, 64  # the start, and the letters from a to t
STEPS, LONGEST, SEED = 2000, 20, 123
LENGTHS = range(2, 31, 2)
CONTEXTS = {"fixed context": FixedContext, "attention": lambda: AttentionContext(WIDTH)}
COLORS = {"fixed context": "#e08214", "attention": "#1b6ca8"}

# The sentences of training have the numbers of the steps as their seeds.
UNSEEN = 1_000_000

# By length: the shares of words and of whole sentences that are right.
Accuracy = dict[int, tuple[float, float]]


def learned(name: str, steps: int = STEPS, longest: int = LONGEST) -> SequenceToSequence:
    """A model that has learned to reverse sentences of up to `longest` words.

    >>> model = learned("fixed context", steps=100, longest=2)
    >>> spelled(model.answer(spelling("on"), length=2))
    'no'
    """
    torch.manual_seed(SEED)
    model = SequenceToSequence(VOCABULARY, WIDTH, CONTEXTS[name]())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    lengths = torch.randint(1, longest + 1, (steps,)).tolist()
    for step in track(range(steps), f"{name:13}", console=Console(stderr=True)):
        source, target = sentences_to_reverse(64, lengths[step], VOCABULARY, seed=step)
        loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        slower.step()
    return model


def accuracy(model: SequenceToSequence, lengths: Sequence[int] = LENGTHS) -> Accuracy:
    """How much it gets right of 500 sentences of each length that it has not seen.

    >>> accuracy(learned("attention", steps=50, longest=1), lengths=[1])
    {1: (1.0, 1.0)}
    """
    found = {}
    for length in lengths:
        source, target = sentences_to_reverse(500, length, VOCABULARY, seed=UNSEEN + length)
        right = model.answer(source, length) == target  # [500, length]
        found[length] = right.float().mean().item(), right.all(dim=1).float().mean().item()
    return found


def table(found: dict[str, Accuracy]) -> Table:
    """The models side by side.

    >>> print(table({"attention": {20: (0.75, 0.5), 22: (0.25, 0.0)}}).as_text())
    * longer than trained on
    length  attention: words  sentences
    ───────────────────────────────────
    20                 75.0%      50.0%
    22 *               25.0%       0.0%
    """
    heads = [head for name in found for head in (f"{name}: words", "sentences")]
    rows = []
    for length in next(iter(found.values())):
        shares = (f"{share:.1%}" for model in found.values() for share in model[length])
        rows.append([f"{length} *" if length > LONGEST else f"{length}", *shares])
    return Table(["length", *heads], rows, caption="* longer than trained on")


def picture(found: dict[str, Accuracy]) -> Figure:
    """The shares that are right, by length: a firm line for words, a dashed one for sentences."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(LONGEST, LENGTHS[-1], color="#f4f4f4", linewidth=0)
    middle = (LONGEST + LENGTHS[-1]) / 2
    axes.text(middle, 0.7, "longer than trained on", color="#888888", ha="center", fontsize=9)
    for name, model in found.items():
        words, sentences = zip(*model.values(), strict=True)
        for shares, label, line in (
            (words, f"{name}: words", {"linewidth": 2.2, "marker": "o", "markersize": 4}),
            (sentences, "whole sentences", {"linewidth": 1.2, "linestyle": "--"}),
        ):
            axes.plot([*model], shares, color=COLORS[name], **line)
            end = (LENGTHS[-1] + 0.4, shares[-1])
            axes.annotate(label, end, color=COLORS[name], va="center", annotation_clip=False)
    axes.set(xlabel="words in the sentence", ylabel="share that is right", ylim=(-0.03, 1.03))
    axes.set(xlim=(LENGTHS[0] - 0.5, LENGTHS[-1]), xticks=LENGTHS[::2])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Saying a sentence backwards", loc="left")
    return figure


def told(models: dict[str, SequenceToSequence], found: dict[str, Accuracy]) -> Iterator[Block]:
    """The table, what each model writes, and where the one with attention looks."""
    yield Heading("How much is right, by the length of the sentence")
    yield table(found)
    yield Heading(f"“{TEXT}” backwards")
    source = spelling(TEXT)
    answers = [[name, spelled(model.answer(source, len(TEXT)))] for name, model in models.items()]
    yield Table(["model", "writes"], answers)
    yield Paragraph(
        "Each row is a letter to write, each column a letter read. To write the next letter, the "
        "model looks where it read the last one it wrote: what it noted there tells of the letter "
        "before, too."
    )
    with torch.no_grad():
        weights = models["attention"].alignment(source, source.flip(1))[0]  # [written, read]
    yield HeatMap(weights, rows=[*reversed(TEXT)], columns=[*TEXT])


def spelling(text: str) -> Int[Tensor, "1 letters"]:
    """Letters from a to t as words from 1 to 20.

    >>> spelling("cab")
    tensor([[3, 1, 2]])
    """
    return torch.tensor([[ord(letter) - ord("a") + 1 for letter in text]])


def spelled(words: Int[Tensor, "1 letters"]) -> str:
    """Words from 1 to 20 as letters.

    >>> spelled(torch.tensor([[3, 1, 2]]))
    'cab'
    """
    return "".join(chr(ord("a") + word - 1) for word in words[0].tolist())


def asked(arguments: Sequence[str]) -> Path:
    """The file that the picture is written to.

    >>> asked(["reversed.png"]).name, asked([]).name
    ('reversed.png', 'why_attention.png')
    >>> asked(["2000"])
    Traceback (most recent call last):
    ValueError: expected one file that ends in .png, got 2000. Omit it for ...
    """
    file = Path(arguments[0]) if arguments else FILE
    if len(arguments) > 1 or file.suffix.lower() != ".png" or file.is_dir():
        got = f"the folder {file}" if file.is_dir() else " ".join(arguments)
        raise ValueError(f"expected one file that ends in .png, got {got}. Omit it for {FILE}.")
    return file


def main(arguments: Sequence[str]) -> int:
    """Train, tell and draw; the exit code is 2 where the picture cannot be written.

    >>> main(["one.png", "two.png"])
    2
    """
    try:
        file = asked(arguments)
        with picture_file(file) as beside:
            models = {name: learned(name) for name in CONTEXTS}
            found = {name: accuracy(model) for name, model in models.items()}
            picture(found).savefig(beside, format="png", dpi=120)
    except (ValueError, OSError) as error:
        return refused("why_attention", error)
    Console(highlight=False).print(Document([*told(models, found)], title="Why attention"))
    print(f"\nwrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

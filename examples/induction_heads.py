"""Induction heads: how two layers of attention learn to copy, and what is left without them.

    python examples/induction_heads.py [FILE.png] [SEED]

A language model of attention alone, two layers of two heads, reads random tokens that repeat. To
say what comes next, it has to find an earlier place of the token and to look behind it. Two heads
in a row learn that: one in layer 0 tells each token which was before it, and one in layer 1 looks
for the token that tells of this one. Told is which heads these are, and how well the model copies
without each of them; drawn is where they look and how they came to be, in less than a minute.
"""

import math
import string
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torch.nn import functional as F

import glasshead as gh
from glasshead.drawing import Block, Document, Heading, Paragraph, Table
from picture_command import file_and_seed, picture_file, refused

FILE = Path("build") / "induction_heads.png"
LETTERS = string.ascii_letters + string.digits + "+/"  # a token each
LENGTH, PERIOD, ROWS, STEPS, EVERY, SEED = 64, 32, 32, 800, 20, 2
UNSEEN = 1_000_000  # the seed of texts that nobody learned from
ROLES = ("previous", "induction")
MAPS = ("To the token before", "To what followed this token last time")
# What is removed, and how it is drawn.
LABELS = {
    "nothing": "the whole model",
    "previous": "without previous-token heads",
    "induction": "without induction heads",
    "others": "without all others",
}
LINES = {
    "nothing": ("#333333", "-"),
    "previous": ("#1b6ca8", "-"),
    "induction": ("#d1495b", "-"),
    "others": ("#e0a030", "--"),
}

Heads = Sequence[tuple[str, int]]  # the name of a layer, and which of its heads


class Moment(NamedTuple):
    """How far a model has come: its loss where it could copy, in nats, and its best heads."""

    step: int
    loss: float
    previous: float
    induction: float


def repeating(rows: int, generator: torch.Generator) -> Int[Tensor, "rows length"]:
    """Random tokens, which begin again after 8 to 32 of them: a number that only the text tells.

    >>> text = repeating(3, torch.Generator().manual_seed(0))
    >>> text.shape, len(set(text[0, :8].tolist()))
    (torch.Size([3, 64]), 8)
    """
    tokens = torch.rand(rows, len(LETTERS), generator=generator).argsort(1)
    period = torch.randint(PERIOD // 4, PERIOD + 1, (rows, 1), generator=generator)
    return tokens.gather(1, torch.arange(LENGTH) % period)


def unseen(rows: int = 64, period: int = PERIOD) -> Int[Tensor, "rows length"]:
    """Texts that are said twice."""
    return gh.repeated_random_tokens(len(LETTERS), period, rows, UNSEEN, times=2)


def learned(seed: int = SEED, steps: int = STEPS) -> tuple[gh.LanguageModel, list[Moment]]:
    """A model that has learned to go on with what repeats, and how it came to that."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = gh.LanguageModelConfig(
        vocab_size=len(LETTERS),
        context_length=LENGTH,
        d_model=64,
        num_heads=2,
        num_layers=2,
        feed_forward="none",
        tied=False,
        dropout=0.0,
    )
    model, moments = gh.LanguageModel(config), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)
    slower = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in track(range(steps), "learning to copy", console=Console(stderr=True)):
        if step % EVERY == 0:
            moments.append(moment(model, step))
        text = repeating(ROWS, generator)
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
    return model.eval(), [*moments, moment(model, steps)]


def moment(model: gh.LanguageModel, step: int) -> Moment:
    """How far a model has come after some steps."""
    text, scores = unseen(8), roles_of(model).scores
    best = (float(scores[role].max()) for role in ("previous", "induction"))
    return Moment(step, float(losses(model, text)[PERIOD:].mean()), *best)


def roles_of(model: gh.LanguageModel) -> gh.HeadRoles:
    """The roles, by texts as long as a period: no later token is ever needed to copy another."""
    return gh.head_roles(model, unseen(period=PERIOD // 2))


@torch.no_grad()
def losses(
    model: gh.LanguageModel, text: Int[Tensor, "rows length"], without: Heads = ()
) -> Float[Tensor, " length-1"]:
    """How surprised the model is of each token after the first, in nats, without some heads."""
    with gh.ablate(model, by_layer(without)):
        logits = model(text[:, :-1])
    return F.cross_entropy(logits.mT, text[:, 1:], reduction="none").mean(0)


@torch.no_grad()
def accuracy(
    model: gh.LanguageModel, text: Int[Tensor, "rows length"], without: Heads = ()
) -> float:
    """The share of the tokens that it copies right, where it could."""
    with gh.ablate(model, by_layer(without)):
        right = model(text[:, :-1]).argmax(-1) == text[:, 1:]
    return float(right[:, PERIOD:].float().mean())


def by_layer(heads: Heads) -> dict[str, list[int]]:
    """The heads of each layer.

    >>> by_layer([("blocks.0.attention", 3), ("blocks.1.attention", 0), ("blocks.1.attention", 2)])
    {'blocks.0.attention': [3], 'blocks.1.attention': [0, 2]}
    """
    layers = groupby(sorted(heads), key=lambda head: head[0])
    return {name: [number for _, number in group] for name, group in layers}


def removals(roles: gh.HeadRoles) -> dict[str, Heads]:
    """What is removed at once: all heads of a role, or all that have neither of the two."""
    induction, previous = roles.heads("induction"), roles.heads("previous")
    every = [(name, head) for name in roles.names for head in range(len(roles.roles[0]))]
    others = [head for head in every if head not in (*induction, *previous)]
    return {"nothing": [], "previous": previous, "induction": induction, "others": others}


def by_head(model: gh.LanguageModel, roles: gh.HeadRoles) -> Table:
    """What each head looks at, and what the model is without it."""
    text, rows = unseen(), []
    for layer, name in enumerate(roles.names):
        for head, role in enumerate(roles.roles[layer]):
            scores = (f"{float(roles.scores[one][layer, head]):.2f}" for one in ROLES)
            share = f"{accuracy(model, text, [(name, head)]):.1%}"
            rows.append([f"{name} {head}", *scores, role or "", share])
    return Table(["head", *ROLES, "role", "copied right without it"], rows)


def by_role(model: gh.LanguageModel, roles: gh.HeadRoles) -> Table:
    """What the model is without all heads of a role."""
    text, rows = unseen(), []
    for name, heads in removals(roles).items():
        loss = float(losses(model, text, heads)[PERIOD:].mean())
        share = f"{accuracy(model, text, heads):.1%}"
        rows.append([name, str(len(heads)), f"{loss:.2f}", share])
    return Table(["removed", "heads", "loss, nats", "copied right"], rows)


def told(model: gh.LanguageModel, roles: gh.HeadRoles) -> Iterator[Block]:
    """The roles, and what the model is without them."""
    yield Heading("What each head looks at, and what the model is without it")
    yield by_head(model, roles)
    yield Heading("Without all heads of a role")
    yield by_role(model, roles)
    share, loss = 1 / len(LETTERS), math.log(len(LETTERS))
    yield Paragraph(f"By chance it would copy {share:.1%} right, at a loss of {loss:.2f} nats.")


def picture(model: gh.LanguageModel, roles: gh.HeadRoles, moments: Sequence[Moment]) -> Figure:
    """Where the two heads look, how they came to be, and what is left without them."""
    figure = Figure(figsize=(11, 9.8), layout="constrained")
    above, below = figure.subplots(2, 2, height_ratios=(1.35, 1))
    text = unseen(1, period=12)
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(text)
    letters = [LETTERS[token] for token in text[0]]
    for axes, role, title in zip(above, ROLES, MAPS, strict=True):
        name, head = roles.best(role)
        draw_map(axes, seen[name][0].weights.dense()[0, head], letters)
        axes.set_title(title, loc="left", fontsize=12, pad=8)
        axes.set_xlabel(f"{name}, head {head}", color=LINES[role][0])
    draw_moments(below[0], moments)
    draw_losses(below[1], model, roles)
    return figure


def draw_map(axes: Axes, weights: Float[Tensor, "length length"], letters: Sequence[str]) -> None:
    """Queries down, keys across; a thin line where the text begins again."""
    hidden = torch.ones_like(weights).triu(1).bool()
    axes.imshow(weights.masked_fill(hidden, torch.nan).numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(letters)), letters, fontsize=8)
    axes.set_yticks(range(len(letters)), letters, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_color("#dddddd")
    for line in (axes.axhline, axes.axvline):
        line(len(letters) / 2 - 0.5, color="#bbbbbb", linewidth=0.8)


def draw_moments(axes: Axes, moments: Sequence[Moment]) -> None:
    """The loss, and how much of its weight the best head of each role has where it belongs."""
    steps = [one.step for one in moments]
    axes.plot(steps, [one.loss for one in moments], color=LINES["nothing"][0], linewidth=2.2)
    axes.set(xlabel="steps of training", ylim=(0, None), xlim=(0, steps[-1]))
    axes.set_ylabel("loss where it could copy, nats")
    scores = axes.twinx()
    for role in ROLES:
        values = [getattr(one, role) for one in moments]
        scores.plot(steps, values, color=LINES[role][0], linewidth=1.8, label=f"best {role} head")
    scores.set(ylim=(0, 1.02), ylabel="score of the head")
    scores.legend(loc="center right", frameon=False)
    axes.set_title("How they came to be", loc="left", fontsize=12)
    for each in (axes, scores):
        each.spines["top"].set_visible(False)


def draw_losses(axes: Axes, model: gh.LanguageModel, roles: gh.HeadRoles) -> None:
    """The loss by position, with the heads and without."""
    text = unseen()
    axes.axvspan(PERIOD + 1, 2 * PERIOD - 1, color="#f5f5f5", linewidth=0)
    for name, heads in removals(roles).items():
        color, line = LINES[name]
        values = losses(model, text, heads)
        axes.plot(
            range(1, len(values) + 1), values, line, color=color, linewidth=1.8, label=LABELS[name]
        )
    axes.axhline(math.log(len(LETTERS)), color="#aaaaaa", linewidth=0.8, linestyle=":")
    axes.set(xlim=(1, 2 * PERIOD - 1), ylim=(0, None), xlabel="position in the text")
    axes.set_ylabel("loss, nats")
    axes.set_title("What is left without them", loc="left", fontsize=12)
    axes.legend(loc="upper left", frameon=False, fontsize=9, handlelength=1.6)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: Sequence[str], steps: int = STEPS) -> int:
    """Train, tell and draw; the exit code is 2 where the picture cannot be written.

    >>> main(["one.png", "two"])
    2
    """
    try:
        file, seed = file_and_seed(arguments, FILE, SEED)
        with picture_file(file) as beside:
            model, moments = learned(seed, steps)
            roles = roles_of(model)
            picture(model, roles, moments).savefig(beside, format="png", dpi=120)
    except (ValueError, OSError) as error:
        return refused("induction_heads", error)
    Console(highlight=False).print(Document([*told(model, roles)], title="Induction heads"))
    print(f"\nwrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

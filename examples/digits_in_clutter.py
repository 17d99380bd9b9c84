"""Digits in clutter: does a vision transformer look at the digit that it names?

    python examples/digits_in_clutter.py [FILE.png] [SEED]

A small vision transformer is shown a digit of scikit-learn, 8 × 8 pixels, somewhere in a picture of
48 × 48 among pieces of other digits, and learns its name in less than two minutes. Where the digit
is nobody tells it, but we know: so that what its class token attends to can be checked. Told is how
much of that falls on the digit, beside the accuracy; drawn is where it falls.

It takes scikit-learn and transformers: pip install scikit-learn 'glasshead[hf,png]'.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.drawing import Block, Document, Overlay, Paragraph, Table
from picture_command import file_and_seed, picture_file, refused

FILE = Path("build") / "digits_in_clutter.png"
SIDE, DIGIT, PIECES = 48, 8, 14
GRID = SIDE // DIGIT
UNSEEN, SHOWN, STEPS, BATCH, SEED = 300, 100, 1500, 64, 0
CHANCE = 1 / GRID**2


class Digits(NamedTuple):
    """Digits of 8 × 8 numbers from 0 to 1, and their names."""

    pixels: Float[Tensor, "digits 8 8"]
    names: Int[Tensor, " digits"]


class Scene(NamedTuple):
    """Pictures of a digit in clutter, its name, and the patch that it covers."""

    pictures: Float[Tensor, "scenes 1 side side"]
    names: Int[Tensor, " scenes"]
    covered: Bool[Tensor, "scenes grid grid"]


def digits() -> tuple[Digits, Digits]:
    """Return the digits to learn from, and those that are kept back.

    Errors: an ImportError without scikit-learn.
    """
    try:
        data = import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise ImportError("it takes scikit-learn: pip install scikit-learn.") from None
    order = np.random.default_rng(0).permutation(len(data.target))
    pixels = torch.from_numpy(data.images[order]).float() / 16
    names = torch.from_numpy(data.target[order])
    return Digits(pixels[UNSEEN:], names[UNSEEN:]), Digits(pixels[:UNSEEN], names[:UNSEEN])


def scattered(known: Digits, count: int, generator: torch.Generator) -> Scene:
    """Put each digit of a sample into a picture, among patches of quarters of other digits.

    >>> known = Digits(torch.ones(5, 8, 8), torch.arange(5))
    >>> scene = scattered(known, 3, torch.Generator().manual_seed(0))
    >>> scene.covered.sum((1, 2)).tolist(), int(scene.pictures[0].sum()) // DIGIT**2
    ([1, 1, 1], 15)
    """
    chosen = torch.randint(len(known.names), (count,), generator=generator)
    quarters = known.pixels.unfold(1, 4, 4).unfold(2, 4, 4).reshape(-1, 4, 4)
    pieces = torch.randint(len(quarters), (count, PIECES, 2, 2), generator=generator)
    clutter = quarters[pieces].transpose(3, 4).reshape(count, PIECES, DIGIT, DIGIT)
    # The first place is the digit's, the next are those of the clutter.
    places = torch.rand(count, GRID**2, generator=generator).argsort(1)[:, : PIECES + 1, None, None]
    patches = torch.zeros(count, GRID**2, DIGIT, DIGIT)
    given = torch.cat([known.pixels[chosen][:, None], clutter], 1)
    patches.scatter_(1, places.expand(given.shape), given)
    rows = patches.reshape(count, GRID, GRID, DIGIT, DIGIT).transpose(2, 3)
    covered = F.one_hot(places[:, 0, 0, 0], GRID**2).bool().reshape(count, GRID, GRID)
    return Scene(rows.reshape(count, 1, SIDE, SIDE), known.names[chosen], covered)


def transformer() -> nn.Module:
    """Build a vision transformer of transformers, on PyTorch's fused kernel."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=SIDE,
        patch_size=DIGIT,
        num_channels=1,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
    )
    config.num_labels = 10
    return ViTForImageClassification(config)


def learned(known: Digits, seed: int = SEED, steps: int = STEPS) -> nn.Module:
    """Train on pictures that are new in each step."""
    torch.manual_seed(seed)
    generator, model = torch.Generator().manual_seed(seed), transformer().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    slower = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in track(range(steps), "learning to read", console=Console(stderr=True)):
        scene = scattered(known, BATCH, generator)
        loss = F.cross_entropy(model(pixel_values=scene.pictures).logits, scene.names)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slower.step()
    return model.eval()


@torch.no_grad()
def looked(model: nn.Module, scene: Scene) -> tuple[gh.Seen, Float[Tensor, "scenes names"]]:
    """Return the attention of a model to some pictures, and what it took them for."""
    with gh.watch(model, keep="weights") as seen:
        logits = model(pixel_values=scene.pictures).logits
    return seen, logits


def share(looks: gh.AttentionMap, covered: Bool[Tensor, "grid grid"]) -> float:
    """Return how much of the weight on patches falls on that of the digit.

    >>> looks = gh.AttentionMap(torch.tensor([[0.5, 0.1], [0.0, 0.2]]))
    >>> share(looks, torch.tensor([[True, False], [False, False]]))
    0.625
    """
    return float(looks.weights[covered].sum() / looks.weights.sum())


def shares(seen: gh.Seen, scene: Scene) -> dict[str, list[float]]:
    """Return the share of the class token of each layer, and that of its rollout, per picture."""
    pictures = range(len(scene.names))
    found = {
        name: [share(layer.image(0, batch=one), scene.covered[one]) for one in pictures]
        for name, layer in seen.items()
    }
    reached, last = gh.rollout(seen, rows=[0])[:, 0], list(seen.values())[-1]
    found["rollout"] = [
        share(last.on_image(reached[one], batch=one), scene.covered[one]) for one in pictures
    ]
    return found


def told(model: nn.Module, scene: Scene) -> list[Block]:
    """Return the accuracy, and beside it where the class token looks."""
    seen, logits = looked(model, scene)
    right = logits.argmax(-1) == scene.names
    rows = [
        [name, f"{np.mean(values):.1%}", f"{np.mean(values) / CHANCE:.1f}"]
        for name, values in shares(seen, scene).items()
    ]
    return [
        Paragraph(
            f"{float(right.float().mean()):.1%} of {len(right)} unseen digits are named right; "
            f"by chance it were 10%."
        ),
        Table(["class token of", "on the digit", "times chance"], rows),
        Paragraph(
            f"A look at everything alike has {CHANCE:.1%} on the digit, 1 of {GRID**2} patches."
        ),
    ]


def picture(model: nn.Module, scene: Scene, count: int = 6) -> Figure:
    """Draw some pictures, and what the class token looks at: by one layer, and by its rollout."""
    figure = Figure(figsize=(1.7 * count, 7.4), layout="constrained")
    seen, logits = looked(model, Scene(*(one[:count] for one in scene)))
    reached, (first, *_, last) = gh.rollout(seen, rows=[0])[:, 0], seen.values()
    axes = figure.subplots(4, count)
    for one in range(count):
        given = scene.pictures[one]
        layers = (layer.image(0, batch=one) for layer in (first, last))
        maps = (*layers, last.on_image(reached[one], batch=one))
        drawn = (Overlay(np.zeros((1, 1)), given), *(looks.on(given).overlay for looks in maps))
        for axis, overlay in zip(axes[:, one], drawn, strict=True):
            plain = overlay is drawn[0]
            axis.imshow(given[0].numpy(), cmap="gray") if plain else axis.imshow(overlay.pixels())
            axis.set_xticks([])
            axis.set_yticks([])
        names = f"a {int(scene.names[one])}, read as {int(logits[one].argmax())}"
        axes[0, one].set_title(names, fontsize=9)
        for axis, looks in zip(axes[1:, one], maps, strict=True):
            axis.set_xlabel(f"{share(looks, scene.covered[one]):.0%} on the digit", fontsize=8)
    for axis, name in zip(
        axes[:, 0], ("picture", "first layer", "last layer", "rollout"), strict=True
    ):
        axis.set_ylabel(name)
    return figure


def main(arguments: Sequence[str], steps: int = STEPS) -> int:
    """Train, tell and draw; the exit code is 2 where that cannot be.

    >>> main(["one.png", "two"])
    2
    """
    try:
        file, seed = file_and_seed(arguments, FILE, SEED)
        known, unseen = digits()
        with picture_file(file) as beside:
            model = learned(known, seed, steps)
            scene = scattered(unseen, SHOWN, torch.Generator().manual_seed(1))
            picture(model, scene).savefig(beside, format="png", dpi=110)
    except (ValueError, ImportError, OSError) as error:
        return refused("digits_in_clutter", error)
    Console(highlight=False).print(Document(told(model, scene), title="Digits in clutter"))
    print(f"\nwrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Watch a real model write a story: what each of its heads looks at, and how far back.

    python examples/watch_a_story.py stories260K.bin [FILE.png]

stories260K is a small Llama that was trained on children's stories; llama2.c keeps it as one file,
https://huggingface.co/karpathy/tinyllamas. It writes on PyTorch's fused kernels, as it would
unwatched. Told is what its heads do, in tables and a picture.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure

import glasshead as gh
from glasshead.files import whole_file
from glasshead.models.decoding import Greedy, generate
from glasshead.models.language_model import LanguageModelSteps
from glasshead.models.pretrained import load_llama2c

FILE = Path("build") / "watch_a_story.png"
BEGIN, LENGTH = 1, 200
STATISTICS = [gh.Entropy(), gh.MeanDistance(), gh.MassOn([0])]
TITLES = ("entropy, nats", "distance, tokens back", "mass on the first token")


def watched(model: gh.LanguageModel, length: int = LENGTH) -> gh.Seen:
    """What was seen while the model wrote a story."""
    with gh.watch(model, STATISTICS) as seen:
        generate(LanguageModelSteps(model), torch.tensor([[BEGIN]]), Greedy(), max_tokens=length)
    return seen


def picture(seen: gh.Seen) -> Figure:
    """Layers × heads, a map for each statistic."""
    summary = seen.summary()
    figure = Figure(figsize=(11, 3.1), layout="constrained")
    for axes, (values, title) in zip(
        figure.subplots(1, len(TITLES)),
        zip(summary.values.values(), TITLES, strict=True),
        strict=True,
    ):
        axes.imshow(values, cmap="Blues", vmin=0, aspect="auto")
        most = max(map(max, values))
        for layer, row in enumerate(values):
            for head, value in enumerate(row):
                color = "white" if value > 0.6 * most else "#333333"
                shown = f"{value:.2f}" if most < 10 else f"{value:.1f}"
                axes.text(head, layer, shown, ha="center", va="center", color=color, fontsize=7.5)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(xlabel="head", xticks=range(len(values[0])), yticks=range(len(values)))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    figure.axes[0].set_ylabel("layer")
    return figure


def previous_token_head(seen: gh.Seen) -> str:
    """The head whose distance is nearest to 1, in words."""
    values = seen.summary().values
    distances, entropies = values["mean_distance"], values["entropy"]
    _, layer, head = min(
        (abs(value - 1), layer, head)
        for layer, row in enumerate(distances)
        for head, value in enumerate(row)
    )
    distance, entropy = distances[layer][head], entropies[layer][head]
    return (
        f"Layer {layer}, head {head} looks {distance:.2f} tokens back, with an entropy of "
        f"{entropy:.2f} nats."
    )


def main(arguments: Sequence[str]) -> int:
    """Write, watch, tell and draw; the exit code is 2 where a file is not what it should be.

    >>> main([])
    2
    """
    if not 1 <= len(arguments) <= 2:
        print("name the file stories260K.bin, and perhaps one for the picture.", file=sys.stderr)
        return 2
    source, *others = map(Path, arguments)
    file = others[0] if others else FILE
    try:
        model = load_llama2c(source)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as beside:
            seen = watched(model)
            picture(seen).savefig(beside, format="png", dpi=120)
    except OSError as error:
        print(f"{file} cannot be written: {error.strerror}.", file=sys.stderr)
        return 2
    print(seen.summary())
    print(previous_token_head(seen))
    print(f"wrote {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

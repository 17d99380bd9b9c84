"""Saving: the means of every layer and head, for further work in Python."""

from pathlib import Path

from glasshead.attention.files import write
from glasshead.cli.observing.pooled import MAP
from glasshead.cli.observing.runs.report import Observed


def save(observed: Observed, file: Path) -> None:
    """Write safetensors: of each layer and statistic the means `[heads, …]`, in float64.

    A tensor is called as its layer and its statistic, such as blocks.0.attention.entropy, and
    `safetensors.torch.load_file(file)` gives all by name. What each statistic is, of which text and
    of how many tokens, stands as JSON in the metadata.

    Errors: an OSError where the file cannot be written; then an older one is as it was.
    """
    gathered, pieces = observed.gathered, observed.pieces
    written = {one.name: one.written for one in observed.asked} | {MAP: MAP}
    description = {
        observed.reader.kind: observed.reader.name,
        "text": observed.text,
        "tokens": pieces.tokens,
        "pieces": pieces.count,
        "length": pieces.length,
        "layers": gathered.layers,
        "statistics": {
            name: {"written": written[name], "unit": one.unit, "axes": ["head", *_left(one.axes)]}
            for name, one in gathered.statistics.items()
        },
    }
    tensors = {
        f"{layer}.{name}": value[place]
        for name, value in gathered.values.items()
        for place, layer in enumerate(gathered.layers)
    }
    write(file, "statistics of a model", description, tensors)


def _left(axes: tuple[str, ...]) -> list[str]:
    """The axes that are left after the mean over all queries."""
    return [axis for axis in axes if axis != "query"]

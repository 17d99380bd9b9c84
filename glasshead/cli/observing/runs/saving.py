"""Saving: the means of every layer and head, for further work in Python."""

from pathlib import Path
from typing import Any

from glasshead.attention.io import describe_values
from glasshead.attention.tensor_files import write
from glasshead.cli.observing.pooled import MAP
from glasshead.cli.observing.runs.report import Observed
from glasshead.watching.corpus.result import OF_A_MODEL


def save(observed: Observed, file: Path) -> None:
    """Write safetensors: of each layer and statistic the means `[heads, …]`, in float64.

    A tensor is called as its layer and its statistic, such as blocks.0.attention.entropy, and
    `safetensors.torch.load_file(file)` gives all by name. What each statistic is, of which text and
    of how many tokens, stands as JSON in the metadata, with the tokens where one text was read.
    `gh.load(file)` and `gh.CorpusResult.load(file)` read all of it.

    Errors: an OSError where the file cannot be written; then an older one is as it was.
    """
    gathered, pieces = observed.gathered, observed.pieces
    written = {one.name: one.written for one in observed.asked} | {MAP: MAP}
    description: dict[str, Any] = {
        observed.reader.kind: observed.reader.name,
        "text": observed.text,
        "tokens": pieces.tokens,
        "pieces": pieces.count,
        "length": pieces.length,
        "cut": {"texts": pieces.left_out.texts, "tokens": pieces.left_out.tokens},
        "layers": gathered.layers,
        "statistics": {
            name: {"written": written[name], "unit": one.unit, "axes": ["head", *_left(one.axes)]}
            for name, one in gathered.statistics.items()
        },
        "asked": describe_values(gathered.statistics, gathered.values),
    }
    if observed.tokens is not None:
        description["written_tokens"] = observed.tokens
    tensors = {
        f"{layer}.{name}": value[place]
        for name, value in gathered.values.items()
        for place, layer in enumerate(gathered.layers)
    }
    write(file, OF_A_MODEL, description, tensors)


def _left(axes: tuple[str, ...]) -> list[str]:
    """The axes that are left after the mean over all queries."""
    return [axis for axis in axes if axis != "query"]

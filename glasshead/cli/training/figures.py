"""Figures: those of a validation, a line each."""

from collections.abc import Mapping

import typer

# How many decimals each has, and its unit.
_KNOWN = {
    "step": (0, ""),
    "loss": (4, "nats"),
    "perplexity": (2, ""),
    "bits_per_character": (4, ""),
    "accuracy": (4, ""),
    "f1": (4, ""),
    "bleu": (2, ""),
    "chrf": (2, ""),
    "exact": (4, ""),
    "tokens": (0, ""),
    "characters": (0, ""),
    "texts": (0, ""),
}


def print_figures(figures: Mapping[str, float], of: str = "token") -> None:
    """The figures that are there, each with its unit.

    Args:
        figures: By name.
        of: What the loss is the mean over.
    """
    for name, (digits, known) in _KNOWN.items():
        unit = f"{known} a {of}" if known else known
        if name in figures:
            written = f"{name.replace('_', ' '):<20}{figures[name]:,.{digits}f} {unit}"
            typer.echo(written.rstrip())

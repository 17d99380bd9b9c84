"""Picture: all scores as PNG, a panel a role, layers × heads."""

import math
from io import BytesIO
from pathlib import Path
from typing import Any

from glasshead.cli.finding_roles.reading import Found
from glasshead.cli.finding_roles.report import MEANINGS
from glasshead.drawing import shorten
from glasshead.watching.analytics.role_scores import ROLES

_ACROSS = 3
_MARK = "#d1495b"
# Beyond these a number has no room in its cell.
_MOST_HEADS, _MOST_LAYERS = 16, 32
_LONGEST_NAME = 50


def picture(name: str, tests: list[Found]) -> bytes:
    """A map for each role, of one text below the other; heads that have the role are framed."""
    from matplotlib.figure import Figure

    layers = len(tests[0].roles.names)
    panel = min(6.0, max(1.3, 0.24 * layers + 0.9))
    block = math.ceil(len(ROLES) / _ACROSS) * panel + 0.5
    figure = Figure(figsize=(11.5, block * len(tests) + 0.6), layout="constrained", dpi=150)
    title = f"The roles of the heads of {shorten(Path(name).name or name, _LONGEST_NAME)}"
    figure.suptitle(title, fontsize=13, weight="bold", parse_math=False)
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.06, h_pad=0.06)
    parts = figure.subfigures(len(tests), 1, squeeze=False)[:, 0]
    for part, test in zip(parts, tests, strict=True):
        _draw(part, test)
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _draw(part: Any, test: Found) -> None:
    """The panels of one text, under its name."""
    said = f"on {shorten(test.name, _LONGEST_NAME)}: {test.said}"
    part.suptitle(said, fontsize=9, color="0.3", parse_math=False)
    rows = math.ceil(len(ROLES) / _ACROSS)
    panels = part.subplots(rows, _ACROSS, sharex=True, sharey=True)
    image: Any = None
    for place, (axes, role) in enumerate(zip(panels.flat, ROLES, strict=True)):
        image = _panel(axes, test, role)
        if place % _ACROSS == 0:
            axes.set_ylabel("layer", fontsize=8)
        if place >= len(ROLES) - _ACROSS:
            axes.set_xlabel("head", fontsize=8)
    bar = part.colorbar(image, ax=panels, fraction=0.02, pad=0.01, aspect=30)
    bar.set_label("score; framed: the head has the role", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def _panel(axes: Any, test: Found, role: str) -> Any:
    scores = test.roles.scores[role]
    layers, heads = scores.shape
    image = axes.imshow(scores.tolist(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_facecolor("0.93")
    axes.set_title(role, loc="left", fontsize=11, weight="bold")
    axes.set_title(MEANINGS[role], loc="right", fontsize=7, color="0.35")
    for axis, count in ((axes.xaxis, heads), (axes.yaxis, layers)):
        axis.set_ticks(range(0, count, max(1, math.ceil(count / 16))))
    axes.tick_params(length=0, labelsize=7)
    axes.spines[:].set_visible(False)
    if scores.isnan().all():
        axes.text(
            0.5,
            0.5,
            "no query counts",
            transform=axes.transAxes,
            ha="center",
            va="center",
            color="0.35",
            fontsize=8,
        )
    _cells(axes, test, role)
    return image


def _cells(axes: Any, test: Found, role: str) -> None:
    """The numbers, where there is room, and a frame around each head that has the role."""
    from matplotlib.patches import Rectangle

    layers, heads = test.roles.scores[role].shape
    numbered = heads <= _MOST_HEADS and layers <= _MOST_LAYERS
    for layer, row in enumerate(test.roles.scores[role].tolist()):
        for head, score in enumerate(row):
            if numbered and not math.isnan(score):
                color = "white" if score > 0.5 else "0.25"
                axes.text(
                    head, layer, f"{score:.2f}", ha="center", va="center", color=color, fontsize=6.5
                )
            if test.roles.roles[layer][head] == role:
                corner = (head - 0.45, layer - 0.42)
                axes.add_patch(Rectangle(corner, 0.9, 0.84, fill=False, color=_MARK, lw=1.8))

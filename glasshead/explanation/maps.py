"""Heat maps of a subject's weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.drawing import Block, HeatMap, Paragraph
from glasshead.explanation.subject import Subject

_MOST_DRAWN = 2048 * 2048


def shown_weights(subject: Subject) -> Float[Tensor, "queries keys"]:
    """The weights of the head that is told, NaN where hidden."""
    weights = subject.matrix("weights").double()
    if subject.visible is None:
        return weights
    return weights.masked_fill(~subject.visible, torch.nan)


def heat_map(
    subject: Subject,
    weights: Tensor,
    rows: tuple[str, ...],
    *,
    caption: str,
    highlight: int | None = None,
) -> Block:
    """A heat map of weights, NaN where hidden, or why it cannot be drawn."""
    if weights.numel() > _MOST_DRAWN:
        return Paragraph(
            subject.say(
                "This matrix is too large to be drawn here: it has {rows} rows and {columns} "
                "columns.",
                rows=len(rows),
                columns=len(subject.key_names),
            )
        )
    if bool((weights < 0).any()) or bool(weights.isinf().any()):
        return Paragraph(
            subject.say(
                "These weights cannot be drawn as a heat map, as some are negative or infinite."
            )
        )
    return HeatMap(weights, rows, subject.key_names, caption=caption, highlight_row=highlight)

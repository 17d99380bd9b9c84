"""All queries at once: the matrix of weights."""

import torch

from glasshead.drawing import Block, HeatMap, Paragraph
from glasshead.explanation.step import Step
from glasshead.explanation.subject import Subject

_MOST_DRAWN = 2048 * 2048


def tell_matrix(subject: Subject) -> Step:
    """The weights of every query, as a heat map with the row that was told."""
    say = subject.say
    return Step(
        name="matrix",
        title=say("All words at once"),
        intro=(
            say(
                "So far it was one word. Every other one is treated in just the same way, and all "
                "the weights together make a matrix P: a row for each query, a column for each "
                "key. The row of “{query}” is marked; it is the one told above. P times the matrix "
                "V of all values gives all contexts C at once.",
                query=subject.name,
            ),
        ),
        formula="C = P·V",
        numbers=(_shapes(subject),),
        figures=(_map(subject),),
        why=say(
            "Why at once: no row needs another, so a computer finds them all together as a few "
            "products of matrices. Nothing has to be read word after word, and that is what made "
            "transformers fast to train."
        ),
        data={"weights": subject.matrix("weights"), "context": subject.context},
    )


def _shapes(subject: Subject) -> str:
    queries, keys = len(subject.query_names), len(subject.key_names)
    width = subject.values.shape[-1]
    return f"[{queries}, {width}] = [{queries}, {keys}]·[{keys}, {width}]"


def _map(subject: Subject) -> Block:
    weights = subject.matrix("weights").double()
    if subject.visible is not None:
        weights = weights.masked_fill(~subject.visible, torch.nan)
    return heat_map(
        subject,
        weights,
        subject.query_names,
        highlight=subject.position,
        caption=subject.say("The weights: rows look, columns are looked at"),
    )


def heat_map(
    subject: Subject, weights: torch.Tensor, rows: tuple[str, ...], *, highlight: int, caption: str
) -> Block:
    """A heat map of weights [rows, keys], NaN where hidden, or why it cannot be drawn."""
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

"""The steps of an explanation, in order."""

from collections.abc import Callable

from glasshead.explanation.explanation import Step
from glasshead.explanation.steps.context import tell_context, tell_dropout, tell_weights
from glasshead.explanation.steps.inputs import tell_inputs, tell_opening, tell_projection
from glasshead.explanation.steps.matrix import tell_columns, tell_heads, tell_matrix
from glasshead.explanation.steps.scores import tell_masking, tell_scaling, tell_scores, tell_softcap
from glasshead.explanation.steps.sharpness import tell_sharpness
from glasshead.explanation.subject import Subject

TELLERS: tuple[Callable[[Subject], Step | None], ...] = (
    tell_opening,
    tell_projection,
    tell_inputs,
    tell_scores,
    tell_scaling,
    tell_softcap,
    tell_masking,
    tell_weights,
    tell_dropout,
    tell_context,
    tell_matrix,
    tell_columns,
    tell_heads,
    tell_sharpness,
)
"""Each returns one step, or None where the step has no effect."""

"""The steps of an explanation, in order."""

from collections.abc import Callable

from glasshead.explanation.explanation import Step
from glasshead.explanation.steps.context import explain_context, explain_dropout, explain_weights
from glasshead.explanation.steps.inputs import explain_inputs, explain_opening, explain_projection
from glasshead.explanation.steps.matrix import explain_columns, explain_heads, explain_matrix
from glasshead.explanation.steps.scores import (
    explain_masking,
    explain_scaling,
    explain_scores,
    explain_softcap,
)
from glasshead.explanation.steps.sharpness import explain_sharpness
from glasshead.explanation.subject import Subject

EXPLAINERS: tuple[Callable[[Subject], Step | None], ...] = (
    explain_opening,
    explain_projection,
    explain_inputs,
    explain_scores,
    explain_scaling,
    explain_softcap,
    explain_masking,
    explain_weights,
    explain_dropout,
    explain_context,
    explain_matrix,
    explain_columns,
    explain_heads,
    explain_sharpness,
)
"""Each returns one step, or None where the step has no effect."""

"""The steps of an explanation, in the order in which they are told."""

from collections.abc import Callable

from glasshead.explanation.step import Step
from glasshead.explanation.steps.capping import tell_softcap
from glasshead.explanation.steps.dropping import tell_dropout
from glasshead.explanation.steps.heads import tell_heads
from glasshead.explanation.steps.inputs import tell_inputs
from glasshead.explanation.steps.masking import tell_masking
from glasshead.explanation.steps.matrix import tell_matrix
from glasshead.explanation.steps.mixing import tell_context
from glasshead.explanation.steps.opening import tell_opening
from glasshead.explanation.steps.projecting import tell_projection
from glasshead.explanation.steps.scaling import tell_scaling
from glasshead.explanation.steps.scoring import tell_scores
from glasshead.explanation.steps.sharpness import tell_sharpness
from glasshead.explanation.steps.weighing import tell_weights
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
    tell_heads,
    tell_sharpness,
)
"""Each tells one step, or None where the step does nothing."""

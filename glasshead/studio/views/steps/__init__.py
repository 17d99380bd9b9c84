"""Steps: every number of one small attention, what there is to choose, and what is said of it."""

from glasshead.studio.views.steps.asked import BETAS, MASKS, NORMALIZERS, StepsAsked
from glasshead.studio.views.steps.computing import steps_data
from glasshead.studio.views.steps.storing import MOST_WORDS, steps_stored
from glasshead.studio.views.steps.telling import steps_words

__all__ = [
    "BETAS",
    "MASKS",
    "MOST_WORDS",
    "NORMALIZERS",
    "StepsAsked",
    "steps_data",
    "steps_stored",
    "steps_words",
]

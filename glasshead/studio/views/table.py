"""The views of the page, in the order of their links.

The page, its style sheet and scripts, its strings, the routes and the reports follow from this
table.
"""

from glasshead.studio.panel import View
from glasshead.studio.views import (
    alignment,
    atlas,
    heads,
    heads_compared,
    heads_why,
    model,
    picture,
    prompt,
    prompt_compared,
    steps,
    steps_cell,
    steps_practice,
    steps_request,
    training,
    training_checkpoints,
    training_findings,
    training_heads,
    training_runs,
)

_RUNS = ("classify", "translate", "write")
_MODELS = (*_RUNS, "model")

VIEWS = (
    View("prompt", (None, *_MODELS), (prompt.PANEL, prompt_compared.PANEL)),
    View(
        "steps",
        (None, *_MODELS, "vision", "weights"),
        (steps.PANEL, steps_request.PANEL, steps_cell.PANEL, steps_practice.PANEL),
        export=steps.export_steps,
    ),
    View(
        "heads",
        _MODELS,
        (heads.PANEL, heads_compared.PANEL, heads_why.PANEL),
        export=heads.export_heads,
    ),
    View("alignment", ("translate",), (alignment.PANEL,), export=alignment.export_alignment),
    View("atlas", (*_MODELS, "weights"), (atlas.PANEL,), export=atlas.export_atlas),
    View("model", _MODELS, (model.PANEL,)),
    View("picture", ("vision",), (picture.PANEL,)),
    View(
        "training",
        _RUNS,
        (
            training.PANEL,
            training_findings.PANEL,
            training_heads.PANEL,
            training_runs.PANEL,
            training_checkpoints.PANEL,
        ),
    ),
)

"""The routes under `/api`, a file for each view."""

from glasshead.studio.routes.alignment import alignment_routes
from glasshead.studio.routes.atlas import atlas_routes
from glasshead.studio.routes.heads import heads_routes
from glasshead.studio.routes.picture import picture_routes
from glasshead.studio.routes.prompt import model_routes, prompt_routes
from glasshead.studio.routes.shell import shell_routes
from glasshead.studio.routes.steps import steps_routes
from glasshead.studio.routes.training import training_routes

ROUTES = (
    shell_routes,
    prompt_routes,
    model_routes,
    picture_routes,
    steps_routes,
    heads_routes,
    alignment_routes,
    atlas_routes,
    training_routes,
)
"""Each creates the routes of a view, given the studio."""

"""What the view `training` asks for."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from glasshead.studio.refusals import NotThere
from glasshead.studio.server.answers import REFUSALS
from glasshead.studio.studio import Studio
from glasshead.studio.views.training import TrainingLog


def training_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/training", tags=["training"], responses=REFUSALS)
    folder = studio.subject.folder
    log = None if folder is None else TrainingLog(folder)

    @routes.get("")
    def training(
        version: Annotated[str | None, Query(max_length=64)] = None,
        smoothing: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
    ) -> dict[str, Any]:
        """How far the training of the run is: its curves, what its heads do, and the alarms.

        Where nothing has changed since `version`, `changed` is false and all else is left out.
        """
        if log is None:
            raise NotThere("there is no run here: start the studio with the folder of one.")
        return log.told(version, smoothing)

    return routes

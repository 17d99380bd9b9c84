"""The routes of the view `training`, under `/api/training`."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from glasshead.studio.answers import NUMBERS, REFUSALS, numbers, run_job
from glasshead.studio.background_jobs import Work
from glasshead.studio.routes.parameters import NAME, Place, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.studio.views.training_checkpoints import Comparisons
from glasshead.studio.views.training_runs import SEPARATOR, TrainingRuns

# Characters of a list of names, and of the name of a layer or a checkpoint.
_LONGEST = 2**10
_LETTERS = 200
_Step = Annotated[int | None, Query(ge=0, le=10**15)]
_Text = Annotated[str, Field(pattern=NAME)]
_Checkpoint = Annotated[str, Field(max_length=_LETTERS)]


class _Comparison(BaseModel):
    """A text, and the two checkpoints that read it."""

    text: _Text
    first: _Checkpoint
    second: _Checkpoint


class _HeadComparison(_Comparison):
    """A head of the two checkpoints."""

    layer: Place
    head: Place


def _add_comparison(routes: APIRouter, studio: Studio, runs: TrainingRuns) -> None:
    """Add the routes that compare two checkpoints."""
    comparisons = Comparisons(studio, runs)

    @routes.get("/checkpoints")
    def checkpoints() -> list[str]:
        """Return the names of the checkpoints that can be compared, as "run/best" or "run/last"."""
        studio.subject.check_run()
        return [*comparisons.checkpoints()]

    @routes.get("/comparison")
    async def comparison(request: Request, of: Annotated[_Comparison, Query()]) -> dict[str, Any]:
        """Return how far each head's attention has moved between two checkpoints.

        400 where there is no such checkpoint, or the two are of models of other shapes.
        """
        return await run_job(
            request, lambda work: comparisons.summary(of.text, of.first, of.second, work)
        )

    @routes.get("/comparison/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, of: Annotated[_HeadComparison, Query()]) -> Response:
        """Return a head's weights in two checkpoints and their difference, [3, queries, keys].

        400 as for the comparison, and where there is no such head.
        """

        def made(work: Work) -> Any:
            return comparisons.maps(of.text, of.first, of.second, of.layer, of.head, work)

        return numbers(await run_job(request, made))


def training_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `training`."""
    routes = APIRouter(prefix="/training", tags=["training"], responses=REFUSALS)
    # Without a folder, `check_run` refuses.
    runs = TrainingRuns(studio.subject.folder or Path(), studio.other_folders)

    @routes.get("")
    def training(
        version: Annotated[str | None, Query(max_length=64)] = None,
        smoothing: Annotated[float, Query(ge=0, le=0.999)] = 0.0,
        first: _Step = None,
        last: _Step = None,
        over: Annotated[str | None, Query(max_length=_LONGEST)] = None,
    ) -> dict[str, Any]:
        """Return the progress of a training run: its curves, its heads and the alarms.

        `over` names other runs, with "/" between them, whose curves are returned too; if not given,
        those that the studio was started with. `first` and `last` are the steps of the part of the
        curves that is returned. Where nothing has changed since `version`, `changed` is false and
        the data is left out. 400 where there are too many runs.
        """
        studio.subject.check_run()
        span = None if first is None or last is None else (first, last)
        chosen = None if over is None else [name for name in over.split(SEPARATOR) if name]
        return runs.summary(version, smoothing, span, chosen)

    @routes.get("/head")
    async def head(
        request: Request,
        text: TextName,
        layer: Annotated[str, Query(max_length=_LETTERS)],
    ) -> dict[str, int] | None:
        """Return the place of a layer in the view of heads, by the name that it has in the log.

        Null where the view has no such layer, as of a decoder.
        """

        def found(work: Work) -> dict[str, int] | None:
            layers = heads.summary(heads.reading_of(studio, text, work), work)["layers"]
            return {"layer": layers.index(layer)} if layer in layers else None

        return await run_job(request, found)

    _add_comparison(routes, studio, runs)
    return routes

"""The routes of the view `heads`, under `/api/heads`."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from torch import Tensor

from glasshead.message import Message
from glasshead.studio.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Streamed,
    numbers,
    run_reading_job,
    say_of,
)
from glasshead.studio.background_jobs import Refusal
from glasshead.studio.routes.parameters import NAME, NAMED, HeadQuery
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass
from glasshead.studio.views import heads as view
from glasshead.studio.views.heads_compared import (
    InductionTests,
    check_difference,
    compared,
    difference,
    no_difference,
)

ModelNumber = Annotated[int, Field(ge=0, le=255, description="Of several models, from 0.")]


class ReadingQuery(BaseModel):
    """A text that a model has read."""

    text: Annotated[str, Field(pattern=NAME, description=NAMED)]
    model: ModelNumber = 0


class ComparedQuery(ReadingQuery):
    """A text that a model has read, and another one, or that of another model."""

    minus: Annotated[
        str | None, Field(pattern=NAME, description="The name of a text to subtract.")
    ] = None
    minus_model: ModelNumber = 0


class HeadOfTextQuery(ComparedQuery, HeadQuery):
    """A head of a layer that has read a text, and perhaps of another reading to subtract."""


async def _of_readings(
    studio: Studio, request: Request, of: ComparedQuery, select: Callable[[list[ModelPass]], Any]
) -> Any:
    """Run a job over a reading, and over that to subtract where one is named."""
    named = [(of.text, of.model)]
    if of.minus is not None:
        named.append((of.minus, of.minus_model))
    return await run_reading_job(
        request,
        lambda: all(view.is_there(studio, *one) for one in named),
        lambda work: select([view.reading_of(studio, one, work, at) for one, at in named]),
    )


def _add_comparison(routes: APIRouter, studio: Studio) -> None:
    """Add the routes that compare heads: of two readings, or on repeated random tokens."""
    tests = InductionTests(studio)

    @routes.get("/compared")
    async def compared_heads(
        request: Request, of: Annotated[ComparedQuery, Query()]
    ) -> dict[str, Any]:
        """Return differences of entropy and scores, and why the weights have none: `refused`.

        400 where no text to subtract is named.
        """
        if of.minus is None:
            raise Refusal(Message("a comparison takes two texts, and got one: name `minus`, too."))
        pair = await _of_readings(studio, request, of, lambda readings: readings)
        why = no_difference(*pair)
        return compared(*pair) | {"refused": why and say_of(request.scope).translated(why)}

    @routes.get("/roles", response_class=Response, responses=LINES)
    def roles(model: Annotated[int, Query(ge=0, le=255)] = 0) -> Response:
        """Find the roles of the heads on repeated random tokens, as `find_roles` does."""
        return Streamed(studio, lambda work: tests.roles(model, work))


def heads_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `heads`."""
    routes = APIRouter(prefix="/heads", tags=["heads"], responses=REFUSALS)
    _add_comparison(routes, studio)

    async def read(
        request: Request, of: ComparedQuery, select: Callable[[ModelPass], Tensor]
    ) -> Response:
        def selected(readings: list[ModelPass]) -> Tensor:
            if len(readings) == 1:
                return select(readings[0])
            check_difference(*readings)
            return difference(*map(select, readings))

        return numbers(await _of_readings(studio, request, of, selected))

    @routes.get("/reading", response_class=Response, responses=LINES)
    def reading(of: Annotated[ReadingQuery, Query()]) -> Response:
        """Read a text and return its tokens, layers, heads, roles and mean entropies."""
        return Streamed(
            studio,
            lambda work: view.summary(view.reading_of(studio, of.text, work, of.model), work),
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, of: Annotated[ComparedQuery, Query()]) -> Response:
        """Return pooled maps of all heads, and the weight of the first token in a last column.

        400 where two readings have no difference, 413 where the text takes too much memory.
        """
        return await read(request, of, view.small_maps)

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(request: Request, of: Annotated[HeadOfTextQuery, Query()]) -> Response:
        """Return the weights of one head; rows are queries, columns are keys.

        400 where there is no such layer or head, or two readings have no difference; 413 where the
        text takes too much memory.
        """
        return await read(request, of, lambda one: view.whole_map(one, of.layer, of.head))

    @routes.get("/along", response_class=Response, responses=NUMBERS)
    async def along(request: Request, of: Annotated[HeadOfTextQuery, Query()]) -> Response:
        """Return entropy and mean distance of each query of a head, and mass received per key.

        400 where there is no such layer or head, or two readings have no difference; 413 where the
        text takes too much memory.
        """
        return await read(request, of, lambda one: view.along(one, of.layer, of.head))

    return routes

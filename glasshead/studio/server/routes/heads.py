"""What the view `heads` asks for."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from torch import Tensor

from glasshead.studio.server.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Streamed,
    numbers,
    waited_for_reading,
)
from glasshead.studio.server.parameters import TextName
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads as view
from glasshead.studio.views.reading import Reading

Layer = Annotated[int, Query(ge=0, le=2**16, description="Counted from 0.")]
Head = Annotated[int, Query(ge=0, le=2**16, description="Counted from 0.")]


def heads_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/heads", tags=["heads"], responses=REFUSALS)

    async def read(request: Request, text: str, told: Callable[[Reading], Tensor]) -> Response:
        return numbers(
            await waited_for_reading(
                request,
                lambda: view.is_there(studio, text),
                lambda work: told(view.reading_of(studio, text, work)),
            )
        )

    @routes.get("/reading", response_class=Response, responses=LINES)
    def reading(text: TextName) -> Response:
        """Let the model read a text: tokens, layers, heads, their roles and mean entropies."""
        return Streamed(
            studio, lambda work: view.summary(view.reading_of(studio, text, work), work)
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, text: TextName) -> Response:
        """The small maps of all heads, and in one more column the weight of the first token.

        413 where the text takes too much memory.
        """
        return await read(request, text, view.small_maps)

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(request: Request, text: TextName, layer: Layer, head: Head) -> Response:
        """The weights of one head, a row a query, a column a key.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await read(request, text, lambda one: view.whole_map(one, layer, head))

    @routes.get("/along", response_class=Response, responses=NUMBERS)
    async def along(request: Request, text: TextName, layer: Layer, head: Head) -> Response:
        """Of one head: each query's entropy and mean distance, the mass that each key receives.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await read(request, text, lambda one: view.along(one, layer, head))

    return routes

"""What the view `atlas` asks for."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from glasshead.studio.server.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Streamed,
    numbers,
    waited_for_reading,
)
from glasshead.studio.server.doing import Job
from glasshead.studio.studio import Studio
from glasshead.studio.views.atlas import TOKENS, Atlases
from glasshead.studio.views.reading import is_read

_MANY = 2**31 - 1
Text = Annotated[str | None, Query(max_length=64, description="None: of stored weights.")]
Number = Annotated[int, Query(ge=0, le=_MANY)]
Level = Annotated[int, Query(ge=0, le=31, description="Of blocks of 2^level tokens.")]


def atlas_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/atlas", tags=["atlas"], responses=REFUSALS)
    atlases = Atlases(studio)

    async def answered(request: Request, text: str | None, job: Job) -> Any:
        return await waited_for_reading(
            request, lambda: text is None or is_read(studio, text, studio.limits.atlas), job
        )

    @routes.get("/read", response_class=Response, responses=LINES)
    def read(text: Text = None) -> Response:
        """Read a text, as progress and then how long it is and which layers and heads there are."""
        return Streamed(studio, lambda work: atlases.opened(text, work))

    @routes.get("/map")
    async def size(
        request: Request, layer: Number, head: Number, text: Text = None
    ) -> dict[str, Any]:
        """The size of a head's map, and its levels."""
        return await answered(request, text, lambda work: atlases.map(text, layer, head, work))

    @routes.get("/overview", response_class=Response, responses=LINES)
    def overview(layer: Number, head: Number, text: Text = None) -> Response:
        """Go through a head's whole matrix, as progress and then that it is done."""
        return Streamed(studio, lambda work: atlases.overview(text, layer, head, work))

    @routes.get("/tile", response_class=Response, responses=NUMBERS)
    async def tile(
        request: Request,
        layer: Number,
        head: Number,
        level: Level,
        row: Number,
        column: Number,
        text: Text = None,
    ) -> Response:
        """256 × 256 blocks at most: sums over a block's keys, means over its queries."""
        place = level, row, column
        return numbers(
            await answered(request, text, lambda work: atlases.tile(text, layer, head, place, work))
        )

    @routes.get("/tokens")
    async def tokens(
        request: Request, start: Number, stop: Number, text: Text = None
    ) -> dict[str, Any]:
        """How tokens of a text are written, at most 512 at once."""
        end = min(stop, start + TOKENS)
        return await answered(request, text, lambda work: atlases.tokens(text, start, end, work))

    return routes

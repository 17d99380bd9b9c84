"""What the view `atlas` asks for."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from glasshead.studio.server.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Streamed,
    numbers,
    waited_for_reading,
)
from glasshead.studio.server.doing import Job
from glasshead.studio.server.parameters import NAME, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.views.atlas import TOKENS, Atlases
from glasshead.studio.views.reading import is_read

_MANY = 2**31 - 1
Number = Annotated[int, Query(ge=0, le=_MANY)]
Level = Annotated[int, Query(ge=0, le=31, description="Of blocks of 2^level tokens.")]


def _one_text(text: TextName) -> str:
    return text


def _no_text_or_one(
    text: Annotated[
        str | None, Query(pattern=NAME, description="Stored weights are of no text that is named.")
    ] = None,
) -> str | None:
    return text


def atlas_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/atlas", tags=["atlas"], responses=REFUSALS)
    atlases = Atlases(studio)
    named = _no_text_or_one if studio.subject.is_file else _one_text

    async def answered(request: Request, text: str | None, job: Job) -> Any:
        return await waited_for_reading(
            request, lambda: text is None or is_read(studio, text, studio.limits.atlas), job
        )

    @routes.get("/read", response_class=Response, responses=LINES)
    def read(text: Annotated[str | None, Depends(named)]) -> Response:
        """Read a text, as progress and then how long it is and which layers and heads there are."""
        return Streamed(studio, lambda work: atlases.opened(text, work))

    @routes.get("/map")
    async def size(
        request: Request,
        layer: Number,
        head: Number,
        text: Annotated[str | None, Depends(named)],
    ) -> dict[str, Any]:
        """The size of a head's map, and its levels.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await answered(request, text, lambda work: atlases.map(text, layer, head, work))

    @routes.get("/overview", response_class=Response, responses=LINES)
    def overview(
        layer: Number, head: Number, text: Annotated[str | None, Depends(named)]
    ) -> Response:
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
        text: Annotated[str | None, Depends(named)],
    ) -> Response:
        """256 × 256 blocks at most: sums over a block's keys, means over its queries.

        400 where there is no such layer, head or tile, 409 where it takes the overview, 413 where
        the text takes too much memory.
        """
        place = level, row, column
        return numbers(
            await answered(request, text, lambda work: atlases.tile(text, layer, head, place, work))
        )

    @routes.get("/tokens")
    async def tokens(
        request: Request,
        start: Number,
        stop: Number,
        text: Annotated[str | None, Depends(named)],
    ) -> dict[str, Any]:
        """How tokens of a text are written, at most 512 at once; 413 as of the map."""
        end = min(stop, start + TOKENS)
        return await answered(request, text, lambda work: atlases.tokens(text, start, end, work))

    return routes

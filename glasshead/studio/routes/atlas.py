"""The routes of the view `atlas`, under `/api/atlas`."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field
from torch import Tensor

from glasshead.studio.answers import (
    LINES,
    NUMBERS,
    REFUSALS,
    Job,
    Streamed,
    numbers,
    run_reading_job,
)
from glasshead.studio.background_jobs import Work
from glasshead.studio.routes.parameters import NAME, HeadQuery, Place, TextName
from glasshead.studio.studio import Studio
from glasshead.studio.views.atlas import TOKENS, Atlases
from glasshead.studio.views.reading import is_read


class TileQuery(HeadQuery):
    """A tile of a head's map."""

    level: Annotated[int, Field(ge=0, le=31, description="Of blocks of 2^level tokens.")]
    row: Place
    column: Place


class TokensQuery(BaseModel):
    """The tokens in [start, stop)."""

    start: Place
    stop: Place


def _one_text(text: TextName) -> str:
    return text


def _no_text_or_one(
    text: Annotated[
        str | None, Query(pattern=NAME, description="Stored weights are of no text that is named.")
    ] = None,
) -> str | None:
    return text


def atlas_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `atlas`."""
    routes = APIRouter(prefix="/atlas", tags=["atlas"], responses=REFUSALS)
    atlases = Atlases(studio)
    named = Depends(_no_text_or_one if studio.subject.is_file else _one_text)

    async def answered(request: Request, text: str | None, job: Job) -> Any:
        return await run_reading_job(
            request, lambda: text is None or is_read(studio, text, studio.limits.atlas), job
        )

    @routes.get("/read", response_class=Response, responses=LINES)
    def read(text: Annotated[str | None, named]) -> Response:
        """Read a text; stream progress, then its length, layers and heads."""
        return Streamed(studio, lambda work: atlases.opened(text, work))

    @routes.get("/map")
    async def size(
        request: Request, text: Annotated[str | None, named], of: Annotated[HeadQuery, Query()]
    ) -> dict[str, Any]:
        """Return the size and the levels of a head's map.

        400 where there is no such layer or head, 413 where the text takes too much memory.
        """
        return await answered(
            request, text, lambda work: atlases.map(text, of.layer, of.head, work)
        )

    @routes.get("/overview", response_class=Response, responses=LINES)
    def overview(text: Annotated[str | None, named], of: Annotated[HeadQuery, Query()]) -> Response:
        """Compute the overview of a head; stream progress, then its largest mean weight."""
        return Streamed(studio, lambda work: atlases.overview(text, of.layer, of.head, work))

    @routes.get("/tile", response_class=Response, responses=NUMBERS)
    async def tile(
        request: Request, text: Annotated[str | None, named], of: Annotated[TileQuery, Query()]
    ) -> Response:
        """Return up to 256 × 256 blocks: sums over a block's keys, means over its queries.

        400 where there is no such layer, head or tile, 409 where it needs the overview, 413 where
        the text takes too much memory.
        """
        place = of.level, of.row, of.column

        def made(work: Work) -> Tensor:
            return atlases.tile(text, of.layer, of.head, place, work)

        return numbers(await answered(request, text, made))

    @routes.get("/tokens")
    async def tokens(
        request: Request, text: Annotated[str | None, named], part: Annotated[TokensQuery, Query()]
    ) -> dict[str, Any]:
        """Return the text of tokens, at most 512 at once; 413 as for the map."""
        end = min(part.stop, part.start + TOKENS)
        return await answered(
            request, text, lambda work: atlases.tokens(text, part.start, end, work)
        )

    return routes

"""The routes of the view `picture`, under `/api/picture`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from glasshead.studio.answers import NUMBERS, REFUSALS, numbers, run_job
from glasshead.studio.routes.parameters import NAME
from glasshead.studio.studio import Studio
from glasshead.studio.views.picture import Pictures

_Image = Annotated[
    str | None,
    Query(
        pattern=NAME,
        description="The name of a picture, as it was given when it was sent; without one, an "
        "example.",
    ),
]
_QueryToken = Annotated[int, Query(ge=0, le=2**31 - 1, description="A token, counted from 0.")]
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}


def picture_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `picture`."""
    routes = APIRouter(prefix="/picture", tags=["picture"], responses=REFUSALS)
    pictures = Pictures(studio)

    @routes.post("", openapi_extra={"requestBody": _FILE})
    async def add(request: Request) -> dict[str, str]:
        """Store the picture of a file and return its name.

        400 where it is none that can be opened, 413 where it is too large.
        """
        content = await request.body()
        return {"id": await run_job(request, lambda _: pictures.add(content))}

    @routes.get("")
    async def summary(request: Request, image: _Image = None) -> dict[str, Any]:
        """Return the layers, heads and patches of a picture; 404 where there is no vision model."""
        return await run_job(request, lambda work: pictures.summary(image, work))

    @routes.get("/pixels", response_class=Response, responses=NUMBERS)
    async def pixels(request: Request, image: _Image = None) -> Response:
        """Return the picture as the model is given it, [height, width, 3], from 0 to 1."""
        return numbers(await run_job(request, lambda work: pictures.pixels(image, work)))

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, query: _QueryToken, image: _Image = None) -> Response:
        """Return the weights of the patches in each head and, last, in the rollout.

        400 where there is no such query.
        """
        return numbers(await run_job(request, lambda work: pictures.maps(image, query, work)))

    @routes.get("/sums")
    async def sums(
        request: Request, query: _QueryToken, image: _Image = None
    ) -> dict[str, list[float]]:
        """Return the sums of the weights of all patches and of other tokens, as of the maps."""
        return await run_job(request, lambda work: pictures.sums(image, query, work))

    return routes

"""The routes of the views of a text that is typed, `prompt` and `model`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from glasshead.studio.answers import NUMBERS, REFUSALS, numbers, run_job
from glasshead.studio.routes.parameters import HAS_A_SIGN, HeadQuery, Prompt, has_a_word
from glasshead.studio.studio import Studio
from glasshead.studio.views.model import WholeModel
from glasshead.studio.views.prompt import LONGEST_PROMPT, Prompts, described

_Heads = Annotated[
    str,
    Query(
        max_length=2**14,
        pattern=r"^([0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5})*)?$",
        description="Heads as layer.head, separated by commas, counted from 0.",
    ),
]
_Shown = Annotated[
    str,
    Query(
        max_length=200,
        pattern=r"^[0-9]{1,5}\.[0-9]{1,5}(,[0-9]{1,5}\.[0-9]{1,5}){0,11}$",
        description="One to twelve heads, as layer.head.",
    ),
]
# Probabilities of the page, by the temperature and the number of predictions.
_Temperature = Annotated[float, Query(ge=0, le=10, allow_inf_nan=False)]
_Top = Annotated[int, Query(ge=1, le=50)]


def _heads(listed: str) -> list[tuple[int, int]]:
    """Parse a list of heads.

    >>> _heads("1.3,4.0")
    [(1, 3), (4, 0)]
    """
    pairs = (one.split(".") for one in listed.split(",") if one)
    return [(int(layer), int(head)) for layer, head in pairs]


def prompt_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `prompt`."""
    routes = APIRouter(prefix="/prompt", tags=["prompt"], responses=REFUSALS)
    prompts = Prompts(studio)

    @routes.get("")
    async def predictions(
        request: Request,
        text: Prompt,
        without: _Heads = "",
        top: _Top = 10,
        temperature: _Temperature = 1.0,
    ) -> dict[str, Any]:
        """Return what the model predicts after a prompt, with heads taken away and with all.

        400 where there is no such head, 404 where there is no model.
        """
        away = _heads(without)
        return await run_job(
            request, lambda work: prompts.predictions(text, away, top, temperature, work)
        )

    @routes.get("/maps", response_class=Response, responses=NUMBERS)
    async def maps(request: Request, text: Prompt, without: _Heads = "") -> Response:
        """Return pooled maps of all heads, and the weight of the first token in a last column.

        400 if there is no such head to take away.
        """
        away = _heads(without)
        return numbers(await run_job(request, lambda work: prompts.maps(text, away, work)))

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def weights(
        request: Request, text: Prompt, heads: _Shown, without: _Heads = ""
    ) -> Response:
        """Return the weights of some heads, [heads, queries, keys]; −0 where the mask hides.

        400 where there is no such head.
        """
        away, shown = _heads(without), _heads(heads)
        return numbers(
            await run_job(request, lambda work: prompts.weights(text, away, shown, work))
        )

    @routes.get("/model")
    async def model(request: Request) -> dict[str, Any] | None:
        """Describe the model: its name, layers, heads and parameters; null where none opens."""
        return await run_job(request, lambda _: described(studio))

    return routes


def model_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `model`."""
    routes = APIRouter(prefix="/model", tags=["model"], responses=REFUSALS)
    whole = WholeModel(studio)

    class HeadOfPromptQuery(HeadQuery):
        """A head of a layer that has read a prompt."""

        text: Annotated[
            str, Field(max_length=LONGEST_PROMPT, json_schema_extra=has_a_word(HAS_A_SIGN))
        ]

    @routes.get("")
    async def summary(request: Request, text: Prompt) -> dict[str, Any]:
        """Return the layers, heads and tokens of a text, and what its heads are lit by.

        404 where there is no model.
        """
        return await run_job(request, lambda work: whole.summary(text, work))

    @routes.get("/writes", response_class=Response, responses=NUMBERS)
    async def writes(request: Request, text: Prompt) -> Response:
        """Return the norm and the share of what each head writes, [2, heads, queries]."""
        return numbers(await run_job(request, lambda work: whole.writes(text, work)))

    @routes.get("/reads", response_class=Response, responses=NUMBERS)
    async def reads(
        request: Request, text: Prompt, query: Annotated[int, Query(ge=0, le=2**31 - 1)]
    ) -> Response:
        """Return the weights of a query in all heads, [heads, keys]; 400 where it is not there."""
        return numbers(await run_job(request, lambda work: whole.reads(text, query, work)))

    @routes.get("/map", response_class=Response, responses=NUMBERS)
    async def map_of_head(request: Request, of: Annotated[HeadOfPromptQuery, Query()]) -> Response:
        """Return the weights of one head; −0 where the mask hides.

        400 where there is no such layer or head.
        """
        return numbers(
            await run_job(request, lambda work: whole.map(of.text, of.layer, of.head, work))
        )

    return routes

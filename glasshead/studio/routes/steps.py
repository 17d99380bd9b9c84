"""The routes of the view `steps`, under `/api/steps`."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, create_model

from glasshead.explanation.settings import Setting
from glasshead.studio.answers import REFUSALS, run_reading_job
from glasshead.studio.routes.parameters import (
    HAS_A_SIGN,
    NAME,
    NAMED,
    HeadQuery,
    Language,
    Place,
    has_a_word,
)
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views import heads as view
from glasshead.studio.views.steps import steps_data, steps_words
from glasshead.studio.views.steps_cell import Cells
from glasshead.studio.views.steps_request import StepsRequest, controls


def _add_cell(routes: APIRouter, studio: Studio) -> None:
    """Add the route of one query of a head of the model."""
    cells = Cells(studio)

    class CellQuery(HeadQuery):
        """A query of a head that has read a text, and a key to show."""

        text: Annotated[str, Field(pattern=NAME, description=NAMED)]
        query: Place | None = None
        key: Place | None = None

    @routes.get("/cell")
    async def cell(request: Request, of: Annotated[CellQuery, Query()]) -> dict[str, Any]:
        """Return q, k, v, scores, weights and context of one query of a head of the model.

        400 where there is no such layer, head, query or key, or the model does not show its
        steps, 404 where there is no model, 413 where the text takes too much memory.
        """
        return await run_reading_job(
            request,
            lambda: view.is_there(studio, of.text),
            lambda work: cells.row(of.text, of.layer, of.head, of.query, of.key, work),
        )


def _query(limits: Limits) -> type[BaseModel]:
    """Create the model of the parameters of the view: its settings, within their limits."""
    bounds = {
        "text": Field(max_length=limits.sentence, json_schema_extra=has_a_word(HAS_A_SIGN)),
        "query": Field(ge=0, lt=limits.words),
    }

    def parameter(each: "dataclasses.Field[Any]") -> tuple[Any, Any]:
        known = Setting.of(each)
        bound = bounds.get(each.name, Field(ge=known.least, le=known.most))
        return Annotated[each.type, bound], each.default

    parameters: Any = {each.name: parameter(each) for each in controls()}
    return create_model("Settings", **parameters)


def steps_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `steps`."""
    routes = APIRouter(prefix="/steps", tags=["steps"], responses=REFUSALS)
    limits = studio.limits

    class StepsQuery(_query(limits)):
        """The settings of the view."""

    # FastAPI before 0.160 takes no other parameter beside a model of them.
    class WordsQuery(StepsQuery):
        """The parameters, and the language of the explanation."""

        lang: Language = "en"

    @routes.get("")
    def matrices(settings: Annotated[StepsQuery, Query()]) -> dict[str, Any]:
        """Return the matrices of a sentence's attention at full precision, and the options.

        400 where parameters do not fit each other: a text that does not work the example, heads
        that do not divide the dimension, a head index out of range, or β = ∞ with a normalizer that
        has no hard limit. 413 where the sentence has too many words and punctuation marks.
        """
        return steps_data(StepsRequest(**settings.model_dump()), limits)

    @routes.get("/words")
    def explanation(settings: Annotated[WordsQuery, Query()]) -> dict[str, Any]:
        """Explain one word's attention step by step, in one of five languages.

        400 and 413 as for the matrices, and 400 where the sentence has no word at `query`.
        """
        asked = settings.model_dump(exclude={"lang"})
        return steps_words(StepsRequest(**asked), settings.lang, limits)

    _add_cell(routes, studio)
    return routes

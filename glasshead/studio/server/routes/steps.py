"""What the view `steps` asks for."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from glasshead.studio.server.answers import REFUSALS
from glasshead.studio.studio import Studio
from glasshead.studio.views.steps import StepsAsked, steps_data, steps_words
from glasshead.studio.views.steps.asked import Beta, Mask, Normalizer

# Longer ones are refused with their length; what no sentence is long by far is not read at all.
_LONGEST = 2**16


def steps_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/steps", tags=["steps"], responses=REFUSALS)

    @routes.get("")
    def matrices(asked: Annotated[StepsAsked, Depends(_asked)]) -> dict[str, Any]:
        """The matrices of a sentence's attention with every digit, and what else can be chosen."""
        return steps_data(asked, studio.limits)

    @routes.get("/words")
    def told(
        asked: Annotated[StepsAsked, Depends(_asked)],
        lang: Annotated[str, Query(max_length=35)] = "en",
    ) -> dict[str, Any]:
        """What is said of one word's attention, step by step, in one of five languages."""
        return steps_words(asked, lang, studio.limits)

    return routes


def _asked(
    text: Annotated[str | None, Query(max_length=_LONGEST)] = None,
    beta: Beta | None = None,
    mask: Mask = "none",
    normalizer: Normalizer = "softmax",
    heads: Annotated[int, Query(ge=1, le=4)] = 1,
    head: Annotated[int, Query(ge=0, le=3)] = 0,
    query: Annotated[int | None, Query(ge=0, le=500)] = None,
) -> StepsAsked:
    return StepsAsked(
        text=text,
        beta=beta,
        mask=mask,
        normalizer=normalizer,
        heads=heads,
        head=head,
        query=query,
    )

"""What the view `steps` asks for."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from glasshead.studio.limits import Limits
from glasshead.studio.server.answers import REFUSALS
from glasshead.studio.server.parameters import HAS_A_SIGN, Language, has_a_word
from glasshead.studio.studio import Studio
from glasshead.studio.views.steps import StepsAsked, steps_data, steps_words
from glasshead.studio.views.steps.asked import Beta, Mask, Normalizer


def steps_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/steps", tags=["steps"], responses=REFUSALS)
    asked_of = _asked_of(studio.limits)

    @routes.get("")
    def matrices(asked: Annotated[StepsAsked, Depends(asked_of)]) -> dict[str, Any]:
        """The matrices of a sentence's attention with every digit, and what else can be chosen.

        400 where parameters do not fit each other: heads that do not divide the vectors, a head
        beyond them, or β = ∞ of a normalizer that never becomes hard. 413 where the sentence has
        too many words and marks.
        """
        return steps_data(asked, studio.limits)

    @routes.get("/words")
    def told(
        asked: Annotated[StepsAsked, Depends(asked_of)], lang: Language = "en"
    ) -> dict[str, Any]:
        """What is said of one word's attention, step by step, in one of five languages.

        400 and 413 as of the matrices, and 400 where the sentence has no word at `query`.
        """
        return steps_words(asked, lang, studio.limits)

    return routes


def _asked_of(limits: Limits) -> Callable[..., StepsAsked]:
    """What reads the choices of a request."""

    def asked(
        text: Annotated[
            str | None,
            Query(max_length=limits.sentence, json_schema_extra=has_a_word(HAS_A_SIGN)),
        ] = None,
        beta: Beta | None = None,
        mask: Mask = "none",
        normalizer: Normalizer = "softmax",
        heads: Annotated[int, Query(ge=1, le=4)] = 1,
        head: Annotated[int, Query(ge=0, le=3)] = 0,
        query: Annotated[int | None, Query(ge=0, lt=limits.words)] = None,
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

    return asked

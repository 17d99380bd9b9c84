"""The routes of the view `alignment`, under `/api/alignment`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from glasshead.studio.answers import NUMBERS, REFUSALS, numbers, run_job
from glasshead.studio.routes.parameters import has_a_word, words_of
from glasshead.studio.studio import Studio
from glasshead.studio.views.alignment import USUAL_WIDTH, WIDTHS, translations, weights

# Characters of a list of token ids; translations are far shorter.
_LONGEST = 2**14
_Width = Annotated[int, Query(ge=WIDTHS[0], le=WIDTHS[-1])]
_Tokens = Annotated[str, Query(max_length=_LONGEST, pattern=r"^([0-9]{1,9}(,[0-9]{1,9})*)?$")]


def alignment_routes(studio: Studio) -> APIRouter:
    """Create the routes of the view `alignment`."""
    routes = APIRouter(prefix="/alignment", tags=["alignment"], responses=REFUSALS)
    words = has_a_word(words_of(studio.limits))
    query = Query(max_length=studio.limits.sentence, json_schema_extra=words)

    @routes.get("")
    async def candidates(
        request: Request, sentence: Annotated[str, query], beam: _Width = USUAL_WIDTH
    ) -> dict[str, Any]:
        """Return a sentence's words, and its translations by beam search, best first.

        400 or 413 where it has more tokens than the model reads, 404 where there is no translator.
        """
        return await run_job(
            request,
            lambda work: translations(
                studio.subject.translator(), sentence, studio.limits, beam, work
            ),
        )

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def cross_attention_weights(
        request: Request, sentence: Annotated[str, query], tokens: _Tokens
    ) -> Response:
        """Return the cross-attention weights [layers, heads, target, source] of a translation.

        400 where a token is out of range, 404 where there is no translator, 413 where there
        are more tokens than the model reads.
        """
        target = [int(token) for token in tokens.split(",") if token]
        return numbers(
            await run_job(
                request,
                lambda _: weights(studio.subject.translator(), sentence, target, studio.limits),
            )
        )

    return routes

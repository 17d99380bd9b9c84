"""What the view `alignment` asks for."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from glasshead.studio.server.answers import NUMBERS, REFUSALS, numbers, waited_for
from glasshead.studio.server.parameters import has_a_word, words_of
from glasshead.studio.studio import Studio
from glasshead.studio.views.alignment import USUAL_WIDTH, WIDTHS, translations, weights

# Of tokens, as numbers; a translation has far fewer.
_LONGEST = 2**14
_Width = Annotated[int, Query(ge=WIDTHS[0], le=WIDTHS[-1])]
_Tokens = Annotated[str, Query(max_length=_LONGEST, pattern=r"^([0-9]{1,9}(,[0-9]{1,9})*)?$")]


def alignment_routes(studio: Studio) -> APIRouter:
    """The data of the view."""
    routes = APIRouter(prefix="/alignment", tags=["alignment"], responses=REFUSALS)
    words = has_a_word(words_of(studio.limits))
    query = Query(max_length=studio.limits.sentence, json_schema_extra=words)

    @routes.get("")
    async def candidates(
        request: Request, sentence: Annotated[str, query], beam: _Width = USUAL_WIDTH
    ) -> dict[str, Any]:
        """The words of a sentence, and the translations that a beam finds, the best first.

        400 or 413 where it has more tokens than the model reads, 404 where there is no translator.
        """
        return await waited_for(
            request,
            lambda work: translations(
                studio.subject.translator(), sentence, studio.limits, beam, work
            ),
        )

    @routes.get("/weights", response_class=Response, responses=NUMBERS)
    async def looked_at(
        request: Request, sentence: Annotated[str, query], tokens: _Tokens
    ) -> Response:
        """Float32 [layers, heads, target, source]: what each word of a translation took.

        400 where a token is none of the model's, 404 where there is no translator, 413 where there
        are more tokens than the model reads.
        """
        written = [int(token) for token in tokens.split(",") if token]
        return numbers(
            await waited_for(
                request,
                lambda _: weights(studio.subject.translator(), sentence, written, studio.limits),
            )
        )

    return routes

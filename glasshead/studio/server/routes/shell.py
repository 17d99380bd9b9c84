"""Shell: what the page is told before any view, the texts that it sends, and its words."""

from typing import Annotated, Any

from fastapi import APIRouter, Body

from glasshead.studio.about import about
from glasshead.studio.server.answers import REFUSALS
from glasshead.studio.server.parameters import HAS_A_WORD, Language, TextInPath, has_a_word
from glasshead.studio.studio import Studio
from glasshead.studio.words import words


def shell_routes(studio: Studio) -> APIRouter:
    """What all views share."""
    routes = APIRouter(tags=["shell"], responses=REFUSALS)
    # A character takes a byte at least; the bytes are counted when the text is there.
    described = {**has_a_word(HAS_A_WORD), "maxLength": studio.limits.text}

    @routes.get("/about")
    def told() -> dict[str, Any]:
        """What is open, which views there are of it, limits, languages and colours."""
        return about(studio)

    @routes.get("/health")
    def health() -> dict[str, str]:
        """That the studio is there, and which start of it this is."""
        return {"id": studio.id}

    @routes.get("/words")
    def spoken(lang: Language = "en") -> dict[str, str]:
        """The page's own words in a language, one of en, tr, es, zh-Hant, zh-Hans."""
        return words(lang)

    @routes.post("/texts")
    def sent(
        text: Annotated[str, Body(embed=True, json_schema_extra=described)],
    ) -> dict[str, str]:
        """Remember a text; views name it by what is given back.

        413 where it has more bytes than are taken, of which a character may have four.
        """
        return {"id": studio.texts.add(text)}

    @routes.get("/texts/{name}")
    def text(name: TextInPath) -> dict[str, str]:
        """A text that is remembered; 410 where it is not, or no longer."""
        return {"text": studio.texts[name]}

    return routes

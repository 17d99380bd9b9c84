"""The routes that all views share, under `/api`."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from glasshead.studio.answers import REFUSALS, run_job, say_of
from glasshead.studio.routes.parameters import HAS_A_WORD, Language, TextInPath, has_a_word
from glasshead.studio.strings import words
from glasshead.studio.studio import Studio, about


def shell_routes(studio: Studio) -> APIRouter:
    """Create the routes that all views share."""
    routes = APIRouter(tags=["shell"], responses=REFUSALS)
    # A character takes at least a byte; the exact size in bytes is checked on arrival.
    described = {**has_a_word(HAS_A_WORD), "maxLength": studio.limits.text}

    @routes.get("/about")
    def description(request: Request) -> dict[str, Any]:
        """Describe the studio: its subject, views, limits, languages and colours."""
        return about(studio, say_of(request.scope))

    @routes.get("/sample")
    async def sample(request: Request) -> dict[str, str]:
        """Return the text that a view of the model begins with, and where it is from.

        Of a run: from its held-out part. 404 where there is no model.
        """
        return asdict(await run_job(request, lambda _: studio.subject.sample()))

    @routes.get("/health")
    def health() -> dict[str, str]:
        """Return the identifier of this start of the studio."""
        return {"id": studio.id}

    @routes.get("/words")
    def spoken(lang: Language = "en") -> dict[str, str]:
        """Return the page's strings in a language: en, tr, es, zh-Hant or zh-Hans."""
        return words(lang)

    @routes.post("/texts")
    def add_text(
        text: Annotated[str, Body(embed=True, json_schema_extra=described)],
    ) -> dict[str, str]:
        """Store a text and return its name, by which views refer to it.

        413 where it has too many bytes in UTF-8.
        """
        return {"id": studio.texts.add(text)}

    @routes.get("/texts/{name}")
    def text(name: TextInPath) -> dict[str, str]:
        """Return a stored text; 410 where it is no longer stored."""
        return {"text": studio.texts[name]}

    return routes

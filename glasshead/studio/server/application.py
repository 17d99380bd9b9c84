"""The ASGI application: the page, its static files, and its data under `/api`."""

from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from glasshead import __version__
from glasshead.drawing import printable
from glasshead.studio.page import page, style_sheet
from glasshead.studio.server.answers import Faults, refusal_of
from glasshead.studio.server.guard import Guard, RequestLimits
from glasshead.studio.server.routes import (
    alignment_routes,
    atlas_routes,
    heads_routes,
    shell_routes,
    steps_routes,
    training_routes,
)
from glasshead.studio.studio import Studio

_LONGEST = 200


def application(
    studio: Studio, *, hosts: tuple[str, ...] = (), token: str | None = None
) -> FastAPI:
    """Create the studio's ASGI application.

    Args:
        studio: The studio to serve.
        hosts: Host names that it answers to, in addition to the loopback ones.
        token: Access token required in the page's URL, where other machines can reach it.
    """
    app = FastAPI(
        title="glasshead studio",
        version=__version__,
        description="What the studio's page shows, as data. For this machine alone.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.studio = studio
    for routes in (
        shell_routes,
        steps_routes,
        heads_routes,
        alignment_routes,
        atlas_routes,
        training_routes,
    ):
        app.include_router(routes(studio), prefix="/api")
    _add_page(app)
    app.add_exception_handler(HTTPException, _not_served)
    app.add_exception_handler(RequestValidationError, _malformed)
    for kind in (ValueError, TypeError, OSError, MemoryError, RuntimeError):
        app.add_exception_handler(kind, _refused)
    # Middleware runs in reverse order of addition.
    app.add_middleware(Faults)
    app.add_middleware(RequestLimits, limits=studio.limits)
    app.add_middleware(Guard, hosts=hosts, token=token)
    return app


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def root() -> HTMLResponse:
        return HTMLResponse(page())

    @app.get("/style.css", include_in_schema=False)
    def style() -> Response:
        return Response(style_sheet(), media_type="text/css")

    static = StaticFiles(directory=str(files("glasshead.studio").joinpath("static")))
    app.mount("/static", GZipMiddleware(static), name="static")


def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer with the library's refusal; raise internal errors again, for `Faults`."""
    del request
    refusal = refusal_of(error)
    if refusal is None:
        raise error
    status, sentence = refusal
    return JSONResponse({"detail": sentence}, status)


def _not_served(request: Request, error: Exception) -> JSONResponse:
    """Answer an HTTP error of Starlette's in a sentence."""
    status, headers = getattr(error, "status_code", 400), getattr(error, "headers", None) or {}
    path = printable(request.url.path[:_LONGEST])
    sentences = {
        404: f"there is nothing at {path}: the page itself is at /.",
        400: "the request has content that cannot be read.",
        405: f"{path} takes {headers.get('Allow', 'GET')}, and got {request.method[:_LONGEST]}.",
    }
    sentence = sentences.get(status) or f"{getattr(error, 'detail', 'it is refused')}"
    return JSONResponse({"detail": sentence}, status, headers=headers)


def _malformed(request: Request, error: Exception) -> JSONResponse:
    """Answer a validation error of FastAPI's with its first finding, in a sentence."""
    del request
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    if first.get("type") == "json_invalid":
        why = first.get("ctx", {}).get("error", "it is malformed")
        return JSONResponse({"detail": f"the request takes JSON, and this is none ({why})."}, 422)
    where = ".".join(str(part) for part in first.get("loc", ())[1:]) or "the request"
    sentence = f"{printable(where[:_LONGEST])}: {first.get('msg', 'is malformed')}."
    return JSONResponse({"detail": sentence}, 422)

"""The studio as a web application, and its server: the page, its data, and who may ask for it."""

import contextlib
import gzip
import ipaddress
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from functools import cache, partial
from pathlib import PurePath

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from glasshead import __version__
from glasshead.drawing import printable
from glasshead.message import Message
from glasshead.studio.answers import Faults, refusal_of, refused
from glasshead.studio.connections import limited
from glasshead.studio.page import (
    TYPEFACES,
    brotli,
    bundles,
    page,
    static,
    typeface,
)
from glasshead.studio.routes import Routes
from glasshead.studio.security import Guard, RequestLimits
from glasshead.studio.shell import shell_routes
from glasshead.studio.studio import Studio
from glasshead.studio.views.table import VIEWS
from glasshead.tasks.validated import sentence

_LONGEST = 200
_SHOWN = 40


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
        description="The data of the studio's page. For this machine alone.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
    )
    app.state.studio = studio
    shared = Routes(studio, "shell", "")
    shell_routes(shared)
    app.include_router(shared.router, prefix="/api")
    for view in VIEWS:
        routes = Routes(studio, view.name, f"/{view.name}")
        for panel in view.panels:
            panel.routes(routes)
        app.include_router(routes.router, prefix="/api")
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


_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".map": "application/json"}


def _add_page(app: FastAPI) -> None:
    app.get("/", include_in_schema=False)(_compressed(page, "text/html"))
    for name, code in bundles().items():
        media_type = _MEDIA_TYPES[PurePath(name).suffix]
        bundle = _compressed(partial(str, code), media_type, brotli(name))
        app.get(f"/static/{name}", include_in_schema=False)(bundle)
    icon = _compressed(lambda: static("icon.svg"), "image/svg+xml")
    app.get("/static/icon.svg", include_in_schema=False)(icon)
    for name in TYPEFACES:
        app.get(f"/static/{name}", include_in_schema=False)(_letters(name))


def _letters(name: str) -> Callable[[], Response]:
    """Create an endpoint that serves a typeface, which is compressed already."""
    return lambda: Response(typeface(name), media_type="font/woff2")


def _compressed(
    text: Callable[[], str], media_type: str, smallest: bytes | None = None
) -> Callable[[Request], Response]:
    """Create an endpoint that serves a text in the smallest encoding that the client accepts.

    Args:
        text: Returns the text, which gzip compresses once.
        media_type: Its media type.
        smallest: The text as Brotli compresses it; None: it was not.
    """

    @cache
    def packed() -> bytes:
        return gzip.compress(text().encode())

    def endpoint(request: Request) -> Response:
        taken = _codings(request.headers.get("accept-encoding", ""))
        headers = {"Vary": "Accept-Encoding"}
        if smallest is not None and "br" in taken:
            content, headers["Content-Encoding"] = smallest, "br"
        elif "gzip" in taken:
            content, headers["Content-Encoding"] = packed(), "gzip"
        else:
            content = text()
        return Response(content, media_type=media_type, headers=headers)

    return endpoint


def _codings(accepted: str) -> set[str]:
    """Return the names in an Accept-Encoding header, without those that `q=0` refuses.

    >>> sorted(_codings("gzip;q=0.5, BR, zstd; q=0.0"))
    ['br', 'gzip']
    """
    parts = ["".join(part.split()).lower().partition(";q=") for part in accepted.split(",")]
    return {name for name, _, weight in parts if weight.strip("0.") or not weight}


def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer with the library's refusal; raise internal errors again, for `Faults`."""
    refusal = refusal_of(error)
    if refusal is None:
        raise error
    return refused(request.scope, *refusal)


def _not_served(request: Request, error: Exception) -> JSONResponse:
    """Answer an HTTP error of Starlette's in a sentence."""
    status, headers = getattr(error, "status_code", 400), getattr(error, "headers", None) or {}
    path = printable(request.url.path[:_LONGEST])
    sentences = {
        404: Message("there is nothing at {path}. The page itself is at /.", path=path),
        400: Message("the request has content that cannot be read."),
        405: Message(
            "the method of {path} must be {method}, got {got}.",
            path=path,
            method=headers.get("Allow", "GET"),
            got=request.method[:_LONGEST],
        ),
    }
    other = getattr(error, "detail", Message("The studio refused this."))
    sentence = sentences.get(status, other)
    return refused(request.scope, status, sentence, headers=headers)


def _malformed(request: Request, error: Exception) -> JSONResponse:
    """Answer a validation error of FastAPI's with its first finding, in a sentence of our own."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    where = ".".join(str(part) for part in first.get("loc", ())[1:]) or "the request"
    got = printable(str(first.get("input"))[:_SHOWN])
    return refused(request.scope, 422, sentence(first, printable(where[:_LONGEST]), got))


_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with the user's choice
# Text-mode browsers, which would take over the terminal.
_IN_A_TERMINAL = {"www-browser", "links", "elinks", "lynx", "w3m"}
_MOST_CONNECTIONS = 256
_LARGEST_HEAD = 2**15


def serve(
    studio: Studio,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    opens: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a studio until interrupted, which raises a KeyboardInterrupt.

    Args:
        studio: The studio to serve.
        host: Address to listen on; with any but a loopback address the page's URL has a token.
        port: TCP port; 0: any free one.
        opens: Whether to open the browser.
        announce: Called with the page's URL once the server answers.

    Errors: an OSError if the address is not one of this machine's, or the port is in use.
    """
    token = None if is_own_alone(host) else secrets.token_urlsafe(24)
    with contextlib.closing(listening_on(host, port)) as listening:
        own = _own_address(host)
        names = () if token is None else (host, own, socket.gethostname())
        app = application(studio, hosts=names or (host,), token=token)
        url = _url(own, listening.getsockname()[1], token)
        server = Server(configured(app), studio, lambda: _open(url, announce, opens=opens))
        server.run(sockets=[listening])


def is_own_alone(host: str) -> bool:
    """Return whether an address is a loopback one, reachable from this machine only.

    >>> is_own_alone("localhost"), is_own_alone("127.0.0.2"), is_own_alone("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def configured(app: FastAPI) -> uvicorn.Config:
    """Configure uvicorn: HTTP only, no logs, no proxy headers, few connections with time limits."""
    return uvicorn.Config(
        app,
        http=limited(app.state.studio.limits.patience, _MOST_CONNECTIONS - 1),
        ws="none",
        lifespan="off",
        loop="asyncio",
        proxy_headers=False,
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        timeout_graceful_shutdown=1,
    )


class Server(uvicorn.Server):
    """A uvicorn server that calls back once it answers, and cancels all work when it stops."""

    def __init__(self, config: uvicorn.Config, studio: Studio, answers: Callable[[], None]) -> None:
        super().__init__(config)
        self._studio, self._answers = studio, answers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._answers()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._studio.end()
        await super().shutdown(sockets)


def _open(url: str, announce: Callable[[str], None], *, opens: bool) -> None:
    announce(url)
    if opens:
        threading.Thread(target=_browse, args=(url,), daemon=True).start()


def _browse(url: str) -> None:
    """Open the desktop's browser, if there is one."""
    with contextlib.suppress(webbrowser.Error, OSError):
        browser = webbrowser.get()
        if getattr(browser, "name", None) not in _IN_A_TERMINAL:
            browser.open(url)


def listening_on(host: str, port: int) -> socket.socket:
    """Create a socket bound to an address.

    Errors: an OSError in one sentence if it is not one of this machine's, or the port is in use.
    """
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        # The port of a studio that has ended is free again at once. On Windows it always is, and by
        # this option two programs could listen on one port.
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        why = getattr(error, "strerror", None) or "no such name"
        raise OSError(
            f"the studio cannot listen on {host}, port {port} ({why}). Use --port 0 for one that "
            f"is free, and an address of this machine."
        ) from error
    return listening


def _own_address(host: str) -> str:
    """Return the address by which others reach a host, replacing 0.0.0.0 and ::."""
    if host not in _ANY:
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    away = "2001:db8::1" if ":" in host else "192.0.2.1"
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        # Connecting UDP sends nothing, but selects the outgoing address.
        probe.connect((away, 9))
        return probe.getsockname()[0]
    return _ANY[host]


def _url(host: str, port: int, token: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")

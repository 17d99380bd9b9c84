"""Serving the studio over HTTP by uvicorn, until it is interrupted."""

import contextlib
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from glasshead.studio.server.application import application
from glasshead.studio.studio import Studio

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
    told: Callable[[str], None] = print,
) -> None:
    """Serve a studio until interrupted, which raises a KeyboardInterrupt.

    Args:
        studio: The studio to serve.
        host: Address to listen on; with any but a loopback address the page's URL has a token.
        port: TCP port; 0: any free one.
        opens: Whether to open the browser.
        told: Called with the page's URL once the server answers.

    Errors: an OSError where the address is not one of this machine's, or the port is in use.
    """
    token = None if is_own_alone(host) else secrets.token_urlsafe(24)
    with contextlib.closing(listening_on(host, port)) as listening:
        own = _own_address(host)
        names = () if token is None else (host, own, socket.gethostname())
        app = application(studio, hosts=names or (host,), token=token)
        url = _url(own, listening.getsockname()[1], token)
        server = Server(configured(app), studio, lambda: _open(url, told, opens=opens))
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
    """Configure uvicorn: HTTP only, no logs, no proxy headers, few connections."""
    return uvicorn.Config(
        app,
        http="h11",
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


def _open(url: str, told: Callable[[str], None], *, opens: bool) -> None:
    told(url)
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

    Errors: an OSError in one sentence where it is not one of this machine's, or the port is in use.
    """
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        why = getattr(error, "strerror", None) or "no such name"
        raise OSError(
            f"the studio cannot listen on {host}, port {port} ({why}): take --port 0 for one that "
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

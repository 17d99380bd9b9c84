"""Middleware for security: hosts, origins, token, content security policy and request limits."""

import asyncio
import hashlib
import ipaddress
import re
import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from glasshead.message import Message
from glasshead.studio.answers import refused
from glasshead.studio.studio import Limits

# JSON may escape each byte of a text as six characters.
_JSON_BYTES_PER_BYTE = 6
_MARGIN = 2**16
_LENGTH = re.compile(r"[0-9]{1,20}")


class RequestLimits:
    """Middleware that refuses requests that are too large, too slow or too many.

    Args:
        app: The ASGI application.
        limits: The studio's limits.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._largest = _JSON_BYTES_PER_BYTE * limits.text + _MARGIN
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, self._bounded(receive), send)
        finally:
            self._under_way -= 1

    def _refused(self, scope: Scope) -> JSONResponse | None:
        if self._under_way >= self._limits.requests:
            sentence = Message(
                "the limit of concurrent requests is {count}, and it is reached. Wait for one "
                "of them to end.",
                count=self._under_way,
            )
            return refused(scope, 429, sentence)
        length = Headers(scope=scope).get("content-length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > self._largest:
            return refused(scope, 413, self._too_large())
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """Wrap `receive` to limit size and time of the body; after it only a disconnect follows."""
        received, complete = 0, False

        async def bounded() -> Event:
            nonlocal received, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self._limits.patience)
            except TimeoutError as error:
                sentence = Message(
                    "the rest of the request did not arrive within {seconds:g} s. Send the "
                    "request again.",
                    seconds=self._limits.patience,
                )
                raise HTTPException(408, sentence) from error
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > self._largest:
                raise HTTPException(413, self._too_large())
            return message

        return bounded

    def _too_large(self) -> Message:
        return Message("a request must have at most {most:,} bytes. Send less.", most=self._largest)


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = {"0.0.0.0", "::"}  # noqa: S104 - compared with the user's choice
_PORTS = range(2**16)


class Guard:
    """Middleware that checks host, origin and token of requests and adds security headers.

    - The Host header names the studio itself, which prevents DNS rebinding.
    - Origin and Sec-Fetch-Site show that the request comes from the studio's page or a typed
      address. From other sites, only a link to the page itself may be followed.
    - Where other machines can reach the studio, a token is required: in the URL of the first
      request, afterwards in a cookie that is HttpOnly and SameSite=Strict.

    Args:
        app: The ASGI application.
        hosts: Host names that the studio answers to, in addition to the loopback ones; with
            0.0.0.0 or ::, any IP address.
        token: The access token; None: none is required, as on the loopback address.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...] = (), token: str | None) -> None:
        self._app, self._token = app, token
        self._hosts = {*_LOOPBACK, *(host.lower() for host in hosts)}
        # Named by a hash of the token, so that studios on one host do not share a cookie.
        digest = hashlib.sha256((token or "").encode()).hexdigest()[:12]
        self._cookie = f"glasshead-{digest}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # Closing before accepting answers 403.
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope, Headers(scope=scope))
        new = refused is None and self._token is not None and self._token in _tokens(scope)

        async def guarded(message: Event) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                own.update(_HEADERS)
                own.setdefault("Cache-Control", "no-store")
                if new:
                    cookie = f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/"
                    own.append("Set-Cookie", cookie)
            await send(message)

        await (refused or self._app)(scope, receive, guarded)

    def _refused(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        """Return the refusal of a request, or None if it is allowed."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            sentence = Message("the studio answers only under its own address. Open that one.")
            return refused(scope, 421, sentence)
        if not (scope["path"].startswith("/") and scope["path"].isprintable()):
            sentence = Message("a path must begin with a slash and have only printable characters.")
            return refused(scope, 400, sentence)
        if not _is_from_own_page(scope, headers, hosts[0]):
            sentence = Message("the studio answers only its own page. Open the page itself.")
            return refused(scope, 403, sentence)
        if not self._is_admitted(scope, headers):
            sentence = Message(
                "the address lacks the studio's token. Open the address that the studio printed."
            )
            return refused(scope, 401, sentence)
        return None

    def _is_own(self, host: str) -> bool:
        name = _name(host)
        if name is None:
            return False
        return name in self._hosts or (bool(_ANY & self._hosts) and _is_address(name))

    def _is_admitted(self, scope: Scope, headers: Headers) -> bool:
        if self._token is None:
            return True
        own = self._token.encode()
        given = [*_tokens(scope), *_cookies(headers, self._cookie)]
        return any([secrets.compare_digest(one.encode(), own) for one in given])  # noqa: C419 - all


def _name(host: str) -> str | None:
    """Return the host name without port and brackets, or None if it is malformed.

    >>> _name("[::1]:80"), _name("LOCALHOST"), _name("localhost:"), _name("a:1:2")
    ('::1', 'localhost', None, None)
    """
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        if not closed or ":" not in name or (port and not port.startswith(":")):
            return None
        port = port.removeprefix(":") if port else "0"
    else:
        name, colon, port = host.partition(":")
        port = port if colon else "0"
    whole = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) in _PORTS
    return name.lower() if name and whole else None


def _is_from_own_page(scope: Scope, headers: Headers, host: str) -> bool:
    own = {f"http://{host}".lower(), f"https://{host}".lower()}
    if any(origin.lower() not in own for origin in headers.getlist("origin")):
        return False
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return True
    # A link to the page, followed from another site.
    follows = headers.get("sec-fetch-mode") == "navigate"
    in_a_tab = headers.get("sec-fetch-dest") == "document"
    return follows and in_a_tab and scope["method"] == "GET" and scope["path"] == "/"


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie, tolerating malformed ones of other servers on this host."""
    pairs = [pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";")]
    return [value.strip() for each, _, value in pairs if each.strip() == name]


def _tokens(scope: Scope) -> list[str]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

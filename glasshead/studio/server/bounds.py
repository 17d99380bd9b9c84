"""Bounds: how large a request may be, how long it may take to come, and how many there are."""

import asyncio
import re

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glasshead.studio.limits import Limits

# A request is a text in JSON, where each byte of it may be written as six characters.
_A_BYTE = 6
_MARGIN = 2**16
_LENGTH = re.compile(r"[0-9]{1,20}")


class Bounds:
    """Refuses what is too large, while it comes; what comes too slowly; and one request too many.

    Args:
        app: What answers.
        limits: The limits of a studio.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._largest = _A_BYTE * limits.text + _MARGIN
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refused(Headers(scope=scope))
        if refused is not None:
            await refused(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, self._bounded(receive), send)
        finally:
            self._under_way -= 1

    def _refused(self, headers: Headers) -> JSONResponse | None:
        if self._under_way >= self._limits.requests:
            return JSONResponse({"detail": self._too_many()}, 429)
        length = headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > self._largest:
            return JSONResponse({"detail": self._too_large()}, 413)
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """What is received, counted; once it is whole, the next is that somebody leaves."""
        came, whole = 0, False

        async def bounded() -> Message:
            nonlocal came, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self._limits.patience)
            except TimeoutError as error:
                raise HTTPException(408, self._too_slow()) from error
            came += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if came > self._largest:
                raise HTTPException(413, self._too_large())
            return message

        return bounded

    def _too_many(self) -> str:
        return (
            f"{self._under_way} requests are being answered already, as many as are allowed at "
            f"once: wait for one."
        )

    def _too_large(self) -> str:
        return f"a request takes at most {self._largest:,} bytes: send less."

    def _too_slow(self) -> str:
        return f"nothing more came for {self._limits.patience:g} seconds: send the request again."

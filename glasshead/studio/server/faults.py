"""Faults: what goes wrong by the studio's own fault, told in one line where it was started."""

import sys
import traceback
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glasshead.drawing import printable
from glasshead.studio.work import Cancelled

# As some servers number a request whose asker has left; the page sees it where the studio ends.
LEFT = 499
_LONGEST = 300


def tell(line: str) -> None:
    """Write a line where the studio was started."""
    if sys.stderr is not None:
        sys.stderr.write(f"glasshead: {line}\n")


class Faults:
    """Answers 500, in a sentence, where the app raises what no request can be blamed for.

    Args:
        app: What answers.
        told: Gets one line about each fault.
    """

    def __init__(self, app: ASGIApp, told: Callable[[str], None] = tell) -> None:
        self._app, self._told = app, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Cancelled:
            answer = JSONResponse({"detail": "nobody waits for this any more."}, LEFT)
        except Exception as error:  # noqa: BLE001 - a fault is a fault, whichever it is
            self._told(_line(scope, error))
            sentence = "the studio has a fault here, which its terminal tells: please report it."
            answer = JSONResponse({"detail": sentence}, 500)
        else:
            return
        if not begun:
            await answer(scope, receive, send)
        else:
            # What has begun cannot become another answer: it ends, and the page sees that it is
            # not whole.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _line(scope: Scope, error: Exception) -> str:
    """Which request, which error, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f", in {frame.filename}, line {frame.lineno}" for frame in last)
    asked = printable(f"{scope.get('method', '')} {scope.get('path', '')}"[:_LONGEST])
    said = printable(" ".join(str(error).split())[:_LONGEST])
    return f"fault in {asked}: {type(error).__name__}: {said}{place}"

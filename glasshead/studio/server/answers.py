"""Answers to requests: background work, streaming, errors of our own, disconnects."""

import asyncio
import contextlib
import json
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from fastapi import Request, Response
from jaxtyping import Float
from pydantic import BaseModel
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from torch import Tensor

from glasshead.drawing import printable
from glasshead.drawing.printable import one_line
from glasshead.out_of_memory import is_out_of_memory
from glasshead.studio.page import float32
from glasshead.studio.studio import Studio
from glasshead.studio.work import Cancelled, Refusal, Work

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
            self._told(_error_line(scope, error))
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


def _error_line(scope: Scope, error: Exception) -> str:
    """Which request, which error, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f", in {frame.filename}, line {frame.lineno}" for frame in last)
    asked = printable(f"{scope.get('method', '')} {scope.get('path', '')}"[:_LONGEST])
    said = printable(" ".join(str(error).split())[:_LONGEST])
    return f"fault in {asked}: {type(error).__name__}: {said}{place}"


Job = Callable[[Work], Any]
# After how many seconds a cancellation is repeated.
_AGAIN = 0.02


class BackgroundJob:
    """A job in a thread of its own; it begins at once.

    The thread holds up nobody who wants to end: it is a daemon, which the loop does not wait for.

    Args:
        studio: Where it is done.
        job: What is done; it looks often whether somebody still waits.
        after: What the thread does last, however the job ends.
    """

    def __init__(self, studio: Studio, job: Job, after: Callable[[], None]) -> None:
        self.work = studio.begin()
        self.ended = asyncio.Event()
        self._job, self._after = job, after
        self._loop = asyncio.get_running_loop()
        self._result: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._do, name="glasshead work", daemon=True).start()

    def result(self) -> Any:
        """What the job gave, once it has ended.

        Errors: whatever it raised.
        """
        if self._error is not None:
            raise self._error
        return self._result

    def _do(self) -> None:
        try:
            self._result = self._job(self.work)
        except BaseException as error:  # noqa: BLE001 - who waits is told, whatever it is
            self._error = error
        finally:
            self._after()
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


class DisconnectWatcher:
    """Whether the browser has gone away, as soon as it has; used in an `async with`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._left())
        return self

    async def __aexit__(self, *_: object) -> None:
        # `asyncio.wait_for` loses a cancellation that comes as what it waits for is there.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_AGAIN)

    async def before(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Whether it left before an event; returns without either after some seconds, if given."""
        waiting = asyncio.create_task(event.wait())
        both = {waiting} if self._task is None else {waiting, self._task}
        try:
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return not event.is_set() and self._task is not None and self._task.done()

    async def _left(self) -> None:
        # A request that breaks off, or is refused while it comes, has nobody who waits either.
        with contextlib.suppress(Exception):
            while (await self._receive())["type"] != "http.disconnect":
                pass


# How often is told how far work is, in seconds.
_EACH = 0.05
_LINES = "application/x-ndjson"
_NUMBERS = "application/octet-stream"


class Told(BaseModel):
    """Why there is no answer, in one sentence."""

    detail: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": told, "model": Told}
    for status, told in (
        (400, "What was asked for is not to be had: there is no such head, or parts do not fit."),
        (401, "The address lacks the studio's token."),
        (403, "Another page asks than the studio's own."),
        (404, "There is no such thing here."),
        (408, "Nothing more of the request came."),
        (409, "It takes something that has to be made first."),
        (410, "The text was forgotten, and has to be sent again."),
        (413, "It is larger than the limits."),
        (421, "The studio answers under its own address alone."),
        (422, "A parameter is missing, or is none of those that are taken."),
        (429, "As much is being done already as is allowed at once."),
        (499, "The studio ends, and does no work any more."),
        (500, "The studio has a fault, which its terminal tells."),
    )
}
"""What each route may refuse with, for its description."""

LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Lines of JSON: how far it is, and in the last one the result or an error.",
        "content": {_LINES: {}},
    }
}
"""What `Streamed` gives, for the description of a route with `response_class=Response`."""

NUMBERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Little-endian float32, by rows; the header `Shape` has its axes.",
        "content": {_NUMBERS: {}},
    }
}
"""What `numbers` gives, for the description of a route with `response_class=Response`."""


def refusal_of(error: BaseException) -> tuple[int, str] | None:
    """The number and the sentence of what a request asks wrongly; None: the fault is not its own.

    The library's own refusals are a ValueError, a TypeError or an OSError, as commands know them.

    >>> refusal_of(ValueError("beta takes a number, and got none."))
    (400, 'beta takes a number, and got none.')
    >>> refusal_of(KeyError("beta"))
    """
    if isinstance(error, Refusal):
        return error.status, one_line(str(error))
    if is_out_of_memory(error):
        return 413, "this takes more memory than there is: take a shorter text."
    if isinstance(error, OSError):
        worded = f"{error.filename or 'a file'}: {error.strerror}." if error.strerror else ""
        return 404, one_line(worded or str(error))
    if isinstance(error, ValueError | TypeError):
        return 400, one_line(str(error))
    return None


async def waited_for(request: Request, job: Job) -> Any:
    """What a job gives, done in a thread; it is cancelled when the browser goes away.

    Few are done at once; the others wait for their turn.

    Errors: whatever the job raises, and `Cancelled` where nobody waits any more.
    """
    studio: Studio = request.app.state.studio

    def in_turn(work: Any) -> Any:
        with studio.turns.turn(work):
            return job(work)

    doing = BackgroundJob(studio, in_turn, _nothing)
    try:
        async with DisconnectWatcher(request.receive) as leaving:
            if await leaving.before(doing.ended):
                raise Cancelled
        return doing.result()
    finally:
        doing.work.cancel()


async def waited_for_reading(request: Request, is_read: Callable[[], bool], job: Job) -> Any:
    """The same of a job that reads a text first, unless that was read: then it takes a slot, too.

    Errors: as of `waited_for`, and `Busy` where all slots are taken.
    """
    studio: Studio = request.app.state.studio

    def in_a_slot(work: Any) -> Any:
        with contextlib.nullcontext() if is_read() else studio.slots.taken():
            return job(work)

    return await waited_for(request, in_a_slot)


def _nothing() -> None:
    pass


class Streamed(Response):
    """Lines of JSON: {"progress": {"stage", "done", "of"}} while a job goes on, then {"result"}.

    What goes wrong on the way is a last line {"error", "status"}; none of both, where the studio
    is ended. The job is cancelled when the browser goes away; its slot is free again once the
    thread ends. Where too much is being done already the answer is the refusal `Busy`.

    Args:
        studio: Where it is done.
        job: What is done.
    """

    media_type = _LINES

    def __init__(self, studio: Studio, job: Job) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._studio, self._job = studio, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        slots = self._studio.slots
        slots.take()
        try:
            doing = BackgroundJob(self._studio, self._job, slots.give_back)
        except BaseException:
            # No thread was to be had that would give it back.
            slots.give_back()
            raise
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with DisconnectWatcher(receive) as leaving:
                async for line in _lines(doing, leaving):
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            doing.work.cancel()


async def _lines(doing: BackgroundJob, leaving: DisconnectWatcher) -> AsyncIterator[bytes]:
    told = None
    while not doing.ended.is_set():
        if await leaving.before(doing.ended, _EACH):
            return
        if (news := doing.work.news()) is not None and news != told:
            told = news
            yield _line({"progress": news})
    try:
        yield _line({"result": doing.result()})
    except Cancelled:
        return
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        status, sentence = refusal
        yield _line({"error": sentence, "status": status})


def numbers(values: Float[Tensor, "*shape"]) -> Response:
    """A tensor as little-endian float32, its shape in the header `Shape`."""
    shape = ",".join(map(str, values.shape))
    return Response(float32(values), media_type=_NUMBERS, headers={"Shape": shape})


def _line(value: Any) -> bytes:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        + b"\n"
    )

"""Responses: background jobs, streamed progress, error middleware and client disconnects."""

import asyncio
import contextlib
import json
import secrets
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from fastapi import Request, Response
from jaxtyping import Float
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event
from torch import Tensor

from glasshead.drawing import printable
from glasshead.drawing.printable import one_line
from glasshead.explanation.translations import Say
from glasshead.message import Message
from glasshead.out_of_memory import is_out_of_memory
from glasshead.refusals import is_refusal
from glasshead.studio.background_jobs import Cancelled, Work
from glasshead.studio.stored_answers import float32
from glasshead.studio.studio import Studio

# Status of a request whose client has disconnected (nginx); the page sees it when the studio ends.
LEFT = 499
_LONGEST = 300


def print_line(line: str) -> None:
    """Write a line to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"glasshead: {line}\n")


class Faults:
    """Middleware that answers 500 in one sentence if the app raises an unexpected error.

    Args:
        app: The ASGI application.
        report: Receives one line about each error.
    """

    def __init__(self, app: ASGIApp, report: Callable[[str], None] = print_line) -> None:
        self._app, self._report = app, report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_noted(message: Event) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Cancelled:
            sentence = Message("nobody waits for this answer any more.")
            answer = refused(scope, LEFT, sentence)
        except Exception as error:  # noqa: BLE001 - a fault is a fault, whichever it is
            name = secrets.token_hex(3)
            self._report(_error_line(name, scope, error))
            sentence = Message(
                "Something went wrong (fault {name}). The terminal shows why; please report it.",
                name=name,
            )
            answer = refused(scope, 500, sentence)
        else:
            return
        if not begun:
            await answer(scope, receive, send)
        else:
            # A response that has begun cannot be replaced: end it, and the page sees that it is
            # incomplete.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _error_line(name: str, scope: Scope, error: Exception) -> str:
    """Format the name of a fault, the request, the error and its location as one line."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f", in {frame.filename}, line {frame.lineno}" for frame in last)
    request = printable(f"{scope.get('method', '')} {scope.get('path', '')}"[:_LONGEST])
    message = printable(" ".join(str(error).split())[:_LONGEST])
    return f"fault {name} in {request}: {type(error).__name__}: {message}{place}"


Job = Callable[[Work], Any]
# Seconds after which a cancellation is repeated.
_RETRY = 0.02


class BackgroundJob:
    """A job running in a daemon thread, started at once.

    Neither the process nor the event loop waits for the thread when it ends.

    Args:
        studio: The studio whose `end` cancels the job.
        job: The function to run, which checks its `Work` for cancellation often.
        after: Called last in the thread, whether the job succeeded or failed.
    """

    def __init__(self, studio: Studio, job: Job, after: Callable[[], None] = lambda: None) -> None:
        self.work = studio.begin()
        self.ended = asyncio.Event()
        self._job, self._after = job, after
        self._loop = asyncio.get_running_loop()
        self._result: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._do, name="glasshead work", daemon=True).start()

    def result(self) -> Any:
        """Return the result of the job, once it has ended.

        Errors: whatever it raised.
        """
        if self._error is not None:
            raise self._error
        return self._result

    def _do(self) -> None:
        try:
            self._result = self._job(self.work)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
        finally:
            self._after()
        # A closed loop has nobody waiting.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


class DisconnectWatcher:
    """An async context manager that watches whether the client disconnects."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._left())
        return self

    async def __aexit__(self, *_: object) -> None:
        # `asyncio.wait_for` loses a cancellation that arrives together with the awaited result.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_RETRY)

    async def before(self, event: asyncio.Event, seconds: float | None = None) -> bool:
        """Wait for an event, the disconnect or a timeout; return whether the client left first."""
        waiting = asyncio.create_task(event.wait())
        both = {waiting} if self._task is None else {waiting, self._task}
        try:
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return not event.is_set() and self._task is not None and self._task.done()

    async def _left(self) -> None:
        # A request that breaks off, or is refused while it arrives, counts as a disconnect.
        with contextlib.suppress(Exception):
            while (await self._receive())["type"] != "http.disconnect":
                pass


# Seconds between two progress lines.
_INTERVAL = 0.05
_LINES = "application/x-ndjson"
_NUMBERS = "application/octet-stream"


class ErrorResponse(BaseModel):
    """An error response: the reason in one sentence."""

    detail: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": reason, "model": ErrorResponse}
    for status, reason in (
        (400, "The request cannot be answered: there is no such head, or its parts do not fit."),
        (401, "The address lacks the studio's token."),
        (403, "The request comes from another page than the studio's own."),
        (404, "The page or file does not exist."),
        (408, "The rest of the request did not arrive in time."),
        (409, "The request needs a result that must be computed first."),
        (410, "The text was forgotten and must be sent again."),
        (413, "The request exceeds the limits."),
        (421, "The studio answers only under its own address."),
        (422, "A parameter is missing or invalid."),
        (429, "The studio already runs as many tasks as it allows at once."),
        (499, "The studio is shutting down."),
        (500, "The studio has a fault, which its terminal reports."),
    )
}
"""Error responses of every route, for the OpenAPI schema."""

LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Lines of JSON: the progress, and in the last line the result or an error.",
        "content": {_LINES: {}},
    }
}
"""The response of `Streamed`, for the OpenAPI schema of routes with `response_class=Response`."""

NUMBERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Little-endian float32, by rows; the header `Shape` has its axes.",
        "content": {_NUMBERS: {}},
    }
}
"""The response of `numbers`, for the OpenAPI schema of routes with `response_class=Response`."""


def say_of(scope: Scope) -> Say:
    """Return the translator to the language that a request asks for; the page names its own.

    >>> say_of({"type": "http", "headers": [(b"accept-language", b"xx, zh-TW;q=0.9")]}).language
    'zh-Hant'
    """
    for code in Headers(scope=scope).get("accept-language", "").split(","):
        with contextlib.suppress(ValueError):
            return Say(code.partition(";")[0].strip())
    return Say("en")


def refused(scope: Scope, status: int, sentence: str, **of: Any) -> JSONResponse:
    """Return an error response in the language of the request."""
    return JSONResponse({"detail": say_of(scope).translated(sentence)}, status, **of)


def refusal_of(error: BaseException) -> tuple[int, str] | None:
    """Map an error to an HTTP status and a sentence, or to None if it is an internal error.

    >>> refusal_of(ValueError(Message("beta must be a number, got none.")))
    (400, 'beta must be a number, got none.')
    >>> refusal_of(KeyError("beta"))
    """
    if is_out_of_memory(error):
        return 413, Message("this takes more memory than there is. Choose a shorter text.")
    if isinstance(error, OSError) and error.strerror:
        return 404, one_line(f"{error.filename or 'a file'}: {error.strerror}.")
    if is_refusal(error):
        status = 404 if isinstance(error, OSError) else getattr(error, "status", 400)
        sentence = error.args[0] if error.args else ""
        return status, sentence if isinstance(sentence, Message) else one_line(str(error))
    return None


async def run_job(request: Request, job: Job) -> Any:
    """Run a job in a thread and return its result; cancel it when the client disconnects.

    The number of concurrent jobs is limited; further ones wait.

    Errors: whatever the job raises, and `Cancelled` if the client has disconnected.
    """
    studio: Studio = request.app.state.studio

    def in_turn(work: Any) -> Any:
        with studio.turns.turn(work):
            return job(work)

    background = BackgroundJob(studio, in_turn)
    try:
        async with DisconnectWatcher(request.receive) as disconnect:
            if await disconnect.before(background.ended):
                raise Cancelled
        return background.result()
    finally:
        background.work.cancel()


async def run_reading_job(request: Request, is_read: Callable[[], bool], job: Job) -> Any:
    """Run a job that takes a reading slot too, unless the text it needs has been read.

    Errors: as of `run_job`, and `Busy` if all slots are taken.
    """
    studio: Studio = request.app.state.studio

    def in_a_slot(work: Any) -> Any:
        with contextlib.nullcontext() if is_read() else studio.slots.taken():
            return job(work)

    return await run_job(request, in_a_slot)


class Streamed(Response):
    """A response of JSON lines: {"progress": {"stage", "done", "of"}} while a job runs, {"result"}.

    An error is a last line {"error", "status"}; where the studio ends, there is neither. The job is
    cancelled when the client disconnects; its slot is free again once the thread ends. Without a
    free slot the response is the refusal `Busy`.

    Args:
        studio: The studio whose slots are used.
        job: The function to run.
    """

    media_type = _LINES

    def __init__(self, studio: Studio, job: Job) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._studio, self._job = studio, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        slots, say = self._studio.slots, say_of(scope)
        slots.take()
        try:
            background = BackgroundJob(self._studio, self._job, slots.give_back)
        except BaseException:
            # No thread could be started that would give it back.
            slots.give_back()
            raise
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with DisconnectWatcher(receive) as disconnect:
                async for line in _lines(background, disconnect, say):
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            background.work.cancel()


async def _lines(
    job: BackgroundJob, disconnect: DisconnectWatcher, say: Say
) -> AsyncIterator[bytes]:
    sent = None
    while not job.ended.is_set():
        if await disconnect.before(job.ended, _INTERVAL):
            return
        if (progress := job.work.news()) is not None and progress != sent:
            sent = progress
            yield _line({"progress": progress})
    try:
        yield _line({"result": job.result()})
    except Cancelled:
        return
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        status, sentence = refusal
        yield _line({"error": say.translated(sentence), "status": status})


def numbers(values: Float[Tensor, "*shape"]) -> Response:
    """Return a response with a tensor as little-endian float32 and its shape in header `Shape`."""
    shape = ",".join(map(str, values.shape))
    return Response(float32(values), media_type=_NUMBERS, headers={"Shape": shape})


def _line(value: Any) -> bytes:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        + b"\n"
    )

"""Doing: work that a thread does, seen from the loop that serves."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Self

from starlette.types import Receive

from glasshead.studio.studio import Studio
from glasshead.studio.work import Work

Job = Callable[[Work], Any]
# After how many seconds a cancellation is repeated.
_AGAIN = 0.02


class Doing:
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


class Leaving:
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

"""What the tests of the server share: an application asked without a network, and with one."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from glasshead.studio.background_jobs import Work


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        """The sentence of a refusal, which is all that there is in it."""
        told = json.loads(self.body)
        assert list(told) == ["detail"]
        assert isinstance(told["detail"], str)
        return told["detail"]


def ask(
    app: Any,
    path: str = "/",
    *,
    method: str = "GET",
    query: str = "",
    headers: tuple[tuple[str, str], ...] = (("host", "localhost"),),
    parts: tuple[bytes, ...] = (b"",),
) -> Answer:
    """What an ASGI application answers; nobody leaves before the end."""
    sent: list[dict[str, Any]] = []
    coming = list(parts)

    async def receive() -> dict[str, Any]:
        if not coming:
            await asyncio.Event().wait()
        body = coming.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(coming)}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50001),
        "server": ("127.0.0.1", 50000),
    }
    run(app(scope, receive, send))
    start, *rest = sent
    told = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], told, b"".join(one.get("body", b"") for one in rest))


def run(task: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives; in a thread of its own, as a browser's loop may run in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, task).result()


def connected(url: str) -> socket.socket:
    """A connection to whoever serves at a URL."""
    host, port = url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


def soon(happened: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something happens before patience ends."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Asked(Work):
    """Nobody waits any more once so many layers were told of."""

    def __init__(self, after):
        super().__init__()
        self.told, self.after = [], after

    def report(self, stage, done, of):
        self.told.append((stage, done, of))
        if stage == "heads.reading" and done == self.after and of > 1:
            self.cancel()
        super().report(stage, done, of)

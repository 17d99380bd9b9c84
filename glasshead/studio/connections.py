"""Connections that wait for a request: a time limit for its head, and room for new ones."""

import asyncio
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """An HTTP/1.1 connection that closes if the head of a request does not come.

    uvicorn counts such connections, and answers 503 to all others once there are too many. Neither
    needs the token, as it is in the head.

    Args:
        patience: Seconds from the connection, or from the last answer, to the end of the next head.
        most: Connections, beyond which the one that has waited longest is closed for a new one.
        given: Arguments of uvicorn.

    Attributes:
        deadline: The timer that closes the connection; None if no head is awaited.
    """

    def __init__(self, patience: float, most: int, **given: Any) -> None:
        super().__init__(**given)
        self._patience, self._most = patience, most
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # All are of this class, as WebSockets are off.
        others: Any = self.connections
        if len(others) >= self._most:
            waiting = [one for one in others if one.deadline is not None]
            if waiting:
                min(waiting, key=lambda one: one.deadline.when()).drop()
        super().connection_made(transport)
        self._limit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._limit()

    def _limit(self) -> None:
        """Start the time limit if a head is awaited, and stop it if one is complete."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._unlimit()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(self._patience, self.drop)

    def _unlimit(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def drop(self) -> None:
        """Close the connection without an answer."""
        self._unlimit()
        # It counts until its transport reports the loss, which is later.
        self.connections.discard(self)
        self.transport.abort()


def limited(patience: float, most: int) -> Any:
    """Return what uvicorn calls for each connection."""
    return partial(Connection, patience, most)

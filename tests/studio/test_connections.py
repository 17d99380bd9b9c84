"""Connections that send nothing, or half a head, do not keep the owner out."""

import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from glasshead.studio.studio import Limits, Studio
from studio.asking import connected, soon

PATIENCE = 0.7
MANY = 300


def status(url: str) -> int:
    host = url.removeprefix("http://").rstrip("/")
    with closing(HTTPConnection(host, timeout=20)) as asking:
        asking.request("GET", "/api/health")
        return asking.getresponse().status


def is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_the_owner_is_answered_while_others_say_nothing(serves, sent):
    url = serves(Studio()).url
    with ExitStack() as held:
        silent = [held.enter_context(connected(url)) for _ in range(MANY)]
        for one in silent:
            try:
                one.sendall(sent)
            except ConnectionError:
                continue
        assert [status(url) for _ in range(3)] == [200] * 3
        # Those that waited longest made room.
        assert soon(lambda: is_closed(silent[0]))
        assert not is_closed(silent[-1])


def test_a_head_has_a_time_limit_however_it_comes(serves):
    url = serves(Studio(limits=Limits(patience=PATIENCE))).url
    with connected(url) as silent, connected(url) as slow, connected(url) as again:
        again.sendall(b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert again.recv(2**16).startswith(b"HTTP/1.1 200")
        # A second head on the same connection has the limit, too.
        again.sendall(b"GET /")

        def drop_by_drop() -> bool:
            try:
                slow.sendall(b"G")
            except ConnectionError:
                return True
            return False

        assert soon(drop_by_drop)
        assert soon(lambda: is_closed(silent))
        assert soon(lambda: is_closed(again))

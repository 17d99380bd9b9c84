"""Serving: which addresses are one's own, and what is said of them."""

import threading
import urllib.request

import pytest

from glasshead.studio.server import app
from glasshead.studio.studio import Studio


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_which_addresses_nobody_else_reaches(host, own):
    assert app.is_own_alone(host) is own


@pytest.mark.parametrize(
    ("host", "token", "url"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:7/"),
        ("::1", None, "http://[::1]:7/"),
        ("192.168.0.7", "t", "http://192.168.0.7:7/?token=t"),
    ],
)
def test_the_url_of_an_address(host, token, url):
    assert app._url(host, 7, token) == url


def test_a_server_answers_once_it_says_where_it_is(monkeypatch):
    servers, said = [], []
    made = app.Server.__init__

    def noted(self, *given):
        servers.append(self)
        made(self, *given)

    monkeypatch.setattr(app.Server, "__init__", noted)

    def told(url):
        said.append(url)
        threading.Thread(target=ask, args=(url,)).start()

    def ask(url):
        for path in ("", "api/health"):
            with urllib.request.urlopen(url.replace("/?", f"/{path}?"), timeout=20) as answer:
                said.append(answer.status)
        servers[0].should_exit = True

    thread = threading.Thread(
        target=app.serve,
        args=(Studio(),),
        kwargs={"host": "0.0.0.0", "opens": False, "told": told},
    )
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "/?token=" in said[0]
    assert len(said[0].split("token=")[1]) >= 32
    assert said[1:] == [200, 200]

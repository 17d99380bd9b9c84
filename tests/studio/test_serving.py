"""Serving: which addresses are one's own, and what is said of them.

Who has a text read takes a slot, whichever route asks; what was read takes none.
Where there is no browser: what is left out, and the command that would change it.
"""

import json
import threading
import urllib.request

import pytest
import torch

import glasshead as gh
from chromium import browser_or_none
from glasshead.studio import app
from glasshead.studio.app import application
from glasshead.studio.studio import Limits, Studio
from studio.asking import ask
from written import written


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
        kwargs={"host": "0.0.0.0", "opens": False, "announce": told},
    )
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "/?token=" in said[0]
    assert len(said[0].split("token=")[1]) >= 32
    assert said[1:] == [200, 200]


PATHS = {
    "heads/maps": "",
    "heads/weights": "&layer=0&head=0",
    "heads/along": "&layer=0&head=0",
    "steps/vectors": "&layer=0&head=0&query=0",
    "atlas/map": "&layer=0&head=0",
    "atlas/tile": "&layer=0&head=0&level=0&row=0&column=0",
    "atlas/tokens": "&start=0&stop=3",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run").path


@pytest.mark.parametrize("path", PATHS)
def test_a_text_is_read_in_a_slot_and_looked_at_without_one(folder, path):
    studio = Studio(folder, Limits(jobs=1))
    app, name = application(studio), studio.texts.add("a dog and a cat")

    def status():
        return ask(app, f"/api/{path}", query=f"text={name}{PATHS[path]}").status

    with studio.slots.taken():
        assert status() == 429
    assert status() == 200
    with studio.slots.taken():
        assert status() == 200


def test_stored_weights_take_no_slot(tmp_path):

    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    studio = Studio(tmp_path / "kept.safetensors", Limits(jobs=1))
    with studio.slots.taken():
        answer = ask(application(studio), "/api/atlas/map", query="layer=0&head=0")
    assert json.loads(answer.body)["keys"] == 3


SENTENCE = "^there is no Chromium or Chrome here: sudo apt-get install chromium$"


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_browser_a_test_is_left_out_and_fails_in_ci(monkeypatch, tmp_path, ci, outcome):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=SENTENCE), browser_or_none():
        pass

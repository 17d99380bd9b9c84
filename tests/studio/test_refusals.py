"""What the studio refuses it says in the language of the page, in its own words."""

import ast
import json
import re
from pathlib import Path

import pytest

import glasshead.studio
from glasshead.explanation.translations import LANGUAGES
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Refusal
from glasshead.studio.studio import Studio
from scripts import ROOT
from studio.asking import ask

FOLDER = Path(glasshead.studio.__file__).parent
REFUSALS = {"Refusal", *(kind.__name__ for kind in Refusal.__subclasses__())}
# What requests of every kind of mistake get, with the numbers that stay in each language.
REQUESTS = {
    "no word": ("/api/steps", "text=%20", ()),
    "a number that is too large": ("/api/steps", "heads=7", ("heads", "4", "7")),
    "a number that is none": ("/api/steps", "heads=two", ("heads", "two")),
    "a choice that is none": (
        "/api/steps",
        "mask=round",
        ("mask", "none, causal, window", "round"),
    ),
    "something missing": ("/api/heads/reading", "", ("text",)),
    "a name that is none": ("/api/heads/reading", "text=-", ("text", "-")),
    "heads that do not divide": ("/api/steps", "heads=2", ("2", "1", "3")),
    "a head that is not there": ("/api/steps", "heads=3&head=3", ("0", "2", "3")),
    "hard attention of a soft normalizer": (
        "/api/steps",
        "beta=inf&normalizer=sigmoid",
        ("inf", "sigmoid"),
    ),
    "a word that is not there": ("/api/steps/words", "query=9", ("0", "2", "9")),
    "no translator": ("/api/alignment", "sentence=ja", ()),
    "no run": ("/api/training", "", ()),
    "no page": ("/nowhere", "", ("/nowhere",)),
    "a text that is gone": ("/api/texts/abc", "", ()),
}
HEADERS = (("host", "localhost"),)


@pytest.fixture(scope="module")
def app():
    return application(Studio())


def refused(app, path, query, language):
    headers = HEADERS if language is None else (*HEADERS, ("accept-language", language))
    answer = ask(app, path, query=query, headers=headers)
    assert 400 <= answer.status < 500, (path, query)
    return answer.detail


@pytest.mark.parametrize("lang", [lang for lang in LANGUAGES if lang != "en"])
@pytest.mark.parametrize("mistake", REQUESTS)
def test_a_refusal_is_in_the_language_of_the_page(app, mistake, lang):
    path, query, numbers = REQUESTS[mistake]
    english, told = (refused(app, path, query, code) for code in ("en", lang))
    assert told != english
    assert all(number in told for number in numbers), told
    assert all(number in english for number in numbers), english
    assert not re.search(r"\b(must|takes|should|the|and|got|there is)\b", told), told
    assert told.endswith((".", "。"))


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        (None, "must be"),
        ("xx", "must be"),
        ("xx;q=0.9, tr;q=0.8", "olmalı"),
        ("es-MX,es;q=0.9,en;q=0.8", "debe"),
        ("zh-TW", "必須"),
    ],
)
def test_the_first_language_that_is_there_is_taken(app, asked, word):
    assert word in refused(app, "/api/steps", "heads=two", asked)


def test_no_sentence_of_the_validator_reaches_the_page(app):
    raw = re.compile(
        "Input should|Field required|String should|Value error|validation", re.IGNORECASE
    )
    for path, query, _ in REQUESTS.values():
        assert not raw.search(refused(app, path, query, None))
    for body in (b"", b"[]", b'{"text": []}', b'{"text": 7}', b"7", b"{"):
        headers = (*HEADERS, ("content-type", "application/json"))
        answer = ask(app, "/api/texts", method="POST", headers=headers, parts=(body,))
        assert answer.status in (400, 422)
        assert not raw.search(answer.detail), body


def raised(file):
    """What each refusal that a file raises is made of."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        call = node.exc if isinstance(node, ast.Raise) else None
        name = getattr(getattr(call, "func", None), "id", "")
        if name in {*REFUSALS, "HTTPException"}:
            yield name, call.args[-1], f"{file.name}:{node.lineno}"


def test_every_refusal_can_be_translated():
    found = [one for file in sorted(FOLDER.rglob("*.py")) for one in raised(file)]
    assert len(found) > 30
    # A literal is collected for translation, and a name stands for a message.
    (keywords,) = re.findall(r"--keywords='([^']*)'", (ROOT / "Makefile").read_text())
    assert {*keywords.split()} >= REFUSALS
    others = [
        at
        for name, made, at in found
        if not isinstance(made, ast.Name)
        and not (name in REFUSALS and isinstance(made, ast.Constant))
        and getattr(getattr(made, "func", None), "id", "") != "Message"
    ]
    assert [at.partition(":")[0] for at in others] == ["security.py"]


def test_a_streamed_refusal_is_translated_too(app):
    headers = (*HEADERS, ("accept-language", "tr"))
    answer = ask(app, "/api/heads/reading", query="text=abc", headers=headers)
    line = json.loads(answer.body.decode().splitlines()[-1])
    assert (line["status"], line["error"]) == (410, "bu metin artık burada değil. Yeniden açın.")

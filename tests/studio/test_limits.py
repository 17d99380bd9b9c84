"""What the studio does not take on, and what it says instead."""

import asyncio
import json

import pytest

from glasshead.studio.app import application
from glasshead.studio.background_jobs import Forgotten, Refusal, TooMuch
from glasshead.studio.security import RequestLimits
from glasshead.studio.studio import Limits, SentTexts, Studio
from studio.asking import ask, run

SMALL = Limits(text=11, texts=2, requests=3, patience=0.05)
JSON = (("host", "localhost"), ("content-type", "application/json"))
LARGEST = 6 * 11 + 2**16


@pytest.fixture(scope="module")
def app():
    return application(Studio(limits=SMALL))


def sent(app, *parts: bytes, headers=JSON):
    return ask(app, "/api/texts", method="POST", headers=headers, parts=parts)


def test_a_text_is_remembered_by_a_name_that_is_the_same_everywhere(app):
    answer = sent(app, b'{"text": "red ', b'ball"}')
    name = json.loads(answer.body)["id"]
    assert answer.status == 200
    assert json.loads(ask(app, f"/api/texts/{name}").body) == {"text": "red ball"}
    assert SentTexts(Limits()).add("red ball") == name


def test_a_text_too_long_is_refused_by_its_bytes(app):
    answer = sent(app, json.dumps({"text": "é" * 6}).encode())
    assert answer.status == 413
    assert (
        answer.detail
        == "A text must have at most 11 bytes, but this text has 12. Choose a shorter text."
    )
    assert sent(app, json.dumps({"text": "é" * 5}).encode()).status == 200


@pytest.mark.parametrize("text", ["", " \n\t", "\u2003"])
def test_a_text_has_a_word(app, text):
    answer = sent(app, json.dumps({"text": text}).encode())
    assert answer.status == 400
    assert answer.detail.startswith("Enter at least one word, or choose a text.")


def test_what_was_used_longest_ago_is_forgotten_first():
    texts = SentTexts(SMALL)
    first, second = texts.add("first"), texts.add("second")
    assert texts[first] == "first"
    texts.add("third")
    assert texts[first] == "first"
    with pytest.raises(Forgotten, match=r"no longer here\. Open it again"):
        texts[second]
    for wrong, kind in (("", Refusal), ("x" * 12, TooMuch)):
        with pytest.raises(kind):
            texts.add(wrong)


def test_half_a_character_is_given_back_as_none(app):
    name = json.loads(sent(app, b'{"text": "a\\ud800b"}').body)["id"]
    assert json.loads(ask(app, f"/api/texts/{name}").body) == {"text": "a\ufffdb"}


def test_an_upload_too_large_is_refused_before_it_comes(app):
    answer = sent(app, headers=(*JSON, ("content-length", str(LARGEST + 1))))
    assert answer.status == 413
    assert answer.detail == f"a request must have at most {LARGEST:,} bytes. Send less."


def test_an_upload_that_does_not_say_how_large_it_is_is_counted(app):
    piece = b"a" * 2**14
    assert sent(app, *[piece] * 5).status == 413
    # Nothing of it is asked for after that.
    taken = []

    async def receive():
        taken.append(1)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(message):
        taken.append(message["type"])

    headers = [(name.encode(), value.encode()) for name, value in JSON]
    scope = {"type": "http", "method": "POST", "path": "/api/texts", "headers": headers}
    run(app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send))
    assert taken == [1] * 5 + ["http.response.start", "http.response.body"]


@pytest.mark.parametrize("length", ["-1", "1e9", "0x5", "", "٣", "\xb2", "1" * 5000])
def test_a_length_is_a_number(app, length):
    for sent_as in ("utf-8", "latin-1"):
        written = length.encode(sent_as, "replace").decode("latin-1")
        answer = sent(app, headers=(*JSON, ("content-length", written)))
        assert answer.status == 413


def test_who_stops_in_the_middle_is_not_waited_for(app):
    async def receive():
        await asyncio.Event().wait()

    told = []

    async def send(message):
        told.append(message)

    headers = [(name.encode(), value.encode()) for name, value in JSON]
    scope = {"type": "http", "method": "POST", "path": "/api/texts", "headers": headers}
    run(app({**scope, "query_string": b"", "http_version": "1.1"}, receive, send))
    assert told[0]["status"] == 408
    assert b"did not arrive within 0.05 s" in told[1]["body"]


def test_who_has_sent_all_may_wait_for_as_long_as_the_answer_takes():
    messages, came = [{"type": "http.request"}, {"type": "http.disconnect"}], []

    async def receive():
        await asyncio.sleep(4 * SMALL.patience if came else 0)
        return messages[len(came)]

    async def slow(scope, receive, send):
        came.append(await receive())
        came.append(await receive())

    run(RequestLimits(slow, SMALL)({"type": "http", "headers": []}, receive, None))
    assert came == messages


def test_one_request_too_many_is_refused():
    let_go, under_way = asyncio.Event(), []

    async def slow(scope, receive, send):
        under_way.append(scope)
        await let_go.wait()

    async def crowd():
        bounds, told, refused = RequestLimits(slow, SMALL), [], asyncio.Event()

        async def send(message):
            told.append(message)
            refused.set()

        scope = {"type": "http", "headers": []}
        tasks = [asyncio.create_task(bounds(scope, None, send)) for _ in range(4)]
        await refused.wait()
        let_go.set()
        await asyncio.gather(*tasks)
        await bounds(scope, None, send)
        return told

    told = run(crowd())
    assert len(under_way) == 4
    assert [message.get("status") for message in told] == [429, None]
    assert b"the limit of concurrent requests is 3" in told[1]["body"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "text is missing."),
        (b'{"text": 7}', "text must be a text, got 7."),
        (b'{"text": NaN}', "text must be a text, got nan."),
        (b'{"text"', "the request must be JSON."),
        (b'{"text": "' + b"\xff" + b'"}', "the request has content that cannot be read."),
    ],
)
def test_what_is_malformed_is_told_in_one_sentence(app, body, sentence):
    answer = sent(app, body)
    assert answer.status in (400, 422)
    assert answer.detail == sentence


def test_what_is_nested_deep_is_refused_however_deep_python_reads(app):
    answer = sent(app, b"[" * 5000)
    assert answer.status in (400, 422)
    assert answer.detail in (
        "the request has content that cannot be read.",
        "the request must be JSON.",
    )

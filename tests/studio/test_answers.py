"""Work goes on for as long as somebody waits, and no longer: with real connections."""

import json
import re
import threading
import urllib.error
import urllib.request

import pytest
from fastapi import APIRouter, Request, Response

from glasshead.message import Message
from glasshead.studio.answers import Streamed, refusal_of, run_job
from glasshead.studio.background_jobs import Cancelled, Forgotten, TooMuch, Work
from glasshead.studio.studio import Limits, Studio
from studio.asking import connected, soon

WAYS = ("waited", "streamed")


class Jobs:
    """What the routes below do, seen from the test."""

    def __init__(self):
        self.begun, self.may_end = threading.Semaphore(0), threading.Event()
        self.ended: list[str] = []
        self.raises: BaseException | None = None

    def job(self, work: Work) -> dict[str, int]:
        self.begun.release()
        if self.raises is not None:
            raise self.raises
        try:
            while not self.may_end.wait(0.005):
                work.report("counting", 3, 7)
        except Cancelled:
            self.ended.append("cancelled")
            raise
        self.ended.append("whole")
        return {"answer": 7}


@pytest.fixture
def doing(serves):
    """A studio with two slots and two turns, and what its routes do."""
    studio = Studio(limits=Limits(jobs=2, turns=2))
    jobs, routes = Jobs(), APIRouter()

    @routes.get("/api/waited")
    async def waited(request: Request) -> dict[str, int]:
        return await run_job(request, jobs.job)

    @routes.get("/api/streamed")
    def stream() -> Response:
        return Streamed(studio, jobs.job)

    yield jobs, serves(studio, routes=routes)
    jobs.may_end.set()


def asked(served, way):
    """A connection on which something is asked, and nothing is read yet."""
    connection = connected(served.url)
    connection.sendall(f"GET /api/{way} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def begun(doing, way):
    """The same, and it has begun to be done."""
    jobs, served = doing
    connection = asked(served, way)
    assert jobs.begun.acquire(timeout=20)
    return connection


def got(served, way):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"{served.url}api/{way}", timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def all_free(studio: Studio) -> bool:
    """Whether no slot and no turn is taken."""
    return studio.slots._free._value == 2 and studio.turns._free._value == 2


def at_work() -> int:
    """How many threads work, or wait for a turn."""
    return sum(thread.name == "glasshead work" for thread in threading.enumerate())


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_gets_the_answer(doing, way):
    jobs, served = doing
    connection = begun(doing, way)
    jobs.may_end.set()
    connection.settimeout(20)
    told = b""
    while b'{"answer":7}' not in told:
        told += connection.recv(2**16)
    connection.close()
    assert jobs.ended == ["whole"]
    assert soon(lambda: all_free(served.studio))


def test_a_stream_tells_how_far_it_is_before_the_result(doing):
    jobs, served = doing
    with urllib.request.urlopen(f"{served.url}api/streamed", timeout=20) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(answer.readline())]
        jobs.may_end.set()
        lines += [json.loads(line) for line in answer]
    assert lines == [
        {"progress": {"stage": "counting", "done": 3, "of": 7}},
        {"result": {"answer": 7}},
    ]


@pytest.mark.parametrize("way", WAYS)
def test_work_is_left_as_soon_as_the_browser_goes_away(doing, way):
    jobs, served = doing
    begun(doing, way).close()
    assert soon(lambda: jobs.ended == ["cancelled"])
    assert soon(lambda: all_free(served.studio))


@pytest.mark.parametrize("way", WAYS)
def test_nothing_stays_taken_by_those_who_leave_at_once(doing, way):
    jobs, served = doing
    for _ in range(7):
        asked(served, way).close()
    jobs.may_end.set()
    assert soon(lambda: all_free(served.studio))
    assert soon(lambda: got(served, way)[0] == 200)
    assert soon(lambda: all_free(served.studio))


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ValueError(Message("beta must be a number.")), 400, "beta must be a number."),
        (TooMuch("cut it."), 413, "cut it."),
        (Forgotten("send it again."), 410, "send it again."),
        (MemoryError(), 413, "this takes more memory than there is. Choose a shorter text."),
        (FileNotFoundError(2, "No such file", "run/x"), 404, "run/x: No such file."),
        (FileNotFoundError("there is no run."), 404, "there is no run."),
    ],
)
def test_a_refusal_is_a_sentence_and_takes_nothing(doing, error, status, sentence):
    jobs, served = doing
    jobs.raises = error
    told, body = got(served, "waited")
    assert (told, json.loads(body)) == (status, {"detail": sentence})
    told, body = got(served, "streamed")
    assert (told, json.loads(body)) == (200, {"error": sentence, "status": status})
    assert all_free(served.studio)


@pytest.mark.parametrize(
    "error",
    [KeyError("no"), RuntimeError("shapes"), AssertionError(), ValueError("too few values")],
)
def test_a_fault_is_told_in_one_line_where_the_studio_was_started(doing, capfd, error):
    jobs, served = doing
    jobs.raises = error
    status, body = got(served, "waited")
    assert status == 500
    (name,) = re.findall(r"^Something went wrong \(fault (\w+)\)", json.loads(body)["detail"])
    told = capfd.readouterr().err
    assert told.startswith(f"glasshead: fault {name} in GET /api/waited: {type(error).__name__}: ")
    assert "test_answers.py, line " in told
    assert told.count("\n") == 1
    # What has begun breaks off, without a result.
    assert got(served, "streamed") == (200, b"")
    assert " in GET /api/streamed" in capfd.readouterr().err
    assert all_free(served.studio)


def test_a_text_too_many_is_refused_until_one_is_done(doing):
    jobs, served = doing
    first, second = begun(doing, "streamed"), begun(doing, "streamed")
    status, body = got(served, "streamed")
    assert status == 429
    assert json.loads(body)["detail"] == (
        "the limit of concurrent tasks is 2, and it is reached. Wait for one of them to end."
    )
    first.close()
    jobs.may_end.set()
    assert soon(lambda: got(served, "streamed")[0] == 200)
    second.close()


def test_smaller_work_waits_for_its_turn_and_is_left_while_it_waits(doing):
    jobs, served = doing
    both = [begun(doing, "waited") for _ in range(2)]
    waiting = asked(served, "waited")
    assert soon(lambda: at_work() == 3)
    # It might still begin, which can only be waited for.
    assert not jobs.begun.acquire(timeout=0.3)
    waiting.close()
    assert soon(lambda: at_work() == 2)
    both.append(asked(served, "waited"))
    jobs.may_end.set()
    assert jobs.begun.acquire(timeout=20)
    assert soon(lambda: at_work() == 0)
    assert jobs.ended == ["whole"] * 3
    for connection in both:
        connection.close()
    assert all_free(served.studio)


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_the_studio_is_the_end_of_its_work(doing, way):
    jobs, served = doing
    connection = begun(doing, way)
    served.stop()
    assert jobs.ended == ["cancelled"]
    assert all_free(served.studio)
    told = b""
    while part := connection.recv(2**16):
        told += part
    connection.close()
    assert b"result" not in told
    assert b"Traceback" not in told


def test_what_is_blamed_on_a_request_is_one_short_line():
    status, sentence = refusal_of(TooMuch.of(ValueError("a\nb\x1b[31m\u202e" + "x" * 5000)))
    assert status == 413
    assert sentence.startswith("a b\\x1b[31m\\u202e")
    assert len(sentence) < 510
    assert refusal_of(AttributeError("none")) is None
    assert refusal_of(ValueError("too few values")) is None
    assert refusal_of(RuntimeError("CUDA out of memory."))[0] == 413

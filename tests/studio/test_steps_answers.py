"""The view `steps` as a report stores it, and as the server answers it."""

import json
import urllib.error
import urllib.parse
import urllib.request
from itertools import product

import pytest

from glasshead.studio.background_jobs import Refusal
from glasshead.studio.studio import Limits
from glasshead.studio.views.steps import steps_data, steps_stored, steps_words
from glasshead.studio.views.steps_request import StepsRequest

LIMITS = Limits()
SENTENCE = "I do not like rain"


@pytest.mark.parametrize(
    "text", [None, SENTENCE, "The quick brown fox did not jump over the dog , ."]
)
@pytest.mark.parametrize("most", [40_000, 1_000_000])
def test_a_report_stores_all_that_it_offers(text, most):
    answers = {
        (path, tuple(sorted(parameters.items()))): answer
        for path, parameters, answer in steps_stored(text, "en", LIMITS, most=most)
    }
    size = sum(len(json.dumps(each, ensure_ascii=False).encode()) for each in answers.values())
    assert size < most or len(answers) == 2
    first = answers["steps", ()]
    defaults = first["defaults"]
    options = first["options"]
    for mask, normalizer in product(options["masks"], options["normalizers"]):
        chosen = {"mask": mask, "normalizer": normalizer["name"]}
        some = {name: value for name, value in chosen.items() if value != defaults[name]}
        here = answers["steps", tuple(sorted(some.items()))]["options"]
        assert (here["masks"], here["normalizers"]) == (options["masks"], options["normalizers"])
        for beta in [stop["name"] for stop in here["betas"]]:
            given = some if beta == defaults["beta"] else {**some, "beta": beta}
            stored = answers["steps", tuple(sorted(given.items()))]
            asked = StepsRequest(text=text, **given)
            assert stored["matrices"] == steps_data(asked, LIMITS)["matrices"]
            for query in options["queries"]:
                word = {} if query == first["query"] else {"query": query}
                told = answers[
                    "steps/words", tuple(sorted({**given, **word, "lang": "en"}.items()))
                ]
                assert told["query"] == query


def test_a_report_offers_much_where_there_is_room():
    *_, last = steps_stored(None, "en", LIMITS, most=1_000_000)
    first = next(iter(steps_stored(None, "en", LIMITS)))[2]
    assert last[0] == "steps/words"
    assert len(first["options"]["betas"]) >= 4
    assert first["options"]["queries"] == [0, 1, 2]
    assert {each["name"] for each in first["options"]["normalizers"]} >= {"softmax", "sparsemax"}


def test_a_report_refuses_a_sentence_that_is_too_long():
    with pytest.raises(Refusal, match="at most 12 words, and got 13: cut it"):
        next(iter(steps_stored("a " * 13, "en", LIMITS)))


def answer_to(served, path, **parameters):
    url = f"{served.url}api/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_server_answers_with_the_same(serving):
    served = serving(None)
    given = {"text": SENTENCE, "beta": "2", "mask": "causal", "heads": 2, "head": 1}
    asked = StepsRequest(**given)
    assert answer_to(served, "steps", **given) == (200, steps_data(asked, LIMITS))
    status, told = answer_to(served, "steps/words", **given, query=1, lang="es")
    expected = steps_words(StepsRequest(**given, query=1), "es", LIMITS)
    assert (status, told) == (200, json.loads(json.dumps(expected)))


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"beta": "0"}, 422),
        ({"heads": 5}, 422),
        ({"mask": "diagonal"}, 422),
        ({"heads": 2}, 400),
        ({"text": "a" * 501}, 422),
        ({"text": "a " * 25}, 413),
    ],
)
def test_the_server_refuses_in_one_sentence(serving, given, status):
    found, told = answer_to(serving(None), "steps", **given)
    assert found == status
    assert told["detail"].endswith(".")


def test_a_language_that_is_not_there_is_refused(serving):
    status, told = answer_to(serving(None), "steps/words", lang="xx")
    assert status == 400
    assert "lang takes one of en" in told["detail"]

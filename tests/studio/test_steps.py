"""The data of the view `steps`: the library's own numbers and words, and what can be chosen.

The view `steps` as a report stores it, and as the server answers it.
"""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from itertools import product

import pytest
import torch

import glasshead as gh
from glasshead.cli.explain import explain_sentence
from glasshead.cli.inputs.settings import CommandSettings
from glasshead.explanation.embeddings import Embeddings
from glasshead.studio.background_jobs import Refusal
from glasshead.studio.studio import Limits
from glasshead.studio.views.steps import steps_data, steps_stored, steps_words
from glasshead.studio.views.steps_request import BETAS, MASKS, STEPS_NORMALIZERS, StepsRequest

LIMITS = Limits()


SENTENCE = "I do not like rain"


WORDS = ["I", "do", "not", "like", "rain"]


OWN = {
    "softmax": gh.Softmax,
    "softmax-one": gh.SoftmaxOne,
    "hardmax": gh.HardMax,
    "sparsemax": gh.Sparsemax,
    "entmax15": gh.Entmax15,
    "sigmoid": gh.Sigmoid,
}


MASK = {"none": None, "causal": gh.causal(), "window": gh.window(before=1, after=1)}


STEPS = ("queries", "keys", "values", "scores", "scaled", "masked", "weights", "context")


def tensor(rows):
    return torch.tensor(
        [[-math.inf if value is None else value for value in row] for row in rows],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("normalizer", STEPS_NORMALIZERS)
@pytest.mark.parametrize(("heads", "head"), [(1, 0), (2, 1), (4, 3)])
def test_each_number_is_the_librarys(mask, normalizer, heads, head):
    data = steps_data(
        StepsRequest(
            text=SENTENCE, beta="3", mask=mask, normalizer=normalizer, heads=heads, head=head
        ),
        LIMITS,
    )
    vectors = Embeddings.generated(WORDS).vectors.chunk(heads, -1)[head]
    attention = gh.Attention(score=gh.Dot(beta=3.0), mask=MASK[mask], normalizer=OWN[normalizer]())
    trace = attention.trace(vectors, vectors, vectors)
    for name in STEPS:
        assert torch.equal(tensor(data["matrices"][name]), getattr(trace, name)), name


def test_the_worked_example_has_the_numbers_of_the_texts():
    data = steps_data(StepsRequest(), LIMITS)
    assert data["words"] == ["Hello", "shiny", "sun"]
    assert data["query"] == 1
    assert data["beta"] == 1
    assert data["chosen"]["beta"] == "1"
    context = torch.tensor(data["matrices"]["context"][1])
    torch.testing.assert_close(context, torch.tensor([0.3990, 0.3854, 0.8610]), atol=5e-5, rtol=0)


JOURNEY = "Your journey starts with one step"


@pytest.mark.parametrize(
    ("source", "name", "printed"),
    [
        (None, "queries", [0.3558, 0.5643]),
        ("E", "context", [0.5084, 0.3508]),
        ("C", "queries", [0.4306, 1.4551]),
        ("A", "context", [-0.0748, 0.0703]),
        ("B", "context", [-0.0748, 0.0703]),
        ("D", "values", [0.55, 0.87, 0.66]),
    ],
)
def test_the_journey_has_the_numbers_of_each_text(source, name, printed):
    data = steps_data(StepsRequest(text=JOURNEY, source=source), LIMITS)
    assert data["query"] == 1
    row = torch.tensor(data["matrices"][name][1])
    torch.testing.assert_close(row, torch.tensor(printed), atol=5.1e-5, rtol=0)
    assert [each["name"] for each in data["options"]["source"]] == [*"ABCDE"]
    assert data["chosen"]["source"] == (source or "E")


def test_the_causal_mask_of_a_text_comes_with_its_own_matrices():
    data = steps_data(StepsRequest(text=JOURNEY, source="A", mask="causal"), LIMITS)
    row = torch.tensor(data["matrices"]["context"][1])
    torch.testing.assert_close(row, torch.tensor([-0.5874, 0.0058]), atol=5.1e-5, rtol=0)


def test_embeddings_times_matrices_are_queries_keys_and_values():
    data = steps_data(StepsRequest(text=JOURNEY, source="C"), LIMITS)
    x = tensor(data["projection"].pop("x"))
    for name, matrix in data["projection"].items():
        torch.testing.assert_close(x @ tensor(matrix), tensor(data["matrices"][name]))
    assert steps_data(StepsRequest(), LIMITS)["projection"] is None


@pytest.mark.parametrize(
    ("text", "source", "sentence"),
    [
        (None, "C", "source must be one of A, B, D for this sentence, got C"),
        (
            SENTENCE,
            "A",
            "source needs the sentence of a worked example: 'Hello shiny sun!'",
        ),
    ],
)
def test_a_text_that_does_not_work_the_sentence_is_refused(text, source, sentence):
    with pytest.raises(ValueError, match=sentence):
        steps_data(StepsRequest(text=text, source=source), LIMITS)


def test_text_d_is_told_in_columns_too():
    names = [step["name"] for step in steps_words(StepsRequest(source="D"), "en", LIMITS)["steps"]]
    assert "columns" in names


def test_beta_is_one_over_the_root_of_the_width_where_no_other_is_asked_for():
    assert steps_data(StepsRequest(text=SENTENCE), LIMITS)["beta"] == 0.5
    assert steps_data(StepsRequest(text=SENTENCE, heads=2), LIMITS)["beta"] == 2**-0.5
    assert steps_data(StepsRequest(beta="auto"), LIMITS)["beta"] == 3**-0.5


def test_an_infinite_beta_gives_all_weight_to_one_key_by_the_scores_own_beta():
    data = steps_data(StepsRequest(text=SENTENCE, beta="inf"), LIMITS)
    assert (data["normalizer"], data["beta"], data["chosen"]["beta"]) == ("hardmax", 0.5, "inf")
    assert data["chosen"]["normalizer"] == "softmax"
    for row in data["matrices"]["weights"]:
        assert sorted(row) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("mask", MASKS)
def test_weights_follow_from_the_threshold_of_their_row(mask):
    sparsemax = StepsRequest(text=SENTENCE, mask=mask, normalizer="sparsemax")
    entmax15 = StepsRequest(text=SENTENCE, mask=mask, normalizer="entmax15")
    for asked, scale, power in ((sparsemax, 1, 1), (entmax15, 2, 2)):
        data = steps_data(asked, LIMITS)
        masked = tensor(data["matrices"]["masked"]) / scale
        thresholds = torch.tensor(data["thresholds"], dtype=torch.float64)
        weights = (masked - thresholds[:, None]).clamp(min=0) ** power
        torch.testing.assert_close(weights, tensor(data["matrices"]["weights"]))
    assert steps_data(StepsRequest(mask=mask), LIMITS)["thresholds"] is None


@pytest.mark.parametrize(
    "asked",
    [
        StepsRequest(),
        StepsRequest(heads=3),
        *(StepsRequest(text=SENTENCE, heads=h) for h in (1, 2, 4)),
    ],
)
def test_betas_go_from_soft_to_hard_and_each_number_once(asked):
    data = steps_data(asked, LIMITS)
    stops = data["options"]["beta"]
    numbers = [stop["value"] for stop in stops[:-1]]
    assert numbers == sorted(set(numbers))
    assert stops[-1] == {"name": "inf", "value": None, "said": "∞"}
    assert data["defaults"]["beta"] == asked.own_beta == data["chosen"]["beta"]
    assert data["chosen"]["beta"] in [stop["name"] for stop in stops]


@pytest.mark.parametrize("beta", BETAS)
def test_each_beta_has_a_stop(beta):
    for heads in (1, 2, 4):
        data = steps_data(StepsRequest(text=SENTENCE, beta=beta, heads=heads), LIMITS)
        stop = next(s for s in data["options"]["beta"] if s["name"] == data["chosen"]["beta"])
        assert stop["value"] == (None if beta == "inf" else data["beta"])


def test_what_never_becomes_hard_has_no_infinite_beta():
    for name in STEPS_NORMALIZERS:
        options = steps_data(StepsRequest(normalizer=name), LIMITS)["options"]
        hardens = {each["name"]: each["hardens"] for each in options["normalizer"]}
        assert (options["beta"][-1]["name"] == "inf") is hardens[name]
        assert hardens[name] is (name not in ("softmax-one", "sigmoid"))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"beta": "5", "mask": "causal"},
        {"heads": 3, "head": 2, "normalizer": "sigmoid"},
        {"text": SENTENCE, "query": 2, "normalizer": "entmax15"},
        {"text": SENTENCE, "beta": "inf", "mask": "window"},
        {"text": "the sun and the moon!", "heads": 2, "head": 1, "mask": "causal"},
    ],
)
@pytest.mark.parametrize("lang", ["en", "tr", "zh-Hant"])
def test_the_words_are_those_of_explain(given, lang):
    told = steps_words(StepsRequest(**given), lang, LIMITS)
    mask = given.get("mask", "none")
    place = f"#{given['query'] + 1}" if "query" in given else None
    mask = {"window": "window:1:1"}.get(mask, mask)
    settings = CommandSettings(**{**given, "mask": mask, "query": place, "lang": lang})
    theirs = explain_sentence(settings).to_dict()
    assert (told["title"], told["query"]) == (theirs["title"], theirs["query"])
    assert told["notes"] == theirs["notes"]
    # A slider at ∞ scales no score.
    without = {"scaled"} if given.get("beta") == "inf" else set()
    steps = [step for step in theirs["steps"] if step["name"] not in without]
    for part in ("name", "title", "text"):
        assert [step[part] for step in told["steps"]] == [step[part] for step in steps]
    for mine, their in zip(told["steps"], steps, strict=True):
        lines = ["".join(text for text, _ in line) for line in [*mine["numbers"], mine["why"]]]
        bare = [
            line.replace("^", "").replace("_", "") for line in [*their["numbers"], their["why"]]
        ]
        assert [line.replace("(", "").replace(")", "") for line in lines] == [
            line.replace("(", "").replace(")", "") for line in bare
        ]


def test_the_power_of_an_explanation_is_raised():
    weights = next(
        step
        for step in steps_words(StepsRequest(), "en", LIMITS)["steps"]
        if step["name"] == "weights"
    )
    at = weights["why"].index(("0.1082", "sup"))
    assert weights["why"][at - 1][0].endswith("its weight is e")
    assert weights["why"][at + 1][0].startswith(" = 1.1143 times as large")


def test_the_query_is_told_of_and_changes_no_matrix():
    asked = [StepsRequest(text=SENTENCE, query=query) for query in (0, 3)]
    assert steps_data(asked[0], LIMITS) == steps_data(asked[1], LIMITS)
    assert [steps_words(each, "en", LIMITS)["query"] for each in asked] == [0, 3]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"text": " "}, "Enter at least one word"),
        (
            {"text": "a" * 501},
            "at most 500 characters, got 501. Choose a shorter",
        ),
        (
            {"text": "a " * 25},
            "at most 24 words and marks, got 25. Choose a shorter",
        ),
        ({"text": "a\ud800"}, "whole characters, got halves of some"),
        (
            {"heads": 2},
            "heads must be a divisor of the vectors' dimension 3 \\(1, 3\\), got 2",
        ),
        ({"text": SENTENCE, "heads": 2, "head": 2}, r"head must be in 0\.\.1, got 2"),
        ({"query": 3}, "query must be a position from 0 to 2, got 3. Words in the sentence: 3."),
        (
            {"beta": "inf", "normalizer": "sigmoid"},
            "the normalizer sigmoid never reaches. Omit one",
        ),
    ],
)
def test_what_is_not_to_be_had_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        steps_words(StepsRequest(**given), "en", LIMITS)


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
    for mask, normalizer in product(options["mask"], options["normalizer"]):
        chosen = {"mask": mask["name"], "normalizer": normalizer["name"]}
        some = {name: value for name, value in chosen.items() if value != defaults[name]}
        here = answers["steps", tuple(sorted(some.items()))]["options"]
        assert (here["mask"], here["normalizer"]) == (options["mask"], options["normalizer"])
        for beta in [stop["name"] for stop in here["beta"]]:
            given = some if beta == defaults["beta"] else {**some, "beta": beta}
            stored = answers["steps", tuple(sorted(given.items()))]
            asked = StepsRequest(text=text, **given)
            assert stored["matrices"] == steps_data(asked, LIMITS)["matrices"]
            for query in (each["name"] for each in options["query"]):
                word = {} if query == first["query"] else {"query": query}
                told = answers[
                    "steps/words", tuple(sorted({**given, **word, "lang": "en"}.items()))
                ]
                assert told["query"] == query


def test_a_report_offers_much_where_there_is_room():
    *_, last = steps_stored(None, "en", LIMITS, most=1_000_000)
    first = next(iter(steps_stored(None, "en", LIMITS)))[2]
    assert last[0] == "steps/words"
    assert len(first["options"]["beta"]) >= 4
    assert [each["name"] for each in first["options"]["query"]] == [0, 1, 2]
    assert {each["name"] for each in first["options"]["normalizer"]} >= {"softmax", "sparsemax"}


def test_a_report_refuses_a_sentence_that_is_too_long():
    with pytest.raises(Refusal, match="at most 12 words and marks, got 13"):
        next(iter(steps_stored("a " * 13, "en", LIMITS)))


def answer_to(served, path, **parameters):
    url = f"{served.url}api/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
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
        ({"source": "C"}, 400),
        ({"beta": "inf", "normalizer": "sigmoid"}, 400),
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
    assert "lang must be one of en" in told["detail"]

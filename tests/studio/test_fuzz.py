"""Whatever is asked of the studio, it answers as its description says, and never by a fault."""

import contextlib
import re

import pytest
import schemathesis
import torch
from hypothesis import HealthCheck, Phase, given
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import glasshead as gh
from glasshead.explanation.embeddings import split
from glasshead.studio.app import application
from glasshead.studio.background_jobs import Refusal
from glasshead.studio.parameters import HAS_A_SIGN, HAS_A_WORD, words_of
from glasshead.studio.shell import words
from glasshead.studio.studio import Limits, Studio
from glasshead.studio.views.alignment import check_sentence
from hypothesis_profiles import examples
from studio.asking import ask
from studio.conftest import quickly
from translated import translated
from written import written

# Little work a request, so that there are many requests.
SMALL = Limits(sentence=97, words=7, text=997, heads=53, atlas=997, memory=2**24, patience=1)
EXAMPLES = 8
PYTHONS_OWN = b"not supported between|NoneType|positional argument|object is not|has no attribute"
OWN = {"Host": "localhost"}
# A schema tells the form of a request. Whether the text was sent, and whether there is such a
# layer, it cannot: some that conform are refused, for what is not there, or as the description of
# the operation says.
LEFT_OUT = [positive_data_acceptance]
NOT_THERE = {404, 409, 410, 429}


KINDS = ("nothing", "translate", "write")


def studio_of(kind, folder):
    """The application of a studio that has nothing, a translator or a language model open."""
    made = {"translate": translated, "write": written}
    path = made[kind](folder / kind).path if kind in made else None
    return application(Studio(path, SMALL))


@pytest.fixture(scope="module", params=quickly("nothing", KINDS))
def app(request, tmp_path_factory):
    return studio_of(request.param, tmp_path_factory.mktemp("fuzz"))


def described(app):
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=OWN)


MODES = pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)


@MODES
@pytest.mark.slow
def test_every_answer_is_one_that_is_described(tmp_path, mode):
    apps = [studio_of(kind, tmp_path) for kind in KINDS]
    # To draw a request takes longer than to answer it: what one is asked, all are.
    assert all(each.openapi() == apps[0].openapi() for each in apps)
    assert conforming(described(apps[0]), mode, apps) > EXAMPLES


@pytest.fixture(scope="module")
def steps():
    """The description of one route, which was asked once."""
    app = application(Studio(None, SMALL))
    steps = described(app).include(path_regex="^/api/steps$")
    # Schemathesis prepares its checks at the first answer.
    assert conforming(steps, GenerationMode.POSITIVE, [app])
    return steps, [app]


@MODES
def test_answers_about_steps_are_described(steps, mode):
    described, apps = steps
    assert conforming(described, mode, apps)


def conforming(described, mode, apps):
    """Return how many requests each application answered as their operations are described."""
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()

        @examples(
            EXAMPLES,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def conforms(case):
            nonlocal asked
            asked += 1
            for app in apps:
                answer = case.call_and_validate(headers=OWN, excluded_checks=LEFT_OUT, app=app)
                refused = answer.status_code >= 400 and answer.status_code not in NOT_THERE
                if mode.is_positive and refused:
                    said = case.operation.definition.raw["description"]
                    assert str(answer.status_code) in said, (case.operation.label, answer.content)
                # A fault of our own that is told as a refusal, in Python's words.
                assert not re.search(PYTHONS_OWN, answer.content)

        # A route without parameters cannot be asked wrongly.
        with contextlib.suppress(Unsatisfiable):
            conforms()
    return asked


@pytest.mark.parametrize("limits", [SMALL, Limits()], ids=["small", "usual"])
def test_limits_stand_in_the_schema(limits):
    described = application(Studio(None, limits)).openapi()
    paths = described["paths"]

    def schema(path, name):
        (found,) = (one for one in paths[path]["get"]["parameters"] if one["name"] == name)
        return found["schema"]

    for path, name in (("/api/steps", "text"), ("/api/alignment", "sentence")):
        told = schema(path, name)
        (text, *_) = told.get("anyOf", [told])
        assert (told["minLength"], text["maxLength"]) == (1, limits.sentence)
    (position, _) = schema("/api/steps", "query")["anyOf"]
    assert position["exclusiveMaximum"] == limits.words
    ends = schema("/api/alignment", "sentence")["pattern"]
    for count, fits in ((0, False), (1, True), (limits.words, True), (limits.words + 1, False)):
        words = "\x1c ".join(["one"] * count)
        assert bool(re.search(ends, f" {words}\t")) == fits
        with contextlib.nullcontext() if fits else pytest.raises(Refusal):
            check_sentence(f" {words}\t", limits)
    body = described["components"]["schemas"]
    (text,) = (one["properties"]["text"] for one in body.values() if "text" in one["properties"])
    assert (text["minLength"], text["maxLength"]) == (1, limits.text)


@pytest.mark.parametrize(
    "character", [" ", "\x1c", "\x85", "\u2003", "\u200b", "\ufeff", "\x1b", "."]
)
def test_the_patterns_of_texts_are_what_is_checked(character):
    for pattern, taken in (
        (HAS_A_WORD, bool(character.strip())),
        (HAS_A_SIGN, bool(split(character))),
        (words_of(SMALL), bool(character.split())),
    ):
        assert bool(re.search(pattern, character)) == taken


@pytest.mark.parametrize(
    "code",
    ["en", "tr_TR.UTF-8", "ZH-tw", "zh", "es@euro\n", "en\n", "english", "", "xx", "-en", "z"],
)
def test_the_codes_of_languages_are_what_is_read(app, code):
    (lang,) = app.openapi()["paths"]["/api/words"]["get"]["parameters"]
    # At the end of a text alone, as a schema has it.
    pattern = lang["schema"]["pattern"].replace("$", r"\Z")
    refused = pytest.raises(ValueError, match="lang must be one of en, tr, es")
    with contextlib.nullcontext() if re.search(pattern, code) else refused:
        words(code)


def test_a_text_is_asked_for_but_of_stored_weights(app, tmp_path):
    x = torch.eye(3)
    gh.Attention().weights(x, x).save(tmp_path / "kept.safetensors")
    stored = application(Studio(tmp_path / "kept.safetensors"))
    for one, needed in ((app, True), (stored, False)):
        for path in ("read", "map", "overview", "tile", "tokens"):
            asked = one.openapi()["paths"][f"/api/atlas/{path}"]["get"]["parameters"]
            (text,) = (each for each in asked if each["name"] == "text")
            assert text["required"] == needed
    assert ask(stored, "/api/atlas/map", query="layer=0&head=0").status == 200
    assert ask(app, "/api/atlas/map", query="layer=0&head=0").status == 422


def test_the_description_names_each_route_and_what_it_refuses(app):
    answer = ask(app, "/api/openapi.json")
    assert answer.status == 200
    for path, ways in app.openapi()["paths"].items():
        for how in ways.values():
            assert path.startswith("/api/")
            assert how["description"], path
            assert {"200", "400", "404", "410", "413", "422", "429"} <= set(how["responses"]), path

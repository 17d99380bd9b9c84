"""Whatever is asked of the studio, it answers as its description says, and never by a fault."""

import contextlib
import re

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from glasshead.studio.limits import Limits
from glasshead.studio.server.application import application
from glasshead.studio.studio import Studio
from studio.asking import ask
from translated import translated
from written import written

# Little work a request, so that there are many requests.
SMALL = Limits(sentence=97, words=7, text=997, heads=53, atlas=997, memory=2**24, patience=1)
EXAMPLES = 8
PYTHONS_OWN = b"not supported between|NoneType|positional argument|object is not|has no attribute"
OWN = {"Host": "localhost"}
# A schema tells the form of a request. Whether the text was sent, and whether there is such a
# layer, it cannot: some that conform are refused, as the description says.
LEFT_OUT = [positive_data_acceptance]


@pytest.fixture(scope="module", params=["nothing", "translate", "write"])
def app(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    if request.param == "translate":
        return application(Studio(translated(folder).path, SMALL))
    return application(Studio(written(folder).path if request.param == "write" else None, SMALL))


@pytest.fixture(scope="module")
def described(app):
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=OWN)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_every_answer_is_one_that_is_described(described, mode):
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def conforms(case):
            nonlocal asked
            asked += 1
            answer = case.call_and_validate(headers=OWN, excluded_checks=LEFT_OUT)
            # A fault of our own that is told as a refusal, in Python's words.
            assert not re.search(PYTHONS_OWN, answer.content)

        # A route without parameters cannot be asked wrongly.
        with contextlib.suppress(Unsatisfiable):
            conforms()
    assert asked > EXAMPLES


def test_the_description_names_each_route_and_what_it_refuses(app):
    answer = ask(app, "/api/openapi.json")
    assert answer.status == 200
    for path, ways in app.openapi()["paths"].items():
        for how in ways.values():
            assert path.startswith("/api/")
            assert how["description"], path
            assert {"200", "400", "404", "410", "413", "422", "429"} <= set(how["responses"]), path

"""The sentence that the texts work by hand: their numbers, and where they slipped."""

import dataclasses
import json
from pathlib import Path

import pytest
from explanation_told import all_text, worked_example

from glasshead.ladder.worked_example import HELLO_SHINY_SUN

SEED = json.loads((Path(__file__).parents[1] / "data" / "seed_numbers.json").read_text("utf-8"))


def test_its_numbers_are_written_out():
    text = all_text(worked_example())
    for line in (
        "s(Hello) = 0.53·0.34 + 0.34·0.22 + 0.98·0.54 = 0.7842",
        "s(shiny) = 0.53·0.53 + 0.34·0.34 + 0.98·0.98 = 1.3569",
        "s(sun)   = 0.53·0.29 + 0.34·0.54 + 0.98·0.93 = 1.2487",
        "p(shiny) = e^1.3569 / Σ = 3.8841 / 9.5606 = 0.4063",
        "c(shiny) = 0.2291·[0.34, 0.22, 0.54]",
        "= [0.3990, 0.3854, 0.8610]",
        "∂p(shiny)/∂s(Hello) = 0.4063·(0 - 0.2291) = -0.0931",
    ):
        assert line in text


def test_its_data_are_those_of_the_texts():
    steps = {step["name"]: step["data"] for step in worked_example().to_dict()["steps"]}
    shiny = SEED["shiny_sun"]
    assert steps["scores"]["scores"][1] == pytest.approx(shiny["exact_scores"], abs=1e-6)
    assert steps["weights"]["weights"][1] == pytest.approx(shiny["exact_weights"], abs=1e-6)
    assert steps["context"]["context"][1] == pytest.approx(shiny["exact_context"], abs=1e-6)


def test_steps_that_do_nothing_are_left_out():
    names = [step.name for step in worked_example().steps]
    told = "opening inputs scores scaled weights context matrix sharpness"
    assert names == told.split()


def test_printed_numbers_stand_beside_the_exact_ones():
    text = all_text(worked_example(printed=HELLO_SHINY_SUN))
    assert "c₁  exact        0.0779      0.2153    0.1057  0.3990" in text
    assert "    printed      0.0779    ≠ 0.2156    0.1057  0.3992" in text


def test_only_the_two_slips_are_called_slips():
    told = "".join(all_text(worked_example(printed=HELLO_SHINY_SUN)).split())
    assert "prints0.2156where0.2153isright" in told
    assert "prints0.1972where0.1969isright" in told
    assert told.count("isright,whichmakesthesum") == 2


def test_a_text_without_slips_is_praised():
    terms = tuple(
        tuple(round(w * v, 4) for w, v in zip((0.229134, 0.406265, 0.364602), column, strict=True))
        for column in zip(*HELLO_SHINY_SUN.embeddings, strict=True)
    )
    right = dataclasses.replace(
        HELLO_SHINY_SUN, printed_terms=terms, printed_context=(0.3990, 0.3854, 0.8610)
    )
    text = all_text(worked_example(printed=right))
    assert "agree with the exact ones" in text
    assert "≠ 0" not in text


def test_an_example_of_another_shape_is_refused():
    other = dataclasses.replace(HELLO_SHINY_SUN, printed_terms=((1.0, 2.0),))
    with pytest.raises(ValueError, match="an example of 3 numbers by 3 words.*got 1 by 2"):
        worked_example(printed=other)
    with pytest.raises(TypeError, match="takes a WorkedExample.*got str"):
        worked_example(printed="shiny")

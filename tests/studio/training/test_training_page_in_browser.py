"""The page of a run in a browser: keyboard, languages, widths, and names that are hostile."""

import json
import re
from pathlib import Path

import pytest

from glasshead import studio
from glasshead.studio.strings import TRAINING, words
from glasshead.studio.studio import Studio
from glasshead.tasks.training.attention_log import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading
from studio.conftest import LANGUAGES, WIDTHS
from studio.keyboard import reached_by_tab
from studio.small_runs import SmallRun
from studio.training.training_seen import ENTROPY, figure_of, readout


def test_every_control_is_reached_by_tab(still, looking):
    _, url = still
    page = looking(url).open("#training")
    name = """() => {
      const one = document.activeElement;
      return one.getAttribute("aria-label") ?? one.labels?.[0]?.innerText ?? one.innerText;
    }"""
    assert {
        "Smoothing", "Loss", "Validation: accuracy", "Learning rate", ENTROPY, "Maximum score",
        "200", "280", "Alarms", "The last rows and validations of log.csv",
    } <= set(reached_by_tab(page, name))  # fmt: skip


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_accessible_and_fits_every_width(still, looking, dark):
    _, url = still
    looked = looking(url, dark=dark)
    page = looked.open("#training?at=200&head=4")
    assert looked.violations() == []
    for width in WIDTHS:
        looked.resize(width)
        page.wait_for_function(
            "() => [...document.querySelectorAll('.plot')].every(one => Math.abs("
            "one.clientWidth - one.firstChild.getAttribute('width')) <= 1)"
        )
        assert looked.overflow() == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_its_words(still, looking, language):
    _, url = still
    page = looking(url, width=390, language=language).open("#training")
    said = page.locator("body").inner_text()
    assert words(language)["training.alarms"] in said
    assert "training." not in said
    assert not re.search(r"\{\w+\}", said)
    assert "370" in said


def test_each_word_is_said():
    text = ""
    for folder, name in (("static/views", "training*.js"), ("views", "training*.py")):
        for file in sorted(Path(studio.__file__).parent.joinpath(folder).glob(name)):
            text += file.read_text(encoding="utf-8")
    composed = re.findall(r"`(training\.[a-z_.]*)\$\{", text)
    for name in set(TRAINING) - {"training.title", "training.none"}:
        assert f'"{name}"' in text or any(name.startswith(part) for part in composed), name
    for name in re.findall(r'"(training\.[a-z_.]+)"', text):
        assert name in TRAINING


def test_hostile_names_and_numbers_stay_text(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run").go(2)
    layer = "<img src=x onerror=alert(1)>\u202e\x00"
    readings = [
        HeadReading(1, layer, 0, 1.0, 0.5, float("-inf")),
        HeadReading(2, layer, 0, 1.5, 0.6, 3.0),
    ]
    run.folder.write_text(run.folder.attention, text_of(readings))
    alarm = Alarm(2, layer, 0, "<b>none</b>", float("inf"), 1.0)  # pyright: ignore[reportArgumentType]
    run.folder.write_text(run.folder.alarms, line_of(alarm))
    text = run.folder.log.read_text().replace("validation_accuracy", "validation_<b>x</b>")
    run.folder.log.write_text(text + "30,nan,0.1,9.0,inf,0.25\n40,1.5,0.1,9.5,,\n")
    looked = looking(serves(Studio(run.folder.path)).url)
    page = looked.open("#training")
    assert page.locator("main img, main figure b b, h3 b").count() == 0
    hostile = "<img src=x onerror=alert(1)>\\u202e\\x00"
    assert hostile in figure_of(page, ENTROPY).locator(".readout").inner_text()
    assert hostile in page.locator(".picture").all_text_contents()[-1]
    assert looked.overflow() == 0
    figure_of(page, "Loss").get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert readout(page, "Loss")["loss"] == "NaN"


def test_an_answer_for_a_picture_is_small(still):
    from glasshead.studio.views.training import TrainingLog

    run, _ = still
    assert len(json.dumps(TrainingLog(run.folder.path).told(), allow_nan=False)) < 30_000

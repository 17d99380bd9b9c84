"""The charts of a run in a browser: their numbers are those of its files.

The page of a run follows it: what is written to it, and what is taken away.
The page of a run in a browser: keyboard, languages, widths, and names that are hostile.
"""

import json
import re
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from glasshead.studio.shell import words
from glasshead.studio.studio import Studio
from glasshead.tasks.training import read_attention_log
from glasshead.tasks.training.logs import line_of, text_of
from glasshead.watching.alarms import Alarm, HeadReading
from studio.conftest import (
    LANGUAGES,
    PATIENCE,
    WIDTHS,
    address,
    beyond,
    quickly,
    share,
    together,
)
from studio.keyboard import reached_by_tab
from studio.small_runs import ALARMS, SmallRun
from studio.training.training_seen import ENTROPY, GONE, figure_of, numbers, readout, rows_of


def test_the_numbers_are_those_of_the_files(still, looking):
    run, url = still
    page = looking(url).open("#training?smoothing=0.5")
    figures = numbers(page, ".figures")
    last = rows_of(run)[-1]
    assert [int(figures["step"]), float(figures["loss"])] == [370, float(last["loss"])]
    assert float(figures["learning_rate"]) == float(last["learning_rate"])
    assert (float(figures["best"]), float(figures["seconds"])) == (0.75, 23.12)
    # Three numbers next to each other agree.
    assert float(figures["speed"]) == pytest.approx(370 / 23.12)
    assert page.locator(".bar").inner_text() == "Step 370 of 700"
    # A number alone would be no scale.
    scales = page.locator("figure .plot").evaluate_all(
        "all => all.map(one => [...one.querySelectorAll('text[text-anchor=end]')].length)"
    )
    assert len(scales) > 3
    assert min(scales) > 1
    assert page.locator("progress").get_attribute("value") is not None
    cells = page.locator(".rows tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(one => one.dataset.value ?? ''))"
    )
    by_step = {row["step"]: row for row in rows_of(run)}
    assert [row[0] for row in cells][:3] == ["370", "360", "350"]
    for row in cells:
        expected = [float(x) if x else "" for x in by_step[row[0]].values()]
        assert [float(x) if x else "" for x in row] == expected


@pytest.mark.slow
def test_small_numbers_are_powers_of_ten_however_the_file_writes_them(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run").go(3)
    *before, row = run.folder.log.read_text("utf-8").splitlines()
    step, loss, _, *others = row.split(",")
    rates = ("0.0000025173336", "2.08e-8", "0.0000037970001")
    written = [
        ",".join([str(int(step) + 10 * at), loss, rate, *others]) for at, rate in enumerate(rates)
    ]
    run.folder.log.write_text("\n".join([*before, *written]) + "\n", "utf-8")
    page = looking(serves(Studio(run.folder.path)).url).open("#training")
    cells = page.locator(".rows tbody tr td:nth-child(3)").all_inner_texts()
    assert cells[:3] == ["3.7970001·10⁻⁶", "2.08·10⁻⁸", "2.5173336·10⁻⁶"]
    assert page.locator(".figures [data-name=learning_rate]").inner_text() == "3.797·10⁻⁶"


@pytest.mark.slow
def test_the_cross_hair_tells_every_number_by_keyboard_and_pointer(still, looking):
    run, url = still
    page = looking(url).open("#training?smoothing=0.5")
    rows = rows_of(run)
    plot = figure_of(page, "Loss").get_by_role("slider")
    plot.focus()
    page.keyboard.press("End")
    for row in reversed(rows[-9:]):
        told = readout(page, "Loss")
        assert (told["step"], float(told["loss"])) == (row["step"], float(row["loss"]))
        latest = [one for one in rows if one["validation_loss"]]
        latest = [one for one in latest if int(one["step"]) <= int(row["step"])][-1]
        assert float(told["validation_loss"]) == float(latest["validation_loss"])
        assert readout(page, "Learning rate")["step"] == row["step"]
        assert row["step"] in plot.get_attribute("aria-valuetext")
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Home")
    assert readout(page, "Loss")["step"] == "10"
    assert "at=10" in address(page)
    page.keyboard.press("Escape")
    assert "at=" not in address(page)
    assert readout(page, "Loss")["step"] == "370"
    # The pointer, in the middle of the plot, whose axis goes from 0 to the last step.
    box = plot.bounding_box()
    plot.hover(position={"x": 54 + (box["width"] - 64) * 200 / 370, "y": 90})
    assert float(readout(page, "Loss")["loss"]) == float(rows[19]["loss"])
    page.mouse.move(1, 1)
    assert readout(page, "Loss")["step"] == "370"


@pytest.mark.slow
def test_the_heads_are_those_of_the_attention_log(still, looking):
    run, url = still
    page = looking(url).open("#training?head=3")
    seen = {(r.step, r.layer, r.head): r for r in read_attention_log(run.folder.path).readings}
    for title, name in ((ENTROPY, "normalized_entropy"), ("Maximum score", "max_score")):
        plot = figure_of(page, title).get_by_role("slider")
        plot.focus()
        page.keyboard.press("Home")
        for step in (1, 40, 80):
            for head in (0, 1, 2):
                told = readout(page, title)
                assert (told["step"], told["head"]) == (str(step), str(3 + head))
                assert float(told[name]) == getattr(seen[step, "blocks.1.attention", head], name)
                page.keyboard.press("ArrowDown")
            for _ in range(3):
                page.keyboard.press("ArrowUp")
            page.keyboard.press("ArrowRight")
        # The axis of a map ends at its last step.
        *_, before, last = sorted({step for step, _, _ in seen})
        box = plot.bounding_box()
        for step in (before, last):
            plot.hover(position={"x": 29 + (box["width"] - 40) * (step - 1) / (last - 1), "y": 2})
            assert readout(page, title)["step"] == str(step)


def test_the_map_has_a_colour_for_each_reading(still, looking):
    """The entropy falls and the score rises with the steps, and so do the colours."""
    _, url = still
    page = looking(url).open("#training")
    for title, falls in ((ENTROPY, True), ("Maximum score", False)):
        paths = figure_of(page, title).locator(".plot svg:not(.cross) path[shape-rendering]")
        starts = paths.evaluate_all(
            "all => all.map(one => Number(one.getAttribute('d').match(/^M([0-9.]+)/)[1]))"
        )
        assert len(starts) > 5
        # In the order of the colour map, from none to the largest.
        assert sorted(starts, reverse=falls)[0] == starts[0]
        assert (starts[0] > starts[-1]) == falls


@pytest.mark.slow
def test_alarms_are_marked_and_say_what_the_library_says(still, looking):
    _, url = still
    page = looking(url).open("#training")
    # An alarm comes a reading after the curve crosses its threshold.
    expect(page.locator(".raised small")).to_contain_text("second reading in a row")
    rows = page.locator(".alarms tbody tr")
    for place, alarm in enumerate(ALARMS):
        cells = rows.nth(place).locator("th, td").all_inner_texts()
        assert cells == [str(alarm.step), alarm.sentence]
    assert (
        figure_of(page, "Loss").locator(".plot svg:not(.cross) path[d$='h10l-5 9z']").count() == 2
    )
    marks = ".plot svg:not(.cross) path[d$='h10l-5 9z']"
    assert figure_of(page, "Maximum score").locator(marks).count() == 1
    page.get_by_role("button", name="280").click()
    # A sign stands within the row of its head, below the name of the layer.
    row = figure_of(page, ENTROPY).locator(".cross path").first.bounding_box()
    sign = figure_of(page, ENTROPY).locator(marks).first.bounding_box()
    assert row["y"] <= sign["y"] < sign["y"] + sign["height"] <= row["y"] + row["height"]
    told = readout(page, ENTROPY)
    assert (told["step"], told["head"]) == ("280", "2")
    assert "at=280" in address(page)
    assert "head=2" in address(page)


@pytest.mark.slow
def test_each_control_reacts_and_its_address_opens_the_same_again(still, looking):
    run, url = still
    looked = looking(url)
    page = looked.open("#training")
    drawn = lambda title: figure_of(page, title).locator(".plot svg:not(.cross)").inner_html()  # noqa: E731
    slider = page.get_by_label("Smoothing")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function(
        "() => !document.querySelector('.readout [data-name=\"smoothed loss\"]')"
    )
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.readout [data-name="smoothed loss"]')
    losses = [float(row["loss"]) for row in rows_of(run)]
    weights = [0.5 ** (len(losses) - 1 - at) for at in range(len(losses))]
    mean = sum(w * x for w, x in zip(weights, losses, strict=True)) / sum(weights)
    assert float(readout(page, "Loss")["smoothed loss"]) == pytest.approx(mean)
    figure_of(page, "Maximum score").get_by_role("slider").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    titles = ["Loss", "Maximum score", ENTROPY]
    first = [(readout(page, title), drawn(title)) for title in titles]
    place = address(page).split("#")[1]
    for part in ("smoothing=0.5", "head=1", "at=360"):
        assert part in place
    page = looked.open(f"#{place}")
    assert [(readout(page, title), drawn(title)) for title in titles] == first


def test_it_begins_with_what_came_of_the_run(still, looking):
    run, url = still
    page = looking(url).open("#training")
    losses = [float(row["loss"]) for row in rows_of(run)]
    assert page.locator(".found").inner_text() == (
        "1 of 8 heads had a score above 100. 1 of 8 heads collapsed. "
        "The first alarm was at step 200. "
        f"The loss went from {losses[0]:.4g} to {losses[-1]:.4g} in 370 steps."
    )
    tops = [
        page.locator(name).bounding_box()["y"] for name in ("h1", ".found", ".standing", ".banner")
    ]
    assert tops == sorted(tops)
    # Nothing is compared.
    assert page.locator(".settings").inner_text() == ""


@pytest.mark.slow
def test_the_picture_has_all_charts_as_vectors(still, looking):
    _, url = still
    page = looking(url).open("#training")
    with page.expect_download() as svg:
        share(page, "SVG")
    root = ET.parse(svg.value.path()).getroot()
    name = "{http://www.w3.org/2000/svg}"
    said = [one.text for one in root.iter(f"{name}text")]
    titles = ["Loss", "Validation: accuracy", "Learning rate", ENTROPY, "Maximum score"]
    for title in [*titles, "Layer 1 · blocks.1.attention", "training, smoothed", "▼"]:
        assert title in said
    assert not list(root.iter(f"{name}image"))
    assert "NaN" not in ET.tostring(root, encoding="unicode")
    assert beyond(page, root) == []
    with page.expect_download() as png:
        share(page, "PNG")
    assert png.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_page_follows_a_run_that_is_written_to(growing, looking):
    run, served = growing
    page = looking(served.url).open("#training?smoothing=0.5")
    page.evaluate("document.querySelector('.rows').dataset.same = ''")
    plot = figure_of(page, "Loss").get_by_role("slider")
    plot.focus()
    for step in (150, 170):
        run.go((step - run.step) // 10)
        page.wait_for_selector(f'.figures [data-name=step][data-value="{step}"]', timeout=PATIENCE)
        assert float(readout(page, "Loss")["loss"]) == float(rows_of(run)[-1]["loss"])
        assert page.locator(".rows tbody tr").first.locator("th").inner_text() == str(step)
    assert readout(page, "Maximum score")["step"] == "160"
    # What was laid out stays, and whoever was there is there still.
    assert page.locator(".rows[data-same]").count() == 1
    assert plot.evaluate("one => one === document.activeElement")
    assert page.locator(".phase").inner_text() == "In progress"
    run.cut(90)
    page.wait_for_selector('.figures [data-name=step][data-value="90"]', timeout=PATIENCE)
    run.go(61)
    page.wait_for_selector("[data-phase=finished]", timeout=PATIENCE)
    assert page.locator(".figures [data-name=left]").count() == 0
    assert page.locator(".alarms tbody tr").count() == 2


def asked_meanwhile(look, times=40):
    """How often the run is asked for while its turn comes so many times, by the page's clock."""
    page, asked = look.page, []
    look.on("request", lambda request: asked.append(request.url))
    for _ in range(times):
        page.clock.run_for(1500)
        # Whatever was asked for before is answered before.
        page.evaluate("fetch('api/health').then((answer) => answer.text())")
    return sum("api/training" in url for url in asked)


@pytest.mark.slow
def test_a_page_that_is_hidden_asks_for_nothing(growing, looking):
    run, served = growing
    look = looking(served.url, fresh=True)
    look.page.clock.install()
    page = look.open("#training")
    assert asked_meanwhile(look) > 4
    hide = """(state) => {
      Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, "hidden")
    run.go(1)
    # One may have been on its way.
    assert asked_meanwhile(look) <= 1
    page.evaluate(hide, "visible")
    page.wait_for_selector('.figures [data-name=step][data-value="120"]', timeout=PATIENCE)
    page.evaluate("location.hash = '#steps'")
    page.wait_for_selector(".view.steps .body[data-drawn]")
    assert asked_meanwhile(look) == 0


@pytest.mark.slow
def test_a_folder_that_is_taken_away_and_back_is_told_of(growing, looking):
    run, served = growing
    page = looking(served.url, expected=GONE).open("#training")
    away = run.folder.path.with_name("away")
    run.folder.path.rename(away)
    page.wait_for_selector(".away p", timeout=PATIENCE)
    assert "The run folder is missing at the moment." in page.locator(".away").inner_text()
    assert page.locator(".rows tbody tr").count() > 5
    away.rename(run.folder.path)
    run.go(1)
    page.wait_for_selector('.figures [data-name=step][data-value="120"]', timeout=PATIENCE)
    assert page.locator(".away p").count() == 0


@pytest.mark.slow
def test_a_studio_that_is_stopped_and_started_again_is_told_of(growing, serves, looking):
    run, served = growing
    page = looking(served.url, expected=GONE).open("#training?smoothing=0.9")
    served.stop()
    page.wait_for_selector(".notice p", timeout=PATIENCE)
    assert page.locator(".rows tbody tr").count() > 5
    run.go(1)
    serves(Studio(run.folder.path), served.port)
    page.wait_for_selector('.figures [data-name=step][data-value="120"]', timeout=PATIENCE)
    page.wait_for_selector(".notice p", state="detached", timeout=2 * PATIENCE)
    assert "smoothing=0.9" in address(page)
    run.go(1)
    page.wait_for_selector('.figures [data-name=step][data-value="130"]', timeout=PATIENCE)


@pytest.mark.slow
def test_a_run_that_begins_and_is_not_watched(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run")
    looked = looking(serves(Studio(run.folder.path)).url)
    page = looked.open("#training")
    assert page.locator(".phase").inner_text() == "Waiting for the first row"
    assert page.locator(".note code").all_inner_texts() == ["glasshead train --watch"]
    assert "`" not in page.locator("main").inner_text()
    assert looked.violations() == []
    run.go(1)
    page.wait_for_selector('.figures [data-name=step][data-value="10"]', timeout=PATIENCE)
    assert readout(page, "Loss")["step"] == "10"
    run.go(6)
    page.wait_for_selector('.figures [data-name=step][data-value="70"]', timeout=PATIENCE)
    assert readout(page, "Validation: accuracy")["step"] == "70"


@pytest.mark.slow
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


@pytest.mark.parametrize("dark", quickly(False, [False, True]))
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


@pytest.mark.parametrize("languages", together("tr", LANGUAGES))
def test_each_language_has_its_words(still, looking, languages):
    _, url = still
    look = looking(url, width=390)
    page = look.open("#training")
    for language in languages:
        look.speak(language)
        said = page.locator("body").inner_text()
        assert words(language)["training.alarms"] in said
        assert "training." not in said
        assert not re.search(r"\{\w+\}", said)
        # The name of a metric, too, and all numbers have a point.
        assert (
            words(language)["training.metric.loss"]
            in said.split(words(language)["training.log.y"])[0]
        )
        assert not re.search(r"\d,\d", said)
        assert "370" in said


@pytest.mark.slow
def test_hostile_names_and_numbers_stay_text(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run").go(2)
    layer = "<img src=x onerror=alert(1)>\u202e\x00"
    readings = [
        HeadReading(1, layer, 0, 1.0, 0.5, float("-inf")),
        HeadReading(2, layer, 0, 1.5, 0.6, 3.0),
    ]
    run.folder.write_text(run.folder.attention, text_of(readings))
    alarm = Alarm(2, layer, 0, "entropy_collapse", float("inf"), 1.0)
    run.folder.write_text(run.folder.alarms, line_of(alarm))
    text = run.folder.log.read_text().replace("validation_accuracy", "validation_<b>x</b>")
    run.folder.log.write_text(text + "30,nan,0.1,9.0,inf,0.25\n40,1.5,0.1,9.5,,\n")
    looked = looking(serves(Studio(run.folder.path)).url)
    page = looked.open("#training")
    assert page.locator("main img, main figure b b, h3 b").count() == 0
    hostile = "<img src=x onerror=alert(1)>\\u202e\\x00"
    assert hostile in page.locator(".picture").all_text_contents()[-1]
    assert looked.overflow() == 0
    figure_of(page, "Loss").get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert readout(page, "Loss")["loss"] == "NaN"


def test_an_answer_for_a_picture_is_small(still):
    from glasshead.studio.views.training import TrainingLog

    run, _ = still
    assert len(json.dumps(TrainingLog(run.folder.path).summary(), allow_nan=False)) < 30_000

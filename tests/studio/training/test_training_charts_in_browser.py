"""The charts of a run in a browser: their numbers are those of its files."""

import itertools
from xml.etree import ElementTree as ET

import pytest

from glasshead.tasks.training import read_attention_log
from studio.conftest import address
from studio.small_runs import ALARMS
from studio.training.training_seen import ENTROPY, figure_of, numbers, readout, rows_of


def test_the_numbers_are_those_of_the_files(still, looking):
    run, url = still
    page = looking(url).open("#training?smoothing=0.5")
    figures = numbers(page, ".figures")
    last = rows_of(run)[-1]
    assert [int(figures["step"]), float(figures["loss"])] == [370, float(last["loss"])]
    assert float(figures["learning_rate"]) == float(last["learning_rate"])
    assert (float(figures["best"]), float(figures["seconds"])) == (0.75, 23.12)
    assert page.locator(".bar").inner_text() == "Step 370 of 700"
    assert page.locator("progress").get_attribute("value") is not None
    cells = page.locator(".rows tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(one => one.dataset.value ?? ''))"
    )
    by_step = {row["step"]: row for row in rows_of(run)}
    assert [row[0] for row in cells][:3] == ["370", "360", "350"]
    for row in cells:
        expected = [float(x) if x else "" for x in by_step[row[0]].values()]
        assert [float(x) if x else "" for x in row] == expected


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


def test_alarms_are_marked_and_say_what_the_library_says(still, looking):
    _, url = still
    page = looking(url).open("#training")
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
    told = readout(page, ENTROPY)
    assert (told["step"], told["head"]) == ("280", "2")
    assert "at=280" in address(page)
    assert "head=2" in address(page)


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


def test_the_picture_has_all_charts_as_vectors(still, looking):
    _, url = still
    page = looking(url).open("#training")
    with page.expect_download() as svg:
        page.get_by_role("button", name="SVG").click()
    root = ET.parse(svg.value.path()).getroot()
    name = "{http://www.w3.org/2000/svg}"
    said = [one.text for one in root.iter(f"{name}text")]
    titles = ["Loss", "Validation: accuracy", "Learning rate", ENTROPY, "Maximum score"]
    for title in [*titles, "blocks.1.attention", "training, smoothed", "▼"]:
        assert title in said
    assert not list(root.iter(f"{name}image"))
    assert "NaN" not in ET.tostring(root, encoding="unicode")
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    for one, (side, most) in itertools.product(
        root.iter(f"{name}text"), (("x", width), ("y", height))
    ):
        assert 0 <= float(one.attrib[side]) <= most
    with page.expect_download() as png:
        page.get_by_role("button", name="PNG").click()
    assert png.value.path().read_bytes().startswith(b"\x89PNG")

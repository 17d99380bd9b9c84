"""Runs over one another in a browser: colours, axes, zoom, alarms that open a head, checkpoints."""

import json
import math
import re
import shutil
from typing import Any

import pytest
from playwright.sync_api import expect

from glasshead.studio.studio import Studio
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import train
from glasshead.tasks.training.logs import line_of
from glasshead.tasks.write import WRITE, WriteSettings
from glasshead.watching.alarms import Alarm
from studio.conftest import LANGUAGES, PATIENCE, address
from studio.small_runs import SmallRun
from studio.training.training_seen import ENTROPY, figure_of, readout, rows_of
from written import SMALL

EXTREME = "Highest score of any head"


@pytest.fixture(scope="module")
def beside(tmp_path_factory, serving):
    """A run with another beside it, and its address."""
    folder = tmp_path_factory.mktemp("beside")
    runs = {"own": SmallRun(folder / "own").watch().go(37)}
    runs["slow"] = SmallRun(folder / "slow").watch().go(23)
    return runs, serving(runs["own"].folder.path).url


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained run with an alarm of a head."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "own")
    folder.create()
    quick = ("stories=101", "warmup=0", "steps=11", "validate_every=5", "learning_rate=0.02")
    made = WRITE.begin(WriteSettings.from_preset("nano", [*SMALL, *quick], (), ()), folder, "train")
    train(made.task, made.source, made.held_out, made.settings.training, folder, watch=True)
    # The best validation is that of an earlier step.
    metrics = json.loads(folder.metrics.read_text())
    metrics["best"]["step"] = 5
    folder.metrics.write_text(json.dumps(metrics))
    layer = folder.attention.read_text().splitlines()[-1].split(",")[1]
    folder.write_text(folder.alarms, line_of(Alarm(8, layer, 1, "maximum_logit", 131.0, 100.0)))
    return folder


def test_another_run_is_drawn_over_it_in_another_colour(beside, looking):
    runs, url = beside
    looked = looking(url)
    page = looked.open("#training?smoothing=0")
    page.get_by_text("Other runs (1)").click()
    page.get_by_label("slow", exact=True).check()
    page.wait_for_selector('.readout [data-name="slow/loss"]', timeout=PATIENCE)
    told = readout(page, "Loss")
    assert float(told["slow/loss"]) == float(rows_of(runs["slow"])[-1]["loss"])
    assert float(told["loss"]) == float(rows_of(runs["own"])[-1]["loss"])
    assert float(readout(page, EXTREME)["slow/max_score"]) == 0.3 * 5 + 200 / 5
    lines = figure_of(page, "Loss").locator(".picture path[stroke-linejoin]")
    colors = set(lines.evaluate_all("all => all.map(one => one.getAttribute('stroke'))"))
    assert len(colors) == 2
    assert "over=slow" in address(page)
    # Each run has its row of figures, with the name that its curves have.
    figures = page.locator(".figures tr")
    assert figures.locator("th[scope=row]").all_inner_texts() == ["own", "slow"]
    told = figures.nth(2).locator("[data-value]")
    told = dict(told.evaluate_all("all => all.map(one => [one.dataset.name, one.dataset.value])"))
    last = rows_of(runs["slow"])[-1]
    assert (told["step"], float(told["loss"])) == ("230", float(last["loss"]))
    # An alarm looks like no run: its line is dashed, and its color is near that of the last run.
    alarms = figure_of(page, "Loss").locator(".picture path[stroke-dasharray='5 3']")
    assert alarms.count() == 2
    assert "#d55e00" not in colors
    # The menu closes after a choice, and the keyboard stays at it.
    assert page.locator(".over[open]").count() == 0
    assert page.locator(".over summary").evaluate("one => one === document.activeElement")
    assert looked.violations() == []
    page.get_by_text("Other runs (1)").click()
    page.get_by_label("slow", exact=True).uncheck()
    page.wait_for_selector('.readout [data-name="slow/loss"]', state="detached", timeout=PATIENCE)
    page = looked.open("#training?smoothing=0&over=slow")
    assert "slow/loss" in readout(page, "Loss")


def shown_steps(page, title="Loss"):
    """First and last number of the axis of steps."""
    texts = figure_of(page, title).locator(".picture text").all_text_contents()
    return [int(re.sub(r"\D", "", text)) for text in texts if re.fullmatch(r"[\d\s]+", text)]


def span_of(page) -> Any:
    found = dict(re.findall(r"(from|to)=(\d+)", address(page)))
    return tuple(int(found[name]) for name in ("from", "to")) if found else None


@pytest.mark.slow
def test_what_is_of_one_run_has_its_name_if_others_are_drawn(beside, looking):
    _, url = beside
    page = looking(url).open("#training")
    maps = page.locator("figure h3", has_text="share of its maximum")
    rows = page.locator(".rows caption")
    phase = page.locator(".standing .phase")
    for over in (True, False):
        page.locator(".over summary").click()
        page.get_by_label("slow", exact=True).set_checked(over)
        for part in (phase, maps, rows):
            expect(part).to_have_text(re.compile(" · own$" if over else "(?<!own)$"))


def test_steps_are_chosen_by_dragging_by_the_wheel_and_by_keys(beside, looking):
    _, url = beside
    page = looking(url).open("#training")
    plot = figure_of(page, "Loss").get_by_role("slider")
    box = plot.bounding_box()

    def x(step, span=(0, 370)):
        share = (step - span[0]) / (span[1] - span[0])
        return box["x"] + 54 + (box["width"] - 64) * share

    middle = box["y"] + 120
    page.mouse.move(x(100), middle)
    page.mouse.down()
    page.mouse.move(x(150), middle)
    page.mouse.move(x(200), middle)
    assert plot.locator(".dragged").is_visible()
    page.mouse.up()
    assert span_of(page) == pytest.approx((100, 200), abs=1)
    assert min(shown_steps(page, "Learning rate")) >= 100
    # The step under the pointer stays under it.
    span = span_of(page)
    page.mouse.move(x(130, span), middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    nearer = span_of(page)
    assert nearer[1] - nearer[0] < span[1] - span[0]
    step = nearer[0] + (nearer[1] - nearer[0]) * (130 - span[0]) / (span[1] - span[0])
    assert step == pytest.approx(130, abs=1.5)
    # The wheel alone is the page's.
    page.mouse.wheel(0, 200)
    assert span_of(page) == nearer
    plot.focus()
    page.keyboard.press("0")
    assert span_of(page) is None
    page.keyboard.press("Home")
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert span_of(page) == pytest.approx((7, 99), abs=2)
    page.keyboard.press("End")
    assert span_of(page)[1] == 370
    page.keyboard.press("-")
    page.keyboard.press("-")
    assert span_of(page) is None
    page.get_by_role("button", name="Zoom in").click()
    assert span_of(page) == pytest.approx((92, 277), abs=2)
    page.get_by_role("button", name="All").click()
    assert span_of(page) is None


def test_a_part_and_the_axes_are_in_the_address(beside, looking):
    runs, url = beside
    page = looking(url).open("#training?from=100&to=200&log=y&smoothing=0")
    told = readout(page, "Loss")
    assert told["step"] == "200"
    assert float(told["loss"]) == float(rows_of(runs["own"])[19]["loss"])
    assert page.get_by_label("Logarithmic values").is_checked()
    lines = figure_of(page, "Loss").locator(".picture path[stroke-linejoin]").first
    numbers = [float(x) for x in re.findall(r"[ML]([\d.]+) ", lines.get_attribute("d"))]
    box = figure_of(page, "Loss").get_by_role("slider").bounding_box()
    assert (min(numbers), max(numbers)) == (54, pytest.approx(box["width"] - 10, abs=1))


def test_curves_stay_within_the_chart_of_a_part(beside, looking):
    _, url = beside
    # Neighbors of these steps have values far outside the span's.
    page = looking(url).open("#training?from=191&to=214&smoothing=0")
    heights = page.evaluate("""() =>
      [...document.querySelectorAll(".picture path[stroke-linejoin]")].map((path) => {
        const { y, height } = path.getBBox();
        return [y, y + height, path.ownerSVGElement.viewBox.baseVal.height];
      })""")
    assert len(heights) >= 4
    for top, bottom, height in heights:
        assert 0 <= top <= bottom <= height - 24


@pytest.mark.parametrize(("first", "last", "empty"), [(202, 208, True), (191, 214, False)])
def test_a_part_without_a_value_says_so(beside, looking, first, last, empty):
    _, url = beside
    page = looking(url).open(f"#training?from={first}&to={last}")
    picture = figure_of(page, "Loss").locator(".picture")
    expect(picture.get_by_text("no value at these steps")).to_have_count(int(empty))


def test_a_logarithmic_axis_places_values_by_their_logarithm(beside, looking):
    runs, url = beside
    page = looking(url).open("#training?log=xy&smoothing=0")
    d = figure_of(page, "Loss").locator(".picture path[stroke-linejoin]").first.get_attribute("d")
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", d)]
    rows = rows_of(runs["own"])
    assert len(points) == len(rows)
    for axis, name in ((0, "step"), (1, "loss")):
        own = [math.log(float(row[name])) for row in rows]
        scale = (points[-1][axis] - points[0][axis]) / (own[-1] - own[0])
        for point, value in zip(points, own, strict=True):
            assert point[axis] - points[0][axis] == pytest.approx(scale * (value - own[0]), abs=0.2)


def test_thresholds_are_drawn(beside, looking):
    _, url = beside
    page = looking(url).open("#training")
    lowest = figure_of(page, "Lowest entropy of any head").locator(".picture")
    assert "alarm at 0.1" in lowest.text_content()
    assert lowest.locator("path[stroke-dasharray='5 3']").count() == 1
    highest = figure_of(page, EXTREME).locator(".picture")
    assert highest.locator("path[stroke-dasharray='5 3']").count() == 1
    assert "alarm at 0.1" in figure_of(page, ENTROPY).locator(".picture").text_content()


@pytest.mark.slow
def test_a_run_without_alarms_is_calm(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run").watch().go(3)
    page = looking(serves(Studio(run.folder.path)).url).open("#training")
    # The finding says so, and nothing else.
    assert page.get_by_text("No head has raised an alarm.").count() == 1
    assert page.locator(".raised").count() == 0
    # The highest score is far below its threshold: a number at the top names it.
    highest = figure_of(page, EXTREME).locator(".picture")
    assert "alarm at 100 ↑" in highest.text_content()
    assert highest.locator("path[stroke-dasharray='5 3']").count() == 0


@pytest.mark.slow
def test_an_alarm_without_a_model_leads_to_the_maps(beside, looking):
    _, url = beside
    looked = looking(url, expected=("404", "400", "500"))
    page = looked.open("#training")
    banner = page.locator(".raised")
    assert banner.locator(".kind").all_inner_texts() == [
        "Maximum score above 100 · steps: 200\nLayer 1: heads\n4",
        "Entropy below 0.1 of its maximum · steps: 280\nLayer 0: heads\n2",
    ]
    color = banner.evaluate("one => getComputedStyle(one).borderTopColor")
    assert color == "rgb(179, 64, 28)"
    banner.get_by_role("button", name="Layer 0, head 2").click()
    page.wait_for_function("() => document.activeElement && location.hash.includes('at=280')")
    assert readout(page, ENTROPY)["head"] == "2"


@pytest.mark.slow
def test_an_alarm_opens_its_head_among_the_heads(trained, serves, looking):
    page = looking(serves(Studio(trained.path)).url).open("#training")
    page.locator(".raised button").click()
    page.wait_for_selector(".view.heads .body[data-drawn]", timeout=PATIENCE)
    place = address(page)
    layers = sorted({row.split(",")[1] for row in trained.attention.read_text().split()[1:]})
    assert f"layer={len(layers) - 1}" in place
    assert "head=1" in place


@pytest.mark.slow
def test_compared_runs_show_what_came_of_them_and_how_they_differ(tmp_path, serves, looking):
    own, fast = (SmallRun(tmp_path / name).watch().go(37) for name in ("own", "fast"))
    config = own.folder.read_config()
    for run, rate in ((own, 0.001), (fast, 0.05)):
        training = config["training"] | {"learning_rate": rate}
        run.folder.config.write_text(json.dumps(config | {"training": training}))
    raised = (
        Alarm(80, layer, head, "entropy_collapse", 0.05, 0.1)
        for layer, heads in fast.layers.items()
        for head in range(heads)
    )
    fast.folder.write_text(fast.folder.alarms, "".join(map(line_of, raised)))
    looked = looking(serves(Studio(own.folder.path)).url, width=1920)
    page = looked.open("#training?over=fast")
    assert page.locator(".found dt").all_inner_texts() == ["own", "fast"]
    assert (
        page.locator(".found dd").last.inner_text().startswith("All 8 heads collapsed at step 80.")
    )
    cells = page.locator(".settings :is(th, td)").all_inner_texts()
    assert cells == ["setting", "own", "fast", "training.learning_rate", "0.001", "0.05"]
    loss, accuracy = (
        figure_of(page, title).bounding_box() for title in ("Loss", "Validation: accuracy")
    )
    assert accuracy["x"] >= loss["x"] + loss["width"]
    for language in LANGUAGES:
        looked.speak(language)
        assert looked.violations(contrast=language == "en") == []
        assert not re.search(r"[{}]", page.locator(".found").inner_text())
    looked.speak("en")
    page.get_by_text("Other runs (1)").click()
    page.get_by_label("fast", exact=True).uncheck()
    expect(page.locator("p.found")).to_have_count(1)
    assert page.locator(".settings").inner_text() == ""


def test_checkpoints_that_can_be_compared_are_chosen_at_first(trained, tmp_path, serves, looking):
    # Of each run only one, and of the one that comes first another kind.
    for name in ("own", "another", "like"):
        run = RunFolder(shutil.copytree(trained.path, tmp_path / name))
        run.checkpoint.unlink()
        if name == "another":
            config = run.read_config()
            run.config.write_text(json.dumps(config | {"model": config["model"] | {"num_x": 3}}))
    page = looking(serves(Studio(tmp_path / "own")).url).open("#training")
    page.get_by_text("Compare two checkpoints").click()
    page.wait_for_selector("[data-compared]", timeout=PATIENCE)
    assert page.get_by_label("Checkpoint A").input_value() == "own/best"
    assert page.get_by_label("Checkpoint B").input_value() == "like/best"


def test_a_checkpoint_is_compared_with_one_of_its_kind(trained, tmp_path, serves, looking):
    for at, name in enumerate(("own", "another", "third")):
        run = RunFolder(shutil.copytree(trained.path, tmp_path / name))
        config = run.read_config()
        run.config.write_text(json.dumps(config | {"model": config["model"] | {"num_x": at}}))
        if name != "another":
            run.checkpoint.unlink()
    # None of these models can be opened.
    looked = looking(serves(Studio(tmp_path / "own")).url, expected=("400",))
    page = looked.open("#training?first=third/best&second=own/best")
    first, second = (page.get_by_label(f"Checkpoint {name}") for name in "AB")
    # Two runs have one checkpoint each, and none of its kind.
    for choices in (first, second):
        expect(choices.locator("option")).to_have_count(2)
        assert choices.locator("option").first.get_attribute("value") == "another/best"
    assert "third" not in address(page)


def test_a_checkpoint_of_another_kind_brings_its_own_choices(trained, tmp_path, serves, looking):
    for name in ("own", "another"):
        run = RunFolder(shutil.copytree(trained.path, tmp_path / name))
        if name == "another":
            config = run.read_config()
            run.config.write_text(json.dumps(config | {"model": config["model"] | {"num_x": 3}}))
    page = looking(serves(Studio(tmp_path / "own")).url, expected=("400",)).open("#training")
    page.get_by_text("Compare two checkpoints").click()
    first, second = (page.get_by_label(f"Checkpoint {name}") for name in "AB")
    expect(first.locator("option")).to_have_count(4)
    expect(second.locator("option")).to_have_text(["own, best validation", "own, last step"])
    first.select_option("another/last")
    other = ["another, best validation", "another, last step"]
    expect(second.locator("option")).to_have_text(other)
    expect(first).to_be_focused()
    expect(first).to_have_value("another/last")
    expect(second).to_have_value("another/best")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_two_checkpoints_are_compared(trained, serves, looking, dark):
    looked = looking(serves(Studio(trained.path)).url, dark=dark)
    page = looked.open("#training?first=own/best&second=own/best")
    page.wait_for_selector("[data-compared]", timeout=PATIENCE)
    # Both sides have names, and the difference has a color scale.
    names = page.locator(".pair h4").all_inner_texts()
    assert [name[:2] for name in names[:2]] == ["A:", "B:"]
    assert page.locator(".pair .legend").inner_text().endswith("hatched: hidden")
    assert page.locator(".pair .ramp").bounding_box()["width"] > 50
    moved = page.locator(".moved button")
    assert set(moved.evaluate_all("all => all.map(one => one.dataset.value)")) == {"0"}
    told = page.locator(".pair [data-difference]")
    assert told.get_attribute("data-difference") == "0"
    page.get_by_label("Checkpoint B").select_option("own/last")
    page.wait_for_selector("[data-compared]", timeout=PATIENCE)
    moved.nth(1).click()
    page.wait_for_selector('[data-compared="0.1"]', timeout=PATIENCE)
    assert "second=own%2Flast" in address(page)
    page.locator(".matrix").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("PageUp")
    assert told.get_attribute("data-first") == "1"
    assert looked.violations() == []
    looked.resize(390)
    assert looked.overflow() == 0


@pytest.mark.slow
def test_twelve_heads_and_long_names_fit_a_telephone(tmp_path, serves, looking):
    layers = {f"transformer.encoder.blocks.{at}.self_attention": 12 for at in range(2)}
    name = "a run with quite a long name, as they are called by their settings" * 2
    SmallRun(tmp_path / name, layers=layers).watch().go(9)
    run = SmallRun(tmp_path / "own", layers=layers).watch().go(37)
    raised = (
        Alarm(40, layer, head, "maximum_logit", 131.0, 100.0)
        for layer in layers
        for head in range(12)
    )
    run.folder.write_text(run.folder.alarms, "".join(map(line_of, raised)))
    looked = looking(serves(Studio(run.folder.path)).url, width=390)
    page = looked.open("#training?smoothing=0")
    cut = """() => [
      ...document.querySelectorAll("main :is(label, summary, button, legend)"),
    ].filter((one) => one.scrollWidth > one.clientWidth + 1
      && getComputedStyle(one).overflow !== "visible").map((one) => one.textContent)"""
    for language in LANGUAGES:
        looked.speak(language)
        page.locator(".over summary").click()
        page.locator(".over input").check()
        page.wait_for_selector(f'.readout [data-name="{name[:80]}/loss"]', timeout=PATIENCE)
        assert looked.overflow() == 0
        assert page.locator(".raised .kind button").count() == 8
        assert page.evaluate(cut) == []

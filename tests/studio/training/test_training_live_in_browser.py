"""The page of a run follows it: what is written to it, and what is taken away."""

from glasshead.studio.studio import Studio
from studio.conftest import PATIENCE, address
from studio.small_runs import SmallRun
from studio.training.training_seen import GONE, figure_of, readout, rows_of


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


def asked_meanwhile(page, times=40):
    """How often the run is asked for while its turn comes so many times, by the page's clock."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(times):
        page.clock.run_for(1500)
        # Whatever was asked for before is answered before.
        page.evaluate("fetch('api/health').then((answer) => answer.text())")
    return sum("api/training" in url for url in asked)


def test_a_page_that_is_hidden_asks_for_nothing(growing, looking):
    run, served = growing
    look = looking(served.url)
    look.page.clock.install()
    page = look.open("#training")
    assert asked_meanwhile(page) > 4
    hide = """(state) => {
      Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, "hidden")
    run.go(1)
    # One may have been on its way.
    assert asked_meanwhile(page) <= 1
    page.evaluate(hide, "visible")
    page.wait_for_selector('.figures [data-name=step][data-value="120"]', timeout=PATIENCE)
    page.evaluate("location.hash = '#steps'")
    page.wait_for_selector(".view.steps .body[data-drawn]")
    assert asked_meanwhile(page) == 0


def test_a_folder_that_is_taken_away_and_back_is_told_of(growing, looking):
    run, served = growing
    page = looking(served.url, expected=GONE).open("#training")
    away = run.folder.path.with_name("away")
    run.folder.path.rename(away)
    page.wait_for_selector(".away p", timeout=PATIENCE)
    assert "The run folder is not there at the moment." in page.locator(".away").inner_text()
    assert page.locator(".rows tbody tr").count() > 5
    away.rename(run.folder.path)
    run.go(1)
    page.wait_for_selector('.figures [data-name=step][data-value="120"]', timeout=PATIENCE)
    assert page.locator(".away p").count() == 0


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


def test_a_run_that_begins_and_is_not_watched(tmp_path, serves, looking):
    run = SmallRun(tmp_path / "run")
    looked = looking(serves(Studio(run.folder.path)).url)
    page = looked.open("#training")
    assert page.locator(".phase").inner_text() == "Waiting for the first row"
    assert "glasshead train --watch" in page.locator(".note").inner_text()
    assert looked.violations() == []
    run.go(1)
    page.wait_for_selector('.figures [data-name=step][data-value="10"]', timeout=PATIENCE)
    assert readout(page, "Loss")["step"] == "10"
    run.go(6)
    page.wait_for_selector('.figures [data-name=step][data-value="70"]', timeout=PATIENCE)
    assert readout(page, "Validation: accuracy")["step"] == "70"

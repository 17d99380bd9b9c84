"""The map of the atlas in a browser: what moves it, and what it asks for as it moves."""

import math
import re

import pytest

from studio.atlas.atlas_seen import BOTTOM, LEFT, drawn, eventually, remembered, state, value
from studio.atlas.small_atlases import of_blocks
from studio.conftest import address


def test_keys_and_buttons_move_the_map(looking, stored):
    page = looking(stored).open("#atlas")
    canvas = page.locator(".atlas canvas")
    page.wait_for_function("() => location.hash.includes('i=')")
    assert "zoom" not in state(page)
    page.get_by_role("button", name="Closer").click()
    page.wait_for_function("() => location.hash.includes('zoom=')")
    first = state(page)
    canvas.focus()
    for key in ("+", "+", "+"):
        canvas.press(key)
    zoom = float(first["zoom"]) + 1.5
    closer = remembered(page, zoom=pytest.approx(zoom, abs=1e-3))
    canvas.press("ArrowRight")
    canvas.press("ArrowDown")
    step = 80 / 2 ** float(closer["zoom"])
    x, y = (pytest.approx(float(closer[side]) + step, abs=0.1) for side in "xy")
    moved = remembered(page, x=x, y=y)
    # These are left to the page.
    for key in ("End", "PageUp", "PageDown"):
        canvas.press(key)
    assert state(page) == moved
    canvas.press("-")
    page.get_by_role("button", name="Further away").click()
    remembered(page, zoom=pytest.approx(zoom - 1.5, abs=1e-3))
    canvas.press("Home")
    remembered(page, zoom=None)


def test_pointer_and_wheel_move_the_map(looking, stored, square):
    page = looking(stored).open("#atlas?y=500&x=500&zoom=0.5&i=3&j=2")
    box = page.locator(".atlas canvas").bounding_box()
    middle = box["x"] + LEFT + (box["width"] - LEFT) / 2, box["y"] + (box["height"] - BOTTOM) / 2
    page.mouse.move(middle[0] - 40.5, middle[1] + 60.5)
    drawn(page)
    query, key = (500 + math.floor(60.5 / 2**0.5), 500 + math.floor(-40.5 / 2**0.5))
    assert value(page) == pytest.approx(square[0, 0, query, key].item(), rel=1e-5)
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] + 60.5, steps=4)
    page.mouse.up()
    x = pytest.approx(500 - 40.5 / 2**0.5, abs=0.05)
    remembered(page, x=x, i=str(query), j=str(key))
    page.mouse.wheel(0, -250)
    zoomed = remembered(page, zoom=pytest.approx(1.5, abs=1e-3))
    # What was under the pointer is still there.
    at = float(zoomed["y"]) + 60.5 / 2**1.5
    assert at == pytest.approx(500 + 60.5 / 2**0.5, abs=0.5)


def test_each_control_changes_what_is_seen(looking, stored, square):
    page = looking(stored).open("#atlas?i=700&j=20&y=700&x=100&zoom=1")
    assert value(page) == pytest.approx(square[0, 0, 700, 20].item(), rel=1e-5)
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert value(page) == pytest.approx(square[0, 1, 700, 20].item(), rel=1e-5)
    remembered(page, head="1")
    legend = page.locator(".atlas .legend .ends")
    assert legend.inner_text().split() == ["1.0·10⁻⁵", "0.0032", "1.0000"]
    page.get_by_text("linear").click()
    drawn(page)
    # Its top is next above the largest mean weight of the coarsest tile.
    most = of_blocks(square[0, 1], 2).max().item() / 4
    top = next(one for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1) if one >= most)
    assert legend.inner_text().split()[2] == f"{top:.4f}"
    slider = page.get_by_label("Top of the colour scale")
    slider.focus()
    slider.press("Home")
    drawn(page)
    assert legend.inner_text().split() == ["0", "0.5000", "1.0000"]
    remembered(page, scale="linear")
    assert value(page) == pytest.approx(square[0, 1, 700, 20].item(), rel=1e-5)


def test_the_address_opens_the_same_again(looking, stored):
    place = "#atlas?head=1&y=700&x=300&zoom=2.25&i=690&j=311&scale=linear&top=0.2"
    page = looking(stored).open(place)
    first = remembered(page, layer="0"), value(page), page.locator(".atlas .legend").inner_text()
    again = looking(stored).open("#" + address(page).split("#")[1])
    assert (state(again), value(again), again.locator(".atlas .legend").inner_text()) == first
    assert first[0]["zoom"] == "2.25"


def test_what_leaves_the_view_is_no_longer_asked_for(looking, stored):
    look = looking(stored)
    page, left = look.page, []
    held = []

    def hold(route):
        held.append(route)

    def gone(asked):
        if "level=0" in asked.url:
            left.append((asked.url, asked.failure))

    page.on("requestfailed", gone)

    look.open("#atlas")
    page.route(re.compile("level=0"), hold)
    page.locator(".atlas canvas").focus()
    for _ in range(4):
        page.keyboard.press("+")
    # A map that rests asks for four at once; all are waited for as long as it rests.
    assert eventually(page, lambda: len(held) >= 4)
    assert not left
    page.keyboard.press("Home")
    assert eventually(page, lambda: len(left) == len(held))
    assert len(held) <= 5
    assert all("ABORTED" in why for _, why in left)
    drawn(page)
    for route in held:
        route.abort()


def without_overviews(page):
    """Let the page think that no overview was made yet, whatever other pages have asked for."""

    def told(route):
        route.fulfill(json={**route.fetch().json(), "ready": False})

    page.route(re.compile("atlas/map"), told)


@pytest.mark.parametrize("what", ["overview", "tile"])
def test_what_is_refused_for_now_is_asked_for_again(looking, stored, square, what):
    look = looking(stored, expected=("429",))
    refused = []

    def refuse(route):
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=429, json={"detail": "2 pieces of work are under way."})
        else:
            route.fallback()

    without_overviews(look.page)
    look.page.route(re.compile(f"atlas/{what}"), refuse)
    page = look.open("#atlas?i=700&j=20&y=700&x=100&zoom=1")
    assert len(refused) == 2
    assert value(page) == pytest.approx(square[0, 0, 700, 20].item(), rel=1e-5)
    assert page.locator(".refused").count() == 0


def test_one_overview_is_made_at_a_time(looking, stored):
    look = looking(stored)
    page, held, left = look.page, [], []
    page.on("requestfailed", lambda asked: left.append(asked.url))

    def hold(route):
        held.append(route)

    page.route(re.compile("atlas/overview.*head=0"), hold)
    without_overviews(page)
    page.goto(f"{stored}#atlas")
    page.wait_for_selector(".atlas .surveying progress")
    page.get_by_label("Head").select_option("1")
    drawn(page)
    assert eventually(page, lambda: bool(left))
    assert len(held) == 1
    assert held[0].request.url in left
    held[0].abort()

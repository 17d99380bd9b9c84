"""Tours of the page and its presentation in a browser, and the files of tours."""

import json
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from glasshead.studio.live import live_page
from glasshead.studio.shell import LANGUAGES
from glasshead.studio.studio import Studio
from glasshead.studio.tour import built_in, read_tour
from studio.conftest import address
from studio.pictures.vision_folders import vit_folder

MINE = {
    "stops": [
        {"place": "#steps?frame=2&mask=causal", "says": "The second key."},
        {"place": "#atlas", "says": "Without a model, nobody sees this."},
        {"place": "#steps?way=predict", "says": {"es": "Prediga.", "en": "Guess a weight."}},
    ]
}
WRONG = [
    ([], "must hold a JSON object"),
    ({}, "stops is missing"),
    ({"stops": []}, "stops is missing"),
    ({"stops": [{"says": "x"}]}, "stops[0].place"),
    ({"stops": [{"place": "steps", "says": "x"}]}, "stops[0].place"),
    ({"stops": [*MINE["stops"], {"place": "#steps"}]}, "stops[3].says"),
    ({"stops": [{"place": "#steps", "says": {}}]}, "stops[0].says"),
    ({"stops": [{"place": "#steps", "says": {"en": " "}}]}, "stops[0].says"),
    ({"stops": [{"place": "#steps", "says": "x", "panel": 0}]}, "stops[0].panel"),
    ({"stops": [{"place": "#steps", "says": "x", "panel": "2"}]}, "stops[0].panel"),
]


# Scrolls the page to its end, and tells whether the tour is at the top of the window there.
AT_THE_END = """() => {
  scrollTo(0, document.documentElement.scrollHeight);
  return scrollY > 100 && document.querySelector(".tour").getBoundingClientRect().y === 0;
}"""
# Stops that are passed over: in views that other kinds of models have, and without a model.
OTHERS = {"#alignment", "#picture", "#training"}
OF_A_MODEL = {*OTHERS, "#heads"}


def test_the_tour_of_the_package_has_seven_stops_in_all_languages():
    stops = built_in()["stops"]
    assert len([stop for stop in stops if stop["place"] not in OTHERS]) == 7
    assert len(stops) == 7 + len(OTHERS)
    assert all(set(stop["says"]) == set(LANGUAGES) for stop in stops)


def test_the_tour_of_a_picture_model_has_its_view(looking, serving, tmp_path):
    page = looking(serving(vit_folder(tmp_path / "vit")).url).open("#picture")
    page.get_by_role("button", name="Tour").click()
    expect(page.locator(".tour p")).to_contain_text("patches")
    expect(page.locator(".view.picture")).to_be_visible()


@pytest.mark.parametrize(("tour", "part"), WRONG)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, tour, part):
    file = tmp_path / "lesson.json"
    file.write_text(json.dumps(tour))
    with pytest.raises(ValueError, match="lesson.json") as error:
        read_tour(file)
    assert part in str(error.value)
    file.write_text("{")
    with pytest.raises(ValueError, match="broken JSON"):
        read_tour(file)
    file.write_text(json.dumps(MINE))
    assert read_tour(file) == MINE


def test_a_tour_that_is_given_begins_and_is_walked(looking, serves):
    look = looking(serves(Studio(tour=MINE)).url, fresh=True)
    page = look.open()
    tour = page.locator(".tour")
    expect(tour.locator("p")).to_have_text("The second key.")
    expect(tour.locator(".quiet")).to_have_text("Stop 1 of 2")
    page.wait_for_selector(".walk .line[data-frame=score]")
    assert "frame=2" in address(page)
    page.get_by_label("Next stop").press("Enter")
    expect(tour.locator("p")).to_have_text("Guess a weight.")
    page.wait_for_selector(".predict .bars")
    assert "stop=1" in address(page)
    assert page.get_by_label("Next stop").is_disabled()
    look.speak("es")
    expect(tour.locator("p")).to_have_text("Prediga.")
    assert look.violations() == []
    page.reload()
    expect(tour.locator("p")).to_have_text("Prediga.")
    page.get_by_role("button", name="Terminar el recorrido").click()
    expect(tour).to_be_empty()
    assert "?" not in address(page).partition("#")[0]


@pytest.mark.slow
def test_each_stop_of_the_package_opens_what_it_speaks_of(looking, serving):
    look = looking(serving().url)
    page = look.open("#steps")
    page.get_by_role("button", name="Tour").click()
    shown = [stop for stop in built_in()["stops"] if stop["place"] not in OF_A_MODEL]
    for at, stop in enumerate(shown):
        expect(page.locator(".tour p")).to_have_text(stop["says"]["en"])
        view = stop["place"][1:].partition("?")[0]
        page.wait_for_selector(f".view.{view} .body[data-drawn]")
        assert page.locator(".refused").count() == 0
        for width in (390, 820, 1440, 1920):
            look.resize(width)
            assert look.overflow() == 0, (width, at)
        if at < len(shown) - 1:
            page.get_by_label("Next stop").click()


def test_a_stop_on_a_telephone_shows_the_setting_that_it_speaks_of(looking, serving):
    look = looking(serving().url, width=390, height=844)
    page = look.open("#steps?text=Hello+shiny+sun!")
    expect(page.get_by_label("β")).to_be_hidden()
    page = look.open("?tour=&stop=4#steps")
    expect(page.locator(".tour")).to_contain_text("β")
    expect(page.get_by_label("β")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (844, 390)])
def test_each_stop_begins_below_the_sentence_of_the_tour(looking, serving, width, height):
    look = looking(serving().url, width=width, height=height)
    places = [stop["place"] for stop in built_in()["stops"] if stop["place"] not in OF_A_MODEL]
    (at,) = (at for at, place in enumerate(places) if "beta" in place)
    page = look.open(f"?tour=&stop={at - 1}")
    page.wait_for_selector(".stage")
    # The page scrolls to its top as the tour opens the view.
    page.wait_for_function(AT_THE_END)
    tour = page.locator(".tour")
    expect(tour).to_be_in_viewport(ratio=1)

    def free(part):
        """Wait until a part of the page is seen, and return how far below the tour it begins."""
        expect(page.locator(part)).to_be_in_viewport()
        end = tour.bounding_box()
        return page.locator(part).bounding_box()["y"] - end["y"] - end["height"]

    page.get_by_label("Next stop").click()
    slider = page.get_by_label("β")
    expect(slider).to_be_in_viewport(ratio=1)
    assert free(".settings .slider input") >= 0
    page.get_by_label("Next stop").click()
    page.wait_for_selector(".predict .bars")
    assert free(".ways") >= 0


def test_a_tour_next_to_the_page_is_loaded_or_refused(looking, serving):
    look = looking(serving().url, expected=("404", "Failed to load"))
    page = look.page
    page.route("**/lesson.json", lambda route: route.fulfill(body=json.dumps(MINE)))
    page.route("**/wrong.json", lambda route: route.fulfill(body='{"stops": [3]}'))
    look.open("?tour=lesson.json&stop=1#steps")
    expect(page.locator(".tour p")).to_have_text("Guess a weight.")
    for file, said in (
        ("wrong.json", "wrong.json must be a tour"),
        ("away.json", "The tour away.json cannot be loaded"),
        ("https://example.org/lesson.json", "cannot be loaded"),
    ):
        look.open(f"?{urlencode({'tour': file})}#steps")
        expect(page.locator(".refused")).to_contain_text(said)


def test_a_page_without_a_server_has_the_tour(looking, tmp_path):
    file = tmp_path / "index.html"
    file.write_text(live_page(), encoding="utf-8")
    look = looking(file.as_uri())
    page = look.open("#steps?frame=1")
    page.get_by_role("button", name="Tour").click()
    expect(page.locator(".tour .quiet")).to_have_text("Stop 1 of 7")


def test_a_telephone_scrolls_to_what_a_stop_shows(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=844).open()
    maps = page.locator(".all .grid .small")
    page.get_by_role("button", name="Tour").click()
    page.get_by_role("button", name="Next stop").click()
    expect(maps.first).to_be_in_viewport(ratio=1)
    expect(maps.last).to_be_in_viewport(ratio=1)
    # A tour that goes on begins at the top.
    page.get_by_role("button", name="Previous stop").click()
    expect(page.locator("textarea")).to_be_in_viewport(ratio=1)


def test_a_tour_in_a_presentation_shows_the_panels_of_its_stops(looking, serving, folder):
    look = looking(serving(folder).url, width=1920, height=1080)
    page = look.open("?present&tour=&stop=1")
    expect(page.locator(".heads .grid")).to_be_visible()
    expect(page.locator(".over-text")).to_be_hidden()
    places = [stop["place"] for stop in built_in()["stops"]]
    own = [place for place in places if place not in ("#alignment", "#picture")]
    for at, place in enumerate(own[1:], 1):
        expect(page.locator(".tour .quiet")).to_have_text(f"Stop {at + 1} of {len(own)}")
        view = place[1:].partition("?")[0]
        page.wait_for_selector(f".view.{view} .body[data-drawn]")
        assert look.overflow_below() == 0, place
        # Two pairs of arrows would lead to different things.
        expect(page.locator(".presenting > :visible")).to_have_count(1)
        expect(page.get_by_label("β")).to_be_visible(visible="frame=" in place)
        expect(page.locator(".predict .bars")).to_be_visible(visible="way=predict" in place)
        page.keyboard.press("ArrowRight")
    # After the last stop, the keys go through what it shows.
    expect(page.locator(".predict .sums li")).to_have_count(1)
    page.get_by_role("button", name="End the tour").click()
    expect(page.locator(".presenting > :visible")).not_to_have_count(1)


def test_a_presentation_is_walked_by_the_arrow_keys(looking, serving):
    look = looking(serving().url, width=1920, height=1080)
    page = look.open("?present#steps?frame=0")
    panels = page.locator("[data-panel]:visible")
    expect(panels).to_have_count(1)
    assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "25.6px"
    assert not page.locator("header").is_visible()
    page.wait_for_function("() => document.querySelector('.stage').clientHeight > 400")
    last = int(page.get_by_label("Frame", exact=True).get_attribute("max"))
    for frame in range(1, last + 1):
        # Keys, a remote control and the buttons do the same.
        if frame == 1:
            page.get_by_role("button", name="Next step or panel").click()
        else:
            page.keyboard.press("PageDown" if frame == 2 else "ArrowRight")
        expect(page.locator(".player output")).to_have_text(f"Frame {frame + 1} / {last + 1}")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".pipeline")).to_be_visible()
    expect(panels).to_have_count(1)
    page.keyboard.press("PageDown")
    expect(page.locator(".words")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".stage")).to_be_visible()
    assert look.overflow() == 0
    back = page.get_by_role("button", name="Previous step or panel")
    for frame in range(last, 0, -1):
        assert back.is_enabled()
        back.click()
        expect(page.locator(".player output")).to_have_text(f"Frame {frame} / {last + 1}")
    expect(back).to_be_disabled()
    page.keyboard.press("Escape")
    expect(page.locator("header")).to_be_visible()
    # The walk, the numbers, and a panel for each section of the explanation.
    expect(panels).to_have_count(10)
    assert "present" not in address(page)


def test_a_presented_tour_goes_from_stop_to_stop(looking, serves):
    look = looking(serves(Studio(tour=MINE)).url)
    page = look.open("?present")
    expect(page.locator(".tour p")).to_have_text("The second key.")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tour p")).to_have_text("Guess a weight.")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tour p")).to_have_text("The second key.")

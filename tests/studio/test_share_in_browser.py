"""What a page gives to others: a link, a picture, a card, and a file that needs no studio."""

import re
from io import BytesIO
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from studio.conftest import address, quickly, share
from studio.small_runs import SmallRun

VIEWS = ("heads", "atlas", "prompt", "model", "steps")
NUMBERS = """() => [...document.querySelectorAll("main td.number, main [data-value]")]
  .filter((one) => one.checkVisibility()).map((one) => one.innerText).slice(0, 40)"""


def saved(page, kind, folder):
    with page.expect_download() as download:
        share(page, kind)
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    return file


def shows_the_same(looking, url, folder, view, tmp_path):
    look = looking(url)
    page = look.open(f"#{view}")
    page.wait_for_selector(f".view.{view} .body[data-drawn]")
    before = page.evaluate(NUMBERS)
    title, shown = page.title(), address(page).partition("#")[2]
    file = saved(page, "HTML", tmp_path)
    assert file.name == f"glasshead-{view}.html"
    text = file.read_text(encoding="utf-8")
    assert str(folder) not in text
    alone = looking("file://")
    alone.page.goto(file.as_uri())
    alone.page.wait_for_selector(f".view.{view} .body[data-drawn]")
    assert alone.page.title() == title
    assert alone.page.evaluate(NUMBERS) == before
    assert address(alone.page).endswith(f"#{shown}")


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_a_file_shows_what_the_view_showed(looking, serving, folder, tmp_path, view):
    shows_the_same(looking, serving(folder).url, folder, view, tmp_path)


@pytest.mark.slow
def test_a_file_shows_an_alignment(looking, serving, word_translator, tmp_path):
    url = serving(word_translator).url
    shows_the_same(looking, url, word_translator, "alignment", tmp_path)


@pytest.mark.slow
def test_a_file_shows_a_training_run(looking, serving, tmp_path):
    run = SmallRun(tmp_path).go(3).folder.path
    shows_the_same(looking, serving(run).url, run, "training", tmp_path)


def test_a_card_is_a_picture_with_a_sentence(looking, serving, tmp_path):
    page = looking(serving().url).open("#steps")
    file = saved(page, "Card", tmp_path)
    assert file.name == "glasshead-steps-card.png"
    with Image.open(file) as card:
        assert card.size == (1200, 630)
        # Not one color: there is a picture, and below it letters.
        assert len(card.convert("RGB").getcolors(2**20)) > 50
        sentence = card.crop((0, 480, 1200, 590)).convert("RGB")
        assert len(sentence.getcolors(2**20)) > 5


@pytest.mark.parametrize("dark", quickly(False, [False, True]))
def test_a_picture_looks_as_the_page_does(looking, serving, tmp_path, dark):
    # High enough that the sum, which stays in sight, covers no matrix.
    look = looking(serving().url, height=2300, dark=dark)
    # With β = 1, the page folds a matrix to a button, and a picture has no buttons.
    page = look.open("#steps?mask=causal&beta=0.5")
    page.mouse.move(0, 0)
    svg = ET.parse(saved(page, "SVG", tmp_path)).getroot()
    place = page.locator(".pipeline").bounding_box()
    with Image.open(BytesIO(page.screenshot(clip=place))) as shot:
        shown = shot.convert("RGB")
    # How far the matrices have moved, from the page into the picture.
    groups = [svg.find("{*}g"), svg.find("{*}g/{*}g"), svg.find("{*}g/{*}g/{*}g")]
    groups.append(groups[-1].find("{*}g"))
    moves = [re.findall(r"-?[\d.]+", each.get("transform", "0 0"))[:2] for each in groups]
    left, top = (sum(float(move[side]) for move in moves) for side in (0, 1))
    with Image.open(saved(page, "PNG", tmp_path)) as png:
        half = png.convert("RGB").resize((png.width // 2, png.height // 2), Image.Resampling.BOX)
    x, y = round(place["x"] + left), round(place["y"] + top)
    made = half.crop((x, y, x + shown.width, y + shown.height))
    # Letters may stand a part of a pixel elsewhere; cells, their colors and their frames do not.
    one, other = (np.asarray(each.reduce(6), dtype=float).ravel() for each in (shown, made))
    assert np.abs(one - other).mean() < 3
    assert np.corrcoef(one, other)[0, 1] > 0.99


def test_a_menu_names_what_it_saved_and_closes_when_something_else_is_pressed(looking, serving):
    page = looking(serving().url).open("#steps?text=Hello+shiny+sun!")
    page.get_by_text("Share", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Card for a post").click()
    expect(page.locator(".share p")).to_have_text(f"Saved as {download.value.suggested_filename}.")
    page.locator("h1").click()
    expect(page.get_by_role("button", name="Card for a post")).to_be_hidden()
    page.get_by_text("Share", exact=True).click()
    expect(page.get_by_role("button", name="Card for a post")).to_be_visible()
    for _ in range(9):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Card for a post")).to_be_hidden()


def test_a_link_is_copied_or_shown(looking, serving):
    page = looking(serving().url).open("#steps")
    page.locator("details.share > summary").click()
    page.get_by_role("button", name="Link").click()
    link = page.get_by_role("textbox", name="Copy link")
    assert link.input_value() == page.url
    expect(page.locator(".share [role=status]")).to_contain_text("opens this view")
    page.keyboard.press("Escape")
    assert not link.is_visible()


def test_a_studio_that_has_ended_is_told(looking, serving):
    page = looking(serving().url, expected=("net::ERR_", "Failed to load")).open("#steps")
    page.route("**/api/file*", lambda route: route.abort())
    share(page, "HTML", close=False)
    page.get_by_text("The studio does not answer.").wait_for()

"""The file of a report in a browser that has no network: every view, its numbers, its controls.

The pictures that are saved of every view: well-formed, whole, their words in letters.
"""

import io
import math
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
from PIL import Image
from playwright.sync_api import expect

import glasshead as gh
from glasshead.studio.shell import words
from glasshead.studio.stored_answers import key_of
from glasshead.studio.studio import Limits
from glasshead.studio.views.steps import steps_data
from glasshead.studio.views.steps_request import StepsRequest
from studio.conftest import LANGUAGES, WIDTHS, address, beyond, quickly, share
from studio.report.conftest import HOSTILE, TEXT, keys_of

VIEWS = ("heads", "alignment", "atlas")


CELLS = """() => [...document.querySelectorAll("table[data-matrix] td[data-cell]")].map(
  (cell) => [cell.dataset.cell, cell.dataset.value])"""


WEIGHTS = """() => [...document.querySelectorAll("table.weights tbody tr")].map(
  (row) => [...row.querySelectorAll("td")].map((cell) => Number(cell.dataset.value)))"""


@pytest.mark.parametrize("view", quickly("heads", VIEWS))
def test_every_view_opens_without_a_request(offline, view):
    look = offline()
    page = look.open(f"#{view}")
    assert page.locator("h1").inner_text().lower().endswith(view)
    assert page.locator(".refused").count() == 0
    assert page.locator("nav a").all_inner_texts() == ["Attention heads", "Atlas", "Alignment"]
    assert page.get_by_label("Language").count() == 0
    assert page.locator("textarea, form, input[type=file]").count() == 0
    assert look.violations() == []
    assert set(look.asked) <= {look.url, "about:blank"}
    # By links, too.
    page.get_by_role("link", name="Atlas").click()
    page.wait_for_selector("section.atlas .body[data-drawn]")
    assert address(page).startswith(f"{look.url}#atlas")


@pytest.mark.slow
def test_it_opens_on_the_heads_and_says_where_a_text_is_from(looking, offline, studio, tmp_path):
    page = offline().open()
    assert page.locator("h1").inner_text() == "Attention heads"
    assert page.locator(".origin").inner_text() == ""
    file = tmp_path / "report.html"
    gh.Report(studio).save(file)
    page = looking(file.as_uri()).open()
    assert page.locator(".origin").inner_text() == words("en")["shell.origin.held_out"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXT, HOSTILE], ids=["among others", "alone"])
def test_nothing_of_the_text_or_the_name_becomes_markup(looking, studio, tmp_path, text):
    file = tmp_path / "report.html"
    gh.Report(studio, text).save(file)
    look = looking(file.as_uri())
    look.open("#atlas")
    for view in VIEWS:
        page = look.go(f"#{view}?")
        assert page.locator("img:not(header img), script, iframe").count() == 0
        assert page.locator(".brand").inner_text().endswith("a <b>&run")
    sentences = look.go("#alignment").get_by_label("A sentence to translate")
    assert (HOSTILE.split()[1] in sentences.inner_text()) == (text == HOSTILE)


def assert_steps(page, sentence, **given):
    page.wait_for_selector(".view .body[data-drawn]")
    expected = steps_data(StepsRequest(text=sentence, **given), Limits())["matrices"]
    shown = {cell: float(value.replace("Infinity", "inf")) for cell, value in page.evaluate(CELLS)}
    assert shown == {
        f"{name}.{row}.{column}": -math.inf if number is None else number
        for name, rows in expected.items()
        for row, numbers in enumerate(rows)
        for column, number in enumerate(numbers)
    }


@pytest.mark.slow
def test_steps_are_the_librarys_at_every_stop(offline, steps_page, steps_held):
    sentence = steps_held.told["steps"]["text"]
    options = steps_held.told["steps"]["options"]
    assert len(options["beta"]) > 3
    assert len(options["normalizer"]) > 1
    page = offline(steps_page).open("#steps")
    assert_steps(page, sentence)
    page.get_by_label("Inverse temperature").press("Home")
    betas = [stop["name"] for stop in options["beta"]]
    for beta in betas:
        assert_steps(page, sentence, beta=beta)
        page.get_by_label("Inverse temperature").press("ArrowRight")
    for normalizer in options["normalizer"]:
        page.get_by_label("Normalizer").select_option(normalizer["name"])
        page.wait_for_selector(".view .body[data-drawn]")
        assert page.locator(".refused").count() == 0
    masks = [mask["name"] for mask in options["mask"]]
    for mask in masks:
        page.get_by_role("group", name="Mask").get_by_text(mask, exact=True).click()
    last = {"mask": masks[-1], "normalizer": options["normalizer"][-1]["name"]}
    page.get_by_label("Inverse temperature").press("Home")
    assert_steps(page, sentence, beta=betas[0], **last)
    # What is not to be chosen is not offered.
    assert page.get_by_label("Explained word").count() == (len(options["query"]) > 1)
    assert page.get_by_label("A sentence of your own").count() == 0


@pytest.mark.slow
def test_heads_are_the_librarys_under_the_cross_hair(offline, held):
    text = held.told["about"]["text"]
    look = offline()
    look.open("#heads")
    for layer, head, query, key in ((0, 0, 30, 2), (1, 2, 7, 7), (0, 1, 13, 0)):
        state = {"layer": layer, "head": head, "query": query, "key": key}
        page = look.go(f"#heads?{urlencode(state)}")
        asked = {"text": text, "layer": layer, "head": head}
        weights = held.tensor(key_of("heads/weights", asked))
        along = held.tensor(key_of("heads/along", asked))
        wanted = {
            "weight": weights[query, key],
            "entropy": along[0, query],
            "distance": along[1, query],
            "received": along[2, key],
        }
        for row, number in wanted.items():
            shown = page.locator(f"td[data-row={row}]").get_attribute("data-value")
            assert float(shown) == number.item()


@pytest.mark.slow
def test_a_weight_that_is_held_is_explained_and_another_one_is_told_to_be_missing(offline, held):
    asked = {name: int(value) for name, value in keys_of(held.told, "heads/why")[3].items()
             if name != "text"}  # fmt: skip
    look = offline()
    page = look.open(f"#heads?{urlencode(asked | {'why': 'key'})}")
    expect(page.locator(".why .waterfall")).to_be_visible()
    told = held.told[key_of("heads/why", asked | {"text": held.told["about"]["text"]})]
    shown = page.locator(".why .sum .part").get_attribute("data-value")
    assert float(shown) == told["contrast"]
    page = look.go(f"#heads?{urlencode(asked | {'key': asked['key'] - 1, 'why': 'key'})}")
    expect(page.locator(".why .answer")).to_have_text(held.missing)
    assert look.asked == look.asked[:1]


@pytest.mark.slow
def test_alignment_is_the_librarys_cell_by_cell(offline, held):
    page = offline().open("#alignment")
    sentences = held.told["alignment/stored"]["sentences"]
    assert page.get_by_label("A sentence to translate").locator("option").count() == len(sentences)
    for sentence in sentences[:2]:
        page.get_by_label("A sentence to translate").select_option(sentence)
        page.wait_for_selector(".view .body[data-drawn]")
        best = held.told[key_of("alignment", {"sentence": sentence, "beam": 5})]["candidates"][0]
        tokens = ",".join(map(str, best["tokens"]))
        weights = held.tensor(key_of("alignment/weights", {"sentence": sentence, "tokens": tokens}))
        shown = page.evaluate(WEIGHTS)
        expected = weights[-1].double().mean(0)
        assert [len(row) for row in shown] == [expected.shape[1]] * expected.shape[0]
        assert shown == [[pytest.approx(x, rel=1e-12) for x in row] for row in expected.tolist()]


@pytest.mark.slow
def test_atlas_is_the_librarys_under_the_cross_hair(offline, held):
    look = offline()
    look.open("#atlas")
    for layer, head, query, key in ((0, 2, 29, 3), (1, 1, 0, 0)):
        state = {"layer": layer, "head": head, "i": query, "j": key}
        page = look.go(f"#atlas?{urlencode(state)}")
        text = held.told["about"]["text"]
        asked = {"text": text, "layer": layer, "head": head, "level": 0, "row": 0, "column": 0}
        tile = held.tensor(key_of("atlas/tile", asked))
        shown = page.locator(".atlas output[data-value]").evaluate_all(
            "(outputs) => outputs.map((output) => Number(output.dataset.value))"
        )
        assert tile[query, key].item() in shown


# test_every_view_opens_without_a_request has light paper.
@pytest.mark.slow
def test_every_width(offline):
    look = offline(dark=True)
    look.open("#atlas")
    for view in VIEWS:
        look.go(f"#{view}?")
        for width in WIDTHS:
            look.resize(width)
            assert look.overflow() == 0, (view, width)
        assert look.violations() == []


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_it_speaks_its_own_language_whatever_the_browsers(looking, tmp_path, language):
    file = tmp_path / "report.html"
    gh.Report(None, "Sun", lang=language).save(file)
    look = looking(file.as_uri(), language="de")
    page = look.open()
    assert page.evaluate("document.documentElement.lang") == language
    assert page.locator("h1").inner_text() == words(language)["steps.title"]
    assert page.get_by_role("combobox", name="Language").count() == 0
    for view in ("steps", *VIEWS):
        assert f"{view}." not in look.go(f"#{view}?").inner_text("body")


def test_what_is_not_held_is_told_in_a_sentence(offline):
    look = offline()
    look.page.goto(f"{look.url}#heads?text=0123456789abcdef")
    told = "This report does not contain that. Start the studio with the model to see it."
    assert look.page.locator(".refused").inner_text() == told


@pytest.mark.slow
def test_a_notebook_shows_it_in_a_frame(looking, report, tmp_path):
    output = tmp_path / "notebook.html"
    output.write_text(
        "<!doctype html><meta charset=utf-8><title>x</title><h1 id=own>x</h1>"
        + report._repr_html_(),
        encoding="utf-8",
    )
    look = looking(output.as_uri())
    page = look.page
    page.goto(look.url)
    frame = page.frame_locator("iframe")
    for view in ("Atlas", "Alignment", "Attention heads"):
        frame.get_by_role("link", name=view, exact=True).click()
        frame.locator(f"section.{view.lower().split()[-1]} .body[data-drawn]").wait_for()
        assert frame.locator("[aria-current=page]").inner_text() == view
    frame.get_by_text("logarithmic", exact=True).click()
    frame.locator(".body[data-drawn]").wait_for()
    assert address(page) == look.url
    assert page.locator("#own").inner_text() == "x"
    assert page.locator("iframe").bounding_box()["width"] > 1200
    # It can neither reach the page around it nor be styled by it.
    inside = page.frames[1]
    assert (
        inside.evaluate("(() => { try { return parent.document.title } catch { return null } })()")
        is None
    )
    with page.expect_download() as saved:
        share(frame, "PNG")
    assert saved.value.suggested_filename == "glasshead-heads.png"
    assert min(Image.open(io.BytesIO(saved.value.path().read_bytes())).size) > 300


@pytest.mark.slow
@pytest.mark.parametrize(("place", "dark"), [("file", False), ("studio", True)])
def test_pictures_of_every_view(offline, looking, serving, run, dark, place):
    look, text = offline(dark=dark), None
    if place == "studio":
        served = serving(run)
        text = urlencode({"text": served.studio.texts.add(TEXT)})
        look = looking(served.url, dark=dark)
    for view in VIEWS:
        page = look.open(f"#{view}?{text}" if text and view in ("heads", "atlas") else f"#{view}")
        root = saved_svg(page)
        width, height = int(root.get("width")), int(root.get("height"))
        assert root.get("viewBox") == f"0 0 {width} {height}"
        assert view in root.find("{*}title").text.lower()
        assert_words(root, page, view)
        assert beyond(page, root) == []
        paper = root.find("{*}rect").get("fill")
        assert paper == ("#14171a" if dark else "#fbfaf7")
        picture = saved_png(page)
        assert picture.size == (2 * width, 2 * height)
        colors = picture.convert("RGB").getcolors(2**24)
        corner = picture.convert("RGB").getpixel((0, 0))
        assert f"#{bytes(corner).hex()}" == paper
        assert len(colors) > 20
        assert max(colors)[0] < 0.98 * picture.width * picture.height


def saved_svg(page):
    """The picture as SVG, which is well-formed and asks nothing of anybody."""
    with page.expect_download() as saved:
        share(page, "SVG")
    content = saved.value.path().read_text(encoding="utf-8")
    assert "style=" not in content
    assert 'href="http' not in content
    return ET.fromstring(content)


def saved_png(page):
    with page.expect_download() as saved:
        share(page, "PNG")
    return Image.open(io.BytesIO(saved.value.path().read_bytes()))


def assert_words(root, page, view):
    """The words and numbers of the view are in its picture, in letters."""
    texts = {"".join(each.itertext()) for each in root.findall(".//{*}text")}
    assert texts
    if view == "steps":
        numbers = page.locator("table[data-matrix=scores] td[data-cell]").all_inner_texts()
        assert set(numbers) <= texts
    elif view == "alignment":
        words = page.locator("table.weights th").all_inner_texts()
        assert set(words) <= texts

"""The pictures that are saved of every view: well-formed, whole, their words in letters."""

import io
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from studio.report.conftest import TEXT

VIEWS = ("steps", "heads", "alignment", "atlas")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("place", ["file", "studio"])
def test_pictures_of_every_view(offline, looking, serving, run, held, dark, place):
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
        assert view.title() in root.find("{*}title").text
        assert_words(root, page, view)
        assert_inside(root, width, height)
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
        page.get_by_role("button", name="SVG").click()
    content = saved.value.path().read_text(encoding="utf-8")
    assert "style=" not in content
    assert 'href="http' not in content
    return ET.fromstring(content)


def saved_png(page):
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG").click()
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


def assert_inside(root, width, height):
    """No mark begins beside the paper."""
    for mark in root:
        for name, most in (("x", width), ("y", height)):
            if mark.get(name) is not None:
                assert -1 <= float(mark.get(name)) <= most + 1, ET.tostring(mark)

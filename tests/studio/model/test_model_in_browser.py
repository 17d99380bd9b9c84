"""The page of a whole model in a browser: its numbers, its keys, its selection, its picture."""

import math
import re
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import expect

from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio
from glasshead.studio.views.model import WholeModel
from studio.conftest import LANGUAGES, address, share, together
from studio.keyboard import reached_by_tab

TEXT = "a big red dog saw a ball"
PLACE = f"#model?text={TEXT.replace(' ', '+')}"


@pytest.fixture(scope="module")
def whole(folder):
    return WholeModel(Studio(folder))


def drawn(page):
    page.wait_for_selector(".body[data-drawn]")


def role(page, name):
    return float(page.locator(f"dd[data-role={name}]").get_attribute("data-value"))


def table(page):
    """The numbers of the table, by rows."""
    return page.locator("details tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('[data-value]')]"
        ".map((cell) => Number(cell.dataset.value)))"
    )


def node(page):
    """Where the selected head stands on the canvas, and how large."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.locator(".node").bounding_box()


def test_numbers_are_those_of_the_library(looking, serving, folder, whole):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    norm, share = whole.writes(TEXT, Work())[:, :, 5]
    assert table(page) == norm.reshape(2, 3).tolist()
    assert role(page, "norm") == norm[5].item()
    assert role(page, "share") == share[5].item()
    assert role(page, "rank") == 1 + (norm > norm[5]).sum().item()
    row = whole.reads(TEXT, 5, Work())[5]
    keys = page.locator(".keys button").evaluate_all(
        "(all) => all.map(({ dataset }) => [Number(dataset.key), Number(dataset.value)])"
    )
    top = row.topk(5)
    assert [value for _, value in keys] == top.values[top.values > 0].tolist()
    assert all(row[int(key)].item() == value for key, value in keys)
    # The same tokens have their places.
    tokens = whole.summary(TEXT, Work())["tokens"]
    assert page.locator(".keys button span").all_inner_texts() == [
        f"{tokens[key]} {key}" if tokens.count(tokens[key]) > 1 else tokens[key] for key, _ in keys
    ]
    names = [one for one in tokens if tokens.count(one) > 1]
    assert 0 < len(names) < len(tokens)
    # The arcs are those of the same row.
    arcs = page.locator(".arcs path[data-kind=row]").evaluate_all(
        "(all) => all.map(({ dataset }) => Number(dataset.value))"
    )
    assert sorted(arcs) == sorted(value for value in row.tolist() if value >= 0.02)


def test_another_token_has_other_numbers(looking, serving, folder, whole):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=0&head=1&query=5")
    page.locator(".arcs .token").nth(3).click()
    expect(page.locator("aside p.quiet").first).to_contain_text(
        whole.summary(TEXT, Work())["tokens"][3]
    )
    drawn(page)
    assert table(page) == whole.writes(TEXT, Work())[0, :, 3].reshape(2, 3).tolist()
    assert "query=3" in address(page)


@pytest.mark.slow
def test_heads_and_tokens_are_clicked_on_the_canvas(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=0&head=0&query=5")
    canvas = page.locator(".whole canvas")
    box = node(page)
    # The head below stands less than a head and a half further down.
    at = canvas.bounding_box()
    middle = (box["x"] - at["x"] + box["width"] / 2, box["y"] - at["y"] + 1.72 * box["height"])
    canvas.click(position={"x": middle[0], "y": middle[1]})
    expect(page.locator("aside h2")).to_contain_text("Layer 0, head 1")
    drawn(page)
    assert "head=1" in address(page)
    canvas.click(position={"x": 22, "y": 72})
    expect(page.locator(".arcs .token").first).to_have_attribute("aria-pressed", "true")
    drawn(page)
    assert "query=0" in address(page)


@pytest.mark.slow
def test_the_keyboard_reaches_every_head_and_opens_one(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.open(f"{PLACE}&layer=0&head=0&query=5")
    # The canvas is one stop among those of the page.
    assert "node" in reached_by_tab(page, "document.activeElement.className")
    button = page.locator(".node")
    button.focus()
    seen = set()
    for layer in range(2):
        for head in range(3):
            expect(page.locator("aside h2")).to_contain_text(f"Layer {layer}, head {head}")
            seen.add(button.get_attribute("aria-label"))
            page.keyboard.press("ArrowDown")
        for _ in range(2):
            page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
    assert len(seen) == 6
    before = node(page)
    page.keyboard.press("Enter")
    opened = node(page)
    assert opened["width"] > 2 * before["width"]
    held = address(page)
    assert {"x", "y", "zoom"} <= set(parse_qs(urlsplit(held).fragment.partition("?")[2]))
    # The address opens the same part again.
    page = look.open(held.removeprefix(look.url))
    again = node(page)
    assert again["width"] == pytest.approx(opened["width"], abs=0.5)
    assert again["x"] == pytest.approx(opened["x"], abs=3)
    page.locator(".node").press("Escape")
    assert node(page)["width"] == pytest.approx(before["width"], abs=0.5)
    assert "zoom" not in address(page)


def test_the_wheel_keeps_what_is_under_it_and_scrolls_the_page_at_full_view(
    looking, serving, folder
):
    page = looking(serving(folder).url, height=600).open(f"{PLACE}&layer=1&head=1&query=5")
    box = node(page)
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.wheel(0, -100)
    near = node(page)
    assert near["width"] > 1.2 * box["width"]
    assert near["x"] + near["width"] / 2 == pytest.approx(middle[0], abs=2)
    assert near["y"] + near["height"] / 2 == pytest.approx(middle[1], abs=2)
    page.mouse.wheel(0, 2000)
    assert node(page)["width"] == pytest.approx(box["width"], abs=0.5)
    assert page.evaluate("scrollY") == 0
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => scrollY > 0")


def test_an_empty_spot_cannot_be_zoomed_to_without_a_head_in_sight(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    box = page.locator(".whole").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + box["height"] - 9)
    for _ in range(9):
        page.mouse.wheel(0, -200)
    assert node(page)["width"] > box["width"] / 2
    assert overlap(node(page), box)
    page.mouse.down()
    page.mouse.move(box["x"] + 9, box["y"] + 9, steps=5)
    page.mouse.up()
    assert overlap(node(page), box)


def overlap(one, other):
    """Whether two boxes have more than an edge in common."""
    return all(
        one[at] + one[size] > other[at] + 9 and other[at] + other[size] > one[at] + 9
        for at, size in (("x", "width"), ("y", "height"))
    )


def test_the_view_opens_at_the_last_token(looking, serving, folder, whole):
    page = looking(serving(folder).url).open(PLACE)
    last = whole.summary(TEXT, Work())["tokens"][-1]
    expect(page.locator("aside p.quiet").first).to_contain_text(last)


def test_a_head_that_is_near_shows_its_map(looking, serving, folder):
    look = looking(serving(folder).url)
    page = look.open(f"{PLACE}&layer=0&head=0&query=5")
    asked = []
    look.on("request", lambda one: asked.append(one.url))
    with page.expect_response(lambda answer: "model/map" in answer.url):
        page.locator(".node").press("Enter")
    assert any("model/map" in url for url in asked)


@pytest.mark.slow
def test_the_selection_survives_other_views(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    page.locator(".keys button").nth(1).click()
    key = page.locator(".keys button[aria-pressed=true]").get_attribute("data-key")
    assert f"key={key}" in address(page)
    page.locator("nav a", has_text="Attention heads").click()
    page.wait_for_selector("h1:has-text('Attention heads')")
    drawn(page)
    expect(page.locator(".one .head h2")).to_contain_text("Layer 1, head 2")
    for name, value in (("query", "5"), ("key", key)):
        assert page.locator(f'[data-row="{name}"]').get_attribute("data-value") == value
    page.locator("nav a", has_text="Prompt").click()
    page.wait_for_selector("h1:has-text('Prompt')")
    drawn(page)
    assert page.locator(".legend .key").all_inner_texts() == ["Layer 1, head 2"]
    page.locator("nav a", has_text="Model").click()
    page.wait_for_selector("h1:has-text('Model')")
    drawn(page)
    expect(page.locator("aside h2")).to_contain_text("Layer 1, head 2")
    assert page.locator("textarea").input_value() == TEXT


@pytest.mark.slow
@pytest.mark.parametrize("view", ["prompt", "steps", "heads", "atlas"])
def test_the_address_has_what_a_view_was_gone_to_with(looking, serving, folder, view):
    look = looking(serving(folder).url)
    page = look.open(f"{PLACE}&layer=1&head=2&query=5")
    link = page.locator(f'nav a[href="#{view}"]')
    link.click()
    page.wait_for_selector(f".view.{view} .body[data-drawn]")
    held = parse_qs(urlsplit(address(page)).fragment.partition("?")[2])
    heads = {"prompt": {"heads": ["1.2"], "query": ["5"], "text": [TEXT]}}
    places = {"atlas": {"i": ["5"]}}.get(view, {"query": ["5"]})
    assert held.items() >= heads.get(view, {"layer": ["1"], "head": ["2"], **places}).items()


@pytest.mark.slow
def test_a_page_without_a_view_says_which_it_opens(looking, serving, folder):
    look = looking(serving(folder).url)
    for place in ("", "#nothing?x=1"):
        assert re.search(r"/#prompt\?heads=\d\.\d$", address(look.open(place)))


@pytest.mark.slow
def test_a_head_is_taken_away_by_its_link(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    page.get_by_role("link", name="Ablate it").click()
    expect(page.locator(".prompt .body[data-drawn]")).to_be_visible()
    expect(page.get_by_text("Ablated: Layer 1, head 2.")).to_be_visible()
    assert parse_qs(urlsplit(address(page)).fragment)["without"] == ["1.2"]


@pytest.mark.slow
def test_typing_reads_the_new_text(looking, serving, folder, whole):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    page.locator("textarea").fill("the cat saw the dog")
    tokens = whole.summary("the cat saw the dog", Work())["tokens"]
    expect(page.locator(".arcs .token")).to_have_count(len(tokens))
    drawn(page)
    assert "text=the+cat+saw+the+dog" in address(page)
    page.locator("textarea").fill(" ")
    expect(page.locator(".refused")).to_have_text("Type at least one word.")


def test_heads_stay_where_they_are_when_a_text_is_typed(looking, serving, folder):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")

    whole = node(page)

    def typed(text):
        # A token is a character.
        page.locator("textarea").fill(text)
        expect(page.locator(".arcs .token")).to_have_count(len(text))
        drawn(page)
        return node(page)

    assert typed("the cat saw the dog") == whole
    page.locator("button.node").press("Enter")
    page.wait_for_function("() => Number(document.querySelector('.whole').dataset.zoom) > 84")
    page.wait_for_timeout(500)
    near = node(page)
    assert typed("the cat saw a dog") == near


@pytest.mark.slow
def test_a_phone_shows_the_mlp_of_each_layer(looking, serving, folder, tmp_path):
    page = looking(serving(folder).url, width=390).open(PLACE)
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "model.svg")
    root = ET.fromstring((tmp_path / "model.svg").read_text())
    places = [float(text.get("x")) for text in root.findall(".//{*}text") if text.text == "MLP"]
    assert len(places) == 2
    # The last one is inside the picture, with its box.
    assert max(places) < float(root.get("width")) - 15


@pytest.mark.slow
def test_the_picture_has_every_head_and_its_legend(looking, serving, folder, tmp_path):
    page = looking(serving(folder).url).open(f"{PLACE}&layer=1&head=2&query=5")
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "model.svg")
    text = (tmp_path / "model.svg").read_text()
    assert "Layer 1, head 2" in text
    assert "Norm of the head’s output" in text
    assert text.count("<image") == 6
    assert ">MLP<" in text
    assert "MLP is the feed-forward network" in text
    # The number of a head stands inside its square, which no line crosses.
    root = ET.fromstring(text)
    strips = [each.attrib for each in root.findall(".//{*}image")]
    names = [each.attrib for each in root.findall(".//{*}text") if each.text in ("0", "1", "2")]
    inside = [
        (strip, name)
        for strip in strips
        for name in names
        if abs(float(strip["x"]) + float(strip["width"]) / 2 - float(name["x"])) < 0.1
        and 0 < float(strip["y"]) - float(name["y"]) < float(strip["width"]) / 2
    ]
    assert len(inside) == len(strips)
    numbers = [float(part) for part in text.split('"') if part.replace(".", "", 1).isdigit()]
    assert all(map(math.isfinite, numbers))


def test_a_phone_names_the_tokens_that_are_read(looking, serving, folder, whole, tmp_path):
    text = "the dog saw a ball the cat sat"
    page = looking(serving(folder).url, width=390, height=844).open(
        f"#model?text={text.replace(' ', '+')}&layer=1&head=2"
    )
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "model.svg")
    texts = ET.parse(tmp_path / "model.svg").findall(".//{*}text")
    shown = [each.text for each in texts if "rotate(-50" in (each.get("transform") or "")]
    told = whole.summary(text, Work())
    row = whole.reads(text, len(told["tokens"]) - 1, Work())[5]
    read = [token for token, value in zip(told["running"], row, strict=True) if value >= 0.01]
    assert len(shown) >= len(read) > 1
    assert all(token.strip() in shown or not token.strip() for token in read)


def test_a_finger_scrolls_the_page_over_a_whole_model(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=844).open("#model")
    touched = "(canvas) => getComputedStyle(canvas).touchAction"
    assert page.locator(".whole canvas").evaluate(touched) == "pan-y"
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_selector(".whole.near")
    assert page.locator(".whole canvas").evaluate(touched) == "none"


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_every_width_and_language_with_twelve_heads(looking, serving, wide, languages):
    look = looking(serving(wide).url, width=390, height=844)
    page = look.open("#model")
    for language in languages:
        look.speak(language)
        page.locator("main summary").click()
        for width in (390, 820, 1440):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language == "en") == []


@pytest.mark.slow
def test_dark_paper_has_no_violation_either(looking, serving, folder):
    look = looking(serving(folder).url, dark=True)
    look.open(PLACE)
    assert look.violations() == []


@pytest.mark.slow
def test_a_head_that_is_near_has_its_name_and_tokens_above_its_columns(
    looking, serving, folder, tmp_path
):
    page = looking(serving(folder).url, height=1100).open("#model?text=a+dog")
    page.locator("button.node").press("Enter")
    page.wait_for_function("() => Number(document.querySelector('.whole').dataset.zoom) > 84")
    page.wait_for_timeout(500)
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "model.svg")
    root = ET.parse(tmp_path / "model.svg").getroot()
    selected = page.locator("button.node").get_attribute("aria-label").split(".")[0]
    texts = root.findall(".//{*}text")
    maps = [each for each in root.findall(".//{*}image") if each.get("width") == each.get("height")]
    named = [each for each in texts if "".join(each.itertext()) == selected]
    (own,) = [one for one in maps if any(above(name, one) for name in named)]
    left, side = float(own.attrib["x"]), float(own.attrib["width"])
    words = [each for each in texts if "rotate(-50" in (each.get("transform") or "")]
    tokens = page.locator(".arcs .token").count()
    columns = [(float(each.attrib["x"]) - 3 - left) / side * tokens - 0.5 for each in words]
    assert len(columns) > 2
    assert all(abs(column - round(column)) < 1e-3 for column in columns)
    assert {round(column) for column in columns} <= set(range(tokens))


def above(name, image):
    """Whether a name stands right above an image."""
    is_column = name.get("x") == image.get("x")
    return is_column and 0 < float(image.get("y")) - float(name.get("y")) < 0.1 * float(
        image.get("height")
    )


@pytest.mark.slow
def test_a_picture_has_the_letters_of_the_page_and_keeps_spaces(looking, serving, folder, tmp_path):
    page = looking(serving(folder).url).open(PLACE)
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "model.svg")
    root = ET.parse(tmp_path / "model.svg").getroot()
    assert root.attrib["font-family"].startswith('"Source Sans 3"')
    texts = [each for each in root.findall(".//{*}text") if "".join(each.itertext())[:1] == " "]
    assert len(texts) == TEXT.count(" ")
    space = "{http://www.w3.org/XML/1998/namespace}space"
    assert all(each.get(space) == "preserve" for each in texts)
    style = root.findtext("{*}style", "")
    assert style.count("data:font/woff2;base64,") == style.count("@font-face") == 3
    assert "static/" not in style

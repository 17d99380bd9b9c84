"""The page of a vision model in a browser: its maps, its keys, and pictures that are sent."""

import io
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import expect

from glasshead.studio.background_jobs import Work
from glasshead.studio.studio import Studio
from glasshead.studio.views.picture import Pictures
from studio.conftest import LANGUAGES, address, share, together
from studio.pictures.vision_folders import dino_folder, vit_folder

# What the browser itself says of a refusal.
SAID = ("Failed to load resource",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return vit_folder(tmp_path_factory.mktemp("vision") / "vit")


@pytest.fixture(scope="module")
def pictures(folder):
    return Pictures(Studio(folder))


def drawn(page):
    page.wait_for_selector(".body[data-drawn]")


def table(page):
    return page.locator("details tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('[data-value]')]"
        ".map((cell) => Number(cell.dataset.value)))"
    )


def png(color):
    file = io.BytesIO()
    picture = Image.new("RGB", (70, 56), color)
    picture.paste((255, 255, 255), (0, 0, 20, 20))
    picture.save(file, "PNG")
    return {"name": "mine.png", "mimeType": "image/png", "buffer": file.getvalue()}


def test_a_vision_model_opens_on_its_picture_with_the_library_s_numbers(
    looking, serving, folder, pictures
):
    page = looking(serving(folder).url).open()
    assert page.locator("h1").inner_text() == "Picture"
    expect(page.locator(".brand span")).to_contain_text("Vision model, 2 × 3 heads")
    maps = pictures.maps(None, 0, Work())
    assert table(page) == maps[6].tolist()
    page.get_by_role("button", name="Layer 1, head 1").click()
    assert page.locator("h2").inner_text().startswith("Layer 1, head 1")
    assert table(page) == maps[4].tolist()
    expect(page.locator(".legend")).to_contain_text(f"{maps[4].max().item():.4f}")
    sums = pictures.sums(None, 0, Work())
    said = [f"{sums[kind][4]:.4f}" for kind in ("patches", "class")]
    assert page.locator(".bars b").all_inner_texts() == said
    assert parse_qs(urlsplit(address(page)).fragment.partition("?")[2]) == {
        "layer": ["1"],
        "head": ["1"],
    }


@pytest.mark.slow
def test_a_picture_is_no_text(looking, serving, folder, pictures):
    page = looking(serving(folder).url, width=1440, height=900).open("#picture")
    group = page.get_by_role("group", name="Picture", exact=True)
    assert group.get_by_role("link").all_inner_texts() == ["Picture"]
    assert page.get_by_role("group", name="Text", exact=True).count() == 0


def test_the_weight_of_the_patch_under_the_pointer_is_stated(looking, serving, folder, pictures):
    page = looking(serving(folder).url).open("#picture?layer=0&head=2")
    weights = pictures.maps(None, 0, Work())[2]
    reading = page.locator(".legend output")
    # At first it is the largest weight.
    row, column = divmod(int(weights.argmax()), 5)
    largest = f"{weights.max().item():.4f}"
    expect(reading).to_have_text(f"Patch at row {row}, column {column}: {largest}")
    canvas = page.locator("section > canvas")
    box = canvas.bounding_box()
    # The third column of five, the second row of four.
    canvas.hover(position={"x": 0.5 * box["width"], "y": 0.375 * box["height"]})
    weight = f"{weights.flatten()[7].item():.4f}"
    expect(reading).to_have_text(f"Patch at row 1, column 2: {weight}")
    assert "query" not in address(page)


def test_a_patch_is_chosen_by_mouse_and_keyboard(looking, serving, folder, pictures):
    look = looking(serving(folder).url)
    page = look.open("#picture?layer=0&head=2")
    canvas = page.locator("section > canvas")
    box = canvas.bounding_box()
    # The third column of five, the second row of four.
    canvas.click(position={"x": 0.5 * box["width"], "y": 0.375 * box["height"]})
    expect(page.locator("option[value='8']")).to_have_text("Patch at row 1, column 2")
    drawn(page)
    assert table(page) == pictures.maps(None, 8, Work())[2].tolist()
    canvas.press("ArrowDown")
    expect(page.locator("option[value='13']")).to_have_text("Patch at row 2, column 2")
    drawn(page)
    canvas.press("ArrowRight")
    expect(page.locator("option[value='14']")).to_have_text("Patch at row 2, column 3")
    drawn(page)
    assert table(page) == pictures.maps(None, 14, Work())[2].tolist()
    held = address(page)
    assert "query=14" in held
    page = look.open(held.removeprefix(look.url))
    assert table(page) == pictures.maps(None, 14, Work())[2].tolist()
    page.get_by_label("Query").select_option("0")
    expect(page.locator("option[value='1']")).to_have_count(1)
    drawn(page)
    assert table(page) == pictures.maps(None, 0, Work())[2].tolist()


@pytest.mark.slow
def test_the_keyboard_goes_from_head_to_head_and_to_the_rollout(looking, serving, folder):
    page = looking(serving(folder).url).open("#picture?layer=0&head=0")
    page.locator(".small").nth(1).focus()
    for name in ("Layer 0, head 1", "Layer 0, head 2"):
        page.keyboard.press("ArrowRight")
        expect(page.locator("h2")).to_contain_text(name)
    page.keyboard.press("ArrowDown")
    expect(page.locator("h2")).to_contain_text("Layer 1, head 2")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator("h2")).to_have_text("Rollout over all layers")
    expect(page.locator(".small").first).to_be_focused()


def test_a_head_that_is_chosen_on_a_telephone_is_seen_at_once(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=500).open("#picture")
    head = page.get_by_role("button", name="Layer 1, head 1")
    head.scroll_into_view_if_needed()
    large = page.locator(".photo canvas")
    head.click()
    expect(page.locator("h2")).to_contain_text("Layer 1, head 1")
    expect(large).to_be_in_viewport(ratio=1)


def test_a_frame_that_scrolls_is_no_head(looking, serving, folder):
    page = looking(serving(folder).url).open("#picture?layer=0&head=2")
    page.locator(".all .scroll").focus()
    assert "layer=0&head=2" in address(page)
    assert page.locator(".small[tabindex='0']").count() == 1
    expect(page.locator("h2")).to_contain_text("Layer 0, head 2")


@pytest.mark.slow
def test_a_picture_of_the_user_is_shown_and_a_bad_file_refused(looking, serving, folder, pictures):
    page = looking(serving(folder).url, expected=SAID).open("#picture?layer=0&head=2")
    file = png((200, 30, 30))
    page.locator("input[type=file]").set_input_files(file)
    page.wait_for_function("() => location.hash.includes('image=')")
    drawn(page)
    name = pictures.add(file["buffer"])
    assert f"image={name}" in address(page)
    assert table(page) == pictures.maps(name, 0, Work())[2].tolist()
    bad = {"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"}
    page.locator("input[type=file]").set_input_files(bad)
    expect(page.locator(".refused")).to_contain_text(
        "This file must be a picture that can be opened"
    )
    # What was shown stays.
    assert table(page) == pictures.maps(name, 0, Work())[2].tolist()


def test_a_file_is_chosen_by_a_button_of_the_page_and_by_the_keyboard(looking, serving, folder):
    look = looking(serving(folder).url, language="tr")
    page = look.open("#picture?layer=0&head=2")
    button = page.get_by_text("Resim seçin")
    # Chromium reports a dialog only if it was asked to before the dialog opens.
    page.on("filechooser", lambda _: None)
    page.locator("input[type=file]").focus()
    assert button.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
    with page.expect_file_chooser():
        page.keyboard.press("Enter")
    with page.expect_file_chooser():
        button.click()
    # What stands under the picture names the ends of its scale.
    largest = max(map(max, table(page)))
    assert page.locator(".photo .legend").inner_text().split()[-1] == f"{largest:.4f}"
    # The map of the rollout is before those of the heads, and no heading says its name again.
    tops = [box.bounding_box()["y"] for box in page.locator(".small").all()]
    assert tops == sorted(tops)
    first = page.locator(".small").first
    assert first.get_attribute("aria-label") == first.inner_text()
    assert page.locator("h3").count() == 0


def test_a_picture_that_is_forgotten_is_told_of(looking, serving, folder):
    look = looking(serving(folder).url, expected=SAID)
    page = look.open(f"#picture?image={'0' * 16}")
    expect(page.locator(".refused")).to_have_text(
        "This picture is no longer here. Choose it again.", ignore_case=True
    )
    # There are no patches yet to which keys and pointers could lead.
    expect(page.locator("section > canvas")).to_be_hidden()
    page.locator("input[type=file]").set_input_files(png((30, 30, 200)))
    expect(page.locator(".refused")).to_have_count(0)
    expect(page.locator(".small")).to_have_count(7)


def test_bars_beside_the_picture_are_the_sums(looking, serving, folder):
    look = looking(serving(folder).url, width=1440)
    page = look.open("#picture?layer=0&head=2&query=8")
    said = page.locator(".bars b").all_inner_texts()
    shares = page.locator(".bar i").evaluate_all(
        "(all) => all.map((one) => one.clientWidth / one.parentElement.clientWidth)"
    )
    assert shares == pytest.approx([float(value) for value in said], abs=0.01)
    photo, bars = (page.locator(name).bounding_box() for name in (".photo canvas", ".bars"))
    assert bars["x"] > photo["x"] + photo["width"]
    assert bars["y"] < photo["y"] + photo["height"]


@pytest.mark.slow
def test_the_picture_is_saved_with_its_title(looking, serving, folder, tmp_path):
    page = looking(serving(folder).url).open("#picture?layer=0&head=2&query=8")
    with page.expect_download() as download:
        share(page, "SVG")
    download.value.save_as(tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "Layer 0, head 2 · Patch at row 1, column 2" in text
    assert text.count("<image") == 1


@pytest.fixture(scope="module")
def with_registers(tmp_path_factory):
    return dino_folder(tmp_path_factory.mktemp("vision") / "dino")


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_every_width_and_language(looking, serving, with_registers, languages):
    look = looking(serving(with_registers).url, width=390, height=844)
    page = look.open("#picture?query=5")
    for language in languages:
        look.speak(language)
        page.locator("main summary").click()
        assert page.locator(".controls option").count() == 4
        for width in (390, 820, 1440):
            look.resize(width)
            assert look.overflow() == 0, (language, width)
        assert look.violations(contrast=language == "en") == []


@pytest.mark.slow
def test_dark_paper_has_no_violation_either(looking, serving, folder):
    look = looking(serving(folder).url, dark=True)
    look.open("#picture?layer=0&head=2&query=8")
    assert look.violations() == []


def test_another_subject_has_no_picture_to_show(looking, serving):
    page = looking(serving().url).open("#picture")
    expect(page.locator(".note")).to_contain_text("No vision model loaded.")

"""The grid of all heads in a browser: their maps, their roles, and which of them opens first.

The page of the heads in a browser: keyboard, texts, languages, widths, and pictures.
The head that is open, in a browser: its numbers, its colours, its bars, its text.
"""

import json
import math
import re
import struct
from collections import Counter
from itertools import pairwise
from urllib.parse import parse_qs, urlencode
from xml.etree import ElementTree as ET

import pytest
import torch
from playwright.sync_api import expect
from transformers import AutoModelForCausalLM

from glasshead.models.saving import write_weights
from glasshead.studio.background_jobs import Work
from glasshead.studio.shell import words
from glasshead.studio.studio import Studio
from glasshead.studio.views import heads
from glasshead.tasks.story_model import FOLDER as STORY_MODEL
from glasshead.tasks.write import Writer
from pretrained_folders import llama_folder
from studio.conftest import LANGUAGES, WIDTHS, address, beyond, quickly, share, together
from studio.heads.heads_seen import (
    COLORS,
    FIELD,
    HEADS,
    LAYERS,
    OPEN,
    STORY,
    TEXT,
    close,
    colors,
    place_of,
    small,
)
from studio.keyboard import reached_by_tab
from written import written


def test_the_grid_shows_what_heads_do(looking, place, reading):
    url, view = place
    page = looking(url).open(view)
    told, maps = heads.summary(reading), heads.small_maps(reading)
    length = reading.length
    assert f"Tokens: {length}. Layers: 2. Heads: 6." in page.locator(".said").inner_text()
    for layer in range(LAYERS):
        for head in range(HEADS):
            button = small(page, layer, head)
            assert float(button.get_attribute("data-entropy")) == told["entropy"][layer][head]
            role = told["roles"][layer][head]
            said = words("en")[f"heads.role.{role or 'none'}"]
            assert button.get_attribute("aria-label") == (
                f"Layer {layer}, head {head}: {said}, mean entropy "
                f"{told['entropy'][layer][head]:.2f} nats"
            )
            canvas = button.locator("canvas")
            side = canvas.evaluate("(canvas) => canvas.clientWidth") / length
            middles = [
                ((at % length + 0.5) * side, (at // length + 0.5) * side) for at in range(length**2)
            ]
            pixels = canvas.evaluate(COLORS, middles)
            expected = colors(maps[layer * HEADS + head, :, :-1])
            assert all(map(close, pixels, [cell for row in expected for cell in row]))
    for role in told["scores"]:
        count = sum(row.count(role) for row in told["roles"])
        assert page.locator(f'.roles [data-role="{role}"]').inner_text() == str(count)


@pytest.mark.parametrize("asked", quickly("", ["", "&layer=7&head=2", "&layer=0&head=3"]))
def test_the_most_telling_head_is_opened_where_none_is_asked_that_is_there(
    looking, place, reading, asked
):
    url, view = place
    page = looking(url).open(view + asked)
    layer, head = heads.summary(reading)["first"]
    assert page.locator(".one .head h2").inner_text().startswith(f"Layer {layer}, head {head}")
    assert f"layer={layer}&head={head}" in address(page)
    assert small(page, layer, head).get_attribute("aria-current") == "true"


def test_a_head_opens_at_the_largest_weight_of_its_role(looking, serving):
    served = serving(STORY_MODEL)
    said = (
        "Once upon a time there was a little girl named Lily. She loved to play outside in the "
        "park. One day she saw a big red ball."
    )
    reading = heads.reading_of(served.studio, served.studio.texts.add(said), Work())
    told = heads.summary(reading)
    layer, head = told["first"]
    assert told["roles"][layer][head] == "induction"
    place = {"said": said, "layer": layer, "head": head}
    look = looking(served.url)
    page = look.open(f"#heads?{urlencode(place)}")
    query, key = (
        int(page.locator(f"[data-row={name}]").get_attribute("data-value"))
        for name in ("query", "key")
    )
    # The key follows another occurrence of the query's token, the further the better.
    tokens, weights = told["tokens"], heads.whole_map(reading, layer, head)
    telling = {
        (one, other): float(weights[one, other]) * math.log2(1 + one - other)
        for one in range(len(tokens))
        for other in range(1, one)
        if tokens[other - 1] == tokens[one]
    }
    assert (query, key) == max(telling, key=telling.get)
    assert page.locator(".looks").is_hidden()
    page = look.open(f"?present#heads?{urlencode(place)}")
    assert page.locator(".looks").inner_text().startswith(f"In layer {layer}, head {head}, “")


@pytest.mark.slow
def test_the_arcs_the_maps_and_the_open_head_are_seen_at_once(looking, place):
    url, view = place
    page = looking(url, width=1440).open(view)
    grid, map_ = page.locator(".all table").bounding_box(), page.locator(".map").bounding_box()
    arcs = page.locator(".arcs").bounding_box()
    assert arcs["y"] < 250
    assert arcs["y"] + arcs["height"] <= grid["y"]
    assert grid["y"] < 450
    assert grid["x"] + grid["width"] <= map_["x"]
    assert map_["y"] + map_["height"] <= 900


def test_a_role_has_room_on_a_line_below_maps_of_eight_heads(looking, serving, tmp_path):
    folder = llama_folder(tmp_path / "llama", hidden_size=48, num_attention_heads=8)
    page = looking(serving(folder).url, width=1280, height=800).open("#heads")
    lines = page.locator(".small .role").first.evaluate(
        """(role) => {
          role.textContent = "previous";
          return role.offsetHeight / parseFloat(getComputedStyle(role).lineHeight);
        }"""
    )
    assert lines < 1.5


def test_a_telephone_has_a_row_for_each_layer_of_twelve_heads(looking, serving, wide):
    page = looking(serving(wide).url, width=390, height=844).open("#heads")
    names = page.locator(".grid tbody th").all_inner_texts()
    assert names == [str(layer) for layer in range(len(names))]
    assert page.locator(".grid tbody tr").first.locator("button").count() == 12
    boxes = [each.bounding_box() for each in page.locator(".grid button").all()[:12]]
    assert all(box["width"] >= 24 for box in boxes)
    assert all(one["x"] + one["width"] <= two["x"] for one, two in pairwise(boxes))
    assert boxes[-1]["x"] + boxes[-1]["width"] <= 390


def test_the_names_at_the_cross_hair_leave_their_neighbors_free(looking, place):
    url, view = place
    page = looking(url, width=390, height=844).open(view + OPEN)
    cell = float(page.locator(".map canvas").get_attribute("data-cell"))
    for name, side in (("query", "height"), ("key", "width")):
        assert page.locator(f".map .{name}").bounding_box()[side] <= max(12, min(18, cell)) + 0.1


@pytest.mark.slow
def test_roles_are_tagged_where_a_head_has_one(tmp_path, serving, looking):
    run = written(tmp_path / "run", "context_length=47")
    model = Writer.load(run.path).model
    # Without queries a head looks at all keys alike.
    with torch.no_grad():
        for parameter in model.blocks[0].attention.parameters():
            parameter.zero_()
    write_weights(model, run.weights)
    served = serving(run.path)
    page = looking(served.url).open(f"#heads?text={served.studio.texts.add(TEXT)}&layer=0&head=1")
    for head in range(HEADS):
        assert small(page, 0, head).get_attribute("data-role") == "broad"
        assert small(page, 0, head).locator(".role").inner_text() == "broad"
        assert small(page, 1, head).get_attribute("data-role") != "broad"
    assert page.locator('.roles [data-role="broad"]').inner_text() == str(HEADS)
    assert page.locator(".one .head .tag").inner_text() == "broad"
    assert "broad" in page.locator(".roles .here").inner_text()


@pytest.mark.slow
def test_all_can_be_done_by_keyboard(looking, place, reading):
    url, view = place
    page = looking(url).open(view)
    page.locator("main summary").first.focus()
    page.keyboard.press("Enter")
    name = "() => document.activeElement.className || document.activeElement.type"
    chips = page.locator(".chip").count()
    reached = reached_by_tab(page, name, times=11 + chips)
    assert reached[:3] == ["textarea", "submit", "file"]
    # The text to compare with, the colours, the token with its arcs, and what keeps them.
    assert reached[3:8] == [None, "radio", "checkbox", "token", "button"]
    # What chooses heads, their order, and the test.
    assert reached[8 : 8 + chips] == ["chip"] * chips
    assert reached[8 + chips :] == ["select-one", "button", "small"]
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(small(page, 1, 1)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".one .head h2")).to_contain_text("Layer 1, head 2")
    expect(small(page, 1, 2)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Tab")
    expect(page.locator(".map canvas")).to_be_focused()
    last = reading.length - 1
    page.keyboard.press("PageDown")
    here = lambda row: int(page.locator(f'[data-row="{row}"]').get_attribute("data-value"))  # noqa: E731
    assert here("query") == last
    for key, query_and_key in (
        ("End", (last, last)),
        ("PageUp", (last - 10, last)),
        ("ArrowLeft", (last - 10, last - 1)),
        ("ArrowDown", (last - 9, last - 1)),
        ("Home", (last - 9, 0)),
        ("ArrowUp", (last - 10, 0)),
        ("ArrowRight", (last - 10, 1)),
        ("PageDown", (last, 1)),
    ):
        page.keyboard.press(key)
        assert (here("query"), here("key")) == query_and_key
    page.wait_for_url(f"**query={last}&key=1*")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    expect(page.locator(".one .head h2")).to_contain_text("Layer 0, head 2")
    assert (here("query"), here("key")) == (last, 1)
    assert "layer=0&head=2" in address(page)


@pytest.mark.slow
def test_a_link_opens_in_another_browser_after_a_restart(looking, serves, folder):
    first = serves(Studio(folder))
    page = looking(first.url).open("#heads")
    page.get_by_text("Choose a text").click()
    page.locator(FIELD).fill(TEXT)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(FIELD)).not_to_be_visible()
    link = address(page).removeprefix(first.url)
    first.stop()
    again = looking(serves(Studio(folder)).url).open(link)
    words = again.locator(".one .tokens span").all_inner_texts()
    assert "".join(words).split() == TEXT.split()
    again.get_by_text("Choose a text").click()
    assert again.locator(FIELD).input_value() == TEXT


@pytest.mark.slow
def test_choosing_a_text_moves_nothing_under_the_pointer(looking, place):
    url, view = place
    page = looking(url).open(view)

    def places():
        shown = page.locator(".arcs, .open").all()
        return [{**one.bounding_box(), "height": None, "width": None} for one in shown]

    before = places()
    assert len(before) == 2
    for summary, panel in (("Choose a text", ".text:not(.compare)"), ("Compare", ".compare")):
        page.locator("summary", has_text=summary).click()
        expect(page.locator(f"{panel} textarea")).to_be_visible()
        assert page.locator("details.text[open]").count() == 1
        assert places() == before
    page.locator("summary", has_text="Choose a text").click()
    page.locator(FIELD).fill("a dog")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(FIELD)).not_to_be_visible()
    expect(page.locator(".said")).to_contain_text("Tokens: 5.")
    assert places()[0] == before[0]


@pytest.mark.slow
def test_another_text_is_read_or_refused_beside_it(looking, place, folder, tmp_path):
    url, view = place
    page = looking(url, expected=("400", "413")).open(view)
    choose = page.get_by_text("Choose a text")
    choose.click()
    page.locator(FIELD).fill("a dog")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".said")).to_contain_text("Tokens: 5.")
    expect(page.locator(FIELD)).not_to_be_visible()
    choose.click()
    page.locator(FIELD).fill("   ")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".text:not(.compare) .wrong")).to_contain_text("Enter at least one word")
    (tmp_path / "text.txt").write_text("Tom saw a ball. " * 4)
    page.locator('.text:not(.compare) input[type="file"]').set_input_files(tmp_path / "text.txt")
    expect(page.locator(".said")).to_contain_text(
        "The text is cut: the model read 47 of its 64 tokens."
    )
    expect(page.locator(".text:not(.compare) .wrong")).to_be_empty()
    (tmp_path / "large.txt").write_bytes(b"a" * (2**23 + 1))
    page.locator('.text:not(.compare) input[type="file"]').set_input_files(tmp_path / "large.txt")
    expect(page.locator(".text:not(.compare) .wrong")).to_contain_text(
        "A text must have at most 8 388 608 bytes, but this file has 8 388 609"
    )


def test_hostile_tokens_stay_text(looking, place):
    url, view = place
    hostile = [
        '<img src=x onerror="document.title=1">',
        "\\u202eevil",
        "\\x00",
        "</script>",
        "&lt;b&gt;",
    ]
    look = looking(url)

    def answer(route):
        result = json.loads(route.fetch().text().splitlines()[-1])
        for name in ("tokens", "running"):
            result["result"][name][: len(hostile)] = hostile
        route.fulfill(body=json.dumps(result) + "\n", content_type="application/x-ndjson")

    look.page.route("**/api/heads/reading*", answer)
    page = look.open(view + "&layer=1&head=2&query=0&key=1")
    assert page.locator('[data-row="query"] b').inner_text() == hostile[0]
    assert page.locator(".tokens span").nth(0).text_content().strip() == hostile[0]
    assert page.locator(".heads img, .heads script, .heads b b").count() == 0
    assert page.title() != "1"


@pytest.mark.slow
def test_pictures_show_all_heads_and_the_one_that_is_open(opened, reading):
    page = opened.page
    # Others look at the first token, by dashed arcs.
    page.locator(".arcs .token").first.click()
    page.locator(".arcs path[stroke-dasharray]").first.wait_for(state="attached")
    with page.expect_download() as saved:
        share(page, "SVG")
    svg = ET.parse(saved.value.path()).getroot()
    texts = [one.text for one in svg.iter() if one.tag.endswith("text")]
    # The words and the name of the head whose arcs are there, then all heads, then the open one.
    words = [word.strip() for word in page.locator(".arcs .token").all_text_contents()]
    named = [(text or "").strip() for text in texts[: len(words) + 1]]
    assert named == [*words, "Layer 1, head 2"]
    texts = texts[reading.length + 1 :]
    for entropy in page.locator(".small .entropy").all_inner_texts():
        assert entropy in texts
    margins = page.locator(".map svg text").all_text_contents()
    assert Counter(texts) >= Counter([*margins, "Layer 1, head 2"])
    assert beyond(page, svg) == []
    arcs = page.locator(".arcs path")
    # Three more are the bars of the map.
    assert sum(one.tag.endswith("path") for one in svg.iter()) == arcs.count() + 3
    dashed = page.locator(".arcs path[stroke-dasharray]").count()
    assert sum("stroke-dasharray" in one.attrib for one in svg.iter()) == dashed > 0
    assert sum(one.tag.endswith("image") for one in svg.iter()) == LAYERS * HEADS + 1
    with page.expect_download() as saved:
        share(page, "PNG")
    content = saved.value.path().read_bytes()
    width, height = struct.unpack(">2I", content[16:24])
    assert (width, height) == (2 * float(svg.get("width")), 2 * float(svg.get("height")))


@pytest.mark.parametrize("dark", quickly(False, [False, True]), ids=["light", "dark"])
def test_nothing_is_wider_than_the_page_and_all_is_accessible(looking, place, dark):
    url, view = place
    look = looking(url, dark=dark)
    look.open(view + OPEN)
    for width in WIDTHS:
        look.resize(width)
        assert look.overflow() == 0
        box = look.page.locator(".map canvas").bounding_box()
        assert box["x"] + box["width"] <= width
    assert look.violations() == []


@pytest.mark.parametrize("languages", together("tr", LANGUAGES))
def test_every_language_has_its_words(looking, place, languages):
    url, view = place
    # The browser's language is the first.
    look = looking(url, language=languages[0], width=390)
    page = look.open(view + OPEN)
    for language in languages:
        if language != languages[0]:
            look.speak(language)
        assert page.locator("html").get_attribute("lang") == language
        assert not re.search(r"heads\.[a-z_]", page.locator("main").inner_text())
        assert words(language)["heads.roles"] in page.locator("main").inner_text()
        assert look.overflow() == 0
        seen = page.locator("main").inner_html()
        assert "{" not in seen
        # Nothing beside the map is cut.
        assert page.locator(".map svg text").evaluate_all(CUT) == []


@pytest.mark.slow
def test_the_margins_of_many_tokens_are_numbers(tmp_path, serving, looking):
    served = serving(written(tmp_path / "run", "context_length=389").path)
    text = served.studio.texts.add(" ".join([STORY] * 40))
    page = looking(served.url).open(f"#heads?text={text}&layer=1&head=2")
    beside = page.locator(".map svg text").all_text_contents()
    named = [one for one in beside if not re.fullmatch(r"[0-9 .–]+", one)]
    assert named == [words("en")[f"heads.{name}"] for name in ("entropy", "distance", "received")]
    assert {"0", "100", "200", "300"} <= set(beside)


# The texts of a drawing that do not stand within it.
CUT = """(texts) => texts.filter((text) => {
  const [box, all] = [text, text.ownerSVGElement].map((each) => each.getBoundingClientRect());
  const isBeside = box.left < all.left || box.right > all.right;
  return isBeside || box.top < all.top || box.bottom > all.bottom;
}).map((text) => text.textContent)"""
# Walks with the cross-hair through all cells, and gathers what is read there.
WALK = """(count) => {
  const canvas = document.querySelector(".map canvas");
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const read = (row) => Number(document.querySelector(`[data-row="${row}"]`).dataset.value);
  for (let at = 0; at < 2 * count; at += 1) press("PageUp");
  const cells = [];
  for (let query = 0; query < count; query += 1) {
    press("Home");
    for (let key = 0; key < count; key += 1) {
      cells.push(["query", "key", "weight", "rank", "entropy", "distance", "received"].map(read));
      press("ArrowRight");
    }
    press("ArrowDown");
  }
  return cells;
}"""


# The names of tokens that a name of a selected one lies over.
COVERED = """() => {
  const box = (node) => node.getBoundingClientRect();
  const meet = (one, other) => one.left < other.right && other.left < one.right
    && one.top < other.bottom - 2 && other.top < one.bottom - 2;
  const own = [...document.querySelectorAll(".map .cross :is(.query, .key)")].map(box);
  return [...document.querySelectorAll(".map svg text")]
    .filter((name) => getComputedStyle(name).visibility === "visible")
    .filter((name) => own.some((each) => meet(each, box(name))))
    .map((name) => name.textContent);
}"""


def test_names_of_the_selected_tokens_lie_over_no_other_name(looking, serving, folder):
    page = looking(serving(folder).url, width=1280).open("#heads?layer=1&head=2&query=30&key=21")
    names = page.locator(".map svg text")
    assert page.evaluate(COVERED) == []
    count = names.count()
    page.locator(".map canvas").press("ArrowUp")
    assert page.evaluate(COVERED) == []
    assert names.count() == count


def test_the_link_to_steps_has_the_cell_under_the_cross_hair(looking, serving, folder):
    page = looking(serving(folder).url, width=1440).open("#heads?layer=1&head=2")

    def cell():
        read = "(name) => document.querySelector(`[data-row=${name}]`).dataset.value"
        return [page.evaluate(read, name) for name in ("query", "key")]

    def linked():
        link = page.get_by_role("link", name="Open this cell in Steps").get_attribute("href")
        held = parse_qs(link.partition("?")[2])
        assert (held["layer"], held["head"]) == (["1"], ["2"])
        return [*held["query"], *held["key"]]

    first = cell()
    assert linked() == first
    page.locator(".map canvas").press("ArrowUp")
    assert cell() != first
    assert linked() == cell()


def test_under_the_cross_hair_stand_the_librarys_numbers_cell_by_cell(opened, reading):
    length = reading.length
    P, (entropy, distance, received) = heads.whole_map(reading, 1, 2), heads.along(reading, 1, 2)
    found = opened.page.evaluate(WALK, length)
    assert len(found) == length**2
    for *place, weight, rank, entropy_, distance_, received_ in found:
        query, key = map(int, place)
        assert weight == P[query, key].item()
        is_seen = not P[query, key].signbit()
        assert rank == (1 + (P[query] > P[query, key]).sum().item() if is_seen else 0)
        assert entropy_ == entropy[query].item()
        assert distance_ == distance[query].item()
        assert received_ == received[key].item()
    assert {tuple(map(int, cell[:2])) for cell in found} == {
        (query, key) for query in range(length) for key in range(length)
    }
    told = heads.summary(reading)
    for role, scores in told["scores"].items():
        value = opened.page.locator(f'[data-score="{role}"]').get_attribute("data-value")
        assert (float(value) if value else None) == scores[1][2]


@pytest.mark.parametrize(
    ("state", "chosen"),
    quickly(
        ("&scale=log&sink=off", {"logarithmic": True, "skip": 1}),
        [
            ("", {}),
            ("&scale=log", {"logarithmic": True}),
            ("&sink=off", {"skip": 1}),
            ("&scale=log&sink=off", {"logarithmic": True, "skip": 1}),
        ],
    ),
)
def test_cells_have_the_colours_of_their_weights(looking, place, reading, state, chosen):
    url, view = place
    page = looking(url).open(view + OPEN + state)
    P, length = heads.whole_map(reading, 1, 2), reading.length
    canvas = page.locator(".map canvas")
    cell = float(canvas.get_attribute("data-cell"))
    skip = chosen.get("skip", 0)
    places = [
        [(key + 0.3) * cell, (query + 0.3) * cell]
        for query in range(length)
        for key in range(skip, length)
    ]
    found = canvas.evaluate(COLORS, places)
    assert all(map(close, found, [color for row in colors(P, **chosen) for color in row]))
    if skip:
        (grey,) = canvas.evaluate(COLORS, [[0.3 * cell, (length - 0.7) * cell]])
        rule = page.evaluate("getComputedStyle(document.body).getPropertyValue('--rule').trim()")
        assert close(grey, rule)
    top_weight = float(page.locator(".one p.key [data-value]").get_attribute("data-value"))
    assert top_weight == P[:, skip:].max().item()


@pytest.mark.slow
def test_controls_change_colours_and_the_address_and_no_number(opened, reading):
    page = opened.page
    picture = """
      [".map canvas", ".small canvas"].map((one) => document.querySelector(one).toDataURL()).join()
    """
    seen = [page.evaluate(picture)]
    weight = page.locator('[data-row="weight"]').get_attribute("data-value")
    for control, state in (
        ("logarithmic", "scale=log"),
        ("Include the first token", "sink=off"),
    ):
        page.get_by_text(control, exact=True).click()
        assert state in address(page)
        seen.append(page.evaluate(picture))
        assert page.locator('[data-row="weight"]').get_attribute("data-value") == weight
    assert len(set(seen)) == 3
    assert float(weight) == heads.whole_map(reading, 1, 2)[5, 3].item()


@pytest.mark.slow
def test_a_token_that_is_pointed_at_becomes_the_query_and_shades_the_text(opened, reading):
    page = opened.page
    tokens = page.locator(".tokens span")
    assert tokens.count() == reading.length
    tokens.nth(7).hover()
    assert page.locator('[data-row="query"]').get_attribute("data-value") == "7"
    assert page.locator('[data-row="key"]').get_attribute("data-value") == "3"
    row = heads.whole_map(reading, 1, 2)[7]
    for key in range(reading.length):
        expected = f"w{place_of(row[key].item(), row.max().item(), False)}" if row[key] else ""
        names = (tokens.nth(key).get_attribute("class") or "").split()
        assert [name for name in names if name not in ("asks", "asked")] == expected.split()
    assert "asks" in tokens.nth(7).get_attribute("class")
    assert "".join(tokens.all_text_contents()) == TEXT


@pytest.mark.slow
def test_a_visible_weight_of_zero_shades_its_token_as_its_cell(looking, serving, tmp_path):
    folder = llama_folder(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight.mul_(1e4)
    model.save_pretrained(folder)
    served = serving(folder)
    text = served.studio.texts.add("ab abc a c b ab bc")
    reading = heads.reading_of(served.studio, text, Work())
    row = heads.whole_map(reading, 1, 2)[5]
    assert (row[:6] == 0).any()
    page = looking(served.url).open(f"#heads?text={text}&layer=1&head=2&query=5&key=5")
    classes = page.locator(".tokens span").evaluate_all("(all) => all.map((one) => one.className)")
    shaded = [bool(re.search(r"\bw\d", name)) for name in classes]
    assert shaded == [key <= 5 for key in range(reading.length)]


@pytest.mark.slow
def test_the_address_opens_the_same_again(opened, looking, place):
    page = opened.page
    page.get_by_text("logarithmic", exact=True).click()
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**query=6**")
    other = looking(place[0])
    again = other.open("#" + address(page).split("#")[1])
    assert again.locator(".one .head h2").inner_text() == page.locator(".one .head h2").inner_text()
    for row in ("query", "key", "weight", "rank", "entropy", "distance", "received"):
        cell = f'[data-row="{row}"]'
        assert again.locator(cell).inner_text() == page.locator(cell).inner_text()
    assert again.locator(FIELD).input_value() == TEXT
    assert again.get_by_label("logarithmic").is_checked()


def test_bars_along_the_axes_are_as_long_as_their_numbers(opened, reading):
    along = heads.along(reading, 1, 2)
    paths = opened.page.locator(".map path").evaluate_all(
        "(paths) => paths.map((path) => path.getAttribute('d'))"
    )
    assert len(paths) == 3
    for path, numbers in zip(paths, along, strict=True):
        long = torch.tensor([float(one) for one in re.findall(r"[hv]([\d.e-]+)", path)])
        torch.testing.assert_close(long / long.max(), numbers / numbers.max(), rtol=1e-5, atol=1e-6)
    # Each scale ends at the longest bar.
    ends = opened.page.locator(".map svg text").filter(has_text=re.compile(r"^0–"))
    ends = [float(one.removeprefix("0–")) for one in ends.all_text_contents()]
    assert ends == pytest.approx([float(numbers.max()) for numbers in along], rel=0.05)

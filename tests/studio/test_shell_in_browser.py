"""The page around the views, in a browser: what it says, and how it goes on."""

import gzip
import io
import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageStat
from playwright.sync_api import expect

import glasshead as gh
from glasshead.studio.app import application
from glasshead.studio.page import brotli, bundles
from glasshead.studio.shell import words
from glasshead.studio.studio import Studio
from glasshead.studio.views.table import VIEWS
from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.story_model import FOLDER
from studio.asking import ask
from studio.conftest import LANGUAGES, PATIENCE, WIDTHS, address, quickly, together
from studio.small_runs import SmallRun
from written import written

STATIC = Path(__file__).parents[2] / "glasshead" / "studio" / "static"
SCRIPTS = sorted(STATIC.rglob("*.js"))
# What the browser itself says of a server that is not there, or refuses.
SAID = ("Failed to load resource", "net::ERR_")
GONE = "The studio does not answer."


@pytest.mark.slow
def test_what_the_browser_receives_is_small(looking, serving):
    seen = looking(serving().url, fresh=True)
    finished = []

    def note(request):
        if "/api/" not in request.url:
            finished.append(request)

    seen.on("requestfinished", note)
    seen.open("#steps")
    sizes = {one.url.removeprefix(seen.url): one.sizes()["responseBodySize"] for one in finished}
    assert {"", "static/style.css", "static/app.js"} <= set(sizes)
    assert all(sizes.values())
    letters = [size for name, size in sizes.items() if name.endswith(".woff2")]
    assert sum(sizes.values()) - sum(letters) <= 90_000
    assert 0 < sum(letters) <= 30_000


@pytest.mark.slow
def test_the_code_of_a_view_arrives_when_it_is_opened(looking, serving, tmp_path):
    seen = looking(serving(SmallRun(tmp_path).go(3).folder.path).url)
    loaded = []
    seen.on("request", lambda request: loaded.append(request.url.removeprefix(seen.url)))
    seen.open("#steps")
    for view in ("training", "steps", "training"):
        seen.page.goto(f"{seen.url}#{view}")
        seen.page.wait_for_selector(f".view.{view} .body[data-drawn]", timeout=PATIENCE)
    scripts = [re.sub(r"-\w+\.js$", "", name) for name in loaded if name.endswith(".js")]
    assert scripts[0] == "static/app.js"
    assert scripts.count("static/training") == 1
    assert "static/atlas" not in scripts


@pytest.mark.slow
def test_a_view_whose_code_does_not_arrive_opens_when_it_does(looking, serving, tmp_path):
    seen = looking(serving(SmallRun(tmp_path).go(3).folder.path).url, expected=SAID)
    seen.open("#steps")
    seen.page.route("**/training-*.js", lambda route: route.abort())
    seen.page.goto(f"{seen.url}#training")
    seen.page.get_by_text(GONE).wait_for(timeout=PATIENCE)
    seen.page.unroute("**/training-*.js")
    seen.page.wait_for_selector(".view.training .body[data-drawn]", timeout=PATIENCE)


@pytest.mark.slow
def test_a_model_opens_on_its_heads_over_a_text_that_was_held_out(looking, serving, folder):
    own = serving(folder)
    look = looking(own.url)
    page = look.open()
    assert page.locator("h1").inner_text() == "Prompt"
    assert page.locator(".origin").inner_text() == words("en")["shell.origin.held_out"]
    assert own.studio.subject.sample().text.startswith(page.locator("textarea").input_value())
    page = look.open("#heads")
    assert page.locator("h1").inner_text() == "Attention heads"
    page.locator(".brand").click()
    expect(page.locator("h1")).to_have_text("Prompt")
    page = look.open("#heads")
    assert page.locator(".origin").inner_text() == words("en")["shell.origin.held_out"]
    assert page.locator("textarea").first.input_value() == own.studio.subject.sample().text
    # What is chosen is from nowhere else.
    page.locator("details.text summary").first.click()
    page.locator("textarea").first.fill("A text of mine.")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".origin")).to_have_text("")
    page.wait_for_selector(".body[data-drawn]")
    chosen = address(page)
    assert "text=" in chosen
    # An address wins.
    page = look.open(chosen.removeprefix(look.url))
    assert page.locator(".origin").inner_text() == ""
    assert page.locator("textarea").first.input_value() == "A text of mine."
    assert look.open("#steps").locator("h1").inner_text() == "Steps"
    assert (
        look.open("#atlas").locator(".origin").inner_text()
        == (words("en")["shell.origin.held_out"])
    )


def test_an_example_text_is_named_in_two_words_and_its_reason_is_in_a_tooltip(
    looking, serving, wide
):
    origin = looking(serving(wide).url).open("#heads").locator(".origin")
    expect(origin).to_have_text("Example text")
    expect(origin).to_have_attribute("title", words("en")["shell.origin.own.why"])


@pytest.mark.slow
def test_a_translator_begins_with_a_sentence_that_was_held_out(looking, serving, word_translator):
    own = serving(word_translator)
    page = looking(own.url).open("#alignment")
    assert page.get_by_label("A sentence to translate").input_value() == HELD_OUT.german
    assert page.locator(".origin").inner_text() == words("en")["shell.origin.held_out"]
    page.get_by_label("A sentence to translate").fill("Ich lese das Buch.")
    page.get_by_role("button", name="Translate").click()
    expect(page.locator(".origin")).to_have_text("")


@pytest.mark.parametrize("path", ["/", "/static/style.css", "/static/icon.svg"])
@pytest.mark.parametrize("taken", ["br, gzip", "gzip", "br;q=0,\tgzip;q=0.5", "gzip;q=0", ""])
def test_the_page_is_compressed_for_who_takes_that(path, taken):
    app, host = application(Studio()), ("host", "localhost")
    plain = ask(app, path, headers=(host,))
    packed = ask(app, path, headers=(host, ("accept-encoding", taken)))
    assert "content-encoding" not in plain.headers
    if path == "/static/style.css" and taken == "br, gzip":
        smallest = brotli("style.css")
        assert (packed.headers["content-encoding"], packed.body) == ("br", smallest)
        assert len(smallest) < 0.92 * len(gzip.compress(plain.body))
    elif taken in ("gzip;q=0", ""):
        assert "content-encoding" not in packed.headers
        assert packed.body == plain.body
    else:
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
    for answer in (plain, packed):
        assert answer.headers["vary"] == "Accept-Encoding"
        assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.slow
def test_a_browser_takes_and_reads_the_smallest_form_of_each_bundle(looking, serving):
    seen = looking(serving().url, fresh=True)
    coded = {}
    seen.on("response", lambda one: coded.update({one.url: one.headers.get("content-encoding")}))
    page = seen.open("#steps")
    names = [name for name in bundles() if brotli(name) is not None]
    assert {"app.js", "style.css"} <= {*names}
    read = page.evaluate(
        "(names) => Promise.all(names.map(async (name) => (await fetch(`static/${name}`)).text()))",
        names,
    )
    assert read == [bundles()[name] for name in names]
    assert {name: coded[f"{seen.url}static/{name}"] for name in names} == dict.fromkeys(names, "br")
    assert coded[seen.url] == "gzip"


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_no_script_makes_markup_or_code_of_a_text(file):
    text = file.read_text(encoding="utf-8")
    names = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    assert not re.search(names, text)
    assert not re.search(r"setTimeout\(\s*[\"'`]|createContextualFragment|DOMParser", text)


def test_nothing_that_is_served_names_another_host():
    for file in sorted(STATIC.rglob("*")):
        if file.is_file() and file.suffix not in (".woff2", ".txt"):
            text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|[\"'(]//", text), file


CONTROLS = """() => [...document.querySelectorAll("main .controls")].flatMap((row) =>
  [...row.querySelectorAll(".control:not(.toggle) :is(select, button, .choice, .slider)")]
    .filter((one) => one.checkVisibility())
    .map((one) => one.getBoundingClientRect())
    .map(({ top, bottom }) => [Math.round(top), Math.round(bottom)]))"""


@pytest.mark.parametrize("views", together("steps", ["steps", "atlas", "heads"]))
def test_controls_of_a_row_are_equally_high(looking, serving, folder, views):
    look = looking(serving(folder).url, width=1440)
    for view in views:
        found = look.open(f"#{view}").evaluate(CONTROLS)
        assert len(found) > (0 if view == "heads" else 3)
        edges = sorted({tuple(each) for each in found})
        assert all(bottom < top for (_, bottom), (top, _) in itertools.pairwise(edges)), edges


def test_commands_have_no_backticks_in_a_view_that_is_empty(looking, serving):
    page = looking(serving().url).open("#training")
    assert page.locator(".note code").all_inner_texts() == ["glasshead train"]
    assert "`" not in page.locator("main").inner_text()


OWN = {"Source Sans 3 ExtraLight", "Glasshead Signs"}


def fonts(page, text, weight=400):
    """The fonts in which a text is drawn, and the number of its letters."""
    page.evaluate(
        """async ([text, weight]) => {
          document.querySelector("#line")?.remove();
          const line = document.createElement("p");
          line.id = "line";
          line.textContent = text;
          line.style.fontWeight = weight;
          document.querySelector("main").append(line);
          line.getBoundingClientRect();
          await document.fonts.ready;
        }""",
        [text, weight],
    )
    devtools = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        devtools.send(f"{domain}.enable")
    root = devtools.send("DOM.getDocument")["root"]["nodeId"]
    line = devtools.send("DOM.querySelector", {"nodeId": root, "selector": "#line"})
    found = devtools.send("CSS.getPlatformFontsForNode", line)["fonts"]
    devtools.detach()
    return {font["familyName"] for font in found}, sum(font["glyphCount"] for font in found)


def test_letters_powers_and_signs_are_the_pages_own(looking, serving):
    page = looking(serving().url).open("#steps")
    text = "3.797·10⁻⁸ 10⁰¹²³⁴⁵⁶⁷⁸⁹ β₀₁₂₃₄₅₆₇₈₉ Σ τ ∂ √ ∞ ≤ ≥ ≠ ≈ − × ± → ← ↑ ↓ Kᵀ ¿ñ? ıİğĞşŞçÇ“…”"
    for weight in (400, 700):
        own, letters = fonts(page, text, weight)
        assert own <= OWN
        assert letters >= len(text) - 5


def test_chinese_has_the_pages_letters_and_punctuation_of_its_own(looking, serving):
    page = looking(serving().url, language="zh-CN").open("#steps")
    assert fonts(page, "q(shiny) 0.53 β Σ − × · –")[0] <= OWN
    assert not fonts(page, "“…”—")[0] & OWN


BOXES = """(all) => all.map((one) => one.getBoundingClientRect())
  .map(({ left, right }) => [left, right])"""


@pytest.mark.parametrize("languages", together("en", LANGUAGES))
def test_the_header_fits(looking, serving, languages):
    seen = looking(serving().url)
    page = seen.open("#training")
    for language in languages:
        seen.speak(language)
        for width in WIDTHS:
            seen.resize(width)
            assert seen.overflow() == 0
            # On a telephone they are in a row that scrolls.
            for link in page.locator("nav a").all():
                link.focus()
                ((left, right),) = link.evaluate_all(BOXES)
                assert 0 <= left < right <= width
            assert width == 768 or page.locator("header").bounding_box()["height"] < 100
            named = width >= (1760 if language == "es" else 1440)
            assert page.locator(".intent.learn .name").is_visible() == named
        if language == "zh-Hans":
            assert not seen.violations()


def test_a_number_in_few_letters_is_not_taken_for_a_larger_one(looking, serving):
    # In Turkish, "484 B" is read as 484 billion.
    look = looking(serving(FOLDER).url)
    page = look.open("#prompt")
    counts = {"en": "484K", "es": "484\u00a0mil", "tr": "484 bin", "zh-Hans": "48.4万"}
    for language, said in counts.items():
        if language != "en":
            look.speak(language)
        expect(page.locator(".brand span")).to_contain_text(said)


def test_a_telephone_says_all_of_what_is_loaded(looking, serving, folder):
    look = looking(serving(folder).url, width=390, height=844)
    page = look.open("#prompt")
    for language in LANGUAGES:
        if language != "en":
            look.speak(language)
        expect(page.locator(".brand span")).to_contain_text("×")
        cut = page.locator(".brand span").evaluate("(span) => span.scrollWidth - span.clientWidth")
        assert cut <= 0, language
        assert page.locator("header").bounding_box()["height"] < 100, language


def test_a_telephone_shows_the_tab_of_the_open_view(looking, serving):
    look = looking(serving().url, width=390, height=844)
    for view in VIEWS:
        page = look.open(f"#{view.name}")
        row, tab = (page.locator(one).bounding_box() for one in ("nav", "nav a[aria-current]"))
        assert row["x"] <= tab["x"] < tab["x"] + tab["width"] <= row["x"] + row["width"], view.name
        assert look.violations(contrast=False) == [], view.name
        # No tab covers another.
        tabs = [one.bounding_box() for one in page.locator("nav a").all()]
        assert all(one["x"] + one["width"] <= other["x"] for one, other in itertools.pairwise(tabs))
        # It covers no other one that has the focus.
        page.locator(".brand").focus()
        for link in page.locator("nav a").all():
            page.keyboard.press("Tab")
            page.wait_for_function(REACHED, arg=link.element_handle(), timeout=5000)


# Whether a link has the focus, and nothing covers its middle.
REACHED = """(link) => {
  const { x, y, width, height } = link.getBoundingClientRect();
  const found = document.elementFromPoint(x + width / 2, y + height / 2);
  return link === document.activeElement && link === found;
}"""


def test_a_view_without_a_model_leads_to_the_worked_example(looking, serving):
    page = looking(serving().url).open("#heads")
    page.locator("a.example").click()
    page.wait_for_selector(".view.steps .body[data-drawn]")
    assert page.locator("h1").inner_text() == "Steps"
    assert address(page).partition("#")[2].startswith("steps")


def test_a_shadow_stands_where_a_telephone_cuts_the_views_off(looking, serving, folder):
    page = looking(serving(folder).url, width=390, height=844).open("#prompt")
    views = page.locator("nav")

    def lightness(start):
        """The mean of the first or last pixels above the names of the views."""
        with Image.open(io.BytesIO(views.screenshot())).convert("L") as seen:
            left = 0 if start else seen.width - 3
            return ImageStat.Stat(seen.crop((left, 0, left + 3, 3))).mean[0]

    paper = lightness(start=True)
    assert lightness(start=False) < paper - 7
    views.evaluate("(nav) => nav.scrollTo(nav.scrollWidth, 0)")
    assert lightness(start=True) < paper - 7
    assert lightness(start=False) == pytest.approx(paper, abs=2)


def test_a_telephone_is_told_of_no_keys(browser, serving):
    context = browser.new_context(has_touch=True, is_mobile=True)
    page = context.new_page()
    try:
        page.goto(f"{serving().url}#steps?way=drag")
        says = page.locator(".said", has_text="Drag the tip of an arrow.")
        expect(says).to_be_visible()
        expect(says.locator(".help")).to_be_hidden()
        page.evaluate("() => document.querySelector('button.present').click()")
        expect(page.locator(".presenting")).to_be_visible()
        assert page.locator(".notice").inner_text() == ""
    finally:
        context.close()


# Pairs of parts of the header that overlap.
OVERLAPS = """() => {
  const all = [...document.querySelectorAll(
    "header :is(.brand img, .brand b, nav a:not([hidden]), button.present, summary, select)")];
  const boxes = all.map((one) => one.getBoundingClientRect());
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return boxes.flatMap((a, at) => boxes.slice(0, at).flatMap((b, other) =>
    over(a, b) ? [`${all[at].textContent} over ${all[other].textContent}`] : []));
}"""


@pytest.mark.parametrize("languages", together("es", LANGUAGES))
def test_a_header_with_many_views_is_tidy_on_every_desktop(
    looking, serving, word_translator, languages
):
    look = looking(serving(word_translator).url)
    page = look.open("#prompt")
    expect(page.locator(".brand span")).to_contain_text("×")
    for language in languages:
        look.speak(language)
        expect(page.locator(".brand span")).to_contain_text("×")
        for width in (768, 1024, 1181, 1280, 1361, 1440, 1607, 1920):
            look.resize(width)
            assert page.evaluate(OVERLAPS) == [], (language, width)
            assert look.overflow() == 0
            height = page.locator("header").bounding_box()["height"]
            assert height < (60 if width >= 1280 else 100), (language, width)
            name = page.locator(".brand span")
            cut = name.evaluate("(span) => span.scrollWidth - span.clientWidth")
            assert cut <= 0, (language, width)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_button_under_the_pointer_is_read(looking, serving, dark):
    look = looking(serving().url, dark=dark)
    page = look.open("#steps?way=predict")
    play = page.locator(".predict .play")
    style = "(one) => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"
    before = play.evaluate(style)
    play.hover()
    assert play.evaluate(style) == before
    assert not look.violations()


def test_each_view_says_below_its_title_what_it_shows(looking, serving):
    page = looking(serving().url).open("#steps")
    said = set()
    for view in VIEWS:
        page.evaluate("(view) => { location.hash = view; }", view.name)
        page.wait_for_selector(f".view.{view.name} .body[data-drawn]")
        sentence = page.locator("h1 + p.what").inner_text()
        assert re.fullmatch(r"This page .{20,100}\.", sentence), view.name
        said.add(sentence)
    assert len(said) == len(VIEWS)


@pytest.mark.parametrize("dark", quickly(False, [False, True]), ids=["light", "dark"])
def test_the_views_are_reached_by_keyboard_and_say_where_one_is(looking, serving, dark):
    seen = looking(serving().url, dark=dark)
    page = seen.open("#steps")
    assert page.title() == "Steps · glasshead studio"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "view"
    assert address(page).endswith("#steps")
    page.locator("nav a", has_text="Heads").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".view.heads .body[data-drawn]")
    assert page.title() == "Attention heads · glasshead studio"
    assert page.evaluate("document.activeElement.id") == "title"
    assert page.locator("nav a[aria-current=page]").all_inner_texts() == ["Attention heads"]
    # Nothing is open, so it is told how to open something.
    assert page.locator("pre.formula").inner_text() == (
        "glasshead demo\nglasshead studio demo/translator"
    )
    assert not seen.violations()
    page.go_back()
    page.wait_for_selector(".view.steps .body[data-drawn]")


def test_an_address_that_is_due_is_not_written_over_where_a_link_leads(looking, serving):
    page = looking(serving().url).open("#steps")
    address(page)
    page.evaluate("() => { window.setTimeout = (call) => { window.due = call; }; }")
    page.get_by_label("Inverse temperature").press("ArrowRight")
    page.wait_for_function("() => window.due")
    # The event of the link comes after what is due.
    page.evaluate("() => { location.hash = '#heads'; window.due(); }")
    page.wait_for_selector(".view.heads .body[data-drawn]")
    assert page.evaluate("location.hash").startswith("#heads")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("browsers", "language"),
    [
        ("tr", "tr"),
        ("zh-TW", "zh-Hant"),
        ("zh-Hans", "zh-Hans"),
        ("zh-CN", "zh-Hans"),
        ("de", "en"),
    ],
)
def test_the_page_speaks_the_browsers_language_or_english(looking, serving, browsers, language):
    page = looking(serving().url, language=browsers).open("#training")
    assert page.evaluate("document.documentElement.lang") == language
    assert page.locator("h1").inner_text() == words(language)["training.title"]


@pytest.mark.slow
def test_a_language_that_is_chosen_stays_and_keeps_the_focus(looking, serving):
    page = looking(serving().url, language="es-MX").open("#training")
    assert page.evaluate("document.documentElement.lang") == "es"
    page.locator("header select").focus()
    page.select_option("header select", "tr")
    page.wait_for_selector("html[lang=tr]")
    assert page.evaluate("document.activeElement === document.querySelector('header select')")
    page.reload()
    page.wait_for_selector("html[lang=tr]")


@pytest.mark.slow
def test_a_studio_that_is_killed_is_told_of_and_the_page_goes_on_when_it_is_back(
    looking, serves, tmp_path
):
    run = written(tmp_path / "run").path
    first = serves(Studio(run))
    seen = looking(first.url, expected=SAID)
    page = seen.open("#training")
    first.stop()
    page.locator("nav a", has_text="Heads").click()
    page.get_by_text(GONE).wait_for()
    assert not seen.violations()
    serves(Studio(run), first.port)
    page.get_by_text("The studio is back.").wait_for()
    assert page.get_by_text(GONE).count() == 0
    page.wait_for_selector(".view.heads .body[data-drawn]", timeout=PATIENCE)
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_a_studio_that_comes_back_with_another_token_says_which_address_to_open(looking, serves):
    first = serves(Studio(), token="first")
    seen = looking(first.url, expected=SAID)
    page = seen.open("?token=first#training")
    first.stop()
    page.locator("nav a", has_text="Steps").click()
    page.get_by_text(GONE).wait_for()
    serves(Studio(), first.port, token="second")
    page.get_by_text(
        "the address lacks the studio's token. Open the address that the studio printed."
    ).wait_for()
    assert page.get_by_text(GONE).count() == 0


@pytest.mark.slow
def test_a_text_that_a_new_studio_does_not_know_is_sent_again(looking, serves, tmp_path):
    run = written(tmp_path / "run").path
    first = serves(Studio(run))
    seen = looking(first.url, expected=SAID)
    page = seen.open("#heads")
    assert len(first.studio.texts._texts) == 1
    first.stop()
    second = serves(Studio(run), first.port)
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    page.wait_for_selector(".view.heads .body[data-drawn]", timeout=PATIENCE)
    assert second.studio.texts._texts._values == first.studio.texts._texts._values
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_a_folder_that_vanishes_is_told_of_and_read_again_when_it_is_back(
    looking, serves, tmp_path
):
    run = written(tmp_path / "run").path
    seen = looking(serves(Studio(run)).url, expected=SAID)
    seen.open("#heads")
    run.rename(tmp_path / "away")
    page = seen.open("#heads")
    told = page.locator(".refused p")
    assert told.inner_text().endswith(
        "is not a folder. Name one of a run, or of a Hugging Face or llama2.c model."
    )
    assert not seen.violations()
    page.get_by_role("button", name="Try again").click()
    told.wait_for()
    (tmp_path / "away").rename(run)
    # By itself.
    told.wait_for(state="detached")
    page.wait_for_selector(".view.heads .body[data-drawn]", timeout=PATIENCE)
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_a_model_that_does_not_load_is_told_of_until_it_is_mended(looking, serves, tmp_path):
    run = written(tmp_path / "run")
    good = run.weights.read_bytes()
    run.weights.write_bytes(good[:100])
    seen = looking(serves(Studio(run.path)).url, expected=SAID)
    seen.page.goto(seen.url + "#heads")
    page = seen.page
    told = page.get_by_text("model.safetensors is not a safetensors file")
    told.wait_for(timeout=PATIENCE)
    assert not seen.violations()
    run.weights.write_bytes(good)
    page.locator("main form button[type=submit]").first.click()
    told.wait_for(state="detached")
    page.wait_for_selector(".view.heads .body[data-drawn]", timeout=PATIENCE)
    assert page.locator(".refused").count() == 0


@pytest.mark.slow
def test_the_header_says_what_is_loaded_and_not_where_it_lies(looking, serves, tmp_path):
    run = written(tmp_path / "run")
    page = looking(serves(Studio(run.path)).url).open()
    brand = page.locator(".brand span")
    expect(brand).to_contain_text("Language model, 2 × 3 heads")
    assert brand.get_attribute("title") == str(run.path)
    assert page.title() == "Prompt · run · glasshead"
    (tmp_path / "made").mkdir()
    made = SmallRun(tmp_path / "made" / "up").go(3).folder.path
    page = looking(serves(Studio(made)).url).open()
    expect(page.locator(".brand span")).to_have_text("Language model, not loaded")
    file = tmp_path / "book.safetensors"
    gh.Attention().weights(torch.ones(1, 2, 3, 5), torch.ones(1, 2, 3, 5)).save(file)
    page = looking(serves(Studio(file)).url).open()
    expect(page.locator(".brand span")).to_have_text("Stored weights, book.safetensors")


HOSTILE = '<img src=x onerror="document.title=`gone`"><script>document.title="gone"</script>\u202e'


def test_the_name_of_a_folder_never_becomes_markup(looking, serves, tmp_path):
    run = written(tmp_path / HOSTILE.replace("/", "\u2215"))
    page = looking(serves(Studio(run.path)).url).open("#training")
    brand = page.locator(".brand span")
    expect(brand).to_contain_text("Language model")
    assert "<img src=x onerror=" in brand.get_attribute("title")
    assert "\\u202e" in brand.get_attribute("title")
    assert page.locator("img[src=x]").count() == 0
    assert page.title().startswith("Training · ")


def test_a_refusal_never_becomes_markup(looking, serving):
    seen = looking(serving().url, expected=(*SAID, HOSTILE))
    seen.page.route(
        "**/api/about",
        lambda route: route.fulfill(status=400, body=json.dumps({"detail": HOSTILE})),
    )
    seen.page.goto(seen.url)
    told = seen.page.locator(".refused")
    told.wait_for()
    assert "<script>" in told.inner_text()
    assert seen.page.locator("img").count() == 0


@pytest.mark.slow
def test_the_token_leaves_the_address_and_the_page_goes_on_without(looking, serves):
    seen = looking(serves(Studio(), token="a-token").url, expected=SAID)
    page = seen.open("?token=a-token#steps")
    assert "token" not in address(page)
    assert address(page).endswith("/#steps") or "/#steps?" in address(page)
    page.reload()
    page.wait_for_selector(".view .body[data-drawn]")
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("fetch('api/about').then((answer) => answer.status)") == 200
    page.context.clear_cookies()
    assert page.evaluate("fetch('api/about').then((answer) => answer.status)") == 401


def test_the_policy_forbids_what_the_page_does_not_do(looking, serving):
    seen = looking(serving().url, expected=(*SAID, "Content Security Policy", "inline"))
    page = seen.open("#training")
    page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'document.title = "gone"';
          document.body.append(script);
          const button = document.createElement('button');
          button.setAttribute('onclick', 'document.title = "gone"');
          document.body.append(button);
          button.click();
        }"""
    )
    assert page.title() == "Training · glasshead studio"

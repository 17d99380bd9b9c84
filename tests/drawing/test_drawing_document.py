"""Documents: whole pages, notebooks, terminals; hostile text; words."""

import io
import re
import subprocess
import sys
from contextlib import closing
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from accessibility import violations
from chromium import beyond_the_window
from glasshead.drawing import (
    Document,
    Formula,
    Heading,
    HeatMap,
    Note,
    Paragraph,
    Table,
    WordBands,
    Words,
    printable,
)
from glasshead.drawing.code import Code
from glasshead.drawing.page import contrast, style
from glasshead.drawing.printable import collapse
from hypothesis_profiles import examples

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "&lt;b&gt;",
    "[bold red]x[/bold red]",
    "[link=http]x[/link]",
    ":smile:",
    "\x1b[2J\x1b]0;title\x07",
    "abc\u202edef",
    "</style></title></td>",
]
VOID = {"meta", "hr", "br", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page and fails where a tag is not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def blocks_of(text):
    return [
        Heading(text),
        Paragraph(text),
        Formula(text),
        Note(text),
        Table([text, "n"], [[text, "1"]], caption=text, highlight_row=0),
        HeatMap([[1.0, None]], [text], [text, "b"], caption=text, highlight_row=0),
    ]


def document_of(text):
    return Document(blocks_of(text), title=text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_never_obeyed(text):
    page = Page(document_of(text).html())
    same = "p" * len(printable(text))
    plain = Page(document_of(same).html())
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    names = [sorted(attrs) for _, attrs in page.tags]
    assert names == [sorted(attrs) for _, attrs in plain.tags]
    shown = printable(text)
    assert page.texts.count(shown) == plain.texts.count(same) > 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_literal_in_a_terminal(text):
    console = Console(file=io.StringIO(), width=100, force_terminal=True, no_color=True)
    console.print(document_of(text))
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert printable(text) in drawn
    assert not any(ord(character) < 32 for character in drawn.replace("\n", ""))
    assert "\u202e" not in drawn


@examples(50)
@given(st.text(), st.integers(20, 120))
def test_any_text_parses_and_fits(text, width):
    document = document_of(text)
    page = Page(document.html())
    assert printable(collapse(text)) in [*page.texts, ""]
    assert max(map(cell_len, document.text(width).split("\n"))) <= width


def test_a_page_is_whole_and_alone():
    document = Document(blocks_of("陽光"), title="注意力", language="zh-Hant")
    html = document.html()
    page = Page(html)
    tags = [tag for tag, _ in page.tags]
    assert html.startswith("<!doctype html>\n")
    assert ("html", {"lang": "zh-Hant"}) in page.tags
    assert ("meta", {"charset": "utf-8"}) in page.tags
    assert "width=device-width" in html
    assert "<title>注意力</title>" in html
    assert tags.count("h1") == 1
    assert not {"script", "link", "img", "iframe", "object"} & set(tags)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face", html)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)


def test_what_scrolls_can_be_reached_and_is_named():
    page = Page(document_of("plain").html())
    frames = [attrs for _, attrs in page.tags if attrs.get("class") == "scroll"]
    assert len(frames) == 3
    for attrs in frames:
        assert attrs["tabindex"] == "0"
        assert attrs["role"] == "region"
        assert attrs["aria-label"]


def test_both_themes_are_in_the_style():
    light, _, dark = style().partition("@media (prefers-color-scheme: dark)")
    assert "--paper: #" in light
    assert "--paper: #" in dark
    assert ".w64 {" in light + dark.partition("@media (prefers-color-scheme: dark)")[0]
    assert ".w64 {" in dark.partition("@media (prefers-color-scheme: dark)")[2]


def test_a_notebook_keeps_its_own_style():
    document = document_of("plain")
    html = document._repr_html_()
    assert Page(html).tags[0] == ("div", {"class": "glasshead inset", "lang": "en"})
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    style = re.sub(r"@keyframes glasshead-[^{]*\{([^{}]*\{[^{}]*\})*\s*\}", "", style)
    selectors = [
        selector.strip()
        for rule in re.findall(r"([^{}]+)\{", style)
        for selector in rule.split(",")
        if not rule.strip().startswith("@")
    ]
    assert len(selectors) > 130
    assert [selector for selector in selectors if not selector.startswith(".glasshead")] == []
    assert Page(document.blocks[0]._repr_html_()).tags[0] == ("div", {"class": "glasshead inset"})


def test_every_pair_of_colours_of_the_style_is_read():
    themes = re.findall(r"--paper: #.*?\}", style(), re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        found = dict(re.findall(r"--(\w+): #(\w{6});", theme))
        color = {name: tuple(bytes.fromhex(digits)) for name, digits in found.items()}
        for front in ("ink", "quiet", "accent"):
            for back in ("paper", "sunk", "tint"):
                assert contrast(color[front], color[back]) >= 4.5, (front, back)


def test_plain_text_has_blank_lines_between_blocks_and_no_colours():
    document = Document([Paragraph("one"), Paragraph("two")], title="T")
    assert document.text(40) == "T\n━\n\none\n\ntwo"
    assert "\x1b" not in document_of("plain").text()


def test_a_terminal_and_plain_text_say_the_same():
    document = document_of("plain")
    console = Console(file=io.StringIO(), width=60)
    console.print(document)
    drawn = "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))
    assert drawn.rstrip("\n") == document.text(60)


def test_a_document_hands_its_words_to_its_blocks():
    words = Words(hidden="隱藏", formula="公式")
    document = Document(blocks_of("x"), title="T", words=words)
    assert "· 隱藏" in document.text()
    assert 'aria-label="公式"' in document.html()


def test_words_are_translated_one_by_one():
    words = Words.translated(lambda phrase: phrase + " ")
    assert words.hidden == "hidden "
    assert words.columns_left_out == "Columns omitted: {count}. "


@pytest.mark.parametrize(
    ("phrase", "error", "message"),
    [
        ("Kolonnen", ValueError, r"must have the names \['count'\] in braces, got 'Kolonnen'"),
        ("{number}", ValueError, r"must have the names \['count'\]"),
        ("{count", ValueError, r"must have the names \['count'\]"),
        (1, TypeError, "columns_left_out=...\\) must be a string, got int"),
    ],
)
def test_templates_are_checked(phrase, error, message):
    with pytest.raises(error, match=message):
        Words(columns_left_out=phrase)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"blocks": ["text"]}, TypeError, r"blocks\[0\] must be a Block, got str\. Wrap text"),
        ({"blocks": "text"}, TypeError, "blocks must be a sequence, got str"),
        ({"title": 1}, TypeError, "Document title must be a string, got int"),
        ({"language": "zh_TW"}, ValueError, "must be a tag such as .* got 'zh_TW'"),
        ({"language": '"><'}, ValueError, "must be a tag such as"),
    ],
)
def test_documents_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        Document(**{"blocks": [], "title": "T", **arguments})


def test_drawing_needs_neither_torch_nor_numpy():
    code = (
        "import sys; from glasshead.drawing import Document, HeatMap; "
        "Document([HeatMap([[1.0]], ['a'], ['b'])], title='T').html(); "
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bands_that_are_wide_stand_upright_on_a_telephone(browser):
    weights = [[(row + column) % 7 / 7 for column in range(11)] for row in range(13)]
    names = [f"a-longer-word-{place}" for place in range(13)]
    document = Document([WordBands(weights, names, names[:11])], title="Bands")
    page = browser.new_page(viewport={"width": 390, "height": 700})
    page.set_content(document.html())
    assert beyond_the_window(page) == 0
    tall, wide = page.locator("svg.bands.tall"), page.locator(".too-wide")
    assert (tall.is_visible(), wide.is_visible()) == (True, False)
    assert tall.locator("path").count() == wide.locator("path").count() > 100
    box = tall.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    # Every word is within the picture.
    for name in tall.locator("text").all():
        own = name.bounding_box()
        assert box["x"] <= own["x"] + 1
        assert own["x"] + own["width"] <= box["x"] + box["width"] + 1
    page.set_viewport_size({"width": 1280, "height": 700})
    assert (tall.is_visible(), wide.is_visible()) == (False, True)
    page.close()


def test_a_button_copies_the_code_of_a_page_and_of_no_notebook(browser, tmp_path):
    code = (
        "mask = gh.causal()\nF.scaled_dot_product_attention(query, key, value, attn_mask=mask < 1)"
    )
    document = Document([Code(code)], title="Code")
    assert "<script" not in document._repr_html_()
    assert "<script" not in Document([Paragraph('class="copy"')], title="None").html()
    file = tmp_path / "page.html"
    file.write_text(document.html(), encoding="utf-8")
    with closing(browser.new_context(permissions=["clipboard-read"])) as context:
        page = context.new_page()
        page.goto(file.as_uri())
        page.get_by_role("button", name="Copy").press("Enter")
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == code
        assert violations(page) == []

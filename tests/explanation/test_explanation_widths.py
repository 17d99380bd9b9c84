"""The width of a page: only its frames scroll sideways, in a window of whatever width."""

import pytest
import torch

import glasshead as gh
from glasshead.drawing import Document, Formula, HeatMap, Paragraph, Table
from glasshead.explanation.embeddings import Embeddings

TEXT = "the quick brown fox jumps over the lazy dog and the cat"
WIDTHS = range(320, 1601, 61)
# By how much the window, and each frame that scrolls, is too narrow for the page.
MEASURED = """() => {
    const window = document.scrollingElement, page = document.querySelector("main");
    const { paddingRight } = getComputedStyle(page);
    const end = page.getBoundingClientRect().right - parseFloat(paddingRight);
    const frames = [...document.querySelectorAll(".scroll")];
    return {
        window: window.scrollWidth - window.clientWidth,
        frames: Math.max(...frames.map((frame) => frame.getBoundingClientRect().right - end)),
        hidden: Math.max(...frames.map((frame) => frame.scrollWidth - frame.clientWidth)),
    };
}"""


def explained(count: int, dim: int = 4, lang: str = "en") -> str:
    words = Embeddings.generated(TEXT.split()[:count], dim=dim, seed=123)
    trace = gh.Attention(score=gh.Dot()).trace(*[words.vectors] * 3)
    return gh.explain(trace, tokens=words.tokens, query=count - 1, lang=lang).html()


def wide_document() -> str:
    columns = [f"column{column}" for column in range(29)]
    weights = [[0.25 * (row == column) for column in range(29)] for row in range(29)]
    blocks = [
        Paragraph("word " * 67),
        Formula(" + ".join(columns)),
        Table(columns, [columns], caption="A wide table"),
        HeatMap(weights[:5], columns[:5], columns, caption="A wide map"),
        HeatMap(weights, columns, columns),
    ]
    return Document(blocks, title="What is wide").html()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(lambda: explained(2), id="2 words"),
        pytest.param(lambda: explained(7), id="7 words"),
        pytest.param(lambda: explained(12), id="12 words"),
        pytest.param(lambda: explained(7, dim=17), id="17 numbers a word"),
        pytest.param(lambda: explained(7, lang="zh-Hant"), id="zh-Hant"),
        pytest.param(lambda: gh.diagnose(torch.ones(29, 31).tril()).html(), id="a diagnosis"),
        pytest.param(wide_document, id="wide blocks"),
    ],
)
def test_a_page_scrolls_sideways_in_its_frames_alone(browser, page):
    html = page()
    with browser.new_page() as shown:
        shown.set_content(html)
        for width in WIDTHS:
            shown.set_viewport_size({"width": width, "height": 900})
            measured = shown.evaluate(MEASURED)
            assert measured["window"] <= 0, width
            assert measured["frames"] < 1, width
            if width == WIDTHS[0]:
                assert measured["hidden"] > 0

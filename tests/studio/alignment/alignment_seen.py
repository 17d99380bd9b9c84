"""What is seen of the view `alignment` in a browser, and what it should be."""

from urllib.parse import quote

import pytest

from glasshead.models.decoding import Beam
from glasshead.tasks.data.sentences import pairs
from studio.conftest import PATIENCE

GERMAN, OTHER = (pair.german for pair in pairs(2, seed=5))
PLACE = f"#alignment?sentence={quote(GERMAN)}&beam=3"
LINES = ".stage path:not(.out)"
SEEN = 0.03


def found_by(translator, sentence=GERMAN, width=3):
    return translator.candidates([sentence], Beam(width, candidates=width))[0]


def cells(page):
    """All numbers of the table, in full, and as they are shown."""
    return page.evaluate(
        "[...document.querySelectorAll('.weights tbody tr')].map((row) => "
        "[...row.querySelectorAll('td')].map((cell) => "
        "[Number(cell.dataset.value), cell.textContent]))"
    )


def texts(page, selector):
    return page.locator(selector).all_text_contents()


def values(page, selector):
    """The numbers of elements, in full."""
    return page.evaluate(
        "(selector) => [...document.querySelectorAll(selector)].map((one) => "
        "Number(one.dataset.value))",
        selector,
    )


def check_numbers(page, seen, weights):
    """The words, the table and the lines are those of an alignment."""
    assert texts(page, ".words.source .word") == list(seen.source)
    assert texts(page, ".words.target .word") == list(seen.target)
    assert texts(page, ".weights tbody th") == list(seen.target)
    shown = cells(page)
    assert len(shown) == len(seen.target)
    for row, expected in zip(shown, weights.double().tolist(), strict=True):
        assert [value for value, _ in row] == pytest.approx(expected, abs=1e-7)
        assert [text for _, text in row] == [f"{value:.4f}" for value, _ in row]
    drawn = page.evaluate(
        f"[...document.querySelectorAll('{LINES}')].map((one) => [Number(one.dataset.weight), "
        "Number(one.getAttribute('stroke-width'))])"
    )
    expected = sorted(value for row in shown for value, _ in row if value >= SEEN)
    assert sorted(weight for weight, _ in drawn) == expected
    for weight, width in drawn:
        assert width == pytest.approx(max(0.75, 20 * weight), abs=0.006)


def drawn(page):
    page.wait_for_selector(".view .body[data-drawn]", timeout=PATIENCE)

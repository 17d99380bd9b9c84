"""What a report holds, written so that a page finds it and nothing in it becomes markup."""

import base64
import json
import re
import zlib

import pytest
import torch

from glasshead.studio.background_jobs import Cancelled, Work
from glasshead.studio.page import static
from glasshead.studio.stored_answers import StoredAnswers, key_of

HOSTILE = "</script><!--<script>\u2028\u2029\ud800\0<img src=x onerror=alert(1)>"


def unpacked(text):
    return zlib.decompress(base64.b64decode(text))


def test_no_text_ends_the_script_or_gets_lost():
    answers = StoredAnswers()
    answers.hold("words", {"lang": HOSTILE}, {"text": HOSTILE})
    written = answers.json(HOSTILE)
    assert written.isascii()
    assert "<" not in written
    held = json.loads(written)
    assert held["missing"] == HOSTILE
    assert json.loads(unpacked(held["told"])) == {f"words|lang={HOSTILE}": {"text": HOSTILE}}


def test_tensors_are_little_endian_float32_each_content_once():
    answers = StoredAnswers()
    values = torch.randn(3, 5, dtype=torch.float64)
    answers.hold("tile", {"row": 0}, values)
    answers.hold("weights", {}, values.float().reshape(5, 3))
    answers.hold("tile", {"row": 1}, values.T)
    first, same, other = answers.numbers.values()
    assert (first["shape"], same, other["shape"]) == (
        [3, 5],
        {"shape": [5, 3], "as": "tile|row=0"},
        [5, 3],
    )
    for held, wanted in ((first, values), (other, values.T)):
        content = unpacked(held["data"])
        assert content == wanted.float().contiguous().numpy().astype("<f4").tobytes()


def test_the_page_names_answers_alike(browser):
    """`keyOf` of the page and `key_of` agree on numbers, truth values and what is not given."""
    given = {
        "z": 1.0, "b": 0.1, "text": "ä|b=c", "a": 7, "on": True, "off": False, "none": None,
        "long": 123456.789, "small": 2.5e-5, "big": 1e14, "zero": 0.0,
    }  # fmt: skip
    both = static("dom.js") + static("source.js")
    source = re.sub("^(export |import .*;$)", "", both, flags=re.MULTILINE)
    page = browser.new_page()
    key = page.evaluate(f"(held) => {{ {source}\nreturn keyOf('heads/map', held); }}", given)
    page.close()
    assert key_of("heads/map", given) == key
    assert key.startswith("heads/map|a=7|b=0.1|big=100000000000000|long=123456.789|off=false|on=tr")


@pytest.mark.parametrize("number", [1e-7, 1e21])
def test_numbers_that_javascript_writes_otherwise_are_refused(number):
    with pytest.raises(ValueError, match="names answers by plain numbers, got"):
        key_of("steps", {"beta": number})


def test_numbers_beyond_all_are_refused():
    answers = StoredAnswers()
    answers.hold("steps", {}, {"entropy": float("nan")})
    with pytest.raises(ValueError, match="overflow to infinity. Open another model"):
        answers.json("")


def test_nothing_is_held_when_nobody_waits():
    answers, work = StoredAnswers(), Work()
    work.cancel()
    with pytest.raises(Cancelled):
        answers.hold_all([("steps", {}, {})], work)
    assert answers.by_key == {}

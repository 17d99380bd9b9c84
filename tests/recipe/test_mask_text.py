"""Masks as text: each text is the mask that it names, and a mask tells the text that names it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import glasshead as gh
from cases import EverySecond
from glasshead.recipe.mask_text import HELP, check_mask_text, parse_mask

PARTS = st.one_of(
    st.just("causal"),
    st.builds("window:{}".format, st.integers(0, 7)),
    st.builds("window:{}:{}".format, st.integers(0, 7), st.integers(1, 7)),
)
# By text, the mask by its constructors.
NAMED = {
    "causal": gh.causal(),
    "window:3": gh.window(before=3),
    "window:3:1": gh.window(before=3, after=1),
    "causal+window:2:2": gh.causal() & gh.window(before=2, after=2),
}


@pytest.mark.parametrize("text", NAMED)
def test_a_text_names_a_mask_and_the_mask_tells_the_text(text):
    assert repr(parse_mask(text)) == repr(NAMED[text])
    assert NAMED[text].text == text


@given(st.lists(PARTS, min_size=1, max_size=3).map("+".join))
def test_a_mask_of_a_text_tells_that_text(text):
    assert parse_mask(check_mask_text(text)).text == text


def test_none_hides_nothing():
    assert parse_mask("none") is None


@pytest.mark.parametrize(
    "mask",
    [
        *(gh.causal(offset=0), gh.window(before=None, after=2), gh.window(before=2, after=None)),
        *(gh.padding([2]), gh.causal() | gh.prefix(1), ~gh.causal(), gh.causal() & gh.prefix(1)),
        *(gh.dense(torch.ones(3, 3) > 0), EverySecond(), EverySecond() & gh.causal()),
    ],
)
def test_a_mask_that_no_text_names_has_none(mask):
    assert mask.text is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("casual", "got 'casual'. Did you mean causal?"),
        ("", "got ''. Try causal."),
        ("causal+", "got 'causal+'. Try causal."),
        ("none+causal", "got 'none+causal'. Write none alone."),
        ("window", "got 'window'. Write how many tokens before its own a word sees, as in window"),
        ("window:-1", "as in window:3."),
        ("window:1:2:3", "as in window:3."),
        ("window:1.5", "as in window:3."),
        ("window:1234567890", "as in window:3."),
        ("causal:1", "Did you mean causal?"),
        ("causal, window:3", "Try causal."),
    ],
)
def test_a_text_that_names_no_mask_is_refused(text, ends):
    with pytest.raises(ValueError, match="^mask must be none, causal, window:BEFORE or") as caught:
        check_mask_text(text)
    assert ends in str(caught.value)


def test_the_help_names_texts_that_can_be_read():
    texts = [part.split(": ")[0].strip() for part in HELP.split(";")]
    assert [check_mask_text(text) for text in texts] == texts
    assert len(texts) == 5

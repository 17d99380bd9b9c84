"""Stop strings: whatever the pieces a text comes in, no part of one is shown."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe
from glasshead.tasks.write.writer import StoppedText, checked_stop

LETTERS = characters(["abc"])
PAIRS = train_bpe(["abc cab bca abab ☀☀"] * 3, 300)


def cut(text, stop):
    """The text before the stop string that is complete first, letter by letter."""
    for end in range(1, len(text) + 1):
        begins = [end - len(one) for one in stop if text[:end].endswith(one)]
        if begins:
            return text[: min(begins)]
    return text


@given(
    st.text("abc☀"),
    st.lists(st.text("abc☀", min_size=1, max_size=4), max_size=3),
    st.booleans(),
)
@example("abc", ["abc", "b"], True)
@example("aab", ["ab"], True)
@example("abcabc", ["abcabcc", "bc"], True)
@example("ababac", ["abac"], False)
def test_a_text_ends_before_the_stop_string_that_is_complete_first(text, stop, pairs):
    tokenizer = PAIRS if pairs else characters(["abc☀"])
    tokens, expected = tokenizer.encode(text), cut(text, stop)
    stopped, shown = StoppedText(tokenizer, stop=stop), ""
    for place, token in enumerate(tokens):
        shown += stopped.add(token)
        assert expected.startswith(shown)
        come = tokenizer.decode(tokens[: place + 1])
        assert stopped.stopped == (cut(come, stop) != come)
        if stopped.stopped:
            break
        # Nothing is held back that can no longer become a stop string.
        held = come[len(shown) :].rstrip("�")
        assert not held or any(one.startswith(held) for one in stop)
    assert shown + stopped.rest() == expected


def test_what_was_shown_before_is_no_part_of_a_stop_string():
    text = StoppedText(LETTERS, LETTERS.encode("ab"), ["abc", "bc"])
    assert [text.add(token) for token in LETTERS.encode("ca")] == ["c", ""]
    assert text.rest() == "a"
    assert not text.stopped


def test_a_stop_string_that_comes_with_the_rest():
    text = StoppedText(PAIRS, stop=["�"])
    # Of three bytes the last is missing, which is known when nothing follows.
    *begun, _ = train_bpe(["a"], 260).encode("☼")
    assert [text.add(token) for token in begun] == ["", ""]
    assert text.rest() == ""
    assert text.stopped


@pytest.mark.parametrize(
    ("stop", "error", "match"),
    [
        ("ab", TypeError, "stop takes several texts, and got 'ab': put one into a list"),
        (None, TypeError, "stop takes several texts, and got None: put"),
        (["a", 3], TypeError, "stop takes texts, and got int 3"),
        (["a", ""], ValueError, "stop takes texts of a character at least, and got ''"),
    ],
)
def test_stop_strings_that_are_none(stop, error, match):
    with pytest.raises(error, match=match):
        checked_stop(stop)

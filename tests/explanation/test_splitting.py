"""Splitting: what a reader of each language sees as words and marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.explanation.embeddings import is_word, split


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Hello shiny sun!", ["Hello", "shiny", "sun", "!"]),
        (
            "Don't stop, rock-solid “friend”.",
            ["Don't", "stop", ",", "rock-solid", "“", "friend", "”", "."],
        ),
        ("Pi is 3.14; 1,000 at 12:30.", ["Pi", "is", "3.14", ";", "1,000", "at", "12:30", "."]),
        ("Wait... what?!", ["Wait", "...", "what", "?", "!"]),
        ("İstanbul'un ışığı, değil mi?", ["İstanbul'un", "ışığı", ",", "değil", "mi", "?"]),
        ("¿Qué tal, niño? ¡Bien!", ["¿", "Qué", "tal", ",", "niño", "?", "¡", "Bien", "!"]),
        ("閃亮的太陽——你好……", ["閃", "亮", "的", "太", "陽", "——", "你", "好", "……"]),
        ("GPT-4模型", ["GPT-4", "模", "型"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("cafe\u0301 olé", ["cafe\u0301", "olé"]),
        ("👩\u200d💻👍🏽 🇹🇷🇪🇸", ["👩\u200d💻", "👍🏽", "🇹🇷", "🇪🇸"]),
        ("((x))", ["(", "(", "x", ")", ")"]),
        (" \t\n\u200b\ufeff", []),
    ],
)
def test_words_and_marks(text, tokens):
    assert split(text) == tokens


@given(st.text())
def test_nothing_but_space_is_lost_and_no_token_is_empty(text):
    tokens = split(text)
    assert all(tokens)
    kept = [c for c in text if not (c.isspace() or c in "\u200b\ufeff")]
    assert [c for token in tokens for c in token] == kept


@pytest.mark.parametrize(
    ("token", "word"), [("sun", True), ("3.14", True), ("陽", True), ("……", False), ("👍🏽", False)]
)
def test_a_word_has_a_letter_or_a_digit(token, word):
    assert is_word(token) is word

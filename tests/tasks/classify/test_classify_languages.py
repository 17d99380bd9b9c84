"""Classifiers of texts in other languages: their words, their letters, and the tokenizer chosen."""

import unicodedata

import pytest

from classified import table
from glasshead.tasks.classify import CLASSIFY, ClassifySettings, TextClassifier
from glasshead.tasks.classify import evaluate as evaluate_labels
from glasshead.tasks.job import chosen_tokenizer
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.tokenizers.train_tokenizer import train_bpe, train_wordpiece, words
from glasshead.tasks.training import Hardware
from tasks.classify.grammars import reviews

MAKERS = {
    "words": lambda texts: words(texts, 311),
    "wordpiece": lambda texts: train_wordpiece(texts, 311, lowercase=True),
    "bpe": lambda texts: train_bpe(texts, 311, lowercase=True),
}


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("这部电影iPhone很好，真的。", "这 部 电 影 iphone 很 好 ， 真 的 。"),
        ("這部電影3D很好！", "這 部 電 影 3d 很 好 ！"),
        ("スーパーは好き。", "ス ー パ ー は 好 き 。"),
        ("หนังดีน้ำ", "ห นั ง ดี น้ำ"),
        ("Işıl İyi, IŞIK", "ışıl iyi , ışık"),
        ("Schön für STRAẞE", "schön für straße"),
        ("فيلم جميل، جدا", "فيلم جميل ، جدا"),
        ("हिन्दी फ़िल्म है।", "हिन्दी फ़िल्म है ।"),
        ("harika😀👍🏽 👨\u200d👩\u200d👧🇹🇷🇩🇪❤️", "harika 😀 👍🏽 👨\u200d👩\u200d👧 🇹🇷 🇩🇪 ❤️"),
        ("한국어 문장.", "한국어 문장 ."),
        ("ΣΟΦΟΣ λόγος", "σοφος λόγος"),
    ],
)
def test_words_are_those_of_the_script(text, split):
    tokenizer = words([text], 311)
    tokens = tokenizer.encode(text)
    assert [tokenizer.token(token) for token in tokens] == [
        unicodedata.normalize("NFC", word) for word in split.split()
    ]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("texts", "one", "other"),
    [
        (["iyi bir film, ışıl ışıl"], "iyi ışık film", "İYİ IŞIK FİLM"),
        (["in a film"], "in film", "İN FILM"),
        (["schön für Öl"], "schön öl", "scho\u0308n O\u0308l"),
        (["große Straße"], "straße", "STRAẞE"),
        (["σοφός λόγος"], "λόγος", "ΛΌΓΟΣ"),
        (["がぎぐ パピプ"], "がぎ パピ", unicodedata.normalize("NFD", "がぎ パピ")),
        (["آمن"], "آمن", unicodedata.normalize("NFD", "آمن")),
        (["한국어 문장"], "한국어", unicodedata.normalize("NFD", "한국어")),
    ],
)
def test_equal_letters_are_the_same_tokens(kind, texts, one, other):
    tokenizer = MAKERS[kind](texts)
    assert one != other
    assert tokenizer.encode(one) == tokenizer.encode(other)
    assert tokenizer.unknown_id not in tokenizer.encode(texts[0])


_RARE = [2 * "".join("bcdfghjklm"[int(digit)] for digit in f"{n:03}") for n in range(500)]


@pytest.mark.parametrize(
    ("texts", "kind", "why"),
    [
        (["这部电影很好看"] * 7, "words", "Chinese has no spaces"),
        (["這部電影 iPhone 很好看"] * 7, "words", "Chinese has no spaces"),
        (["この映画が好き"] * 7, "words", "Japanese has no spaces"),
        (["หนังเรื่องนี้ดี"] * 7, "words", "Thai has no spaces"),
        (["a film by 王家卫"] * 7, "words", "few texts"),
        (["the same film"] * 211, "words", "0.0% of the words"),
        (_RARE, "bpe", "100.0% of the words of another text would be unknown"),
        ([f"kitap{'lar' * (n % 7)}{'da' * (n % 3)}" for n in range(211)], "bpe", "first 5 letters"),
    ],
)
def test_the_tokenizer_is_chosen_by_the_texts(texts, kind, why):
    chosen = chosen_tokenizer(texts, 1000, lowercase=True)
    assert (chosen.kind, why in chosen.why) == (kind, True), chosen
    assert chosen.vocabulary <= 1000


def test_pieces_are_fewer_than_words():
    # Of 450 words and the special tokens, an eighth, and the bytes with the special tokens.
    assert chosen_tokenizer(_RARE, 1000, lowercase=True).vocabulary == 260 + (450 + 4) // 8


@pytest.mark.slow
@pytest.mark.parametrize("language", ["tr", "zh"])
def test_words_that_training_has_not_seen_are_understood(tmp_path, language):
    seen, unseen = (
        table(tmp_path / f"{held_out}.jsonl", reviews(language, 2000, held_out=held_out))
        for held_out in (False, True)
    )
    folder = RunFolder(tmp_path / "run")
    settings = ClassifySettings.from_preset("tiny", ["steps=400"], [seen])
    CLASSIFY.begin(settings, folder, "glasshead train classify").train(folder, Hardware())
    assert evaluate_labels(TextClassifier.load(folder.path), [unseen]).accuracy >= 0.9

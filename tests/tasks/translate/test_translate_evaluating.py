"""Evaluating: BLEU and chrF are sacreBLEU's, of what the model writes."""

import math
from importlib.util import find_spec

import pytest
import sacrebleu

from glasshead.models.decoding import Beam, Greedy
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.translate import TextTranslator, Translation, bleu_tokenizer, evaluate
from translated import translated

GERMAN = [pair.german for pair in pairs(5, seed=5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def translator(folder):
    return TextTranslator.load(translated(folder / "run", "tokenizer=words").path)


@pytest.fixture(scope="module")
def lower(folder):
    run = translated(folder / "lower", "tokenizer=words", "lowercase=true")
    return TextTranslator.load(run.path)


def references(translator, strategy):
    """Translations that a few of the model's own are right by, and the others nearly."""
    own = [translation.text for translation in translator.translate(GERMAN, strategy)]
    assert len({*own}) == 5
    return own, [own[0], own[1], f"{own[2]} indeed", own[3].upper(), own[4][5:]]


def files(folder, expected):
    german, english = folder / "test.de", folder / "test.en"
    german.write_text("".join(f"{text}\n" for text in GERMAN))
    english.write_text("".join(f"{text}\n" for text in expected))
    return [str(german), str(english)]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, length_penalty=1.0)], ids=str)
def test_figures_are_sacrebleus(translator, tmp_path, strategy):
    own, expected = references(translator, strategy)
    found = evaluate(translator, files(tmp_path, expected), strategy)
    assert [each.text for each in found.translations] == own
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(own, [expected]).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(own, [expected]).score)
    assert 10 < found.bleu < 90
    assert (found.exact, found.texts) == (2 / 5, 5)
    version = f"version:{sacrebleu.__version__}"
    assert found.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert found.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["这部电影非常好看，我很喜欢。", "我们昨天去的。"], "zh"),
        (["這部電影非常好看。"], "zh"),
        (["この映画が大好きです。"], "ja-mecab" if find_spec("MeCab") else "char"),
        (["หนังเรื่องนี้ดีมาก"], "char"),
        (["这部电影 is a fine film by him"], "13a"),
        (["Işıl ışıl bir film."], "13a"),
    ],
)
def test_bleu_splits_by_the_script_of_the_references(translator, tmp_path, texts, name):
    assert bleu_tokenizer(texts) == name
    expected = [texts[place % len(texts)] for place in range(len(GERMAN))]
    found = evaluate(translator, files(tmp_path, expected), Greedy())
    assert f"|tok:{name}" in found.bleu_signature
    # A character less is a small mistake.
    shorter = [text[1:] for text in texts]
    score = sacrebleu.corpus_bleu(shorter, [texts], tokenize=bleu_tokenizer(texts)).score
    assert score > 60


CHINESE = ["我昨天晚上和好朋友去城里看新电影了", "他们明早坐火车从北京到南方老家过春节吧"]


def test_a_missing_character_costs_chinese_as_much_as_sacrebleu_says(
    translator, tmp_path, monkeypatch
):
    assert [len({*text}) for text in CHINESE] == [len(text) for text in CHINESE] == [17, 19]
    written = [text[:8] + text[9:] for text in CHINESE]
    monkeypatch.setattr(
        TextTranslator,
        "translate",
        lambda *_: [Translation("", text) for text in written],
    )
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.zh").write_text("".join(f"{text}\n" for text in CHINESE))
    found = evaluate(translator, [str(tmp_path / "a.de"), str(tmp_path / "a.zh")], Greedy())
    theirs = sacrebleu.metrics.BLEU(tokenize="zh")
    assert found.bleu == theirs.corpus_score(written, [CHINESE]).score
    assert found.bleu_signature == str(theirs.get_signature())
    # Of 34 characters all are right; of 32, 30 and 28 pieces of 2, 3 and 4 those around the gaps,
    # 2, 4 and 6, are wrong; 36 characters were expected.
    by_hand = 100 * math.exp(1 - 36 / 34) * (30 / 32 * 26 / 30 * 22 / 28) ** (1 / 4)
    assert found.bleu == pytest.approx(by_hand)
    # Whole lines as words have nothing in common.
    assert sacrebleu.corpus_bleu(written, [CHINESE]).score < 1


def test_small_letters_are_compared_in_small_letters(lower, tmp_path):
    own, expected = references(lower, Greedy())
    found = evaluate(lower, files(tmp_path, expected), Greedy())
    small = [text.lower() for text in expected]
    assert found.bleu == pytest.approx(sacrebleu.corpus_bleu(own, [small], lowercase=True).score)
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(own, [small]).score)
    assert found.exact == 3 / 5
    assert "|case:lc|" in found.bleu_signature
    assert "|case:lc|" in found.chrf_signature


def test_a_text_without_a_word_counts_as_one(translator, tmp_path):
    (tmp_path / "a.de").write_text("Ja\n\nNein\n")
    (tmp_path / "a.en").write_text("Yes\n\nNo\n")
    found = evaluate(translator, [str(tmp_path / "a.de"), str(tmp_path / "a.en")], Greedy())
    assert (found.texts, found.translations[1].text) == (3, "")
    assert found.exact == 1 / 3


def test_without_files_what_was_held_out_is_evaluated(tmp_path):
    for name, side in (("train.de", "german"), ("train.en", "english")):
        lines = [getattr(pair, side) for pair in pairs(31, seed=3)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    names = (str(tmp_path / "train.de"), str(tmp_path / "train.en"))
    run = translated(tmp_path / "run", "tokenizer=words", files=names)
    translator = TextTranslator.load(run.path)
    found = evaluate(translator, strategy=Greedy())
    sources = [translation.source for translation in found.translations]
    assert (found.texts, len(sources)) == (3, 3)
    assert {*sources} < {pair.german for pair in pairs(31, seed=3)}
    (tmp_path / "train.de").write_text("anders\n" * 31)
    with pytest.raises(ValueError, match="the texts must be those .*Name files to evaluate on"):
        evaluate(translator, strategy=Greedy())


def test_a_text_that_is_too_long_is_told_by_file_and_line(translator, tmp_path):
    (tmp_path / "a.de").write_text(f"Ja\n{'und ' * 65}\n")
    (tmp_path / "a.en").write_text("Yes\nand\n")
    with pytest.raises(
        ValueError, match=r"a\.de, line 2.* the 64 tokens that the model reads, got 65"
    ):
        evaluate(translator, [str(tmp_path / "a.de"), str(tmp_path / "a.en")], Greedy())

"""Five languages: chosen by code, with the same numbers, and English where no translation is."""

import concurrent.futures
import re

import catalogues
import pytest
import torch
from explanation_told import LANGUAGES, WORDS, OwnNormalizer, OwnScore, traced, worked_example

import glasshead as gh
from glasshead.explanation.translations import LANGUAGES as KNOWN
from glasshead.explanation.translations import Say, catalogue, language_of
from glasshead.ladder.worked_example import HELLO_SHINY_SUN

CODES = {
    "en": ("en", "EN", "en_US.UTF-8", "en-GB"),
    "tr": ("tr", "tr_TR", "tr-TR", "TR"),
    "es": ("es", "es_ES", "es-MX", "es_ES@euro"),
    "zh-Hant": ("zh-Hant", "zh_Hant", "zh-TW", "zh_TW", "zh-HK", "zh_TW.UTF-8", "zh-Hant-TW"),
    "zh-Hans": ("zh-Hans", "zh", "zh-CN", "zh_CN", "zh-SG", "zh-Hans-HK"),
}


@pytest.mark.parametrize(
    ("language", "code"), [(n, c) for n, codes in CODES.items() for c in codes]
)
def test_each_code_means_a_language(language, code):
    assert language_of(code) == language
    assert worked_example(code).language == language


@pytest.mark.parametrize("code", ["xx", "", "english", "tur", "z", "C"])
def test_unknown_codes_are_refused(code):
    with pytest.raises(ValueError, match="lang must be one of en, tr, es, zh-Hant, zh-Hans, got"):
        language_of(code)


@pytest.mark.parametrize("lang", KNOWN[1:])
def test_a_translation_has_the_placeholders_of_its_sentence(lang):
    faults = catalogues.faults(catalogues.catalogue(catalogues.LOCALES, lang))
    assert [fault for fault in faults if not fault.startswith(catalogues.UNTRANSLATED)] == []


def every_kind_of_explanation(lang):
    """Explanations that say every sentence between them."""
    masks = [gh.window(1), gh.causal(), gh.padding(3), gh.prefix(2), gh.documents([0, 0, 1, 1, 1])]
    masks += [gh.dense(torch.zeros(5, 5).bool()), gh.causal() | gh.prefix(2), gh.window()]
    biases = [gh.ALiBi(1), gh.RelativeBias(1), torch.ones(5, 5).double()]
    scores = [gh.Cosine(), gh.Gaussian(beta=9.0), gh.Additive(3), gh.Dot(beta=99.0), OwnScore()]
    normalizers = [gh.SoftmaxOne(), gh.HardMax(), gh.Sparsemax(), gh.Entmax15(), gh.Sigmoid()]
    yield worked_example(lang, printed=HELLO_SHINY_SUN)
    for mask in masks:
        yield gh.explain(traced(mask=mask, softcap=9.0), query=0, lang=lang)
    for mask in (None, gh.causal(), gh.dense(torch.zeros(9, 9).bool())):
        yield gh.explain(traced(9, 9, mask=mask), query=1, lang=lang)
    for part in biases:
        yield gh.explain(traced(bias=part, dropout=0.5, mask=gh.causal()), query=1, lang=lang)
        yield gh.explain(traced(bias=part), lang=lang)
    for score, normalizer in zip(scores, normalizers, strict=True):
        yield gh.explain(traced(score=score, normalizer=normalizer), tokens=WORDS, lang=lang)
    yield gh.explain(
        traced(normalizer=OwnNormalizer(), leading=(2, 3), queries=9, keys=40), lang=lang
    )


@pytest.fixture
def said(monkeypatch):
    """The sentences that are said, as they stand in the code."""
    sentences = set()
    speak = Say.__call__

    def listen(self, sentence, /, **places):
        sentences.add(sentence)
        return speak(self, sentence, **places)

    monkeypatch.setattr(Say, "__call__", listen)
    return sentences


def test_a_language_that_is_not_compiled_is_english():
    assert catalogue.__wrapped__("tr").gettext("scores") == "skorlar"
    assert catalogue.__wrapped__("nowhere").gettext("scores") == "scores"


def test_every_sentence_that_is_said_is_collected(said):
    for _ in every_kind_of_explanation("en"):
        pass
    assert len(said) > 100
    assert said <= catalogues.collected()


@pytest.mark.parametrize("lang", [lang for lang in LANGUAGES if lang != "en"])
def test_nothing_english_is_left(lang):
    if any(catalogues.faults(catalogues.catalogue(catalogues.LOCALES, lang))):
        pytest.skip("the catalogue is not complete, which `make release-check` reports")
    english = re.compile(
        r"\b(the|of|and|with|each|weights?|keys?|scores?|query|hidden)\b", re.IGNORECASE
    )
    for explanation in every_kind_of_explanation(lang):
        text = explanation.text(width=100).replace("The", "")
        # The English term may stand in brackets beside the native one.
        text = re.sub(r"W_(query|key|value)|[“「«]\w+[”」»]|[（，](query|key|value)）", "", text)
        found = english.search(text)
        assert found is None, text[max(0, found.start() - 60) : found.end() + 60]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_formulas_and_numbers_are_the_same_in_each_language(lang):
    trace = traced(mask=gh.window(1), normalizer=gh.SoftmaxOne(), softcap=3.0)
    english, other = (gh.explain(trace, tokens=WORDS, lang=code) for code in ("en", lang))
    for first, second in zip(english.steps, other.steps, strict=True):
        assert first.name == second.name
        assert re.sub(r"\(\D+\)$", "", first.formula) == re.sub(r"\(\D+\)$", "", second.formula)
        stripped = [
            [re.sub(r"   \(.*\)$", "", line) for line in step.numbers] for step in (first, second)
        ]
        assert stripped[0] == stripped[1]


def test_languages_are_asked_for_by_each_call_and_do_not_mix():
    def title(lang):
        return worked_example(lang).title

    codes = list(KNOWN) * 8
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        titles = list(threads.map(title, codes))
    assert titles == [title(lang) for lang in codes]
    assert len(set(titles)) == 5


def test_traditional_and_simplified_chinese_use_their_own_words():
    taiwan, mainland = (
        "".join(e.text(width=100) for e in every_kind_of_explanation(lang))
        for lang in ("zh-Hant", "zh-Hans")
    )
    for here, there in (
        ("遮罩", "掩码"),
        ("機率", "概率"),
        ("電腦", "计算机"),
        ("變異數", "方差"),
        ("視窗", "窗口"),
        ("熱圖", "热力图"),
        ("門檻", "阈值"),
        ("「", "“"),
        ("正規化", "归一化"),
    ):
        assert here in taiwan, here
        assert here not in mainland, here
        assert there in mainland, there
        assert there not in taiwan, there


def test_turkish_letters_are_right():
    text = worked_example("tr").text(width=100)
    assert "ağırlık" in text
    assert "değer" in text
    assert "ı" in text
    assert "İşaretli" in text
    assert "\u0307" not in text

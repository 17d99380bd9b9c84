"""Refusals, the demo and the pages of the commands speak the language of --lang and of LANG."""

import re

import pytest

from glasshead.explanation.translations import LANGUAGES, Say
from glasshead.tasks.run_folder import RunFolder

OTHERS = [lang for lang in LANGUAGES if lang != "en"]
# Wrong in one way each, with what stands in the sentence of every language.
MISTAKES = {
    ("--score", "cosin"): ("--score", "cosine", "'cosin'"),
    ("--mask", "round"): ("--mask", "causal", "'round'"),
    ("--beta", "-1"): ("--beta", "auto", "1/√d"),
    ("--heads", "2"): ("--heads", "1, 3"),
    ("--head", "7"): ("--head", "7"),
    ("--query", "moon"): ("'moon'",),
    ("--dim", "3"): ("--dim",),
    ("--width", "7"): ("--width", "20", "1000"),
    ("--vectors", "nowhere.csv"): ("nowhere.csv",),
    ("--html", "page.json"): ("--html", "page.html"),
    ("...", "--dim", "0"): ("--dim", "4096"),
    (" ",): ("TEXT", "Hello shiny sun!"),
    ("--beta", "inf", "--normalizer", "sigmoid"): ("--beta inf", "sigmoid"),
}


@pytest.mark.parametrize("lang", OTHERS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=" ".join)
def test_explain_refuses_in_the_language_that_is_asked_for(
    command, mistake, lang, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    english = command("explain", *mistake)
    told = command("explain", *mistake, "--lang", lang)
    assert (english.code, told.code) == (2, 2)
    assert english.err.startswith("glasshead: error: ")
    assert told.err.startswith(f"glasshead: {Say(lang)('error')}: ")
    assert told.err != english.err
    assert told.err.count("\n") == 1
    for part in MISTAKES[mistake]:
        assert part in english.err
        assert part in told.err
    assert not re.search(r"\b(takes|there is|did you|expected|and got|leave)\b", told.err), told.err


def test_the_environment_says_the_language_too(command, monkeypatch):
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")
    assert "0 ile 0 arasında bir baş alır" in command("explain", "--head", "1").err
    assert "debe" not in command("explain", "--head", "1", "--lang=es").err
    assert "admite una cabeza" in command("explain", "--head", "1", "--lang=es").err


def test_a_language_that_is_not_there_is_refused_in_the_one_of_the_environment(
    command, monkeypatch
):
    monkeypatch.setenv("LANG", "es_MX.UTF-8")
    outcome = command("explain", "--lang", "xx")
    assert outcome.code == 2
    assert "--lang admite uno de en, tr, es, zh-Hant, zh-Hans y recibió 'xx'" in outcome.err


@pytest.mark.parametrize("lang", OTHERS)
def test_the_demo_refuses_in_its_language(command, lang, tmp_path):
    outcome = command("demo", "--folder", tmp_path, "--resume", "--lang", lang)
    assert outcome.code == 2
    assert "--resume" in outcome.err
    assert "no run to resume" not in outcome.err


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_readme_of_a_run_is_in_its_language(lang, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write_readme("A model", "glasshead demo", lang)
    text = folder.readme.read_text("utf-8")
    assert "\n    glasshead demo\n" in text
    assert text.count("\n| `") == 7
    assert ("the learning curve" in text) == (lang == "en")
    assert Say(lang)("the learning curve") in text

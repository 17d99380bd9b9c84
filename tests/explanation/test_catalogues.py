"""Catalogues are complete when a version is made, and what is wrong with one is found."""

import shutil

import catalogues
import pytest

pytestmark = pytest.mark.release


def test_the_catalogues_are_complete():
    assert catalogues.problems(catalogues.LOCALES) == []


@pytest.fixture
def locales(tmp_path):
    return shutil.copytree(catalogues.LOCALES, tmp_path / "locales")


def change(locales, before, after):
    path = locales / "tr" / "LC_MESSAGES" / "glasshead.po"
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), "utf-8")


def add(file, text):
    with file.open("a", encoding="utf-8") as opened:
        opened.write(text)


def test_a_missing_translation(locales):
    change(locales, 'msgstr "skorlar"', 'msgstr ""')
    assert catalogues.problems(locales) == ["tr: missing: scores"]


def test_another_place(locales):
    change(locales, 'msgstr "baş {head}"', 'msgstr "baş {baş}"')
    problem = "tr: other places than in English: head {head} → baş {baş}"
    assert problem in catalogues.problems(locales)


def test_a_fuzzy_translation(locales):
    change(locales, 'msgid "scores"', '#, fuzzy\nmsgid "scores"')
    assert "tr: fuzzy: scores" in catalogues.problems(locales)


def test_an_obsolete_sentence(locales):
    file = locales / "tr" / "LC_MESSAGES" / "glasshead.po"
    add(file, '\n#~ msgid "gone"\n#~ msgstr "gitti"\n')
    assert catalogues.problems(locales) == ["tr/LC_MESSAGES/glasshead.po lags behind"]


def test_a_sentence_that_the_code_does_not_have(locales):
    file = locales / "tr" / "LC_MESSAGES" / "glasshead.po"
    add(file, '\nmsgid "gone"\nmsgstr "gitti"\n')
    assert "tr/LC_MESSAGES/glasshead.po lags behind" in catalogues.problems(locales)


def test_a_template_that_lags(locales):
    add(locales / "glasshead.pot", '\nmsgid "gone"\nmsgstr ""\n')
    assert catalogues.problems(locales) == ["glasshead.pot lags behind"]


def test_a_language_without_a_catalogue(locales):
    shutil.rmtree(locales / "tr")
    assert catalogues.problems(locales) == ["tr: there is no glasshead.po"]


def test_updating_keeps_translations(locales):
    change(locales, 'msgstr "skorlar"', 'msgstr "puanlar"')
    catalogues.update(locales)
    assert catalogues.problems(locales) == []
    path = locales / "tr" / "LC_MESSAGES" / "glasshead.po"
    assert 'msgstr "puanlar"' in path.read_text("utf-8")

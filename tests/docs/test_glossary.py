"""The page of the glossary is made of its terms, and defines each term once, in short sentences."""

import re

import pytest

from glasshead.explanation.translations import LANGUAGES
from scripts import script


@pytest.fixture(scope="module")
def glossary():
    return script("docs/building/glossary.py")


def terms(glossary):
    return [term for group in glossary.groups() for term in group["term"]]


def test_the_page_is_made_of_the_terms(glossary):
    written = glossary.PAGE.read_text("utf-8")
    assert written == glossary.page(), "run: python docs/building/glossary.py"


def test_each_term_is_defined_once(glossary):
    names = [term["name"] for term in terms(glossary)]
    assert sorted(set(names)) == sorted(names)
    assert all(len(group["term"]) <= 12 for group in glossary.groups())


def test_each_term_has_a_meaning_and_a_word_in_each_language(glossary):
    for term in terms(glossary):
        sentences = re.split(r"(?<=\.) ", term["means"])
        assert all(re.fullmatch(r"\S.*\.", each) for each in sentences), term["name"]
        assert max(len(each.split()) for each in sentences) <= 25, term["name"]
        assert set(term) - {"found"} == {"name", "means", *LANGUAGES[1:]}, term["name"]
        assert all(term[language] for language in LANGUAGES[1:])

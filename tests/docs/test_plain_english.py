"""The English pages use the words of the field, and none that a reader must guess."""

import re
from pathlib import Path

import pytest

from scripts import ROOT, script

# A space stands for any white space.
BANNED = [
    r"anew",
    r"of before",
    r"none the less",
    r"since then",
    r"measured again",
    r"taken away|takes? away|silenced|lets? go of",
    r"(left|leaves?|leaving) out",
    r"made[- ]up(?! of)",
    r"by hand",
    r"unseen",
    r"plain calls?",
    r"recipes?(?!/)",
    r"rungs?",
    r"what pads",
    r"(goes|gone|went) on with",
    r"(models?|folders?) of Hugging Face",
    r"beside",
    r"mended",
    r"tells|told",
    r"(that|those) of",
    r"(is|are|was|were) refused",
    r"where there (is|are|was|were)",
    r"(?<!there\s)is no (?!longer|more|reason|need|one)",
    r"takes [^.]{1,40}, and got",
    r"texts? that teach|come from a text",
]
PHRASE = re.compile(
    r"\b({})\b".format("|".join(BANNED).replace(" ", r"\s+")),
    re.IGNORECASE,
)
# Code, addresses and comments are not prose.
NOT_PROSE = re.compile(
    r"^(`{3,}).*?^\1$|`[^`\n]+`|(?<=\])\([^)\s]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE
)


def pages() -> list[str]:
    """Return the English pages of the site, and the README; of a notebook its source."""
    names = script("docs/building/pages.py").pages_of("en")
    texts = [str(Path(name).with_suffix(".md")) for name in names if not name.endswith(".rst")]
    return ["README.md", *texts]


def faults(text: str) -> list[str]:
    """Return each banned phrase of a page, with its line."""
    prose = NOT_PROSE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    found = ((prose.count("\n", 0, one.start()) + 1, one[0]) for one in PHRASE.finditer(prose))
    return [f"{line}: {' '.join(phrase.split())}" for line, phrase in found]


@pytest.mark.parametrize("page", pages())
def test_a_page_has_no_banned_phrase(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "CHANGELOG.md":
        text = text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    assert [f"{page}:{fault}" for fault in faults(text)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\nIt is read\nanew.", ["3: anew"]),
        ("It is left\nout.", ["1: left out"]),
        ("```\nby hand\n```\n`by hand` [x](by-hand.md)", []),
        ("There is no mask, and it is no longer a file; a page is no file.", ["1: is no"]),
        ("A retold story.", []),
    ],
)
def test_a_banned_phrase_is_found_in_prose(text, found):
    assert faults(text) == found

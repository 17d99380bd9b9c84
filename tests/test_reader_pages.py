"""The pages in the readers' languages: the same code, the texts' numbers, commands that run."""

import re
from pathlib import Path

import pytest

from glasshead.cli import main
from glasshead.explanation.translations import LANGUAGES
from scripts import ROOT
from test_readme import commands, of_glasshead

ERRATA = {lang: ROOT / "docs" / "tutorials" / f"errata.{lang}.md" for lang in LANGUAGES[1:]}
ENGLISH = ROOT / "docs" / "tutorials" / "errata.md"
READERS = sorted((ROOT / "docs" / "tutorials" / "readers").glob("?.*.md"))
READMES = [ROOT / f"README.{lang}.md" for lang in LANGUAGES[1:]]
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# Each text by its letter, with the language of its readers.
TEXTS = {"A": "tr", "B": "es", "C": "zh-Hant", "D": "tr", "E": "zh-Hans"}


def headings(file: Path) -> list[str]:
    return re.findall(r"^##? (.+)$", CODE.sub("", file.read_text("utf-8")), re.MULTILINE)


def anchor(heading: str) -> str:
    """The anchor that GitHub and MyST give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def texts_of(heading: str) -> list[str]:
    """The letters at the end of a heading, in Latin or full-width brackets."""
    found = re.search(r"[(（]([A-E](?:[,、] ?[A-E])*)(?:[,，] ?[\w ]+)?[)）]$", heading)
    return re.findall(r"[A-E]", found[1]) if found else []


@pytest.mark.parametrize("lang", ERRATA)
def test_the_errata_are_the_same_in_each_language(lang):
    ours, theirs = ENGLISH.read_text("utf-8"), ERRATA[lang].read_text("utf-8")
    assert CODE.findall(theirs) == CODE.findall(ours)
    assert [*map(texts_of, headings(ERRATA[lang]))] == [*map(texts_of, headings(ENGLISH))]


@pytest.mark.parametrize("file", [ENGLISH, *ERRATA.values()], ids=lambda file: file.name)
def test_each_slip_says_whose_it_is(file):
    title, *slips = headings(file)
    assert texts_of(title) == []
    assert len(slips) == 18
    assert all(texts_of(slip) for slip in slips)
    assert {letter for slip in slips for letter in texts_of(slip)} == set(TEXTS)


def test_each_text_has_a_page_in_its_language():
    assert [file.name for file in READERS] == [
        f"{letter.lower()}.{lang}.md" for letter, lang in TEXTS.items()
    ]


@pytest.mark.parametrize("file", READERS, ids=lambda file: file.name)
def test_a_readers_page_leads_to_every_slip_of_its_text(file):
    letter, lang = file.name[0].upper(), TEXTS[file.name[0].upper()]
    text = file.read_text("utf-8")
    slips = {anchor(h) for h in headings(ERRATA[lang]) if letter in texts_of(h)}
    linked = set(re.findall(rf"\]\(\.\./errata\.{lang}\.md#([^)]+)\)", text))
    assert linked <= slips
    # That D writes columns is no slip, and told in a section of its page.
    assert len(slips - linked) == (1 if letter == "D" else 0)


@pytest.mark.parametrize(
    ("letter", "quoted"),
    [("A", "4 boyutlu 2 dizi"), ("B", "2 arreglos de 4 dimensiones"), ("E", "`bais=False`")],
)
def test_a_slip_is_quoted_as_its_text_has_it(letter, quoted):
    (page,) = (file for file in READERS if file.name.startswith(letter.lower()))
    for file in page, ERRATA[TEXTS[letter]]:
        assert quoted in " ".join(file.read_text("utf-8").split()), file.name


def test_what_text_d_calls_scores_are_the_weights():
    """Its "skor" are the elements of a, which a softmax has made."""
    rows = (ROOT / "docs" / "tutorials" / "readers" / "d.tr.md").read_text("utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith("| skor"))
    assert "`trace.weights`" in row


@pytest.mark.parametrize("file", [*READERS, *ERRATA.values()], ids=lambda file: file.name)
def test_every_anchor_is_there(file):
    for place, name in re.findall(r"\]\(([^)#]*)#([^)]+)\)", file.read_text("utf-8")):
        target = file if not place else file.parent / place
        assert name in map(anchor, headings(target)), f"{place}#{name}"


def test_the_readme_leads_to_every_language_at_its_top():
    first = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:5])
    for file in [*READMES, ROOT / "docs" / "tutorials" / "readers" / "index.md"]:
        assert f"({file.relative_to(ROOT)})" in first
    for file in READMES:
        assert len(file.read_text("utf-8").splitlines()) <= 100


def test_the_readme_says_which_page_names_the_tutorials():
    assert "[Tutorials A to E](docs/tutorials/readers/index.md)" in (ROOT / "README.md").read_text(
        "utf-8"
    )
    index = (ROOT / "docs" / "tutorials" / "readers" / "index.md").read_text("utf-8")
    assert re.findall(r"^\| \*\*(\w)\*\* \|", index, re.MULTILINE) == [*TEXTS]


STEPS = {
    name: step
    for step, names in re.findall(
        r"from \.rung(\d+)\w* import (\([^)]*\)|.*)",
        (ROOT / "glasshead" / "ladder" / "__init__.pyi").read_text("utf-8"),
    )
    for name in re.findall(r"as (\w+)", names)
}


@pytest.mark.parametrize(
    "file", [ROOT / "docs" / "tutorials" / "ladder.md", *READERS], ids=lambda f: f.name
)
def test_a_step_of_the_ladder_is_numbered_where_it_is_named(file):
    rows = [row.split("|") for row in file.read_text("utf-8").splitlines() if row.startswith("|")]
    named = [
        (cells[2], {STEPS[name] for name in re.findall(r"\w+", cells[2]) if name in STEPS})
        for cells in rows
        if "ladder" in cells[2]
    ]
    wrong = [
        cell for cell, steps in named if not all(re.search(rf"\b{s}\b[^`]*$", cell) for s in steps)
    ]
    assert sum(bool(steps) for _, steps in named) >= 3
    assert wrong == []


def test_no_step_is_called_by_another_word():
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "glasshead" / "ladder").glob("*.py")]
    called = re.compile(r"\brungs?\b", re.IGNORECASE)
    assert [page.name for page in pages if called.search(page.read_text("utf-8"))] == []


def test_a_reader_needs_three_steps_to_the_page_of_each_text():
    for file in READERS:
        lang = TEXTS[file.name[0].upper()]
        linked = (ROOT / f"README.{lang}.md").read_text("utf-8")
        assert f"({file.relative_to(ROOT)})" in linked
        assert f"--lang {lang}" in file.read_text("utf-8")


# Served, or minutes long.
NOT_RUN = {"studio", "demo"}


@pytest.mark.parametrize("file", [*READERS, *READMES], ids=lambda file: file.name)
def test_the_commands_run(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Those that the English README shows, too, run in its own test.
    shown = commands(ROOT / "README.md")
    arguments = [of_glasshead(words) for words in commands(file) if words not in shown]
    run = [words for words in arguments if words and words[0] not in NOT_RUN]
    assert len(run) >= 2
    for words in run:
        assert main(words) == 0, words
        told = capsys.readouterr()
        assert told.err.count("\n") == words.count("--html")
        assert len(told.out) > 1000


@pytest.mark.parametrize(
    ("letter", "weight"),
    [("A", "0.4063"), ("B", "0.4063"), ("C", "0.4306"), ("D", "0.4063"), ("E", "0.3558")],
)
def test_the_first_command_prints_the_number_that_the_page_names(letter, weight, capsys):
    (file,) = (f for f in READERS if f.name.startswith(letter.lower()))
    assert main(of_glasshead(commands(file)[0])) == 0
    assert weight in capsys.readouterr().out
    assert weight in file.read_text("utf-8")

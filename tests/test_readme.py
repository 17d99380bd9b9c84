"""What the README and the docs show is what their commands print now."""

import re

import pytest

from scripts import ROOT, script

TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def pictures():
    return script("docs/pictures.py")


def test_outputs_are_those_of_their_commands(pictures):
    shown = 0
    for file in TEXTS:
        text = file.read_text(encoding="utf-8")
        shown += len(pictures.OUTPUT.findall(text))
        assert pictures.with_outputs(text) == text, f"{file.name}: run make pictures"
    assert shown


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_every_link_and_picture_is_there(file):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []

"""The page that tells text by text where its classes are: its commands run, and its names exist."""

import re
import shlex
from pathlib import Path

import pytest

import glasshead as gh
from glasshead import ladder
from glasshead.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "ladder.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`glasshead (explain [^`]*)`", PAGE))))
def test_a_command_runs(command, capsys):
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(gh|ladder)\.(\w+)", PAGE))))
def test_a_name_is_there(name):
    module, attribute = name
    assert hasattr({"gh": gh, "ladder": ladder}[module], attribute)


@pytest.mark.parametrize("text", "ABCDE")
def test_each_text_has_its_table(text):
    titles = re.findall(r"^## (.*):", PAGE, flags=re.MULTILINE)
    assert any(text in title.split() for title in titles)

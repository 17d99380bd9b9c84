"""What a command must never do: cut a number, overwrite what it reads, or steer the terminal."""

import json
import os
import runpy
import stat
import struct
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("1", 20), ("12", 20), ("nonsense", 80)])
def test_columns_never_cost_a_digit(command, monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    outcome = command("explain")
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert "0.7842" in outcome.out
    assert max(map(len, lines)) <= width


def test_links_in_a_circle_are_no_place_for_a_page(command, tmp_path):
    loop = tmp_path / "loop.html"
    loop.symlink_to(loop)
    outcome = command("explain", "--html", loop)
    assert outcome.code == 2
    assert "loop.html" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_page_does_not_take_the_place_of_what_it_is_made_from(command, tmp_path):
    vectors = tmp_path / "mine.csv"
    vectors.write_text("a,1,2\nb,3,4\n")
    link = tmp_path / "link.html"
    link.symlink_to(vectors)
    for page in (vectors, link):
        outcome = command("explain", "--vectors", vectors, "--html", page)
        assert outcome.code == 2
        assert "takes another place than" in outcome.err
    assert vectors.read_text() == "a,1,2\nb,3,4\n"


def test_a_page_that_was_private_stays_private(command, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("old")
    page.chmod(0o600)
    assert command("explain", "--html", page).code == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "shiny" in page.read_text()


def test_errors_are_one_short_harmless_line(command, tmp_path):
    weights = tmp_path / "weights.safetensors"
    save_file({"W_query\x1b[31m\u202e": torch.ones(2, 2)}, weights)
    vectors = tmp_path / "long.csv"
    vectors.write_text("a,1\nb," + "x" * 20_000 + "\n")
    outcomes = (
        command("explain", "a b", "--weights", weights, "--dim", "2"),
        command("explain", "--vectors", vectors),
        command("explain", "a b", "--query", "evil\u202e"),
    )
    for outcome in outcomes:
        assert outcome.code == 2
        assert "\x1b" not in outcome.err
        assert "\u202e" not in outcome.err
        assert len(outcome.err) < 700


def test_numbers_of_an_unknown_type_are_refused(command, tmp_path):
    header = {
        f"W_{role}": {"dtype": "F8_E8M0", "shape": [2, 2], "data_offsets": [4 * i, 4 * i + 4]}
        for i, role in enumerate(("query", "key", "value"))
    }
    text = json.dumps(header).encode()
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(struct.pack("<Q", len(text)) + text + bytes(12))
    outcome = command("explain", "a b", "--dim", "2", "--weights", weights)
    assert outcome.code == 2
    assert "weights.safetensors" in outcome.err


@pytest.mark.parametrize("text", ["Hello shiny sun!", "Hello shiny sun", " Hello shiny sun! "])
def test_the_worked_example_answers_to_its_name(command, text):
    assert command("explain", text).out == command("explain").out


def test_heads_are_said_to_be_parts_of_the_vectors(command):
    told = command("explain", "a b c", "--heads", "2", "--head", "1").out
    assert "cut into 2 parts" in told
    assert "head 1, counted" in told
    assert "cut into" not in command("explain", "a b c").out


def test_the_examples_of_the_readme_run(command, tmp_path, monkeypatch):
    weights = tmp_path / "weights.safetensors"
    monkeypatch.setattr(sys, "argv", ["projection.py", os.fspath(weights)])
    runpy.run_path(os.fspath(ROOT / "examples" / "projection.py"), run_name="__main__")
    words = ROOT / "examples" / "words.csv"
    outcome = command("explain", "--vectors", words, "--weights", weights, "--query", "flies")
    assert (outcome.code, outcome.err) == (0, "")
    assert "W_query" in outcome.out

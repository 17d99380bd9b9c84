"""What `glasshead explain` prints and writes: languages, widths, pages, JSON."""

import json
import re

import pytest
import torch

from glasshead.ladder import HELLO_SHINY_SUN

TEXT = "the shiny sun and the moon!"
TOKENS = ["the", "shiny", "sun", "and", "the", "moon", "!"]


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "tr_TR.UTF-8", "LC_MESSAGES": "es_ES"}, "es"),
        ({"LANG": "tr_TR.UTF-8", "LC_MESSAGES": "es_ES", "LC_ALL": "zh_TW.UTF-8"}, "zh-Hant"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh-Hans"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "tr_TR.UTF-8"}, "en"),
    ],
)
def test_the_language_of_the_environment(explained, monkeypatch, variables, language):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert explained()["language"] == language
    assert explained("--lang", "es")["language"] == "es"


@pytest.mark.parametrize("language", ["tr", "es", "zh-Hant", "zh-Hans"])
def test_what_was_made_up_is_said_in_each_language(explained, language):
    english = explained(TEXT, "--score", "additive")["notes"]
    notes = explained(TEXT, "--score", "additive", "--lang", language)["notes"]
    assert len(notes) == 2
    assert all("123" in note for note in notes)
    assert not set(notes) & set(english)


@pytest.mark.parametrize("width", [20, 60, 120])
def test_text_keeps_to_the_width(command, width):
    lines = command("explain", TEXT, "--width", width, "--lang", "zh-Hant").out.splitlines()
    wide = re.compile("[\u2e80-\u9fff\uff00-\uff60\u3000-\u303f]")
    assert max(len(line) + len(wide.findall(line)) for line in lines) <= width
    assert len(lines) > 40


def test_the_page_is_written_and_the_text_still_appears(command, tmp_path):
    page = tmp_path / "new" / "folder" / "page.html"
    outcome = command("explain", "--html", page)
    assert outcome.code == 0
    assert outcome.err == f"The page is at {page}\n"
    assert outcome.out == command("explain").out
    written = page.read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert written.rstrip().endswith("</html>")
    assert list(page.parent.iterdir()) == [page]


def test_a_page_replaces_the_old_one_behind_a_link(command, tmp_path):
    (tmp_path / "old.html").write_text("old")
    (tmp_path / "link.html").symlink_to("old.html")
    assert command("explain", "--html", tmp_path / "link.html").code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "old.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_is_alone_on_standard_output(command, tmp_path):
    outcome = command("explain", TEXT, "--json", "--html", tmp_path / "page.html")
    assert json.loads(outcome.out)["tokens"] == TOKENS
    assert outcome.out.count("\n") == 1
    assert outcome.err == f"The page is at {tmp_path / 'page.html'}\n"


def test_numbers_of_json_are_exact(explained):
    told = explained()
    x = torch.tensor(HELLO_SHINY_SUN.embeddings, dtype=torch.float64)
    context = ((x @ x.T).softmax(-1) @ x).tolist()
    assert told["data"]["inputs"]["queries"] == x.tolist()
    torch.testing.assert_close(told["data"]["context"]["context"], context, rtol=1e-15, atol=0)


def test_hidden_pairs_are_null_in_json(explained):
    told = explained("a b", "--mask", "causal")
    assert told["data"]["masked"]["masked"][0][1] is None


def test_a_long_sentence_works(command):
    outcome = command("explain", " ".join(f"word{place}" for place in range(300)))
    assert outcome.code == 0
    assert outcome.out.count("\n") < 1000


def test_hostile_text_cannot_steer_the_terminal(command):
    outcome = command("explain", "a \x1b[31mred\x07 \u202etxt [bold]b[/bold] :smile:")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert "smile" in outcome.out
    refused = command("explain", "a b", "--query", "\x1b[31mx\u202e")
    assert refused.code == 2
    assert "\x1b" not in refused.err

"""Files that options name: standard input, pipes, folders, and names that are none."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "glasshead", "explain"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("Hello,0.34,0.22\nsun,0.29,0.54\n")
    (tmp_path / "new").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--vectors", ""], "--vectors takes a file, and got nothing: name one, or leave it out."),
        (["--weights", ""], "--weights takes a file, and got nothing: name one"),
        (["--html", ""], "--html takes a file, and got nothing: name one"),
        (["--html", "new/"], "--html takes a file to write, and new/ is a folder: name a file"),
        (["--html", "other/"], "and other/ is a folder: name a file in it."),
        (["--html", "-"], "and - is standard output, which has the text: name a file, as in"),
        (["--vectors", "pipe"], "expected a file, and pipe is a pipe into which nobody writes"),
        (["--vectors", "./-"], "there is no file "),
        (["--score", ""], "--score takes one of scaled-dot, dot, cosine, gaussian, additive, and"),
        (["--normalizer", ""], "--normalizer takes one of softmax, softmax-one, hardmax"),
        (["--dim", "4", "Hello shiny sun!"], "these are not made up: leave it out."),
    ],
)
def test_a_name_that_is_no_file_is_refused(command, place, arguments, sentence):
    before = sorted(place.iterdir())
    outcome = command("explain", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert sorted(place.iterdir()) == before


def test_standard_input_is_read(place):
    from_file = subprocess.run([*PROGRAM, "--vectors", "good.csv"], capture_output=True, check=True)
    content = (place / "good.csv").read_bytes()
    piped = [*PROGRAM, "--vectors", "-"]
    from_pipe = subprocess.run(piped, input=content, capture_output=True, check=True)
    assert from_pipe.stdout == from_file.stdout
    refused = subprocess.run(piped, input=b"a,1\nb,x\n", capture_output=True, check=False)
    assert refused.returncode == 2
    assert b"error: standard input, line 2: expected a number for 'b'" in refused.stderr


def test_a_pipe_with_a_slow_writer_is_waited_for(place):
    # Reading begins before anything is written, as it may in a process substitution.
    script = f"(sleep 2; cat good.csv) | {' '.join(PROGRAM)} --vectors /dev/stdin"
    outcome = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, b"")


@pytest.mark.parametrize("option", ["--vectors", "--weights"])
def test_a_file_that_may_not_be_read_is_told_in_our_words(command, place, monkeypatch, option):
    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.open", refuse)
    outcome = command("explain", option, "good.csv")
    assert outcome.err == (
        "glasshead: error: good.csv may not be read by this user: change its permissions.\n"
    )


def test_a_protected_page_is_not_replaced(command, place):
    page = place / "page.html"
    page.write_text("old")
    page.chmod(0o444)
    outcome = command("explain", "--html", "page.html")
    assert outcome.code == 2
    assert "page.html is protected from writing: change its permissions, or name" in outcome.err
    assert page.read_text() == "old"


def test_a_wrong_language_is_refused_before_torch_is_there():
    code = (
        "import sys; from glasshead.cli import main; code = main(['explain', '--lang', 'xx']); "
        "sys.exit(code if 'torch' not in sys.modules else 3)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert outcome.returncode == 2
    assert b"--lang takes one of en, tr" in outcome.stderr


def test_too_many_rows_are_refused_early_unless_a_text_selects_among_them(command, place):
    rows = "".join(f"w{i},{i % 7}\n" for i in range(9_000))
    (place / "many.csv").write_text(rows)
    outcome = command("explain", "--vectors", "many.csv")
    assert outcome.code == 2
    assert "many.csv: more than 4,418 tokens are too many to explain in full" in outcome.err
    assert command("explain", "w1 w8999", "--vectors", "many.csv").code == 0


@pytest.mark.parametrize("columns", ["0", "-5", "\u00b2", "wide"])
def test_help_and_text_appear_whatever_columns_says(command, monkeypatch, columns):
    for arguments in (["--help"], ["explain"]):
        monkeypatch.setenv("COLUMNS", "80")
        usual = command(*arguments).out
        monkeypatch.setenv("COLUMNS", columns)
        assert command(*arguments).out == usual


def test_a_long_cell_is_shortened_where_it_stands(command, place):
    (place / "long.csv").write_text("a,1\nb," + "x" * 20_000 + "\n")
    outcome = command("explain", "--vectors", "long.csv")
    assert "xxx…xxx" in outcome.err
    assert "write it as in 0.34" in outcome.err
    assert len(outcome.err) < 500


def test_the_question_about_lasagna_may_be_cut():
    script = ROOT / "examples" / "lasagna.py"
    both = f"{sys.executable} -u {script} | head -1"
    outcome = subprocess.run(["sh", "-c", both], capture_output=True, check=False)
    assert outcome.stdout.startswith(b"how do i make")
    assert outcome.stderr == b""


def test_numbers_that_torch_does_not_know_are_named(command, place):
    shape = '{"dtype":"F8_E8M0","shape":[1,1],"data_offsets":[0,1]}'
    header = f'{{"W_query":{shape}}}'.encode()
    (place / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    outcome = command("explain", "a b", "--weights", "w.safetensors")
    assert outcome.code == 2
    assert "w.safetensors has numbers of a type that torch cannot read ('F8_E8M0')" in outcome.err

"""`glasshead report`: one file, in a language, and one sentence where that cannot be."""

import re

import pytest

from glasshead.studio.background_jobs import Refusal
from glasshead.studio.report import HOLDING
from glasshead.studio.views import steps
from glasshead.tasks.write import Writer
from glasshead.watching import UnseenError
from pretrained_folders import llama2c_files
from translated import translated
from written import written

TEXT = "Ein Hund sieht eine Katze. Die Katze schläft."


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(steps, "_STEPS_BYTES", 100_000)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    translated(folder / "translator", "tokenizer=words")
    written(folder / "writer")
    return folder


@pytest.fixture
def place(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for run in runs.iterdir():
        (tmp_path / run.name).symlink_to(run)
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "bytes.txt").write_bytes(b"a\xff")
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_it_writes_one_page(command, place):
    outcome = command("report", "translator", "--text", "text.txt", "--html", "new/out.html")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "The page is at new/out.html\n"
    page = (place / "new/out.html").read_text()
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>translator · glasshead</title>" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert [file.name for file in (place / "new").iterdir()] == ["out.html"]


def test_it_speaks_the_language_that_is_asked_for_or_that_of_the_environment(
    command, place, monkeypatch
):
    monkeypatch.setenv("LANG", "es_ES.UTF-8")
    asked = ("report", "writer", "--text", "text.txt", "--html", "out.html")
    assert command(*asked).code == 0
    assert '<html lang="es">' in (place / "out.html").read_text()
    assert command(*asked, "--lang", "zh-TW").code == 0
    assert '<html lang="zh-Hant">' in (place / "out.html").read_text()


def test_a_file_of_llama2c_has_a_report(command, place):
    file = llama2c_files(place / "llama")
    outcome = command("report", file, "--text", "text.txt", "--html", "out.html")
    assert outcome.code == 0
    assert "<title>model.bin · glasshead</title>" in (place / "out.html").read_text()
    outcome = command("report", file, "--text", "text.txt", "--html", place / "llama" / "tok.bin")
    assert outcome.code == 2


def test_without_a_text_it_reads_what_the_run_has_held_out(command, place):
    outcome = command("report", "translator", "--html", "out.html")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == (
        "The page is at out.html\nThis text is from the held-out data of this training run.\n"
    )
    assert 'lang="en"' in (place / "out.html").read_text()


def test_where_what_was_held_out_is_gone_it_says_so(command, place):
    (place / "data.txt").write_text("a text of words. " * 97)
    written(place / "run", files=(str(place / "data.txt"),))
    (place / "data.txt").unlink()
    outcome = command("report", "run", "--html", "out.html")
    assert outcome.code == 0
    assert (
        f"This is an example text, because the held-out data of this training run cannot be read: "
        f"there is no file {place / 'data.txt'}. Check its name.\n"
    ) in outcome.err
    assert " tokens of the text.\n" in outcome.err


def test_what_is_cut_of_the_text_is_told_in_the_terminal(command, place):
    # The writer reads 13 tokens at once, and each letter is one.
    outcome = command("report", "writer", "--text", "text.txt", "--html", "out.html")
    assert outcome.code == 0
    context = Writer.load("writer").model.config.context_length
    tokens = len(Writer.load("writer").tokenizer.encode(TEXT))
    assert context < tokens
    assert outcome.err.splitlines() == ["The page is at out.html"] + [
        f"Its view {view} shows {context} of the {tokens} tokens of text.txt."
        for view in ("heads", "atlas")
    ]


def test_a_model_whose_attention_cannot_be_seen_has_no_report(command, place, monkeypatch):
    def unseen(*_arguments, **_options):
        raise UnseenError("watch observed no attention of Writer. Use another.")

    monkeypatch.setattr("glasshead.studio.views.reading.gh.watch", unseen)
    outcome = command("report", "writer", "--text", "text.txt", "--html", "out.html")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "glasshead: error: watch observed no attention of Writer. Use another.\n"
    assert not (place / "out.html").exists()


def test_one_view_that_is_refused_is_told_and_the_others_are_written(command, place, monkeypatch):
    def refuse(*_arguments):
        raise Refusal("no map today.")

    monkeypatch.setitem(HOLDING, "atlas", refuse)
    outcome = command("report", "writer", "--text", "text.txt", "--html", "out.html")
    assert outcome.code == 0
    assert "It has no view atlas: no map today.\n" in outcome.err
    assert (place / "out.html").is_file()


def test_standard_input_is_read(command, place, typed):
    typed(TEXT.encode())
    assert command("report", "writer", "--text", "-", "--html", "out.html").code == 0
    assert (place / "out.html").is_file()


CASES = [
    (["writer", "--text", "text.txt"], "Missing option '--html'; see glasshead report --help."),
    (["none", "--text", "text.txt"], "a model, or a .bin file of llama2.c, got 'none'."),
    (["", "--text", "text.txt"], "RUN_OR_HF_DIR must be the folder of a model, got an"),
    (["text.txt", "--text", "text.txt"], "got 'text.txt'. Check its name."),
    (["folder", "--text", "text.txt"], "folder"),
    (["writer", "--text", "none.txt"], "there is no file none.txt. Check its name."),
    (["writer", "--text", "folder"], "folder is a folder. Name a file in it."),
    (["writer", "--text", "empty.txt"], "needs a text of at least one word, got none in empty.txt"),
    (["writer", "--text", "bytes.txt"], "bytes.txt, line 1: expected UTF-8 text, got the"),
    (["writer", "--text", ""], "--text must be a file, got an empty name. Name one"),
    (["writer", "--text", "text.txt", "--lang", "de"], "--lang must be one of en, tr, es, zh-Hant"),
    (
        ["writer", "--text", "text.txt", "--html", "folder"],
        "--html must be a file to write, got the folder fol",
    ),
    (["writer", "--text", "text.txt", "--html", "-"], "--html must be a file to write, got -, sta"),
    (["writer", "--text", "text.txt", "--html", "text.txt"], "must be another file than text.txt"),
    (
        ["writer", "--text", "text.txt", "--html", "writer/README.md"],
        "--html must be another file than writer/README.md, which is read",
    ),
]


@pytest.mark.parametrize(("arguments", "sentence"), CASES)
def test_one_sentence_and_exit_code_2(command, place, arguments, sentence):
    before = sorted(place.iterdir())
    page = [] if "--html" in arguments or "Missing" in sentence else ["--html", "o.html"]
    outcome = command("report", *arguments, *page)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert sorted(place.iterdir()) == before


def test_a_page_that_cannot_be_finished_leaves_the_old_one(command, place, monkeypatch):
    (place / "out.html").write_text("old")

    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    outcome = command("report", "writer", "--text", "text.txt", "--html", "out.html")
    assert outcome.code == 2
    assert "cannot be written to out.html (No space left on device). Name another" in outcome.err
    assert (place / "out.html").read_text() == "old"

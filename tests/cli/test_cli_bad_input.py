"""Bad input: one clear sentence on standard error, exit code 2, no traceback, no output."""

import os
import re

import pytest
import torch
from safetensors.torch import save_file

import glasshead.cli.explain as tracing
from classified import classified
from cli.typers_words import no_such_option, possible_option
from translated import translated
from written import written

SENTENCE = "the shiny sun and the moon"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of files, each of which is wrong in its own way but for `good.csv`."""
    monkeypatch.chdir(tmp_path)
    files = {
        "good.csv": "Hello,0.34,0.22\nsun,0.29,0.54\n",
        "twice.csv": "the,1,2\nsun,3,4\nthe,5,6\n",
        "huge.csv": "Hello,1e200,1e200\nsun,1e200,1e200\n",
        "ragged.csv": "Hello,1,2\nsun,1\n",
        "empty.csv": "",
        "nan.csv": "Hello,1,2\nsun,nan,2\n",
        "words.csv": "Hello,1,2\nsun,1,two\n",
        "broken.json": '{"Hello": [1,\n}',
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "bytes.csv").write_bytes(b"Hello,1,2\nsun\xff,1,2\n")
    (tmp_path / "folder").mkdir()
    matrices = {f"W_{role}": torch.ones(3, 2) for role in ("query", "key", "value")}
    save_file(matrices, tmp_path / "w3.safetensors")
    return tmp_path


CASES = [
    # The sentence
    (["explain", ""], "TEXT must be a sentence, got '', which has no word. Write one"),
    (["explain", " \n "], "TEXT must be a sentence, got ' \\n ', which has no word"),
    (["explain", "a\udcff"], "TEXT must be UTF-8, got other bytes"),
    (["explain", SENTENCE, "--query", "sum"], "'sum' is not in the sentence. Did you mean 'sun'?"),
    (["explain", SENTENCE, "--query", "the"], "'the' stands 2 times in the sentence, at #1, #5"),
    (["explain", SENTENCE, "--query", "#7"], "--query must be from #1 to #6, got #7"),
    (
        ["explain", "--query", "2"],
        "'2' is not in the sentence. For a position, write --query '#2'.",
    ),
    (["explain", "--query", "moon"], "'moon' is not in the sentence. Choose one of 'Hello', 'sh"),
    (
        ["explain", SENTENCE, "--seed", "-1"],
        "--seed must be from 0 to 9223372036854775807, got -",
    ),
    (["explain", SENTENCE, "--seed", str(2**63)], "--seed must be from 0 to 9223372036854775807"),
    (["explain", SENTENCE, "--seed", "x"], "'--seed': it must be a whole number, got 'x'; see"),
    (["explain", SENTENCE, "--dim", "0"], "--dim must be from 1 to 4096, got 0."),
    (["explain", SENTENCE, "--dim", "5000"], "--dim must be from 1 to 4096, got 5000."),
    (["explain", "--dim", "4"], "--dim is the width of random vectors, but these are not random"),
    (["explain", "a", "--dim", "4", "--vectors", "good.csv"], "--dim is the width of random"),
    (["explain", "two", "texts"], "Got unexpected extra argument"),
    (["explain", "a " * 4097, "--dim", "4096"], "are too many. Give at most 4,096 tokens, or a"),
    # Files of vectors
    (["explain", "--vectors", "none.csv"], "there is no file none.csv. Check its name."),
    (["explain", "--vectors", "no/none.csv"], "no file no/none.csv. There is no folder no either."),
    (["explain", "--vectors", "folder"], "folder is a folder. Name a file in it."),
    (["explain", "--vectors", "good.csv/x"], "good.csv/x cannot be read: Not a directory."),
    (
        ["explain", "--vectors", "ragged.csv"],
        "ragged.csv, line 2: expected a vector of dimension 2 as on line 1",
    ),
    (["explain", "--vectors", "empty.csv"], "empty.csv has no vectors. Give it a token and its"),
    (["explain", "--vectors", "nan.csv"], "nan.csv, line 2: expected finite numbers, got nan"),
    (["explain", "--vectors", "words.csv"], "words.csv, line 2: expected a number for 'sun'"),
    (["explain", "--vectors", "bytes.csv"], "bytes.csv, line 2: expected UTF-8 text, got the"),
    (["explain", "--vectors", "broken.json"], "broken.json, line 2: malformed JSON"),
    (["explain", "--vectors", "huge.csv"], "the scores overflow to infinity. Use smaller"),
    (
        ["explain", "Hello moon", "--vectors", "good.csv"],
        "good.csv has no vector for 'moon'. Add a",
    ),
    (["explain", "hello x", "--vectors", "good.csv"], "for 'hello', 'x'. Did you mean 'Hello'? Or"),
    (
        ["explain", "the sun", "--vectors", "twice.csv"],
        "twice.csv: 'the' must have one vector, got 2 rows with different",
    ),
    # The attention
    (["explain", "--mask", "casual"], "mask must be none, causal, window:BEFORE or window:BEFORE:"),
    (["explain", "--mask", "casual"], "got 'casual'. Did you mean causal?"),
    (["explain", "--mask", "window"], "Write how many tokens before its own a word sees, as in"),
    (["explain", "--mask", "window:-1"], "got 'window:-1'. Write how many"),
    (["explain", "--mask", "causal+none"], "got 'causal+none'. Write none alone."),
    (["explain", "--mask", ""], "got ''. Try causal."),
    (
        ["explain", "--beta", "0"],
        "--beta must be a number above 0, auto for 1/√d, or inf for hard",
    ),
    (["explain", "--beta", "-1"], "got '-1'."),
    (["explain", "--beta", "nan"], "got 'nan'."),
    (["explain", "--beta", "hot"], "got 'hot'."),
    (["explain", "--beta", "1_0"], "got '1_0'."),
    (
        ["explain", "--beta", "inf", "--normalizer", "sigmoid"],
        "the normalizer sigmoid never",
    ),
    (
        ["explain", "--score", "dott"],
        "--score must be one of scaled-dot, dot, cosine, gaussian, addi",
    ),
    (["explain", "--score", "dott"], "got 'dott'. Did you mean 'dot'?"),
    (
        ["explain", "--normalizer", "x"],
        "softmax-one, hardmax, sparsemax, entmax15, sigmoid, got",
    ),
    (["explain", "--heads", "0"], "--heads must be at least 1, got 0."),
    (
        ["explain", "--heads", "2"],
        "--heads must be a divisor of the vectors' dimension 3 (1, 3), got 2.",
    ),
    (
        ["explain", "--heads", "3", "--head", "3"],
        "--head must be in 0..2, got 3.",
    ),
    (["explain", "--weights", "none.safetensors"], "there is no file none.safetensors"),
    (["explain", "--weights", "folder"], "folder is a folder. Name a file in it."),
    (["explain", "--weights", "good.csv"], "good.csv is not a safetensors file"),
    (
        ["explain", "--weights", "w3.safetensors", "--vectors", "good.csv"],
        "w3.safetensors: W_query must be [2, d_out] for vectors of 2 numbers, got [3, 2]",
    ),
    (["explain", "a b", "--dim", "4", "--weights", "w3.safetensors"], "W_query must be [4, d_out]"),
    # The output
    (["explain", "--lang", "de"], "--lang must be one of en, tr, es, zh-Hant, zh-Hans, got 'de'"),
    (["explain", "--lang", ""], "--lang must be one of en, tr, es, zh-Hant, zh-Hans, got ''"),
    (["explain", "--width", "19"], "--width must be 20 to 1000 columns, got 19. Omit it"),
    (["explain", "--width", "1001"], "--width must be 20 to 1000 columns, got 1001"),
    (
        ["explain", "--html", "folder"],
        "--html must be a file to write, got the folder folder. Name",
    ),
    (["explain", "--html", "good.csv/page.html"], "good.csv is a file. Name another place."),
    (["explain", "--html", os.devnull], f"--html must be a file to write, got {os.devnull}, which"),
    (["explain", "--html", "x" * 300], "the page cannot be written to xxx"),
    # The program
    (
        ["explain", "--nonsense"],
        possible_option("--seed", "glasshead explain"),
    ),
    (["explain", "--query"], "'--query' requires an argument; see glasshead explain --help."),
    (["explian"], "No such command 'explian'. Did you mean 'explain'? See glasshead --help."),
    (["--beta", "1"], no_such_option("--beta")),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, and a model of Hugging Face."""
    folder = tmp_path_factory.mktemp("runs")
    classified(folder / "classify")
    translated(folder / "translate")
    written(folder / "write")
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text('{"model_type": "llama"}')
    (folder / "text.txt").write_text("One day")
    return folder


LOOK = {
    "classify": "holds a classifier. Look into that with glasshead classify {} TEXT --attention",
    "translate": "holds a translator. Look into that with glasshead translate {} TEXT --attention",
    "write": "holds a language model. Look into that with glasshead write {} --prompt TEXT",
    "other": "holds a Hugging Face model. Look into that with glasshead observe {} --text FILE",
}
NEEDS = {"classify": "a classifier", "translate": "a translator", "write": "a language model"}


@pytest.mark.parametrize(
    ("used", "needed", "options", "found"),
    [
        *(
            (used, "write", options, found)
            for used, options in [
                ("write", []),
                ("near", ["day"]),
                ("roles", []),
                ("observe", ["--text", "text.txt"]),
                ("evaluate write", []),
            ]
            for found in ("classify", "translate")
        ),
        ("classify", "classify", ["day"], "translate"),
        ("classify", "classify", ["day"], "write"),
        ("evaluate classify", "classify", [], "translate"),
        ("translate", "translate", ["day"], "classify"),
        ("translate", "translate", ["day"], "other"),
        ("evaluate translate", "translate", [], "write"),
    ],
)
def test_a_model_of_another_task_is_named_with_what_it_is_used_by(
    command, runs, monkeypatch, used, needed, options, found
):
    monkeypatch.chdir(runs)
    outcome = command(*used.split(), found, *options)
    assert (outcome.code, outcome.out) == (2, "")
    look = f"{LOOK[found].format(found)} or glasshead studio {found}"
    assert outcome.err == (
        f"glasshead: error: glasshead {used} needs {NEEDS[needed]}, and {found} {look}, or name a "
        f"run of glasshead train {needed}.\n"
    )


@pytest.mark.parametrize("used", ["classify", "translate"])
def test_a_name_of_a_file_is_no_text(command, runs, monkeypatch, used):
    monkeypatch.chdir(runs)
    refused = command(used, used, "Ja", "text.txt")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "TEXT must be a text, got the file text.txt. Read its lines with <text" in refused.err
    assert command(used, used, "none.txt", "x" * 50).code == 0


@pytest.mark.parametrize("used", ["explain", "observe"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "write",
            "folder write. Open the model in it with glasshead observe write --text F",
        ),
        (
            ".",
            "folder .. Open the model in it with glasshead observe . --text FILE, or glasshead st",
        ),
        (
            "text.txt",
            "file text.txt. Write the sentence itself, or have a model read the file with ",
        ),
        ("write/none", "missing file write/none. Check its name."),
    ],
)
def test_a_name_of_a_folder_or_a_file_is_no_sentence(
    command, runs, monkeypatch, used, text, sentence
):
    monkeypatch.chdir(runs)
    outcome = command(used, text)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert f"TEXT must be a sentence, got the {sentence}" in outcome.err
    # A slash makes no name of what has no folder.
    assert command(used, "he/she").code == 0


@pytest.mark.parametrize(("arguments", "sentence"), CASES)
def test_one_sentence_and_exit_code_2(command, place, arguments, sentence):
    before = sorted(place.iterdir())
    page = [] if "--html" in arguments or arguments[0] != "explain" else ["--html", "page.html"]
    outcome = command(*arguments[:1], *page, *arguments[1:])
    assert outcome.code == 2
    assert outcome.out == ""
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err
    assert "Errno" not in outcome.err
    assert sorted(place.iterdir()) == before


@pytest.mark.skipif(
    getattr(os, "geteuid", int)() == 0,
    reason="root reads and writes everything, and so does Windows",
)
def test_what_may_not_be_read_or_written(command, place):
    (place / "good.csv").chmod(0)
    (place / "folder").chmod(0o500)
    reading = command("explain", "--vectors", "good.csv")
    writing = command("explain", "--html", "folder/page.html")
    assert (reading.code, writing.code) == (2, 2)
    assert "good.csv may not be read by this user. Change its permissions." in reading.err
    assert "cannot be written to folder/page.html (Permission denied)" in writing.err


def test_a_refused_permission_is_told(command, place, monkeypatch):
    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    outcome = command("explain", "--vectors", "good.csv")
    assert outcome.code == 2
    assert outcome.err == (
        "glasshead: error: good.csv may not be read by this user. Change its permissions.\n"
    )


def test_a_page_that_cannot_be_finished_leaves_the_old_one(command, place, monkeypatch):
    (place / "page.html").write_text("old")

    def fail(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    before = sorted(place.iterdir())
    outcome = command("explain", "--html", "page.html")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "cannot be written to page.html (No space left on device). Name another" in outcome.err
    assert sorted(place.iterdir()) == before
    assert (place / "page.html").read_text() == "old"


def test_too_many_tokens_are_refused_before_they_take_memory(command, monkeypatch):
    monkeypatch.setattr(tracing, "_MAX_BYTES", 2**16)
    text = " ".join(f"word{place}" for place in range(25))
    assert command("explain", f"{text[:-7]}").code == 0
    outcome = command("explain", text)
    assert outcome.code == 2
    assert "25 tokens are too many to explain in full" in outcome.err
    assert "with these options). Give at most 24." in outcome.err
    assert "Give at most 10." in command("explain", text, "--json").err


def test_the_tokens_that_are_too_many_depend_on_heads_and_score():
    recipe = tracing.RecipeOptions(score="gaussian", heads=2)
    with pytest.raises(ValueError, match=re.escape("9,000 tokens are too many")) as caught:
        tracing._check_size(9000, recipe, dim=64, json=False)
    assert "(about 171.1 GiB with these options). Give at most 973." in str(caught.value)
    assert tracing._check_size(973, recipe, dim=64, json=False) is None


def test_memory_that_runs_out_is_told(command, monkeypatch):
    def fail(*_arguments, **_options):
        raise MemoryError

    monkeypatch.setattr("glasshead.cli.explain.explain_sentence", fail)
    outcome = command("explain")
    assert outcome.code == 2
    assert "this takes more memory than there is" in outcome.err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 1)])
def test_who_stops_it_gets_no_traceback(command, monkeypatch, error, code):
    def stop(*_arguments, **_options):
        raise error

    monkeypatch.setattr("glasshead.cli.explain.explain_sentence", stop)
    outcome = command("explain")
    assert (outcome.code, outcome.err) == (code, "")


def test_a_mistake_of_ours_is_not_taken_for_the_users(monkeypatch, command):
    def fail(*_arguments, **_options):
        raise ZeroDivisionError

    monkeypatch.setattr("glasshead.cli.explain.explain_sentence", fail)
    with pytest.raises(ZeroDivisionError):
        command("explain")

"""`glasshead train classify`, and `glasshead classify` of texts and of lines."""

import json
import os
import re
import shlex
import sys

import pytest

import forked
from classified import SMALL, classified, table, texts
from cli.lines_of_a_process import noted, talking
from glasshead.cli.inputs.files import texts_of
from glasshead.tasks.classify import TextClassifier
from tasks.classify.grammars import reviews
from translated import translated

QUICK = [
    part
    for each in (*SMALL, "warmup=0", "steps=4", "validate_every=2", "save_every=1")
    for part in ("--set", each)
]
REVIEWS = [(text, ("good", "bad")[n % 2]) for n, text in enumerate(texts(53, seed=3))]
TEXTS = ["Not bad at all.", "", "dull, dull, dull", "  ", "☀ good, at All"]
UNKNOWN = ["at", "all", ".", ",", "☀", "All"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rows = [(text, ("good", "so so")[n % 2]) for n, text in enumerate(texts(101, seed=3))]
    return classified(folder / "run", files=(table(folder / "train.jsonl", rows),)).path


def test_a_run_is_trained_used_and_evaluated(command, tmp_path):
    train, apart = (
        table(tmp_path / "train.jsonl", REVIEWS),
        table(tmp_path / "apart.jsonl", REVIEWS[:7]),
    )
    folder = tmp_path / "run"
    begin = ("train", "classify", train, "--held-out", apart, "--run", folder)
    made = command(*begin, "--preset", "tiny", *QUICK)
    assert made.code == 0, made.err
    assert re.search(r"^step +\d\nloss +\d\.\d{4} nats", made.out)
    assert "\naccuracy " in made.out
    assert f"glasshead classify {folder} TEXT" in made.out
    assert "53 texts to train on, 7 held out, labeled bad or good" in made.err
    assert f"--held-out {apart} --run" in (folder / "README.md").read_text()
    best = json.loads((folder / "metrics.json").read_text())["best"]
    for files in ([], [apart]):
        figures = json.loads(command("evaluate", folder, *files, "--json").out)
        assert figures["loss"] == pytest.approx(best["loss"], rel=1e-5)
        assert figures["accuracy"] == pytest.approx(best["accuracy"], rel=1e-6)
        assert figures["texts"] == 7
    told = command("classify", folder, "Not bad at all.")
    assert (told.code, noted(told.err)) == (0, UNKNOWN[:3])
    assert re.fullmatch(r"(bad |good)  \d\.\d{3}  Not bad at all\.\n", told.out)


def test_a_run_states_and_keeps_the_tokenizer_that_it_chose(command, tmp_path):
    file = table(tmp_path / "zh.jsonl", reviews("zh", 53, held_out=False))
    run = tmp_path / "run"
    small = ("d_model=12", "num_heads=3", "num_layers=1", "warmup=0", "validate_every=2")
    begin = ("train", "classify", file, "--run", run, "--preset", "tiny", "--set", *small)
    done = command(*begin, "steps=2")
    assert done.code == 0, done.err
    assert "Tokenizer: words, as each letter is a word, as Chinese has no spaces." in done.err
    assert json.loads((run / "config.json").read_text())["data"]["tokenizer"] == "words"
    # The preset chooses, and so agrees with what was chosen.
    assert command(*begin, "steps=4", "--resume").code == 0
    other = command(*begin, "steps=6", "tokenizer=bpe", "--resume")
    assert "tokenizer must be 'words', got 'bpe'" in other.err
    told = command("classify", run, "a fine film")
    assert "3 of 3 words are unknown to this model: its training texts are in anoth" in told.err
    assert "words are unknown" not in command("classify", run, "这部电影很好看 film").err


def test_a_run_goes_on_with_what_it_began_with_alone(command, tmp_path):
    train, folder = table(tmp_path / "train.jsonl", REVIEWS), tmp_path / "run"
    begin = ("train", "classify", train, "--run", folder, *QUICK)
    assert command(*begin).code == 0
    more = command("train", "classify", "--run", folder, "--resume", "--set", "steps=6")
    assert more.code == 0, more.err
    assert json.loads((folder / "metrics.json").read_text())["last"]["step"] == 6
    for options, said in [
        (["--set", "pooling=max"], "pooling must be 'both', got 'max'"),
        (["--set", "label=mark"], "label must be 'label', got 'mark'"),
        (["--held-out", train], "held_out_files must be ()"),
        (["--preset", "course"], "vocabulary must be 300, got 50002"),
    ]:
        other = command("train", "classify", "--run", folder, "--resume", *options)
        assert (other.code, other.err.count("\n")) == (2, 1)
        assert said in other.err
    table(train, REVIEWS[1:])
    other = command("train", "classify", "--run", folder, "--resume", "--set", "steps=8")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "the texts must be those that the run in" in other.err
    # A run of another task is none to go on with.
    other = command("train", "translate", "--run", folder, "--resume")
    assert f"train translate --resume needs a translator, but {folder} holds a class" in other.err


def test_what_was_wrong_leaves_nothing_in_the_way(command, tmp_path):
    train, folder = tmp_path / "train.jsonl", tmp_path / "run"
    table(train, [(text, "good") for text, _ in REVIEWS])
    begin = ("train", "classify", train, "--run", folder, *QUICK)
    assert "" in command(*begin).err
    table(train, REVIEWS)
    assert "first + last, 64" in command(*begin, "--set", "context_length=9").err
    assert command(*begin).code == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("one.csv", b"text,label\na,good\nb,good\n", "a class"),
        ("few.csv", b"text,label\na,good\nb,bad\n", "few.csv has too few texts of the label"),
        ("named.csv", b"no,by\n1,2\n", "named.csv has no columns 'text', 'label', but"),
        ("one.jsonl", b'{"label": 1}\n', "one.jsonl has no column 'text', but 'label'. Name one"),
        ("hole.jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', "hole.jsonl, line 2: expect"),
        ("null.jsonl", b'{"text": "a", "label": null}\n', "null.jsonl, line 1: expected a text or"),
        ("bytes.csv", b'text,label\n"a\nb",1\n\xff,2\n', "bytes.csv, line 4: expected UTF-8 text"),
        ("bytes.jsonl", b'{"text": "\xe9", "label": 1}\n', "bytes.jsonl, line 1: expected UTF-8"),
        ("short.tsv", b"text\tlabel\na\t1\nb\n", "short.tsv, line 3: expected 2 cells"),
        ("empty.csv", b"", "empty.csv is empty"),
        ("lines.csv", b"\n\n \n", "lines.csv is empty"),
        ("header.csv", b"text,label\n", "header.csv has no row but its header"),
        ("nothing.csv", b"text,label\n,1\n ,2\n,1\n,2\n", "at least one text with a word in it"),
        (
            "texts.txt",
            b"good\n",
            "texts.txt must have a name that ends in one of .jsonl, .csv, .tsv",
        ),
        ("packed.csv.gz", b"text,label\n", "packed.csv.gz is not a whole .gz file"),
    ],
)
def test_bad_files_are_told_by_name_and_line(command, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    outcome = command("train", "classify", tmp_path / name, "--run", tmp_path / "run")
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--held-out", "FILE"], "--held-out needs files to train on"),
        (["FILE", "--held-out", "nowhere.csv"], "nowhere.csv. Check its name."),
        (["FILE", "--held-out", "OTHER"], "other.jsonl, line 2: expected a label of the training"),
        (
            ["FILE", "--set", "text=review"],
            "but 'text', 'label'. Choose columns, as in --set te",
        ),
        (["FILE", "--set", "text=text", "label=mark"], "as in --set label=label.\n"),
        (["FILE", "--set", "steps=4", "stepz=3"], "--set has no 'stepz'. Did you mean 'steps'?"),
        (["FILE", "label=mark"], "there is no file"),
        (
            ["FILE", "--set", "label_smoothing=1"],
            "label_smoothing must be a share from 0 to below 1",
        ),
        (["FILE", "--set", "held_out=2"], "held_out must be a share between 0 and 1"),
        (
            ["FILE", "--set", "tokenizer=xyz"],
            "tokenizer must be one of auto, words, bpe, wordpiece, got",
        ),
        (["FILE", "--set", "lowercase=maybe"], "lowercase must be true or false, got 'maybe'"),
        (["FILE", "--set", "vocabulary=4"], "must be a whole number of at least 5, got 4"),
        (["FILE", "--set", "context_length=9"], "context_length must be at least first + last"),
        (["FILE", "--preset", "corse"], "--preset has no 'corse'. Did you mean 'course'?"),
    ],
)
def test_bad_options_are_one_sentence(command, tmp_path, options, said):
    table(tmp_path / "train.jsonl", REVIEWS)
    table(tmp_path / "other.jsonl", [REVIEWS[0], ("a", "fair")])
    places = {"FILE": tmp_path / "train.jsonl", "OTHER": tmp_path / "other.jsonl"}
    options = [places.get(each, each) for each in options]
    outcome = command("train", "classify", "--run", tmp_path / "run", *options)
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("header", "settings"),
    [
        ("no\tmark\tset\treview", "text=review label=mark"),
        ("no\tlabel\tset\tits text", "'text=its text' label=label"),
        ("no\tmark\tset\ttext", "text=text label=mark"),
        ("", "text=4 label=2"),
    ],
)
def test_other_columns_are_found_and_told_with_the_settings_that_take_them(
    command, tmp_path, header, settings
):
    rows = [f"{n}\t{label}\ta\t{text}" for n, (text, label) in enumerate(REVIEWS)]
    (tmp_path / "a.tsv").write_text("\n".join([header, *rows]))
    begin = ("train", "classify", tmp_path / "a.tsv", *QUICK)
    found = command(*begin, "--run", tmp_path / "found")
    why = "" if header else ", counted as the table has no header"
    said = f"Columns: {settings}{why}. To choose others, use --set text=COLUMN label=COLUMN."
    assert (found.code, said in found.err) == (0, True)
    made = command(*begin, "--run", tmp_path / "set", "--set", *shlex.split(settings))
    assert (made.code, "Columns:" in made.err) == (0, False)
    assert ", labeled bad or good" in made.err
    configs = [(tmp_path / run / "config.json").read_text() for run in ("found", "set")]
    assert configs[0] == configs[1]
    # A run knows its columns, also where it goes on or is evaluated.
    again = command(*begin, "--run", tmp_path / "found", "--resume", "--set", "steps=6")
    assert (again.code, "Columns:" in again.err) == (0, False)
    assert command("evaluate", tmp_path / "found", tmp_path / "a.tsv").code == 0


def test_a_table_that_has_its_columns_twice_is_refused_with_the_choices(command, tmp_path):
    rows = [f"{text}\t{label}\t{label}" for text, label in REVIEWS]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tsentiment\trating", *rows]))
    begin = ("train", "classify", tmp_path / "a.tsv", "--run", tmp_path / "run", *QUICK)
    refused = command(*begin)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "no column 'label', but 'text', 'sentiment', 'rating'. Choose columns" in refused.err
    settings = refused.err.split("as in --set ")[1].removesuffix(".\n")
    assert command(*begin, "--set", *shlex.split(settings)).code == 0


def expected_of(run, some):
    answers = TextClassifier.load(run).classify(some)
    return [
        f"{answer.label:<5}  {answer.shares[answer.label]:.3f}  {text}" if text.strip() else ""
        for text, answer in zip(some, answers, strict=True)
    ]


def test_every_text_has_a_line_and_an_empty_one_an_empty_line(command, run):
    outcome = command("classify", run, *TEXTS)
    assert (outcome.code, noted(outcome.err)) == (0, UNKNOWN)
    assert outcome.err.startswith("unknown words: 'at', 'all', '.', ',', '☀', 'All'. The")
    assert outcome.out.split("\n") == [*expected_of(run, TEXTS), ""]
    assert command("classify", run, "").out == "\n"
    assert command("classify", run, "good bad").err == ""
    assert command("classify", run, "a well", "well").err.startswith("unknown word: 'well'. The")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_of_standard_input_are_texts(command, run, typed, end, last):
    typed((end.join(TEXTS) + end * last).encode())
    outcome = command("classify", run)
    assert (outcome.code, noted(outcome.err)) == (0, UNKNOWN)
    assert outcome.out == command("classify", run, *TEXTS).out


def test_who_types_in_a_terminal_is_told_what_to_type(command, run, typed, monkeypatch):
    typed(b"good\n")
    silent = command("classify", run)
    typed(b"good\n")
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    told = command("classify", run)
    assert (told.code, told.out) == (silent.code, silent.out)
    assert told.err == "Type a text and Enter; Ctrl-D at the beginning of a line ends.\n"
    assert silent.err == ""


def test_many_lines_stay_in_order(command, run, typed):
    many = texts(701)
    typed("".join(f"{text}\n" for text in many).encode())
    told = command("classify", run).out.splitlines()
    assert [line[len("so so  0.123  ") :] for line in told] == many


def test_no_line_is_no_answer(command, run, typed):
    typed(b"")
    outcome = command("classify", run)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


def test_json_has_every_share(command, run):
    lines = command("classify", run, *TEXTS, "--json").out.splitlines()
    told = [json.loads(line) for line in lines]
    answers = TextClassifier.load(run).classify(TEXTS)
    assert [each["text"] for each in told] == TEXTS
    for each, answer in zip(told, answers, strict=True):
        assert (each["label"], each["shares"]) == (answer.label, answer.shares)
        assert sum(each["shares"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [(b"fine\n\xff\n", 2, "ff"), (b"fine\n" * 130 + b"caf\xe9\nfine\n", 131, "e9")],
)
def test_bytes_that_are_no_text_are_told_by_line(command, run, typed, content, line, byte):
    typed(content)
    outcome = command("classify", run)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    said = f"standard input, line {line}: expected UTF-8 text, got the byte 0x{byte}"
    assert said in outcome.err


def test_a_mark_at_the_beginning_is_no_text(command, run, typed):
    typed(b"\xef\xbb\xbfgood\nbad\n")
    assert command("classify", run).out == command("classify", run, "good", "bad").out


def test_runs_that_are_none(command, run, tmp_path):
    other = translated(tmp_path / "other").path
    for place, said in [
        (
            other,
            f"glasshead classify needs a classifier, but {other} holds a translator. Pass a run",
        ),
        (tmp_path, f"{tmp_path} has no run: there is no config.json in it"),
        ("nowhere", "there is no folder nowhere. Check its name."),
        (run / "config.json", "a run must be a folder, got"),
    ]:
        outcome = command("classify", place, "good")
        assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
        assert said in outcome.err


@pytest.mark.slow
def test_a_line_is_answered_at_once_and_an_interruption_causes_no_word(run):
    with talking("classify", run, start=forked.NewProcess) as talk:
        assert talk.answer("Not bad at all.").endswith("Not bad at all.\n")
        assert talk.answer("") == "\n"
        talk.interrupt()
        code, out, err = talk.left()
    assert (code, out, noted(err)) == (130, "", UNKNOWN[:3])


@pytest.mark.slow
def test_a_line_is_answered_in_json_and_a_bad_one_ends_the_process_at_once(run):
    with talking("classify", run, "--json") as talk:
        for text in ("Not bad at all.", "dull"):
            answer = talk.answer(text)
            assert answer.endswith("\n")
            assert json.loads(answer)["text"] == text
        talk.write(b"\xff\n")
        code, out, err = talk.left()
    *notes, error = err.splitlines(keepends=True)
    assert (code, out, noted("".join(notes))) == (2, "", UNKNOWN[:3])
    assert "standard input, line 3: expected UTF-8 text" in error


def test_standard_input_that_is_closed_is_told(run, monkeypatch, command):
    monkeypatch.setattr(sys, "stdin", None)
    outcome = command("classify", run)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "standard input is closed" in outcome.err


def test_lines_are_taken_together_and_never_too_many(typed):
    typed(b"a\n" * 201)
    sizes = [len(some.texts) for some in texts_of(())]
    assert sum(sizes) == 201
    assert max(sizes) <= 64

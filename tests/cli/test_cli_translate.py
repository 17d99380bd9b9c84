"""`glasshead train translate`, and `glasshead translate` of texts and of lines."""

import json
import os
import re

import pytest

import forked
from classified import classified
from cli.lines_of_a_process import noted, talking
from glasshead.models.decoding import Beam, Greedy
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.translate import TextTranslator, align
from translated import SMALL

QUICK = [
    part
    for each in (*SMALL, "tokenizer=words", "warmup=0", "steps=4", "validate_every=2")
    for part in ("--set", each)
]
PAIRS = pairs(53, seed=3)
GERMAN = [pair.german for pair in pairs(3, seed=5)]
TEXTS = [GERMAN[0], "", GERMAN[1], "  ", GERMAN[2]]


def parallel(folder, some=PAIRS, name="train"):
    """Two text files side by side."""
    files = folder / f"{name}.de", folder / f"{name}.en"
    for file, side in zip(files, ("german", "english"), strict=True):
        file.write_text("".join(f"{getattr(pair, side)}\n" for pair in some))
    return files


def unknown(translator, texts):
    """The words of texts, each once, that are in none that it was trained on."""
    known = translator.tokenizer.inner.get_vocab()
    words = [word for text in texts for word in re.findall(r"\w+|[^\w\s]", text)]
    return [word for word in dict.fromkeys(words) if word not in known]


@pytest.fixture
def run(word_translator):
    return word_translator


@pytest.fixture(scope="module")
def translator(word_translator):
    return TextTranslator.load(word_translator)


def lines(translator, texts, strategy=None):
    strategy = strategy or Beam(5)
    return "".join(f"{each.text}\n" for each in translator.translate(texts, strategy))


def test_a_run_is_trained_used_and_evaluated(command, tmp_path):
    train, apart = parallel(tmp_path), parallel(tmp_path, PAIRS[:5], "valid")
    folder = tmp_path / "run"
    held_out = [part for file in apart for part in ("--held-out", file)]
    made = command("train", "translate", *train, *held_out, "--run", folder, *QUICK)
    assert made.code == 0, made.err
    assert re.search(r"^step +\d\nloss +\d\.\d{4} nats per token\nperplexity ", made.out)
    assert "\naccuracy " in made.out
    assert f"glasshead translate {folder} TEXT --attention" in made.out
    assert "53 pairs to train on, 5 held out" in made.err
    readme = (folder / "README.md").read_text()
    assert f"{train[0]} {train[1]} --held-out {apart[0]} --held-out {apart[1]} --run" in readme
    held, named = (command("evaluate", folder, *files, "--json") for files in ([], apart))
    assert held.out == named.out
    assert json.loads(held.out)["texts"] == 5
    told = command("translate", folder, GERMAN[0])
    assert (told.code, told.out.count("\n")) == (0, 1)
    assert noted(told.err) == unknown(TextTranslator.load(folder), GERMAN[:1])


def test_a_run_goes_on_with_what_it_began_with_alone(command, tmp_path):
    train, folder = parallel(tmp_path), tmp_path / "run"
    assert command("train", "translate", *train, "--run", folder, *QUICK).code == 0
    go_on = ("train", "translate", "--run", folder, "--resume")
    more = command(*go_on, "--set", "steps=6")
    assert more.code == 0, more.err
    assert json.loads((folder / "metrics.json").read_text())["last"]["step"] == 6
    for options, said in [
        (["--set", "label_smoothing=0"], "label_smoothing must be 0.1, got 0.0"),
        (["--set", "lowercase=true"], "lowercase must be False, got True"),
        ([*train[::-1]], "the texts must be those that the run in"),
        (["--held-out", train[0], "--held-out", train[1]], "held_out_files must be ()"),
    ]:
        other = command(*go_on, *options)
        assert (other.code, other.err.count("\n")) == (2, 1)
        assert said in other.err
    parallel(tmp_path, PAIRS[::-1])
    other = command(*go_on, "--set", "steps=8")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "the texts must be those that the run in" in other.err


def test_what_was_wrong_leaves_nothing_in_the_way(command, tmp_path):
    train, folder = parallel(tmp_path), tmp_path / "run"
    train[1].write_text("one line\n")
    begin = ("train", "translate", *train, "--run", folder, *QUICK)
    assert "train.en ends after line 1" in command(*begin).err
    parallel(tmp_path)
    assert "context_length must be at least" in command(*begin, "--set", "context_length=3").err
    assert command(*begin).code == 0


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.de": b"x\n", "a.en": b"y\nz\n"}, "a.de ends after line 1"),
        (
            {"a.de": b"x\n"},
            "text files must come in pairs, of texts and of their translations, got",
        ),
        ({"a.de": b"x\n", "a.en": b"y\n", "b.de": b"x\n"}, "b.de alone. Name the other too"),
        (
            {"a.csv": b"source,english,spanish\na,b,c\n"},
            "'english', 'spanish'. Choose columns, as in --set target=eng",
        ),
        (
            {"a.csv": b"no,de,en,es\n1,a bc,a cd,e fg\n"},
            "Choose columns, as in --set source=de target=en.\n",
        ),
        ({"a.jsonl": b'{"source": "a"}\n'}, "a.jsonl has no column 'target', but 'source'"),
        ({"a.tsv": b"source\ttarget\na\tb\nc\n"}, "a.tsv, line 3: expected 2 cells"),
        ({"a.de": b"x\n\xfc\n", "a.en": b"y\nz\n"}, "a.de, line 2: expected UTF-8 text, got"),
        ({"a.de": b"x\n", "a.en": b"y\0\n"}, "a.en, line 1: expected UTF-8 text, got the byt"),
        ({"a.de": b"", "a.en": b"y\n"}, "a.de is empty"),
        ({"a.de": b"\n \n", "a.en": b"\n\n"}, "a.de is empty"),
        ({"a.de": b"x\n\n", "a.en": b"\ny\n"}, "at least one pair of texts with words in both"),
        ({"a.de": b"x\n", "a.en": b"y\n"}, "pair of texts with words in both to train on, got"),
        ({"a.de.xz": b"x\n", "a.en": b"y\n"}, "a.de.xz is not a whole .xz file"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_bad_files_are_told_by_name_and_line(command, tmp_path, files, said):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    names = [tmp_path / name for name in files]
    outcome = command("train", "translate", *names, "--run", tmp_path / "run")
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--held-out", "DE", "--held-out", "EN"], "--held-out needs files to train"),
        (
            ["DE", "EN", "--held-out", "DE"],
            "text files must come in pairs, of texts and of their translation",
        ),
        (["DE", "EN", "--held-out", "nowhere.csv"], "nowhere.csv. Check its name."),
        (["DE", "EN", "--set", "label_smoothing=1"], "label_smoothing must be a share from 0"),
        (["DE", "EN", "--set", "held_out=2"], "held_out must be a share between 0 and 1"),
        (["DE", "EN", "--set", "tokenizer=xyz"], "tokenizer must be one of bpe, wordpiece, words"),
        (["DE", "EN", "--set", "lowercase=maybe"], "lowercase must be true or false, got"),
        (["DE", "EN", "--set", "vocabulary=99"], "must be a whole number of at least 260, got"),
        (["DE", "EN", "--set", "context_length=3"], "context_length must be at least "),
        (["DE", "EN", "--set", "batch_tokens=3"], "batch_tokens must be at least "),
    ],
)
def test_bad_options_are_one_sentence(command, tmp_path, options, said):
    german, english = parallel(tmp_path)
    options = [{"DE": german, "EN": english}.get(each, each) for each in options]
    outcome = command("train", "translate", "--run", tmp_path / "run", *options)
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err
    assert not (tmp_path / "run").exists()


def test_every_text_has_a_line_and_an_empty_one_an_empty_line(command, run, translator):
    outcome = command("translate", run, *TEXTS)
    assert (outcome.code, noted(outcome.err)) == (0, unknown(translator, TEXTS))
    assert unknown(translator, TEXTS)
    assert outcome.out == lines(translator, TEXTS)
    assert [not line for line in outcome.out.split("\n")[:-1]] == [False, True, False, True, False]
    assert command("translate", run, "").out == "\n"


def test_a_translation_is_one_line_whatever_the_model_writes(command, run, monkeypatch, tmp_path):
    monkeypatch.setattr(Tokenizer, "decode", lambda *_: "one\ntwo\r\nthree")
    assert command("translate", run, "Ja", "Nein").out.splitlines() == ["one two three"] * 2
    files = parallel(tmp_path, PAIRS[:3])
    command("evaluate", run, *files, "--save", tmp_path / "saved.txt")
    assert (tmp_path / "saved.txt").read_text() == "one two three\n" * 3


def test_lines_of_standard_input_are_texts(command, run, translator, typed):
    typed("\r\n".join(TEXTS).encode())
    outcome = command("translate", run, "--beam", 1)
    assert (outcome.code, noted(outcome.err)) == (0, unknown(translator, TEXTS))
    assert outcome.out == command("translate", run, "--beam", 1, *TEXTS).out


def test_the_search_is_as_wide_as_it_is_asked_to_be(command, run, translator):
    for options, strategy in [
        (["--beam", 1], Greedy()),
        (["--beam", 2, "--length-penalty", 0], Beam(2, length_penalty=0)),
        (["--length-penalty", 3], Beam(5, length_penalty=3)),
    ]:
        assert command("translate", run, *options, *TEXTS).out == lines(translator, TEXTS, strategy)


def test_attention_is_shown_below_each_translation(command, run, translator):
    outcome = command("translate", run, *TEXTS, "--attention", "--layer", 0, "--head", 2)
    assert outcome.code == 0
    parts = outcome.out.split("Cross-attention: each word of the translation (rows)")
    assert len(parts) == 4
    for text, before, part in zip(GERMAN, parts, parts[1:], strict=False):
        (translation,) = translator.translate([text])
        assert translation.text in before.splitlines()
        alignment = align(translator, translation, 0, 2)
        assert {*re.findall(r"\w+", " ".join(alignment.target))} <= {*re.findall(r"\w+", part)}
        shown = [f"{weight:.2f}" for weight in alignment.weights[0].tolist()]
        assert any(number in part for number in shown)


def test_attention_is_a_page_that_holds_the_words(command, run, translator, tmp_path):
    page = tmp_path / "new" / "page.html"
    outcome = command("translate", run, *TEXTS, "--attention", "--html", page)
    assert outcome.code == 0
    assert outcome.err.endswith(f"The page is at {page}\n")
    html = page.read_text()
    for translation in translator.translate(GERMAN):
        assert translation.source in html
        assert translation.text.replace("<unk>", "&lt;unk&gt;") in html
        alignment = align(translator, translation)
        for word in (*alignment.source, *alignment.target):
            assert f">{word}<" in html
    quiet = command("translate", run, *TEXTS, "--html", page)
    assert quiet.out == lines(translator, TEXTS)
    empty = command("translate", run, "", "--attention", "--html", page)
    assert (empty.code, empty.out) == (0, "\n")
    assert "None of the texts contains a word." in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--layer", 0], "--layer and --head need --attention. Add it, or omit them."),
        (["--head", 0], "--layer and --head need --attention. Add it, or omit them."),
        (["--attention", "--layer", 2], "layer must be from 0 to 1, got 2."),
        (["--attention", "--layer", -1], "layer must be from 0 to 1, got -1."),
        (["--attention", "--head", 3], "head must be from 0 to 2, got 3."),
        (["--attention", "--head", "first"], "it must be a whole number, got 'first'"),
        (["--beam", 0], "error: --beam must be a whole number of at least 1, got 0"),
        (["--beam", "wide"], "it must be a whole number, got 'wide'"),
        (["--length-penalty", "x"], "'--length-penalty': it must be a number, got 'x'; see"),
        (
            ["--length-penalty", -1],
            "error: --length-penalty must be a number from 0 to 10, got -1.0.",
        ),
        (["--length-penalty", "nan"], "must be a finite number, got nan"),
        (["--attention", "--html", os.devnull], "--html must be a file to write"),
        (["und " * 65], "text 2 must have at most the 64 tokens that the model reads, got 65. Cut"),
    ],
    ids=str,
)
def test_bad_uses_are_one_sentence(command, run, arguments, said):
    outcome = command("translate", run, "Guten Morgen", *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert said in outcome.err
    # What can be known before is told before anything is translated.
    assert outcome.out == ""


def test_a_line_that_is_too_long_is_told_by_its_number(command, run, typed):
    typed(b"\n" * 130 + b"und " * 65 + b"\n")
    outcome = command("translate", run)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert re.search(r"standard input, line 131\b.*got 65", outcome.err)


def test_bytes_that_are_no_text_are_told_by_line(command, run, typed):
    typed(b"Ja\n\nNein\n\xfc\n")
    outcome = command("translate", run)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "standard input, line 4: expected UTF-8 text, got the byte 0xfc" in outcome.err


def test_runs_that_are_none(command, run, tmp_path):
    other = classified(tmp_path / "other").path
    for place, said in [
        (other, f"glasshead translate needs a translator, but {other} holds a classifier. Pass"),
        (tmp_path, f"{tmp_path} has no run: there is no config.json in it"),
        ("nowhere", "there is no folder nowhere. Check its name."),
    ]:
        outcome = command("translate", place, "Ja")
        assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
        assert said in outcome.err


@pytest.mark.slow
def test_a_line_is_translated_before_the_next_one_is_written(run, translator):
    with talking("translate", run, "--beam", 1, start=forked.NewProcess) as talk:
        for text in (GERMAN[0], "", GERMAN[1]):
            assert talk.answer(text) == lines(translator, [text], Greedy())
        talk.end()
        code, out, err = talk.left()
    assert (code, out, noted(err)) == (0, "", unknown(translator, GERMAN[:2]))

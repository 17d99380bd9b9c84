"""`glasshead evaluate RUN`, whatever the run is for."""

import json
import shutil

import pytest
import sacrebleu

from classified import classified, texts
from classified import table as written_table
from cli.typers_words import no_such_option
from glasshead.models.decoding import Beam, Greedy
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.data.sentences import pairs
from glasshead.tasks.translate import TextTranslator
from translated import translated
from written import written

GERMAN = [pair.german for pair in pairs(5, seed=5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def classify_run(folder):
    rows = [(text, ("negative", "positive")[n % 2]) for n, text in enumerate(texts(101, seed=3))]
    files = (written_table(folder / "train.jsonl", rows),)
    return classified(folder / "classifier", "seed=3", files=files).path


@pytest.fixture(scope="module")
def translate_run(folder):
    return translated(folder / "translator", "tokenizer=words").path


@pytest.fixture(scope="module")
def write_run(folder):
    return written(folder / "writer").path


@pytest.fixture(scope="module")
def rows(classify_run):
    """Eleven texts: of four negative ones three are right, of seven positive ones five."""
    by_answer = {"negative": [], "positive": []}
    some = texts(101, seed=7)
    for text, answer in zip(some, TextClassifier.load(classify_run).classify(some), strict=True):
        by_answer[answer.label].append(text)
    negative, positive = by_answer.values()
    return [
        *((text, "negative") for text in [*negative[:3], positive[0]]),
        *((text, "positive") for text in [*negative[3:5], *positive[1:6]]),
    ]


@pytest.fixture
def table(tmp_path, rows):
    return written_table(tmp_path / "test.jsonl", rows)


@pytest.fixture
def parallel(tmp_path, translate_run):
    """Texts, and what of the model's own translations is as it should be, or nearly."""
    translations = TextTranslator.load(translate_run).translate(GERMAN, Greedy())
    own = [translation.text for translation in translations]
    expected = [own[0], own[1], f"{own[2]} indeed", own[3].upper(), own[4][5:]]
    for name, lines in (("de", GERMAN), ("en", expected)):
        (tmp_path / f"test.{name}").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "test.de", tmp_path / "test.en"


def test_accuracy_f1_and_confusion_by_hand(command, classify_run, table):
    told = json.loads(command("evaluate", classify_run, table, "--json").out)
    assert told["texts"] == 11
    assert told["labels"] == ["negative", "positive"]
    assert told["confusion"] == [[3, 1], [2, 5]]
    assert told["accuracy"] == pytest.approx(8 / 11)
    assert told["f1"] == pytest.approx((6 / (6 + 1 + 2) + 10 / (10 + 1 + 2)) / 2)


def test_figures_are_lines_and_confusion_a_table(command, classify_run, table):
    outcome = command("evaluate", classify_run, table)
    assert (outcome.code, outcome.err) == (0, "")
    figures = dict(line.split(maxsplit=1) for line in outcome.out.splitlines()[:4])
    assert (figures["accuracy"], figures["f1"], figures["texts"]) == ("0.7273", "0.7179", "11")
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["negative", "3", "1"] in lines
    assert ["positive", "2", "5"] in lines


def test_a_loss_of_texts_is_no_loss_of_tokens(command, classify_run, table):
    assert "nats per token" not in command("evaluate", classify_run, table).out


@pytest.mark.parametrize("options", [[], ["--beam", "2", "--length-penalty", "0.5"]], ids=str)
def test_bleu_and_chrf_are_sacrebleus(command, translate_run, parallel, options):
    told = json.loads(command("evaluate", translate_run, *parallel, *options, "--json").out)
    strategy = Beam(2, length_penalty=0.5) if options else Beam(5)
    translations = TextTranslator.load(translate_run).translate(GERMAN, strategy)
    own, expected = [each.text for each in translations], parallel[1].read_text().splitlines()
    assert told["bleu"] == pytest.approx(sacrebleu.corpus_bleu(own, [expected]).score)
    assert told["chrf"] == pytest.approx(sacrebleu.corpus_chrf(own, [expected]).score)
    assert told["texts"] == 5
    assert told["exact"] == sum(map(str.__eq__, own, expected)) / 5


def test_signatures_are_printed_and_translations_saved(command, translate_run, parallel, tmp_path):
    file = tmp_path / "new" / "translations.txt"
    outcome = command("evaluate", translate_run, *parallel, "--beam", "1", "--save", file)
    assert outcome.code == 0
    assert outcome.err == f"The translations are at {file}\n"
    own = [each.text for each in TextTranslator.load(translate_run).translate(GERMAN, Greedy())]
    assert file.read_text() == "".join(f"{text}\n" for text in own)
    bleu = sacrebleu.corpus_bleu(own, [parallel[1].read_text().splitlines()]).score
    version = sacrebleu.__version__
    for name, value in [
        ("bleu", f"{bleu:.2f}"),
        ("exact", "0.4000"),
        ("texts", "5"),
        ("bleu signature", f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"),
        ("chrf signature", f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"),
    ]:
        assert f"{name:<20}{value}" in outcome.out.splitlines()


def test_the_task_may_be_named_and_options_stand_anywhere(
    command, classify_run, translate_run, table, parallel
):
    expected = command("evaluate", classify_run, table, "--json").out
    for arguments in [
        ("classify", classify_run, table, "--json"),
        ("--json", classify_run, table),
        (classify_run, "--json", table),
        ("classify", "--json", classify_run, table),
    ]:
        assert command("evaluate", *arguments).out == expected
    german, english = parallel
    search = ("--beam", "2", "--length-penalty", "0.5")
    expected = command("evaluate", "translate", translate_run, german, english, *search).out
    assert expected.startswith("bleu")
    for arguments in [
        ("translate", *search, translate_run, german, english),
        (translate_run, *search, german, english),
        (*search, translate_run, german, english),
        ("--beam=2", "--length-penalty=0.5", translate_run, german, english),
    ]:
        outcome = command("evaluate", *arguments)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == expected


def test_without_files_what_was_held_out_is_evaluated(command, classify_run, write_run):
    told = command("evaluate", classify_run, "--json")
    assert (told.code, json.loads(told.out)["texts"]) == (0, 10)
    assert json.loads(command("evaluate", "write", write_run, "--json").out)["tokens"] > 1000


def test_evaluate_alone_tells_what_there_is(command):
    outcome = command("evaluate")
    assert (outcome.code, outcome.err) == (0, "")
    for task in ("classify", "translate", "write"):
        assert task in outcome.out


def test_runs_that_are_none_or_anothers(
    command, classify_run, translate_run, write_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(write_run, tmp_path / "cook")
    config = json.loads((write_run / "config.json").read_text())
    (tmp_path / "cook" / "config.json").write_text(json.dumps({**config, "task": "cook"}))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "empty").mkdir()
    for arguments, said in [
        (
            ["classify", translate_run],
            f"needs a classifier, but {translate_run} holds a translator",
        ),
        (["translate", write_run], f"needs a translator, but {write_run} holds a language model"),
        (["write", classify_run], f"needs a language model, but {classify_run} holds a classifier"),
        (["cook"], "must be one of classify, translate, write, got 'cook'"),
        (
            ["clasify", classify_run],
            "there is no task or folder 'clasify'. Did you mean 'classify'?",
        ),
        (["nowhere"], "there is no folder nowhere. Check its name."),
        (["empty"], "empty has no run: there is no config.json in it. Check its name."),
        (["broken"], "config.json is broken JSON in line 1"),
        (["--json", "nowhere"], "there is no folder nowhere. Check its name."),
        ([classify_run, "--beam", "2"], no_such_option("--beam")),
    ]:
        outcome = command("evaluate", *arguments)
        assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
        assert said in outcome.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.csv",
            b'text,label\n"two\nlines",positive\nx,good\n',
            "a.csv, line 4: expected a label",
        ),
        ("a.jsonl", b'{"text": "a", "label": 1}\n', "a.jsonl, line 1: expected a label of the"),
        (
            "a.csv",
            b"text,mark\na,positive\n",
            "a.csv has no column 'label', but 'text', 'mark'. Name its",
        ),
        ("a.csv", b"text,label\na,positive\n\xff,positive\n", "a.csv, line 3: expected UTF-8"),
        ("a.csv", b"\n\n", "a.csv is empty"),
        ("a.txt", b"good\n", "a.txt must have a name that ends in one of .jsonl, .csv, .tsv"),
    ],
)
def test_bad_files_of_a_classifier_are_one_sentence(
    command, classify_run, tmp_path, name, content, said
):
    (tmp_path / name).write_bytes(content)
    outcome = command("evaluate", classify_run, tmp_path / name)
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ({"a.de": b"x\ny\n", "a.en": b"y\n"}, [], "a.en ends after line 1"),
        ({"a.de": b"x\n"}, [], "text files must come in pairs"),
        ({"a.csv": b"de,en\nx,y\n"}, [], "a.csv has no columns 'source', 'target', but 'de'"),
        ({"a.de": b"x\n", "a.en": b"\xff\n"}, [], "a.en, line 1: expected UTF-8 text"),
        ({"a.de": b"x\n" + b"und " * 65, "a.en": b"y\nz\n"}, [], "a.de, line 2"),
        ({"a.de": b"x\n", "a.en": b"y\n"}, ["--beam", "0"], "must be a whole number of at least 1"),
        (
            {"a.de": b"x\n", "a.en": b"y\n"},
            ["--save", "/"],
            "--save must be a file to write, got the folder /",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_bad_files_of_a_translator_are_one_sentence(
    command, translate_run, tmp_path, files, options, said
):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    names = [tmp_path / name for name in files]
    outcome = command("evaluate", translate_run, *names, *options)
    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert said in outcome.err

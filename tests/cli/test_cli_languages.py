"""Refusals, the demo and the pages of the commands speak the language of --lang and of LANG."""

import re

import pytest

from glasshead.explanation.translations import LANGUAGES, Say
from glasshead.tasks.run_folder import RunFolder
from written import written

OTHERS = [lang for lang in LANGUAGES if lang != "en"]
# Wrong in one way each, with what stands in the sentence of every language.
MISTAKES = {
    ("--score", "cosin"): ("--score", "cosine", "'cosin'"),
    ("--mask", "round"): ("--mask", "causal", "'round'"),
    ("--beta", "-1"): ("--beta", "auto", "1/√d"),
    ("--heads", "2"): ("--heads", "3"),
    ("--head", "7"): ("--head", "7"),
    ("--query", "moon"): ("'moon'",),
    ("--dim", "3"): ("--dim",),
    ("--width", "7"): ("--width", "20", "1000"),
    ("--vectors", "nowhere.csv"): ("nowhere.csv",),
    ("--html", "page.json"): ("--html", "page.html"),
    ("...", "--dim", "0"): ("--dim", "4096"),
    (" ",): ("TEXT", "Hello shiny sun!"),
    ("--beta", "inf", "--normalizer", "sigmoid"): ("--beta inf", "sigmoid"),
    # How a command is written.
    ("--hads", "2"): ("--hads", "--heads", "glasshead explain --help"),
    ("--heads",): ("--heads", "glasshead explain --help"),
    ("--heads", "two"): ("--heads", "'two'", "glasshead explain --help"),
    ("Hello", "sun"): ("sun", "glasshead explain --help"),
}
# The same of other commands; text.jsonl is there, with a fault, and rows.csv with two.
OF_OTHERS = {
    ("observ",): ("'observ'", "'observe'", "glasshead --help"),
    ("observe", "nowhere", "--text", "text.jsonl"): ("nowhere",),
    ("observe", "--length", "7"): ("--length", "--text"),
    ("observe", "--head", "3"): ("--head", "3", "0"),
    ("observe", "--layer", "1"): ("--layer", "--text FILE"),
    ("observe", "run", "--text", "text.jsonl", "--mask", "causal"): ("--mask", "--text"),
    ("observe", "run", "--text", "text.jsonl"): ("text.jsonl", "1", "JSON"),
    ("roles",): ("'MODEL'", "glasshead roles --help"),
    ("roles", "nowhere"): ("nowhere",),
    ("roles", "run", "--period", "1"): ("--period", "2"),
    ("roles", "run", "--text", "far/away.txt"): ("far/away.txt",),
    ("diagnose", "nowhere.csv"): ("nowhere.csv",),
    ("diagnose", "rows.csv"): ("rows.csv", "2"),
    ("diagnose", "rows.csv", "--tensor", "a"): ("--tensor", "safetensors"),
    ("diagnose", "rows.csv", "--queries", "0"): ("--queries", "2^31"),
    ("translate", "nowhere", "ich"): ("nowhere",),
    ("translate", "run", "ich", "--head", "1"): ("--layer", "--head", "--attention"),
}
ENGLISH_HELP = r"\b(?:Default|Show|Print|Number of|Missing folders|Also|Options)\b"
ENGLISH_WORDS = r"\b(takes|there is|did you|expected|and got|leave|see|such|check)\b"


def refused(command, lang, arguments, parts):
    """Check that a command is refused in English and in the language, with the same parts."""
    english, told = command(*arguments), command(*arguments, "--lang", lang)
    assert (english.code, told.code) == (2, 2)
    assert english.err.startswith("glasshead: error: ")
    assert told.err.startswith(Say(lang)("glasshead: error: {sentence}", sentence=""))
    assert told.err != english.err
    assert told.err.count("\n") == 1
    for part in parts:
        assert part in english.err
        assert part in told.err
    assert not re.search(ENGLISH_WORDS, told.err), told.err


@pytest.mark.parametrize("lang", OTHERS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=" ".join)
def test_explain_refuses_in_the_language_that_is_asked_for(
    command, mistake, lang, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    refused(command, lang, ("explain", *mistake), MISTAKES[mistake])


@pytest.mark.parametrize("lang", OTHERS)
@pytest.mark.parametrize("mistake", OF_OTHERS, ids=" ".join)
def test_other_commands_refuse_in_the_language_that_is_asked_for(
    command, mistake, lang, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(run)
    (tmp_path / "text.jsonl").write_text("{'text'}\n")
    (tmp_path / "rows.csv").write_text("1,1\n1\n")
    refused(command, lang, mistake, OF_OTHERS[mistake])


@pytest.mark.parametrize(
    ("mask", "titles"),
    [
        ('[[0, "inf"], [0, 0]]', ("1 hata", "1 error", "1 個錯誤", "1 个错误")),
        ('[[0, "inf"], ["nan", 0]]', ("2 hata", "2 errores", "2 個錯誤", "2 个错误")),
        ("0 1 1 1\n1 1 1 0\n", ("1 uyarı", "1 advertencia", "1 個警告", "1 个警告")),
    ],
)
def test_faults_are_counted_as_the_language_counts(command, mask, titles, tmp_path):
    file = tmp_path / "mask.txt"
    file.write_text(mask)
    for lang, title in zip(OTHERS, titles, strict=True):
        told = command("diagnose", file, "--lang", lang)
        assert told.out.splitlines()[0].endswith(title)


def test_the_environment_says_the_language_too(command, monkeypatch):
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")
    assert "0 ile 0 arasında bir baş numarası olmalıdır" in command("explain", "--head", "1").err
    assert "baş" not in command("explain", "--head", "1", "--lang=es").err
    assert "--head debe ser un número" in command("explain", "--head", "1", "--lang=es").err


def test_a_language_that_is_not_there_is_refused_in_the_one_of_the_environment(
    command, monkeypatch
):
    monkeypatch.setenv("LANG", "es_MX.UTF-8")
    outcome = command("explain", "--lang", "xx")
    assert outcome.code == 2
    valid = "en, tr, es, zh-Hant, zh-Hans"
    assert f"--lang debe ser uno de estos valores: {valid}; se indicó 'xx'." in outcome.err


@pytest.mark.parametrize("lang", OTHERS)
def test_the_demo_refuses_in_its_language(command, lang, tmp_path):
    outcome = command("demo", "--folder", tmp_path, "--resume", "--lang", lang)
    assert outcome.code == 2
    assert "--resume" in outcome.err
    assert "no run to resume" not in outcome.err


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_readme_of_a_run_is_in_its_language(lang, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write_readme("A model", "glasshead demo", lang)
    text = folder.readme.read_text("utf-8")
    assert "\n    glasshead demo\n" in text
    assert text.count("\n| `") == 7
    assert ("| learning curve |" in text) == (lang == "en")
    assert Say(lang)("learning curve") in text


# Words that only English reports have.
ENGLISH = re.compile(
    r"\b(the|of|and|which|keys?|queries|query|weights?|layers?|heads?|mean|over|from|row)\b"
)
# Names of statistics, layers and PyTorch's functions, shapes and formulas are of no language.
NAMES = re.compile(
    r"\[[\w, ]+\]|mass-on|mean-distance|top-k|entropy|\w+\.\w[\w.*]*|\w+\([^)]*\)|/[\w./-]+"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("Once upon a time there was a fox. The fox ran.\n" * 3)
    return written(folder / "run").path


def reported(command, page, *arguments):
    """What a command prints, and what stands on its page, without names and formulas."""
    outcome = command(*arguments)
    assert outcome.code in (0, 1), outcome.err
    texts = [outcome.out]
    if page is not None:
        texts.append(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page.read_text("utf-8"), flags=16))
    return [NAMES.sub("", text) for text in texts]


@pytest.mark.parametrize("lang", OTHERS)
def test_the_reports_are_in_the_language_that_is_asked_for(command, run, lang, tmp_path):
    page, text = tmp_path / "page.html", run.parent / "text.txt"
    mask = tmp_path / "mask.csv"
    mask.write_text("1,0,0\n1,1,1\n0,0,0\n")
    for arguments, file in (
        (("observe", "göz üç", "--html", page), page),
        (("observe", run, "--text", text, "--html", page), page),
        (("roles", run, "--text", text), None),
        (("diagnose", mask, "--convention", "attend", "--html", page), page),
    ):
        for told in reported(command, file, *arguments, "--lang", lang):
            left = [found for found in ENGLISH.findall(told) if found not in {"the", "of"}]
            # The text itself is English, and so is the path of a file.
            assert len(left) <= 2, (arguments[0], left, told)
        if file is not None:
            assert f'<html lang="{lang}">' in page.read_text("utf-8")


@pytest.mark.parametrize("lang", OTHERS)
def test_an_alignment_is_told_in_the_language(command, word_translator, lang, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("translate", word_translator, "ich helfe dir", "--attention", "--html", page)
    english, told = command(*arguments), command(*arguments, "--lang", lang)
    assert (english.code, told.code) == (0, 0)
    assert "Cross-attention: each word of the translation" in english.out
    assert "each word" not in told.out
    assert "cross-attention" in told.out
    assert f'<html lang="{lang}">' in page.read_text("utf-8")


COMMANDS = ["demo", "explain", "observe", "roles", "diagnose", "studio", "report", "classify"]
COMMANDS += ["translate", "write", "near", "train write", "evaluate", "tune"]


def options_of(page):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))


@pytest.mark.parametrize("lang", OTHERS)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_is_in_the_language_of_the_environment(name, lang, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    english = command(*name.split(), "--help").out
    monkeypatch.setenv("LC_ALL", f"{lang.replace('-', '_')}.UTF-8")
    told = command(*name.split(), "--help").out
    assert options_of(told) >= options_of(english)
    assert not set(re.findall(ENGLISH_HELP, told))
    monkeypatch.delenv("LC_ALL")
    assert command(*name.split(), "--help").out == english


def test_the_language_of_the_help_is_the_one_asked_for(command, monkeypatch):
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    assert "Opciones" in command("explain", "--lang", "es", "--help").out
    assert "Seçenekler" in command("explain", "--help").out

"""Files that options name: standard input, pipes, folders, and names that are none.

Files that are not what they seem: each command refuses them in one sentence, at once.

A named pipe would be waited for, a device never ends, and a small packed file may hold more than
any memory. What is tried is the same for every command that reads a model or a text.
What a command must never do: cut a number, overwrite what it reads, or steer the terminal.
"""

import gzip
import json
import lzma
import os
import re
import runpy
import shutil
import socket
import stat
import struct
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.version import Version
from safetensors.torch import save_file

import systems
from classified import classified
from glasshead.cli.inputs import files as lines
from pretrained_folders import llama2c_files, llama_folder
from translated import translated
from written import written

PROGRAM = [sys.executable, "-m", "glasshead", "explain"]


ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("Hello,0.34,0.22\nsun,0.29,0.54\n")
    (tmp_path / "new").mkdir()
    if not systems.WINDOWS:
        os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--vectors", ""], "--vectors must be a file, got an empty name. Name one, or omit it."),
        (["--weights", ""], "--weights must be a file, got an empty name. Name one"),
        (["--html", ""], "--html must be a file, got an empty name. Name one"),
        (["--html", "new/"], "--html must be a file to write, got the folder new/. Name a file"),
        (["--html", "other/"], "got the folder other/. Name a file in it."),
        (["--html", "-"], "got -, standard output, which has the text. Name a file, as in"),
        (["--vectors", "pipe"], "pipe must be a file, got a pipe into which nobody writes"),
        (["--vectors", "./-"], "there is no file "),
        (
            ["--score", ""],
            "--score must be one of scaled-dot, dot, cosine, gaussian, additive, got",
        ),
        (["--normalizer", ""], "--normalizer must be one of softmax, softmax-one, hardmax"),
        (["--dim", "4", "Hello shiny sun!"], "these are not random. Omit it."),
    ],
)
def test_a_name_that_is_no_file_is_refused(command, place, arguments, sentence):
    before = sorted(place.iterdir())
    outcome = command("explain", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(r"glasshead: error: [^\n]+\n", outcome.err)
    assert sentence in outcome.err
    assert sorted(place.iterdir()) == before


def test_standard_input_is_read(command, place, typed):
    from_file = command("explain", "--vectors", "good.csv")
    typed((place / "good.csv").read_bytes())
    assert command("explain", "--vectors", "-") == from_file
    assert from_file.code == 0
    typed(b"a,1\nb,x\n")
    refused = command("explain", "--vectors", "-")
    assert refused.code == 2
    assert "error: standard input, line 2: expected a number for 'b'" in refused.err


@systems.shell
@pytest.mark.slow
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
        "glasshead: error: good.csv may not be read by this user. Change its permissions.\n"
    )


@systems.permissions
def test_a_protected_page_is_not_replaced(command, place):
    page = place / "page.html"
    page.write_text("old")
    page.chmod(0o444)
    outcome = command("explain", "--html", "page.html")
    assert outcome.code == 2
    assert "page.html, which is write-protected. Change its permissions, or name" in outcome.err
    assert page.read_text() == "old"


def test_a_wrong_language_is_refused_before_torch_is_there():
    code = (
        "import sys; from glasshead.cli import main; code = main(['explain', '--lang', 'xx']); "
        "sys.exit(code if 'torch' not in sys.modules else 3)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert outcome.returncode == 2
    assert b"--lang must be one of en, tr" in outcome.stderr


def test_too_many_rows_are_refused_early_unless_a_text_selects_among_them(command, place):
    rows = "".join(f"w{i},{i % 7}\n" for i in range(9_000))
    (place / "many.csv").write_text(rows)
    outcome = command("explain", "--vectors", "many.csv")
    assert outcome.code == 2
    assert "many.csv has more than 4,418 tokens, too many to explain in full" in outcome.err
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
    assert "Write it as in 0.34" in outcome.err
    assert len(outcome.err) < 500


@systems.shell
@pytest.mark.slow
def test_the_question_about_lasagna_may_be_cut():
    script = ROOT / "examples" / "lasagna.py"
    both = f"{sys.executable} -u {script} | head -1"
    outcome = subprocess.run(["sh", "-c", both], capture_output=True, check=False)
    assert outcome.stdout.startswith(b"how do i make")
    assert outcome.stderr == b""


@pytest.mark.skipif(Version(version("safetensors")) < Version("0.6"), reason="it does not know it")
def test_numbers_that_torch_does_not_know_are_named(command, place):
    shape = '{"dtype":"F8_E8M0","shape":[1,1],"data_offsets":[0,1]}'
    header = f'{{"W_query":{shape}}}'.encode()
    (place / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    outcome = command("explain", "a b", "--weights", "w.safetensors")
    assert outcome.code == 2
    assert "w.safetensors has numbers of a type that torch cannot read ('F8_E8M0')" in outcome.err


MODELS = {
    "write": lambda hostile_place: written(hostile_place / "write").path,
    "classify": lambda hostile_place: classified(hostile_place / "classify").path,
    "translate": lambda hostile_place: translated(hostile_place / "translate").path,
    "llama": lambda hostile_place: llama_folder(hostile_place / "llama"),
    "llama2c": lambda hostile_place: llama2c_files(hostile_place / "llama2c").parent,
}


# A command that opens a model: {} stands for its folder, and those after it for other files.
COMMANDS = {
    "write": ["write", "{}", "--prompt", "a"],
    "near": ["near", "{}", "a"],
    "observe": ["observe", "{}", "--text", "text.txt"],
    "roles": ["roles", "{}", "--text", "text.txt"],
    "report": ["report", "{}", "--text", "text.txt", "--html", "page.html"],
    "evaluate": ["evaluate", "{}", "text.txt"],
    "classify": ["classify", "{}", "so good"],
    "translate": ["translate", "{}", "eins"],
}


OURS = ("config.json", "model.safetensors", "tokenizer.json")


THEIRS = (*OURS, "tokenizer_config.json", "generation_config.json")


OPENED = [
    *[("write", name, file) for name in ("write", "near", "evaluate", "roles") for file in OURS],
    *[("write", name, "config.json") for name in ("observe", "report")],
    *[("classify", "classify", file) for file in OURS],
    *[("translate", "translate", file) for file in OURS],
    *[("llama", name, file) for name in ("write", "observe") for file in THEIRS],
    ("llama", "report", "model.safetensors"),
    ("llama2c", "write", "tok.bin"),
    ("llama2c", "write", "model.bin"),
]


def a_pipe(path):
    systems.make_pipe(path)


def a_device(path):
    # Not one that never ends: what reads it takes it for an empty file.
    systems.make_link(path, "/dev/null")


def a_file_of_the_kernel(path):
    # Not /proc/kmsg, of which the end would be waited for.
    systems.make_link(path, "/proc/self/environ")


def a_socket(path):
    if systems.WINDOWS:
        pytest.skip("Windows has no sockets that are files")
    # From the working folder, as the path of a socket may have a hundred letters only.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def a_folder(path):
    path.mkdir()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models that are made once, and copied for each test."""
    hostile_place, made = tmp_path_factory.mktemp("models"), {}

    def model(name):
        if name not in made:
            made[name] = MODELS[name](hostile_place)
        return made[name]

    return model


@pytest.fixture
def hostile_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a b c abc a bc\n" * 11)
    return tmp_path


def check_refused(outcome, *names):
    assert outcome.code == 2, outcome
    sentence = outcome.err.splitlines()[-1]
    assert sentence.startswith("glasshead: error: ")
    assert "Traceback" not in outcome.err
    for name in names:
        assert re.search(name, sentence), sentence


@pytest.mark.usefixtures("no_bars")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [a_pipe, a_device, a_file_of_the_kernel])
@pytest.mark.parametrize(("model", "name", "file"), OPENED)
def test_a_model_whose_file_is_no_file_is_refused(
    command, hostile_place, models, model, name, file, put
):
    folder = hostile_place / "model"
    shutil.copytree(models(model), folder)
    (folder / file).unlink(missing_ok=True)
    put(folder / file)
    named = folder / "model.bin" if file == "model.bin" else folder
    arguments = [str(part).format(named) for part in COMMANDS[name]]
    check_refused(command(*arguments), re.escape(file), "regular file|ordinary file|no .*weights")
    assert not (hostile_place / "page.html").exists()


@pytest.mark.usefixtures("no_bars")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [a_socket, a_folder])
@pytest.mark.parametrize("file", OURS)
def test_neither_a_socket_nor_a_folder_is_a_file_of_a_run(
    command, hostile_place, models, file, put
):
    folder = hostile_place / "model"
    shutil.copytree(models("write"), folder)
    (folder / file).unlink()
    put(folder / file)
    check_refused(command("write", folder, "--prompt", "a"), re.escape(file))


@pytest.mark.usefixtures("no_bars")
@pytest.mark.parametrize(("model", "name"), [("write", "write"), ("llama", "observe")])
def test_links_to_files_are_followed(command, hostile_place, models, model, name):
    folder = hostile_place / "links"
    folder.mkdir()
    for file in models(model).iterdir():
        (folder / file.name).symlink_to(file)
    outcome = command(*[str(part).format(folder) for part in COMMANDS[name]])
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_file_that_is_larger_than_its_kind_is_refused_before_it_is_read(
    command, hostile_place, models, file
):
    folder = hostile_place / "model"
    shutil.copytree(models("write"), folder)
    # A hole takes no room on the disk; read, it would.
    os.truncate(folder / file, 2**40 + 7)
    check_refused(command("write", folder, "--prompt", "a"), file, "1,099,511,627,783 bytes")


TEXTS = {
    "observe": ["observe", "./write", "--text", "{}"],
    "roles": ["roles", "./write", "--text", "{}"],
    "report": ["report", "./write", "--text", "{}", "--html", "page.html"],
    "evaluate": ["evaluate", "./write", "{}"],
    "evaluate-classify": ["evaluate", "./classify", "{}"],
    "evaluate-translate": ["evaluate", "./translate", "{}", "text.txt"],
    "train": ["train", "write", "{}", "--run", "new/run"],
    "train-classify": ["train", "classify", "{}", "--run", "new/run"],
    "train-translate": ["train", "translate", "{}", "text.txt", "--run", "new/run"],
    "explain": ["explain", "--vectors", "{}"],
    "diagnose": ["diagnose", "{}"],
}


TABLES = {"observe", "evaluate", "evaluate-classify", "train", "train-classify"}


@pytest.fixture
def reading(command, hostile_place, models):
    """Run a command of `TEXTS` on a file; what it refuses leaves no folder of a run behind."""

    def run(name, file):
        folder, _, model = TEXTS[name][1].rpartition("/")
        if folder and not (hostile_place / model).exists():
            (hostile_place / model).symlink_to(models(model))
        outcome = command(*[part.format(file) for part in TEXTS[name]])
        assert not (hostile_place / "new").exists()
        assert not (hostile_place / "page.html").exists()
        return outcome

    return run


@pytest.mark.timeout(60)
@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="only Linux has /proc")  # noqa: PTH110
@pytest.mark.parametrize("name", TEXTS)
def test_what_the_kernel_makes_is_no_text(reading, hostile_place, name):
    # As /proc/kmsg, of which the end would be waited for, it says that it is a file of no bytes.
    ending = "jsonl" if "classify" in name else "txt"
    (hostile_place / f"kernel.{ending}").symlink_to("/proc/self/environ")
    check_refused(reading(name, f"kernel.{ending}"), rf"kernel\.{ending} .* made by the kernel")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", TEXTS)
@systems.devices
def test_a_device_is_no_text(reading, hostile_place, name):
    (hostile_place / "device.txt").symlink_to("/dev/zero")
    check_refused(reading(name, "device.txt"), r"device\.txt")


@pytest.mark.parametrize("packing", [".gz", ".xz"])
@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("explain", "diagnose")])
def test_a_text_that_is_not_packed_as_it_is_called_is_refused(
    reading, hostile_place, name, packing
):
    ending = ".jsonl" if "classify" in name else ".txt"
    file = f"plain{ending}{packing}"
    (hostile_place / file).write_text('{"text": "a b", "label": "c"}\n' * 7)
    check_refused(reading(name, file), f"{re.escape(file)} is not a whole {packing} file")


PACK = {".gz": gzip.compress, ".xz": lzma.compress}


# Contents that are small when packed: one line, many lines, and rows.
BOMBS = {
    "line.txt": b"a" * 2_999_999,
    "lines.txt": b"a b\n" * 700_001,
    "empty.txt": b"\n" * 2_000_003,
    "rows.jsonl": b'{"text": "a", "label": "b"}\n' * 100_003,
    "row.jsonl": b'{"text": "' + b"a" * 2_999_999,
    "rows.csv": b"text,label\n" + b"a,b\n" * 600_011,
    "quoted.csv": b'text,label\n"' + b"a\n" * 1_500_007,
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("content", BOMBS)
@pytest.mark.parametrize("name", ["train", "evaluate", "observe", "train-classify"])
def test_what_unpacks_to_more_than_is_allowed_is_refused(
    reading, hostile_place, monkeypatch, name, content, packing
):
    if "classify" in name and content.endswith(".txt"):
        pytest.skip("a classifier reads tables alone")
    monkeypatch.setenv("GLASSHEAD_MAX_TEXT_BYTES", "1000003")
    file = hostile_place / f"{content}{packing}"
    file.write_bytes(PACK[packing](BOMBS[content]))
    assert file.stat().st_size < 20_011
    sentence = rf"{re.escape(content)}.*at most 1,000,003 bytes.*GLASSHEAD_MAX_TEXT_BYTES\.$"
    check_refused(reading(name, file.name), sentence)


JSON = {
    "null": "null",
    "a list": '["a"]',
    "a number": "7",
    "deep": '{"text": ' * 100_003,
    "deep list": "[" * 100_003,
    "a long number": '{"text": "a", "label": ' + "7" * 5_003 + "}",
    "half a character": '{"text": "\\ud83d", "label": "a"}',
    "two at once": '{"text": "a", "label": "b"} {"text": "c", "label": "d"}',
    "an object": '{"text": {"a": "b"}, "label": "c"}',
}


def test_a_row_that_is_none_is_named_by_file_and_line(hostile_place):
    # In a process of its own: an error of the interpreter would end this one.
    for number, line in enumerate(JSON.values()):
        rows = hostile_place / f"{number}.jsonl"
        rows.write_text('{"text": "a", "label": "b"}\n\n' + line + "\n")
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from glasshead.tasks.data.tables import read_rows\n"
        "from glasshead.tasks.data.texts import read_texts\n"
        f"for number in range({len(JSON)}):\n"
        "    for read in (read_texts, lambda file: read_rows(file, ['text', 'label'])):\n"
        "        try:\n            read(f'{number}.jsonl')\n"
        "        except ValueError as error:\n            print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    told = done.stdout.splitlines()
    assert len(told) == 2 * len(JSON)
    for number, sentence in enumerate(told):
        assert sentence.startswith(f"{number // 2}.jsonl, line 3: expected "), sentence


@pytest.mark.parametrize("name", sorted(TABLES))
def test_commands_name_the_row_that_is_none(reading, hostile_place, name):
    (hostile_place / "rows.jsonl").write_text("\nnull\n" * 3)
    check_refused(reading(name, "rows.jsonl"), r"rows\.jsonl, line 2: .* got null")


@pytest.mark.parametrize("name", ["classify", "translate"])
def test_a_line_of_standard_input_has_an_end(command, typed, models, monkeypatch, name):
    monkeypatch.setattr(lines, "_LONGEST", 1009)
    typed(b"eins\n" + b"a" * 1_000_003)
    check_refused(command(name, models(name)), "standard input, line 2: expected a line of at most")


def test_a_training_that_is_refused_leaves_no_folder(command, hostile_place):
    kept = hostile_place / "kept"
    kept.mkdir()
    refused = [
        (["missing.txt"], "missing.txt"),
        (["text.txt", "--set", "tokenizer=gpt2", "--set", "gpt2=nowhere"], "nowhere"),
        (["text.txt", "--set", "tokenizer=bpe", "--set", "vocabulary=3"], "vocabulary"),
        (["text.txt", "--set", "context_length=100003"], "must have at least 100004"),
        (
            ["text.txt", "--preset", "nano", "--devices", "997", "--accelerator", "gpu"],
            "hardware|gpu|GPU",
        ),
    ]
    for arguments, sentence in refused:
        for run in ("new/below/run", "kept"):
            check_refused(command("train", "write", *arguments, "--run", run), sentence)
            assert [*hostile_place.iterdir()].count(hostile_place / "new") == 0
            assert not [*kept.iterdir()]
    check_refused(command("train", "write", "--run", "kept", "--resume"), "no run to resume")
    assert not [*kept.iterdir()]


def test_what_stood_in_a_folder_stays_where_a_training_is_refused(command, hostile_place):
    run = hostile_place / "runs" / "first"
    run.mkdir(parents=True)
    (run / "README.md").write_text("mine")
    check_refused(command("train", "write", "missing.txt", "--run", run), "missing.txt")
    assert [file.name for file in run.iterdir()] == ["README.md"]
    assert (run / "README.md").read_text() == "mine"


@systems.devices
def test_a_mask_on_a_device_is_refused(command, hostile_place):
    np.save(hostile_place / "mask.npy", np.ones((5, 7), dtype=bool))
    (hostile_place / "zero.npy").symlink_to("/dev/zero")
    assert command("diagnose", "mask.npy").code == 0
    check_refused(command("diagnose", "zero.npy"), r"zero\.npy cannot be read: it is a device")


def test_settings_of_texts_are_told_where_they_are_no_number(command, hostile_place, monkeypatch):
    monkeypatch.setenv("GLASSHEAD_MAX_TEXT_BYTES", "2 GiB")
    sentence = "GLASSHEAD_MAX_TEXT_BYTES must be a whole number of bytes, as in 1073741824, got"
    check_refused(command("train", "write", "text.txt", "--run", "run"), sentence)


def test_tables_are_read_without_other_libraries(hostile_place):
    (hostile_place / "rows.jsonl").write_text(json.dumps({"text": "sun"}) + "\n")
    code = (
        "import sys; from glasshead.tasks.data.texts import read_texts; read_texts('rows.jsonl')\n"
        "print(sorted({'datasets', 'pandas', 'pyarrow', 'torch'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    assert outcome.err == (
        f"glasshead: error: the page cannot be written to {loop} (its links lead in a circle). "
        f"Name another place.\n"
    )
    assert loop.is_symlink()


def test_a_page_does_not_take_the_place_of_what_it_is_made_from(command, tmp_path):
    vectors = tmp_path / "mine.csv"
    vectors.write_text("a,1,2\nb,3,4\n")
    link = tmp_path / "link.html"
    link.symlink_to(vectors)
    for page in (vectors, link):
        outcome = command("explain", "--vectors", vectors, "--html", page)
        assert outcome.code == 2
        assert "must be another file than" in outcome.err
    assert vectors.read_text() == "a,1,2\nb,3,4\n"


@systems.permissions
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

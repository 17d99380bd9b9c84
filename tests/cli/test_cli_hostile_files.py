"""Files that are not what they seem: each command refuses them in one sentence, at once.

A named pipe would be waited for, a device never ends, and a small packed file may hold more than
any memory. What is tried is the same for every command that reads a model or a text.
"""

import gzip
import json
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

from classified import classified
from glasshead.cli.inputs import files as lines
from pretrained_folders import llama2c_files, llama_folder
from translated import translated
from written import written

MODELS = {
    "write": lambda place: written(place / "write").path,
    "classify": lambda place: classified(place / "classify").path,
    "translate": lambda place: translated(place / "translate").path,
    "llama": lambda place: llama_folder(place / "llama"),
    "llama2c": lambda place: llama2c_files(place / "llama2c").parent,
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
    os.mkfifo(path)


def a_device(path):
    # Not one that never ends: what reads it takes it for an empty file.
    path.symlink_to("/dev/null")


def a_file_of_the_kernel(path):
    # Not /proc/kmsg, of which the end would be waited for.
    path.symlink_to("/proc/self/environ")


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))


def a_folder(path):
    path.mkdir()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models that are made once, and copied for each test."""
    place, made = tmp_path_factory.mktemp("models"), {}

    def model(name):
        if name not in made:
            made[name] = MODELS[name](place)
        return made[name]

    return model


@pytest.fixture
def place(tmp_path, monkeypatch):
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
def test_a_model_whose_file_is_no_file_is_refused(command, place, models, model, name, file, put):
    folder = place / "model"
    shutil.copytree(models(model), folder)
    (folder / file).unlink(missing_ok=True)
    put(folder / file)
    named = folder / "model.bin" if file == "model.bin" else folder
    arguments = [str(part).format(named) for part in COMMANDS[name]]
    check_refused(command(*arguments), re.escape(file), "regular file|ordinary file|no .*weights")
    assert not (place / "page.html").exists()


@pytest.mark.usefixtures("no_bars")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("put", [a_socket, a_folder])
@pytest.mark.parametrize("file", OURS)
def test_neither_a_socket_nor_a_folder_is_a_file_of_a_run(command, place, models, file, put):
    folder = place / "model"
    shutil.copytree(models("write"), folder)
    (folder / file).unlink()
    put(folder / file)
    check_refused(command("write", folder, "--prompt", "a"), re.escape(file))


@pytest.mark.usefixtures("no_bars")
@pytest.mark.parametrize(("model", "name"), [("write", "write"), ("llama", "observe")])
def test_links_to_files_are_followed(command, place, models, model, name):
    folder = place / "links"
    folder.mkdir()
    for file in models(model).iterdir():
        (folder / file.name).symlink_to(file)
    outcome = command(*[str(part).format(folder) for part in COMMANDS[name]])
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_file_that_is_larger_than_its_kind_is_refused_before_it_is_read(
    command, place, models, file
):
    folder = place / "model"
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
def reading(command, place, models):
    """Run a command of `TEXTS` on a file; what it refuses leaves no folder of a run behind."""

    def run(name, file):
        folder, _, model = TEXTS[name][1].rpartition("/")
        if folder and not (place / model).exists():
            (place / model).symlink_to(models(model))
        outcome = command(*[part.format(file) for part in TEXTS[name]])
        assert not (place / "new").exists()
        assert not (place / "page.html").exists()
        return outcome

    return run


@pytest.mark.timeout(60)
@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="only Linux has /proc")  # noqa: PTH110
@pytest.mark.parametrize("name", TEXTS)
def test_what_the_kernel_makes_is_no_text(reading, place, name):
    # As /proc/kmsg, of which the end would be waited for, it says that it is a file of no bytes.
    ending = "jsonl" if "classify" in name else "txt"
    (place / f"kernel.{ending}").symlink_to("/proc/self/environ")
    check_refused(reading(name, f"kernel.{ending}"), rf"kernel\.{ending} .* made by the kernel")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", TEXTS)
def test_a_device_is_no_text(reading, place, name):
    (place / "device.txt").symlink_to("/dev/zero")
    check_refused(reading(name, "device.txt"), r"device\.txt")


@pytest.mark.parametrize("packing", [".gz", ".xz"])
@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("explain", "diagnose")])
def test_a_text_that_is_not_packed_as_it_is_called_is_refused(reading, place, name, packing):
    ending = ".jsonl" if "classify" in name else ".txt"
    file = f"plain{ending}{packing}"
    (place / file).write_text('{"text": "a b", "label": "c"}\n' * 7)
    check_refused(reading(name, file), f"{re.escape(file)} is no whole {packing} file")


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
    reading, place, monkeypatch, name, content, packing
):
    if "classify" in name and content.endswith(".txt"):
        pytest.skip("a classifier reads tables alone")
    monkeypatch.setenv("GLASSHEAD_MAX_TEXT_BYTES", "1000003")
    file = place / f"{content}{packing}"
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


@pytest.mark.parametrize("line", JSON)
def test_a_row_that_is_none_is_named_by_file_and_line(place, models, line):
    # In a process of its own: an error of the interpreter would end this one.
    (place / "rows.jsonl").write_text('{"text": "a", "label": "b"}\n\n' + JSON[line] + "\n")
    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from glasshead.tasks.data.tables import read_rows, read_texts\n"
        "for read in (read_texts, lambda file: read_rows(file, ['text', 'label'])):\n"
        "    try:\n        read('rows.jsonl')\n"
        "    except ValueError as error:\n        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    told = done.stdout.splitlines()
    assert len(told) == 2
    assert all(sentence.startswith("rows.jsonl, line 3: expected ") for sentence in told)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_commands_name_the_row_that_is_none(reading, place, name):
    (place / "rows.jsonl").write_text("\nnull\n" * 3)
    check_refused(reading(name, "rows.jsonl"), r"rows\.jsonl, line 2: .* and got null")


@pytest.mark.parametrize("name", ["classify", "translate"])
def test_a_line_of_standard_input_has_an_end(command, typed, models, monkeypatch, name):
    monkeypatch.setattr(lines, "_LONGEST", 1009)
    typed(b"eins\n" + b"a" * 1_000_003)
    check_refused(command(name, models(name)), "standard input, line 2: expected a line of at most")


def test_a_training_that_is_refused_leaves_no_folder(command, place):
    kept = place / "kept"
    kept.mkdir()
    refused = [
        (["missing.txt"], "missing.txt"),
        (["text.txt", "--set", "tokenizer=gpt2", "--set", "gpt2=nowhere"], "nowhere"),
        (["text.txt", "--set", "tokenizer=bpe", "--set", "vocabulary=3"], "vocabulary"),
        (["text.txt", "--set", "context_length=100003"], "takes at least 100004 tokens"),
        (
            ["text.txt", "--preset", "nano", "--devices", "997", "--accelerator", "gpu"],
            "hardware|gpu|GPU",
        ),
    ]
    for arguments, sentence in refused:
        for run in ("new/below/run", "kept"):
            check_refused(command("train", "write", *arguments, "--run", run), sentence)
            assert [*place.iterdir()].count(place / "new") == 0
            assert not [*kept.iterdir()]
    check_refused(command("train", "write", "--run", "kept", "--resume"), "no run to resume")
    assert not [*kept.iterdir()]


def test_what_stood_in_a_folder_stays_where_a_training_is_refused(command, place):
    run = place / "runs" / "first"
    run.mkdir(parents=True)
    (run / "README.md").write_text("mine")
    check_refused(command("train", "write", "missing.txt", "--run", run), "missing.txt")
    assert [file.name for file in run.iterdir()] == ["README.md"]
    assert (run / "README.md").read_text() == "mine"


def test_a_mask_on_a_device_is_refused(command, place):
    np.save(place / "mask.npy", np.ones((5, 7), dtype=bool))
    (place / "zero.npy").symlink_to("/dev/zero")
    assert command("diagnose", "mask.npy").code == 0
    check_refused(command("diagnose", "zero.npy"), r"zero\.npy cannot be read: it is a device")


def test_settings_of_texts_are_told_where_they_are_no_number(command, place, monkeypatch):
    monkeypatch.setenv("GLASSHEAD_MAX_TEXT_BYTES", "2 GiB")
    sentence = "GLASSHEAD_MAX_TEXT_BYTES takes a whole number of bytes, as in 1073741824, and got"
    check_refused(command("train", "write", "text.txt", "--run", "run"), sentence)


def test_tables_are_read_without_other_libraries(place):
    (place / "rows.jsonl").write_text(json.dumps({"text": "sun"}) + "\n")
    code = (
        "import sys; from glasshead.tasks.data.tables import read_texts; read_texts('rows.jsonl')\n"
        "print(sorted({'datasets', 'pandas', 'pyarrow', 'torch'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

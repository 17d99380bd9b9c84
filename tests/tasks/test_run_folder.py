"""The folder of a run: what it has, what it lacks, and who may write.

The files that the tasks were tried on, where they are to be had.
"""

import gzip
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

import systems
from glasshead.files import read_object
from glasshead.tasks.run_folder import RunFolder, leads
from glasshead.tasks.train_classifier import read_labelled
from glasshead.tasks.translate import TRANSLATE, TranslateSettings


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "runs" / "first")
    made.create()
    return made


def test_a_config_makes_it_a_run(folder):
    with pytest.raises(FileNotFoundError, match=r"first has no run: there is no config.json in it"):
        folder.read_config()
    folder.write_config({"d_model": 7, "name": "güneş"})
    assert folder.read_config() == {"d_model": 7, "name": "güneş"}


def test_a_run_is_not_made_twice(folder):
    folder.write_config({})
    with pytest.raises(FileExistsError, match=r"first already has a run\. Resume it with --resume"):
        folder.create()
    folder.create(resume=True)


def test_a_folder_without_a_config_is_no_run_yet(folder):
    folder.write_readme("A model", "glasshead train write --run first")
    folder.create()
    folder.create(resume=True)
    assert "    glasshead train write --run first\n" in folder.readme.read_text()


def test_a_folder_of_something_else_is_not_resumed(tmp_path):
    (tmp_path / "letters.txt").write_text("Dear")
    with pytest.raises(FileNotFoundError, match="has no run to resume: there is no config.json in"):
        RunFolder(tmp_path).create(resume=True)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere\. Check its name"):
        RunFolder(tmp_path / "nowhere").create(resume=True)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        NotADirectoryError, match=r"a run must be a folder, got the file .*file\. Name"
    ):
        RunFolder(tmp_path / "file").create()
    with pytest.raises(
        NotADirectoryError, match=r"a run must be a folder, got the file .*file\. Name th"
    ):
        RunFolder(tmp_path / "file").read_config()
    with pytest.raises(
        NotADirectoryError, match=r"below cannot be created .*\. Name another folder"
    ):
        RunFolder(tmp_path / "file" / "below").create()


def test_a_run_that_has_not_validated_says_so(folder):
    folder.write_config({})
    with pytest.raises(
        FileNotFoundError, match="has no metrics.json, because training has not run a validation"
    ):
        folder.read_metrics()
    with pytest.raises(
        FileNotFoundError,
        match="has no model.safetensors, because training has not run a validation",
    ):
        folder.check_weights()
    folder.write_json(folder.metrics, {"steps": 3})
    folder.weights.write_bytes(b"")
    assert folder.read_metrics() == {"steps": 3}
    assert folder.check_weights() == folder.weights


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n  "steps": 3,\n  oops\n}', r"config.json is broken JSON in line 3 \(Expecting prop"),
        (b"[1]", r"config.json must hold a JSON object, got list\. Train again"),
        (b"\xff\xfe", "config.json is not UTF-8 text. Fix it"),
        (b"[" * 10**5, r"broken JSON \((maximum recursion|Stack overflow) .*\). Fix it"),
        (b'{"steps": ' + b"7" * 5000 + b"}", r"config.json is broken JSON \(Exceeds .*\). Fix it"),
    ],
)
def test_broken_json_is_named(folder, content, message):
    folder.config.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        folder.read_config()


def test_json_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"cannot be read \(Is a directory\)"):
        read_object(tmp_path, "Train again")


def test_a_file_is_written_whole_or_not_at_all(folder, monkeypatch):
    folder.write_json(folder.metrics, {"steps": 3})

    def refused(self, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", refused)
        with pytest.raises(OSError, match=r"metrics.json cannot be written \(No space left on dev"):
            folder.write_json(folder.metrics, {"steps": 5})
    assert read_object(folder.metrics, "Train again") == {"steps": 3}
    assert [file.name for file in folder.path.iterdir() if file.name.startswith(".")] == []


def test_what_a_killed_process_was_writing_is_swept_away(folder):
    folder.write_config({})
    left = [folder.path / ".0a.tmp", folder.checkpoint.parent / ".0b.tmp"]
    for file in left:
        file.write_text("half")
    folder.create(resume=True)
    assert not any(file.exists() for file in left)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),
        ({"SLURM_PROCID": "3"}, False),
    ],
)
def test_the_first_of_several_processes_leads(tmp_path, monkeypatch, environment, expected):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert leads() is expected
    other = RunFolder(tmp_path / "other")
    other.create()
    assert other.path.exists() is expected


# Locks a folder, says so, and stays until it is killed; the child that it forks stays longer.
_HOLDING = """
import os, sys, time
from glasshead.tasks.run_folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    child = os.fork()
    if not child:
        # Only now it has let go of what it inherited.
        print("locked", flush=True)
        sys.stdin.read()
        os._exit(0)
    time.sleep(600)
"""


@systems.fork
def test_a_folder_is_locked_until_its_process_is_killed(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "first")
    holding = subprocess.Popen(
        [sys.executable, "-c", _HOLDING, folder.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holding.stdout.readline() == "locked\n"
    for resume in (False, True):
        with (
            pytest.raises(BlockingIOError, match=r"another process is training in .*first\. Wait"),
            folder.locked(resume=resume),
        ):
            raise AssertionError
    folder.write_config({"d_model": 7})
    assert folder.read_config() == {"d_model": 7}
    holding.kill()
    holding.wait()
    # Its child lives on, and holds nothing.
    with folder.locked(resume=True):
        pass
    holding.stdin.close()
    holding.stdout.close()


def test_a_lock_leaves_nothing_behind_but_what_was_written(tmp_path):
    folder = RunFolder(tmp_path / "first")
    with folder.locked(), RunFolder(tmp_path / "first").locked():
        folder.create()
        assert folder.path.is_dir()
    assert list(tmp_path.iterdir()) == []
    folder.create()
    folder.write_config({})
    before = sorted(folder.path.iterdir())
    with folder.locked(resume=True):
        pass
    assert sorted(folder.path.iterdir()) == before
    with RunFolder(tmp_path / "nowhere").locked(resume=True):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_of_several_processes_of_one_training_the_first_locks(folder, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with folder.locked():
        assert not (folder.path / ".lock").exists()


def test_reviews_are_half_of_each_label(data_folder):
    labelled = read_labelled([f"{data_folder}/imdb/test.jsonl.xz"])
    labels = [label for _, label in labelled]
    assert (labels.count("0"), labels.count("1")) == (12_500, 12_500)


def test_captions_are_read_from_packed_files_and_made_into_batches(data_folder, tmp_path):
    for name in ("train.de", "train.en"):
        with gzip.open(f"{data_folder}/multi30k/{name}.gz", "rt", encoding="utf-8") as file:
            (tmp_path / name).write_text("".join(islice(file, 1009)), encoding="utf-8")
    held_out = [f"{data_folder}/multi30k/val.{language}.gz" for language in ("de", "en")]
    files = [str(tmp_path / name) for name in ("train.de", "train.en")]
    settings = TranslateSettings.from_preset(
        "small", ["d_model=12", "num_heads=3", "vocabulary=700"], files, held_out
    )
    prepared = TRANSLATE.begin(settings, RunFolder(Path(tmp_path) / "run"), "")
    assert prepared.about == "1,009 pairs to train on, 1,014 held out"
    batches = prepared.source.batches(0)
    assert sorted(place for batch in batches for place in batch) == list(range(1009))
    batch = prepared.source.collate(batches[0])
    assert batch["source"].numel() <= 3000
    assert prepared.task.loss(batch) > 0

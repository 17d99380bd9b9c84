"""Files that are not regular, or larger than their kind: refused before they are read."""

import os

import pytest
import torch

import glasshead as gh
import systems
from glasshead.attention import io as files
from glasshead.files import check_regular, open_regular, read_regular, whole_file
from glasshead.models.pretrained.folder import StoredTensors
from glasshead.studio.subject import stored_tokens
from glasshead.studio.views.training import TrainingLog
from glasshead.tasks.classify import TextClassifier
from glasshead.tasks.data.texts import read_lines, read_texts
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.tokenizers.pretrained import gpt2, huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.training import checkpoints, read_attention_log
from glasshead.tasks.translate import TextTranslator
from glasshead.tasks.write import Writer
from glasshead.watching.corpus.result import CorpusResult
from pretrained_folders import llama2c_files
from written import written

REFUSED = "regular file|ordinary file"
# Each is told that its file is a pipe, which a reader would wait for.
LOADERS = {
    "gh.load_pretrained": (gh.load_pretrained, "config.json"),
    "gh.Observation.load": (lambda place: gh.Observation.load(place / "a"), "a"),
    "gh.Weights.load": (lambda place: gh.Weights.load(place / "a"), "a"),
    "gh.JoinedWeights.load": (lambda place: gh.JoinedWeights.load(place / "a"), "a"),
    "gh.Seen.load": (lambda place: gh.Seen.load(place / "a"), "a"),
    "CorpusResult.load": (lambda place: CorpusResult.load(place / "a"), "a"),
    "llama2c": (lambda place: gh.load_pretrained(place / "model.bin"), "model.bin"),
    "Writer": (Writer.load, "config.json"),
    "TextClassifier": (TextClassifier.load, "config.json"),
    "TextTranslator": (TextTranslator.load, "config.json"),
    "StoredTensors": (StoredTensors, "weights.safetensors"),
    "Tokenizer": (lambda place: Tokenizer.load(place / "tokenizer.json"), "tokenizer.json"),
    "huggingface_tokenizer": (huggingface_tokenizer, "tokenizer.json"),
    "llama2c_tokenizer": (lambda place: llama2c_tokenizer(place / "tok.bin"), "tok.bin"),
    "gpt2": (lambda place: gpt2(place / "encoder.json", place / "vocab.bpe"), "encoder.json"),
    "read_texts": (lambda place: read_texts(place / "a.txt"), "a.txt"),
    "read_lines": (lambda place: read_lines(place / "a.de"), "a.de"),
    "read_attention_log": (read_attention_log, "attention.csv"),
    "checkpoint": (lambda place: checkpoints.read(place / "last"), "last"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "put", [systems.make_pipe, lambda path: systems.make_link(path, "/dev/null")]
)
def test_a_loader_refuses_what_is_no_regular_file(tmp_path, name, put):
    load, file = LOADERS[name]
    put(tmp_path / file)
    with pytest.raises((OSError, ValueError), match=REFUSED) as raised:
        load(tmp_path)
    assert file in str(raised.value)


def test_a_regular_file_is_read_as_far_as_it_says(tmp_path):
    file = tmp_path / "words"
    file.write_bytes(b"Hello shiny sun!")
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_regular(link, 16) == b"Hello shiny sun!"
    assert read_regular(file, count=5) == b"Hello"
    assert check_regular(file).st_size == 16
    with open_regular(file) as opened:
        assert opened.read() == b"Hello shiny sun!"
    with pytest.raises(OSError, match="it has 16 bytes, more than the 13"):
        read_regular(file, 13)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="only Linux has /proc")  # noqa: PTH110
def test_what_the_kernel_makes_is_no_regular_file(tmp_path):
    (tmp_path / "link").symlink_to("/proc/self/environ")
    with pytest.raises(OSError, match="it is made by the kernel, not a regular file"):
        read_regular(tmp_path / "link")
    (tmp_path / "empty").touch()
    assert read_regular(tmp_path / "empty") == b""


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    systems.make_pipe(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with (
            pytest.raises(OSError, match="a file that is not regular is there"),
            whole_file(tmp_path / name) as beside,
        ):
            beside.write_text("words")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "pipe"]


@pytest.mark.timeout(60)
def test_a_run_is_not_added_to_where_a_pipe_stands(tmp_path):
    run = RunFolder(tmp_path)
    systems.make_pipe(run.log)
    with pytest.raises(OSError, match=r"log\.csv cannot be written \(it is a named pipe"):
        run.append(run.log, "10,2.5\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("file", ["log.csv", "metrics.json", "attention.csv"])
def test_the_studio_tells_what_is_no_file_of_a_training(tmp_path, file):
    (tmp_path / "config.json").write_text('{"training": {"steps": 40}}')
    systems.make_pipe(tmp_path / file)
    (problem,) = TrainingLog(tmp_path).summary()["problems"]
    assert f"{file} cannot be read (it is a named pipe, not a regular file)" in problem


@pytest.mark.timeout(60)
def test_tokens_beside_weights_are_read_of_a_file_alone(tmp_path):
    systems.make_pipe(tmp_path / "head.tokens.json")
    tokens, why = stored_tokens(tmp_path / "head.safetensors", 7)
    assert tokens == ()
    assert "it is a named pipe" in (why or "")


def test_weights_are_compared_with_the_config_before_they_are_read(tmp_path, monkeypatch):
    run = written(tmp_path / "run")
    files.write(run.weights, "weights", {}, {"surplus": torch.zeros(7, 11)})
    monkeypatch.setattr(torch.Tensor, "clone", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(ValueError, match="does not fit the model: it lacks .* and has besides"):
        Writer.load(run.path)


def test_links_to_the_files_of_a_model_are_followed(tmp_path):
    file = llama2c_files(tmp_path / "there")
    (tmp_path / "model.bin").symlink_to(file)
    assert gh.load_pretrained(tmp_path / "model.bin").config.num_layers == 2

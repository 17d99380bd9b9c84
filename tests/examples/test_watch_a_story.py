"""The example that watches a real model: what it says of a head is so."""

import struct

import pytest

from scripts import script


@pytest.fixture(scope="module")
def example():
    return script("examples/watch_a_story.py")


def test_a_head_of_the_real_model_looks_one_token_back(data_folder, example, tmp_path, capsys):
    file = tmp_path / "maps.png"
    assert example.main([str(data_folder / "stories260K" / "stories260K.bin"), str(file)]) == 0
    assert "Layer 1, head 3 looks 0.99 tokens back" in capsys.readouterr().out
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_told(data_folder, example, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    source = data_folder / "stories260K" / "stories260K.bin"
    assert example.main([str(source), str(tmp_path / "file" / "maps.png")]) == 2
    assert capsys.readouterr().err.endswith("maps.png cannot be written: File exists.\n")


@pytest.mark.parametrize("content", [b"", b"short", struct.pack("7i", 8, 8, 1, 2, 1, 9, 7)])
def test_a_file_that_is_no_model_is_refused(example, tmp_path, capsys, content):
    file = tmp_path / "model.bin"
    file.write_bytes(content)
    assert example.main([str(file)]) == 2
    assert "llama2.c" in capsys.readouterr().err

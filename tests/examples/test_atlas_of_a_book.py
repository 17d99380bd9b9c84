"""The example that keeps what a head saw of a book: it is what the head saw."""

import json

import pytest
import torch

import glasshead as gh
from pretrained_folders import TOKENS, llama2c_files, packed
from scripts import script


@pytest.fixture(scope="module")
def example():
    return script("examples/atlas_of_a_book.py")


@pytest.fixture
def model(tmp_path):
    file = llama2c_files(tmp_path / "model")
    (file.parent / "tok.bin").unlink()
    (file.parent / "tok512.bin").write_bytes(packed(TOKENS))
    return file


def test_what_is_kept_is_what_the_head_saw(example, model, tmp_path, capsys):
    book, kept = tmp_path / "book.txt", tmp_path / "new" / "book.safetensors"
    book.write_text("abc aab ca " * 31)
    asked = [str(model), str(book), str(kept), "--tokens", "53", "--layer", "0", "--head", "2"]
    assert example.main(asked) == 0
    assert f"glasshead studio {kept}" in capsys.readouterr().out
    weights = gh.Weights.load(kept)
    assert weights.shape == (53, 53)
    whole = gh.load_pretrained(model)
    tokenizer = example.llama2c_tokenizer(model.parent / "tok512.bin")
    tokens = tokenizer.encode_batch(["abc aab ca " * 31])
    words = json.loads((kept.parent / "book.tokens.json").read_text(encoding="utf-8"))
    assert words == [tokenizer.token(token) for token in tokens[0][:53]]
    with gh.watch(whole, keep="weights") as seen:
        whole(torch.tensor([tokens[0][:29]]))
    # The first tokens know of no longer text.
    head = seen["blocks.0.attention"].weights[0, 2]
    torch.testing.assert_close(weights[:29, :29], head)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--layer", "2"], "the model has 2 layers of 3 heads, and got layer 2, head 1: count"),
        (["--head", "-1"], "and got layer 1, head -1: count from 0"),
        (["--tokens", "-3"], "--tokens takes a whole number of at least 1, and got -3"),
    ],
)
def test_what_is_not_there_is_told(example, model, tmp_path, capsys, change, told):
    book = tmp_path / "book.txt"
    book.write_text("abc")
    assert example.main([str(model), str(book), "--head", "1", *change]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "book.txt is empty: name a file"), (b"\xff", "UTF-8")]
)
def test_a_book_without_text_is_told(example, model, tmp_path, capsys, content, told):
    book = tmp_path / "book.txt"
    book.write_bytes(content)
    assert example.main([str(model), str(book), "--head", "1"]) == 2
    assert told in capsys.readouterr().err

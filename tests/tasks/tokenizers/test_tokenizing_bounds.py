"""Foreign tokenizers cannot take all memory or time: their rules are bounded before a text is."""

import base64
import json
import subprocess
import sys
import time

import pytest
import torch

from glasshead.tasks.readers.huggingface import reader_of_huggingface
from glasshead.tasks.tokenizers import chunks
from glasshead.tasks.tokenizers.bounds import check_bounds
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer
from pretrained_folders import llama_folder
from scripts import ROOT


def replaced(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(parts, name="normalizers"):
    return {"type": "Sequence", name: parts}


def charsmap(longest):
    trie = b"\0" * 8
    content = len(trie).to_bytes(4, "little") + trie + b"a\0" + b"b" * longest + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


DOUBLED = [replaced("a", "aa")] * 40
BOMBS = {
    "doubled": {"normalizer": sequence(DOUBLED)},
    "nested": {"normalizer": sequence([sequence(DOUBLED[:23]), sequence(DOUBLED[23:])])},
    "in turn": {"normalizer": sequence([replaced("a", "bb"), replaced("b", "aa")] * 20)},
    "long": {"normalizer": replaced("a", "b" * 17)},
    "a pattern of two": {"normalizer": sequence([replaced("ab", "abab")] * 40)},
    "an empty pattern": {"normalizer": sequence([replaced("", "a")] * 40)},
    "a regular expression": {"normalizer": sequence([replaced("a|b", "ab", "Regex")] * 40)},
    "bytes": {"pre_tokenizer": sequence([{"type": "ByteLevel"}] * 40, "pretokenizers")},
    "bytes of both": {
        "normalizer": sequence([{"type": "ByteLevel"}] * 2),
        "pre_tokenizer": {"type": "ByteLevel"},
    },
    "decoder": {"decoder": sequence(DOUBLED, "decoders")},
    "a map": {"normalizer": charsmap(65)},
    "many rules": {"normalizer": sequence([replaced("a", "b")] * 1001)},
}
# Rules of published tokenizers.
HARMLESS = {
    "T5": sequence([charsmap(33), replaced(" {2,}", " ", "Regex")]),
    "ALBERT": sequence(
        [replaced("``", '"'), replaced("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}]
    ),
    "Llama": sequence([{"type": "Prepend", "prepend": "▁"}, replaced(" ", "▁")]),
    "a letter of each": sequence([replaced(chr(n), f" {chr(n)} ") for n in range(33, 97)]),
}


@pytest.mark.parametrize("told", BOMBS.values(), ids=BOMBS)
def test_rules_that_make_many_letters_of_one_are_refused(told):
    with pytest.raises(ValueError, match="^it has rules that make more than 16 characters of one"):
        check_bounds(told, "it")


@pytest.mark.parametrize("normalizer", HARMLESS.values(), ids=HARMLESS)
def test_rules_of_published_tokenizers_are_taken(normalizer):
    check_bounds({"normalizer": normalizer, "decoder": None, "model": {"dropout": None}}, "it")


def changed(folder, **parts):
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


# An added token is normalized while the file is read, before any text.
@pytest.mark.parametrize("added", [False, True])
def test_a_bomb_is_refused_before_it_is_built(tmp_path, added):
    folder = llama_folder(tmp_path / "llama")
    token = {"id": 263, "content": "a" * 99, "single_word": False, "lstrip": False}
    token |= {"rstrip": False, "normalized": True, "special": False}
    known = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    changed(folder, **BOMBS["doubled"], added_tokens=[*known, token] if added else known)
    for open_it in (
        huggingface_tokenizer,
        lambda folder: reader_of_huggingface(folder, torch.device("cpu")),
    ):
        with pytest.raises(ValueError, match=r"tokenizer.json has rules that make more than 16"):
            open_it(folder)


def test_a_text_that_takes_too_long_is_refused_at_its_beginning(monkeypatch):
    asked = []

    def quadratic(some):
        asked.extend(map(len, some))
        time.sleep(1e-8 * len(some[0]) ** 2)
        return [[0] for _ in some]

    monkeypatch.setattr(chunks, "_PATIENCE", 0.1)
    with pytest.raises(ValueError, match=r"the tokenizer takes \d+ s for 4,096 characters"):
        chunks.encode_in_chunks([["a" * 100_003]], quadratic)
    assert asked == [64, 256, 1024, 4096]


def test_beginnings_of_texts_that_were_cut_are_not_encoded_again():
    asked = []

    def encode(some):
        asked.extend(map(len, some))
        return [[0] * len(one) for one in some]

    found = chunks.encode_in_chunks([["a" * 97, "b" * 300], ["c" * 70_001]], encode)
    assert list(map(len, found)) == [397, 70_001]
    # The last could not be cut.
    assert asked == [64, 256, 1024, 4096, 16384, 97, 300, 70_001]


ABORTED = """
import os
from glasshead.tasks.tokenizers.chunks import told_panics
with told_panics("it"):
    os.abort()
"""


def test_an_abort_is_not_silent():
    outcome = subprocess.run(
        [sys.executable, "-c", ABORTED],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode < 0
    assert "Fatal Python error: Aborted" in outcome.stderr

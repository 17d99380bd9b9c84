"""Foreign tokenizers cannot take all memory or time: their rules are bounded before a text is."""

import base64
import json
import os
import subprocess
import sys

import pytest
import torch
from tokenizers import Tokenizer as Inner

from glasshead.tasks.readers.huggingface import reader_of_huggingface
from glasshead.tasks.tokenizers import Tokenizer, train_bpe, trial
from glasshead.tasks.tokenizers.bounds import EMPTY, LINEAR, check_bounds, check_sentencepiece
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


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
BERT |= {"strip_accents": None, "lowercase": True}
METASPACE = {"type": "Metaspace", "replacement": "b", "prepend_scheme": "always", "split": True}
DOUBLED = [replaced("a", "aa")] * 40
BOMBS = {
    "doubled": {"normalizer": sequence(DOUBLED)},
    "nested": {"normalizer": sequence([sequence(DOUBLED[:23]), sequence(DOUBLED[23:])])},
    "in turn": {"normalizer": sequence([replaced("a", "bb"), replaced("b", "aa")] * 20)},
    "long": {"normalizer": replaced("a", "b" * 17)},
    "a pattern of two": {"normalizer": sequence([replaced("ab", "abab")] * 40)},
    "an empty pattern": {"normalizer": sequence([replaced("", "a")] * 40)},
    "a regular expression": {"normalizer": sequence([replaced("a|b", "ab", "Regex")] * 40)},
    "bytes": {"pre_tokenizer": sequence([BYTES] * 40, "pretokenizers")},
    "bytes of both": {
        "normalizer": sequence([BYTES] * 2),
        "pre_tokenizer": BYTES,
    },
    "decoder": {"decoder": sequence(DOUBLED, "decoders")},
    "a map": {"normalizer": charsmap(65)},
    "a map twice": {"normalizer": sequence([charsmap(2), charsmap(2)])},
    "a letter of Unicode": {
        "normalizer": sequence([replaced(" ", "\ufdfa"), {"type": "NFKD"}] * 2)
    },
    "a capital": {
        "normalizer": sequence(
            [replaced("i", "\u0130"), replaced("\u0307", "\u0130"), {"type": "Lowercase"}] * 9
        )
    },
    "spaces around": {"normalizer": sequence([replaced(" ", "\u4e00"), BERT] * 5)},
    "marks of words": {"pre_tokenizer": sequence([METASPACE] * 3, "pretokenizers")},
    "a beginning": {"normalizer": {"type": "Prepend", "prepend": "a" * 17}},
    "what looks like a sequence": {"normalizer": replaced("a", "b" * 17) | {"normalizers": []}},
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
    with pytest.raises(ValueError, match="^it has rules that turn one character into more than 16"):
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
        with pytest.raises(
            ValueError, match="tokenizer.json has rules that turn one character into more than 16"
        ):
            open_it(folder)


@pytest.mark.parametrize(
    ("model", "longest"),
    [
        ({"type": "WordPiece", "max_input_chars_per_word": 201, "vocab": {}}, 201),
        ({"type": "Unigram", "vocab": [["a", -1.0], ["b" * 307, -2.0]]}, 307),
    ],
)
def test_long_words_and_tokens_are_refused(model, longest):
    with pytest.raises(
        ValueError, match=f"^tokens and words in it .* at most 200 characters, got {longest}"
    ):
        check_bounds({"model": model}, "it")


def test_a_decoder_has_no_regular_expression_of_its_own():
    check_bounds({"decoder": replaced(" {2,}", " ", "Regex")}, "it")
    with pytest.raises(ValueError, match="^it has a regular expression in its decoder"):
        check_bounds({"decoder": replaced("(s+)+$", " ", "Regex")}, "it")


def message(number, content):
    """A field of protocol buffers that holds less than 2¹⁴ bytes."""
    return bytes([number << 3 | 2, len(content) & 127 | 128, len(content) >> 7]) + content


@pytest.mark.parametrize("spec", [3, 5])
@pytest.mark.parametrize("longest", [64, 65])
def test_a_map_of_sentencepiece_is_bounded(tmp_path, spec, longest):
    trie = b"\0" * 8
    told = len(trie).to_bytes(4, "little") + trie + b"a\0" + b"b" * longest + b"\0"
    # A piece, a number, and the name of the rules before their map.
    written = message(1, b"piece") + b"\x20\x03"
    written += message(spec, message(1, b"identity") + message(2, told))
    file = tmp_path / "tokenizer.model"
    file.write_bytes(written)
    if longest == 64:
        check_sentencepiece(file, "it")
        # A file of tiktoken.
        file.write_bytes(b"IQ== 0\nIg== 1\n" * 99)
        check_sentencepiece(file, "it")
        return
    with pytest.raises(
        ValueError, match="^it must have a map that makes at most 64 bytes of a character, got 65"
    ):
        check_sentencepiece(file, "it")


# Its time grows by the square of a run of "x " that something follows.
LATE = {"type": "Split", "pattern": {"Regex": r"(?:x )+$|\w+"}, "behavior": "Isolated"}
LATE |= {"invert": False}


def strange(tmp_path, **parts):
    """A tokenizer of bytes with rules of its own."""
    file = tmp_path / "tokenizer.json"
    train_bpe(["the sun, the sea"], 269).save(file)
    changed(tmp_path, **parts)
    return Tokenizer.load(file)


def test_a_regular_expression_that_strikes_late_is_stopped(tmp_path, monkeypatch):
    tokenizer = strange(tmp_path, pre_tokenizer=LATE)
    short = tokenizer.encode("the sun")
    monkeypatch.setattr(trial, "_SECONDS", 0.5)
    monkeypatch.setattr(trial, "_RATE", 10**6)
    late = "the sun " * 211 + "x " * 200_003 + "y"
    for ask in (tokenizer.encode, lambda text: tokenizer.unknown_words([text])):
        with pytest.raises(
            ValueError, match=r"tokenizer.json has a tokenizer that takes more than"
        ):
            ask(late)
        assert tokenizer.encode("the sun") == short


def test_memory_that_a_text_takes_late_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "_MEMORY", 2**28)
    tokenizer = strange(tmp_path, normalizer=replaced("x(?=y)", "b" * 7, "Regex"))
    short = tokenizer.encode("the sun")
    with pytest.raises(ValueError, match=r"takes more than 0.25 GB of memory for 1,600,024"):
        tokenizer.encode("the sun " * 3 + "xy" * 800_000)
    assert tokenizer.encode("the sun") == short


def test_a_forked_process_tries_texts_in_a_child_of_its_own(tmp_path, monkeypatch):
    tokenizer = strange(tmp_path, pre_tokenizer=LATE)
    expected, first = tokenizer.encode("the sun"), tokenizer._trial._child
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert tokenizer.encode("the sun") == expected
    with tokenizer._trial._child as second:
        assert second.pid != first.pid
        assert first.poll() is None
        second.kill()
    assert tokenizer.encode("the sun") == expected


@pytest.mark.parametrize(
    "rules",
    [
        *({"pre_tokenizer": {**LATE, "pattern": {"Regex": one}}} for one in sorted(LINEAR)),
        {"normalizer": HARMLESS["Llama"], "pre_tokenizer": {"type": "BertPreTokenizer"}},
    ],
)
def test_rules_of_published_tokenizers_take_time_by_the_length_and_no_child(rules):
    found = check_bounds(rules, "it")
    assert trial.trial_of_rules(found, [], "it") is None
    inner = Inner.from_str(json.dumps(EMPTY | found))
    for text in ("x", " ", "X", "\n \t", "x ", "X1", "注", "'s ", "!"):
        inner.encode(text * 30_011 + "!x")


ABORTED = """
import os
from glasshead.tasks.tokenizers.chunks import panics_as_errors
with panics_as_errors("it"):
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

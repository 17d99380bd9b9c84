"""Tokenizers of Hugging Face's folders: the same tokens as transformers, and which are special.

The tokenizer of llama2.c: its merges by score, any text there and back, files that are none.
"""

import copy
import json
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from glasshead.tasks.readers.huggingface import reader_of_huggingface
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer, llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import StreamDecoder, letters
from hypothesis_profiles import examples
from pretrained_folders import TOKENS, llama_folder, packed, tokenizer_files

TEXTS = ["abc ab", "", " é☀\n bab", "<s>"]


PAD = {"pad_to_multiple_of": None, "pad_id": 2, "pad_type_id": 0, "pad_token": "</s>"}


CUT = {"direction": "Right", "strategy": "LongestFirst", "stride": 0}


NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def told(folder, name, **values):
    (folder / name).write_text(json.dumps(values))


@pytest.mark.parametrize("start", [True, False])
def test_a_text_has_the_tokens_that_transformers_gives_it(tmp_path, start):
    tokenizer_files(tmp_path, start=start, **NAMED)
    ours, theirs = huggingface_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.special.before == ((1,) if start else ())
    for text in TEXTS[:-1]:
        tokens = [*ours.special.before, *ours.encode(text)]
        assert tokens == theirs(text)["input_ids"]
        assert ours.decode(tokens) == theirs.decode(tokens, skip_special_tokens=True) == text
    # In a text it is three letters.
    assert 1 not in ours.encode("<s>")


@pytest.mark.parametrize(
    "kept",
    [
        {"padding": {"strategy": {"Fixed": 7}, "direction": direction} | PAD}
        for direction in ("Left", "Right")
    ]
    + [{"truncation": {"max_length": 1} | CUT}],
)
def test_what_fills_up_and_what_cuts_is_not_what_begins(tmp_path, kept):
    tokenizer_files(tmp_path, start=True, **NAMED)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | kept))
    tokenizer = huggingface_tokenizer(tmp_path)
    assert tokenizer.special.before == (1,)
    assert tokenizer.decode(tokenizer.encode("abc ab")) == "abc ab"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (2, (2,))),
        ({"config.json": 13}, (13, (13,))),
        ({"config.json": [13, 1]}, (13, (13, 1))),
        ({"config.json": 13, "generation_config.json": [5, 7]}, (5, (5, 7))),
        ({"config.json": [13], "generation_config.json": None}, (13, (13,))),
    ],
)
def test_the_end_is_what_generation_is_told(tmp_path, files, expected):
    tokenizer_files(tmp_path, **NAMED)
    for name, value in files.items():
        told(tmp_path, name, eos_token_id=value)
    special = huggingface_tokenizer(tmp_path).special
    assert (special.end, special.ends) == expected
    assert (special.start, special.unknown, special.pad) == (1, 0, expected[0])


def test_special_tokens_may_be_told_in_several_ways(tmp_path):
    tokenizer_files(tmp_path, eos_token={"__type": "AddedToken", "content": "</s>"})
    told(tmp_path, "special_tokens_map.json", pad_token="<unk>")
    told(tmp_path, "config.json", bos_token_id=9, pad_token_id=-1)
    special = huggingface_tokenizer(tmp_path).special
    assert (special.end, special.start, special.pad, special.unknown) == (2, 9, 0, 2)
    tokenizer_files(tmp_path, bos_token="<s>", eos_token="</s>", unk_token="<s>")
    (tmp_path / "special_tokens_map.json").unlink()
    special = huggingface_tokenizer(tmp_path).special
    # What begins a text is not what stands for the unknown; and -1 is no padding.
    assert (special.start, special.unknown, special.pad) == (1, 2, 2)


def test_gpt2s_two_files(tmp_path):
    tokens = [*sorted(letters()), "Ġa", "<|endoftext|>"]
    told(tmp_path, "vocab.json", **{token: i for i, token in enumerate(tokens)})
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ a\n", encoding="utf-8")
    told(tmp_path, "config.json", eos_token_id=257, bos_token_id=257)
    tokenizer = huggingface_tokenizer(tmp_path)
    assert tokenizer.special.before == ()
    assert tokenizer.special.ends == (257,)
    assert [tokenizer.token(token) for token in tokenizer.encode("b ab")] == ["b", " a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "kind", "said"),
    [
        ("tokenizer.json", None, FileNotFoundError, "neither a tokenizer.json.*AutoTokenizer"),
        ("tokenizer.json", "{", ValueError, "tokenizer.json, line 1: expected the JSON of a tok"),
        (
            "tokenizer.json",
            '{"a": 1}',
            ValueError,
            "tokenizer.json does not hold a tokenizer that can be",
        ),
        (
            "config.json",
            "{",
            ValueError,
            r"config.json is broken JSON in line 1 \(.*\)\. Fix it, or get it again",
        ),
        (
            "config.json",
            "[1]",
            ValueError,
            r"config.json must hold a JSON object, got list\. Get it again",
        ),
        (
            "config.json",
            '{"eos_token_id": 999}',
            ValueError,
            r"eos_token_id in .* must be numbers of the tokenizer's tokens, got 999\. Use the tok",
        ),
        ("config.json", '{"eos_token_id": "</s>"}', ValueError, r"got '</s>'\. Use"),
        ("config.json", '{"eos_token_id": [2, -1]}', ValueError, r"got \[2, -1\]\. Use"),
        ("config.json", '{"bos_token_id": true}', ValueError, "bos_token_id in .*got True"),
        ("tokenizer_config.json", "{}", ValueError, "names no token that begins or ends a text"),
    ],
)
def test_a_folder_that_is_half_there_is_told(tmp_path, name, content, kind, said):
    tokenizer_files(tmp_path, **({} if "bos" in (content or "") else NAMED))
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(kind, match=said) as raised:
        huggingface_tokenizer(tmp_path)
    assert "\n" not in str(raised.value)


ANY = st.text(st.sampled_from("aaabbcc é☀\nx")) | st.text()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    file = tmp_path_factory.mktemp("small") / "tok.bin"
    file.write_bytes(packed())
    return llama2c_tokenizer(file)


def merged(tokens, text):
    """As llama2.c does it: the best pair of all neighbours, the first of equal ones, until none."""
    scores = dict(tokens[259:])
    numbers = {piece: number for number, (piece, _) in enumerate(tokens) if number >= 259}
    parts = []
    for letter in f" {text}" if text else "":
        bytes_ = [3 + byte for byte in letter.encode()]
        parts += [(letter, numbers[letter])] if letter in numbers else [("", b) for b in bytes_]
    while True:
        pairs = [
            (scores[one + other], -place)
            for place, ((one, _), (other, _)) in enumerate(pairwise(parts))
            if one and other and one + other in scores
        ]
        if not pairs:
            return [number for _, number in parts]
        place = -max(pairs)[1]
        whole = parts[place][0] + parts[place + 1][0]
        parts[place : place + 2] = [(whole, numbers[whole])]


@given(ANY)
@example("abcabcab aab")
@example("<s> <0x0A> <unk>")
@examples(300)
def test_any_text_is_merged_by_score_and_comes_back(small, text):
    tokens = small.encode(text)
    assert tokens == merged(TOKENS, text)
    assert small.decode(tokens) == text
    assert small.decode([1, *tokens, 2]) == text


@given(ANY, st.integers(0, 30))
@examples(200)
def test_a_stream_says_what_all_tokens_say(small, text, begun):
    tokens = small.encode(text)
    before = len(small.encode(text[:begun]))
    # A text begins where it may, not within a character.
    if tokens[:before] != small.encode(text[:begun]):
        before = 0
    stream = StreamDecoder(small, [1, *tokens[:before]])
    told = "".join(stream.add(token) for token in tokens[before:]) + stream.rest()
    assert small.decode(tokens[:before]) + told == text


BYTES = st.integers(3, 258)


@given(st.lists(st.integers(0, len(TOKENS) - 1) | BYTES, max_size=17))
@example([3 + byte for byte in "a☀".encode()[:-1]])
@example([3 + ord("f"), 3 + 0x80, 265, 3 + 0xE2])
@examples(300)
def test_half_a_character_takes_nothing_back(small, tokens):
    stream, told = StreamDecoder(small), ""
    for token in tokens:
        told += stream.add(token)
        assert small.decode(tokens).startswith(told)
    assert told + stream.rest() == small.decode(tokens)
    # As any text of bytes is read, half characters with it.
    parts = [TOKENS[token][0].encode() for token in tokens if token not in {1, 2}]
    of_bytes = {f"<0x{byte:02X}>".encode(): bytes([byte]) for byte in range(256)}
    text = b"".join(of_bytes.get(part, part) for part in parts).decode(errors="replace")
    assert small.decode(tokens) == text.removeprefix(" ")


def test_its_special_tokens_are_those_of_llama(small):
    special = small.special
    assert (small.unknown_id, small.start_id, small.end_id, small.pad_id) == (0, 1, 2, 2)
    assert (special.before, special.ends) == ((1,), (2, 1))
    assert [small.token(number) for number in (0, 1, 2, 13)] == ["<unk>", "<s>", "</s>", "<0x0A>"]
    assert small.vocab_size == len(TOKENS)
    assert copy.deepcopy(small).special == special


def test_the_tokenizer_of_stories(data_folder):
    file = data_folder / "stories260K" / "tok512.bin"
    tokenizer = llama2c_tokenizer(file)
    text = (data_folder / "stories260K" / "stories260K.md").read_text()
    tokens = [(tokenizer.token(number), 1.0 * -number) for number in range(512)]
    assert tokenizer.vocab_size == 512
    assert tokenizer.encode(text) == merged(tokens, text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.token(x) for x in tokenizer.encode("Once upon")] == [" Once", " upon"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin with <unk>, <s>, </s> and the bytes"),
        (packed()[:-1], f"token {len(TOKENS) - 1} is broken"),
        (packed()[:-4], f"token {len(TOKENS) - 1} is broken"),
        (packed() + b"\0\0\0", f"token {len(TOKENS)} is broken"),
        (packed([*TOKENS, ("", 1.0)]), f"token {len(TOKENS)} is broken"),
        (packed([*TOKENS, ("x", math.nan)]), f"token {len(TOKENS)} is broken"),
        (packed([*TOKENS, ("x", 1.0)])[:-1] + b"\xff", f"token {len(TOKENS)} is broken"),
        (packed(TOKENS[3:]), "does not begin with <unk>, <s>, </s> and the bytes"),
        (packed([*TOKENS, ("ab", -1.0)]), "it has 'ab' twice"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path, content, said):
    file = tmp_path / "tok.bin"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=said) as raised:
        llama2c_tokenizer(file)
    assert str(raised.value).startswith(f"{file} is not a llama2.c tokenizer: ")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*tok.bin. Check its name"):
        llama2c_tokenizer(tmp_path / "tok.bin")


def test_a_tokenizer_with_dropout_is_refused_by_its_cause(tmp_path):
    folder = llama_folder(tmp_path / "llama")
    file = folder / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["dropout"] = 0.25
    file.write_text(json.dumps(told))
    for open_it in (
        huggingface_tokenizer,
        lambda folder: reader_of_huggingface(folder, torch.device("cpu")),
    ):
        with pytest.raises(
            ValueError, match=r"tokenizer.json must be null, got 0.25\. With dropout, a text"
        ):
            open_it(folder)
    told["model"]["dropout"] = 0.0
    file.write_text(json.dumps(told))
    assert huggingface_tokenizer(folder).encode("abc")

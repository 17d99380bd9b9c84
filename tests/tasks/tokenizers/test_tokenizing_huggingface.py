"""Tokenizers of Hugging Face's folders: the same tokens as transformers, and which are special."""

import json

import pytest
from transformers import AutoTokenizer

from glasshead.tasks.tokenizers.byte_level import letters
from glasshead.tasks.tokenizers.pretrained import huggingface_tokenizer
from pretrained_folders import tokenizer_files

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
        ("tokenizer.json", '{"a": 1}', ValueError, "tokenizer.json holds no tokenizer that can be"),
        (
            "config.json",
            "{",
            ValueError,
            r"config.json is broken JSON in line 1 \(.*\): mend it, or take it anew",
        ),
        (
            "config.json",
            "[1]",
            ValueError,
            "config.json is to hold a JSON object, and holds list: take it anew",
        ),
        (
            "config.json",
            '{"eos_token_id": 999}',
            ValueError,
            "eos_token_id in .* takes numbers of the tokenizer's tokens, and got 999: take the tok",
        ),
        ("config.json", '{"eos_token_id": "</s>"}', ValueError, "and got '</s>': take"),
        ("config.json", '{"eos_token_id": [2, -1]}', ValueError, r"and got \[2, -1\]: take"),
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

"""The tokenizer of llama2.c: its merges by score, any text there and back, files that are none."""

import copy
import math
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glasshead.tasks.tokenizers.pretrained import llama2c_tokenizer
from glasshead.tasks.tokenizers.tokenizer import StreamDecoder
from pretrained_folders import TOKENS, packed

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
@settings(max_examples=300)
def test_any_text_is_merged_by_score_and_comes_back(small, text):
    tokens = small.encode(text)
    assert tokens == merged(TOKENS, text)
    assert small.decode(tokens) == text
    assert small.decode([1, *tokens, 2]) == text


@given(ANY, st.integers(0, 30))
@settings(max_examples=200)
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
@settings(max_examples=300)
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
    assert str(raised.value).startswith(f"{file} is no tokenizer of llama2.c, as ")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*tok.bin: check its name"):
        llama2c_tokenizer(tmp_path / "tok.bin")

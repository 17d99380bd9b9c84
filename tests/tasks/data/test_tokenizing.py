"""Tokenizers: texts come back as they were, and the same texts make the same tokenizer."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import systems
from glasshead.tasks.tokenizers.chunks import chunks_of_text
from glasshead.tasks.tokenizers.pretrained import gpt2
from glasshead.tasks.tokenizers.tokenizer import StreamDecoder, Tokenizer, letters, whole_words
from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe, train_wordpiece, words
from hypothesis_profiles import examples

TEXTS = [
    "The sun shines on the sea, and the sea shines back.\nThe sand is warm.\n\nSo is the tea!",
    "A shadow stands under the stairs: äöü ☀ 注意 \U0001f600 <pad> <|endoftext|>\r\n",
]
MAKERS = {
    "characters": characters,
    "bpe": lambda texts: train_bpe(texts, 311),
    "wordpiece": lambda texts: train_wordpiece(texts, 131),
    "words": lambda texts: words(texts, 23),
}
KINDS = {name: make(TEXTS) for name, make in MAKERS.items()}
KNOWN = sorted(set("".join(TEXTS)))

every_kind = pytest.mark.parametrize("kind", KINDS)


@given(st.text())
@example("<start> and <end>, <|endoftext|>\0")
@example("e\u0301 \u2028\r\n \t ")
@examples(300)
def test_bytes_bring_any_text_back(text):
    assert KINDS["bpe"].decode(KINDS["bpe"].encode(text)) == text


@given(st.text(st.sampled_from(KNOWN)))
@example("<pad><end>")
@examples(300)
def test_characters_bring_known_ones_back(text):
    tokens = KINDS["characters"].encode(text)
    assert len(tokens) == len(text)
    assert KINDS["characters"].decode(tokens) == text


def test_an_unknown_character_is_seen():
    tokenizer = characters(["sun"])
    assert tokenizer.encode("sunny") == [5, 6, 4, 4, tokenizer.unknown_id]
    assert tokenizer.decode([5, 6, 1, 4]) == "su<unk>n"


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [
        ("words", ["İstanbul", ":", "ΣΟΦΟΣ"]),
        # The other two tell "Sun" from "sun".
        ("wordpiece", ["İstanbul", ":", "Sun", "ΣΟΦΟΣ"]),
        ("characters", ["İ", "l", ":", "S", "Σ", "Ο", "Φ"]),
        # Bytes spell any word.
        ("bpe", []),
    ],
)
def test_words_that_become_the_unknown_token_are_named_once_as_they_are_written(kind, unknown):
    tokenizer = MAKERS[kind](["the sun, sees a tub"])
    found = tokenizer.unknown_words(["the tub", "", "İstanbul: a Sun sees ΣΟΦΟΣ", "ΣΟΦΟΣ"])
    assert list(found.words) == unknown


@pytest.mark.parametrize(
    ("kind", "count", "total"), [("words", 4, 11), ("wordpiece", 5, 11), ("characters", 14, 41)]
)
def test_unknown_words_are_counted_among_all(kind, count, total):
    tokenizer = MAKERS[kind](["the sun, sees a tub"])
    found = tokenizer.unknown_words(["the tub", "", "İstanbul: a Sun sees ΣΟΦΟΣ", "ΣΟΦΟΣ, a"])
    assert (found.count, found.total) == (count, total)


@every_kind
def test_special_tokens_come_first_and_are_not_text(kind):
    tokenizer = KINDS[kind]
    special = [tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id]
    assert special == [0, 1, 2, 3]
    assert [tokenizer.token(number) for number in special] == ["<pad>", "<unk>", "<start>", "<end>"]
    tokens = tokenizer.encode("the sea <pad>")
    assert not {0, 2, 3} & set(tokens)
    assert tokenizer.decode([2, *tokens, 3, 0, 0]) == tokenizer.decode(tokens)
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


@every_kind
def test_a_file_and_a_copy_hold_the_same_tokenizer(kind, tmp_path):
    tokenizer = KINDS[kind]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    for other in (
        Tokenizer.load(tmp_path / "tokenizer.json"),
        pickle.loads(pickle.dumps(tokenizer)),
        copy.deepcopy(tokenizer),
    ):
        assert other.vocab_size == tokenizer.vocab_size
        assert other.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
        assert other.inner.to_str() == tokenizer.inner.to_str()


@every_kind
def test_batches_long_texts_and_single_ones_are_encoded_alike(kind):
    tokenizer = KINDS[kind]
    long = "\n".join(f"line {i} of the sea,\n\n or  so\n" * (i % 3) for i in range(2_000))
    assert len(chunks_of_text(long)) == 4
    short = [*TEXTS, "", "tea"]
    expected = [tokenizer.inner.encode(text).ids for text in short]
    whole = tokenizer.inner.encode(long).ids
    # More than are encoded at once; all(), as pytest would write a book on their difference.
    found = tokenizer.encode_batch([*short * 53, long, *short * 17])
    assert found.pop(53 * len(short)) == whole
    assert all(one == expected[place % len(short)] for place, one in enumerate(found))
    assert len(found) == 70 * len(short)
    assert all(map(int.__eq__, tokenizer.encode(long), whole))


@given(st.text(st.sampled_from("ab ,\n\r\t\u2028\u3000é☀")), st.integers(1, 3))
@examples(300)
def test_no_token_is_cut(text, length):
    cut = chunks_of_text(text, length)
    assert "".join(cut) == text
    for kind in ("bpe", "wordpiece", "words"):
        # What may become a token, whatever the vocabulary.
        whole = KINDS[kind].inner.pre_tokenizer.pre_tokenize_str
        assert [p for piece in cut for p, _ in whole(piece)] == [p for p, _ in whole(text)]


@every_kind
@given(data=st.data())
@examples(100)
def test_a_stream_says_what_all_tokens_say_and_never_half_a_character(kind, data):
    tokenizer = KINDS[kind]
    numbers = st.integers(0, tokenizer.vocab_size - 1)
    tokens = data.draw(st.lists(numbers, max_size=17))
    if data.draw(st.booleans()):
        tokens = tokenizer.encode(data.draw(st.text(st.sampled_from([*KNOWN, "𐍈", "é"]))))
    stream = StreamDecoder(tokenizer)
    shown = ""
    for token in tokens:
        shown += stream.add(token)
        assert tokenizer.decode(tokens).startswith(shown)
    assert shown + stream.rest() == tokenizer.decode(tokens)
    assert stream.rest() == ""


def test_long_texts_are_whole_where_tokens_go_over_line_breaks():
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    before = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = before
    special = ["<pad>", "<unk>", "<start>", "<end>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=40, special_tokens=special, show_progress=False
    )
    inner.train_from_iterator(["ab\ncd "] * 7, trainer)
    text = "ab\ncd " * 5003
    expected = inner.encode(text, add_special_tokens=False).ids
    assert len(expected) < len(text) // 3
    assert Tokenizer(inner).encode(text) == expected


def test_a_stream_waits_for_the_rest_of_a_character():
    stream = StreamDecoder(KINDS["bpe"])
    byte = {value: KINDS["bpe"].inner.token_to_id(letter) for letter, value in letters().items()}
    assert [stream.add(byte[value]) for value in "é𐍈x".encode()] == ["", "é", "", "", "", "𐍈", "x"]
    assert (stream.add(byte[0xE2]), stream.rest()) == ("", "�")


@given(st.lists(st.integers(0, 255)))
def test_letters_of_bytes_are_those_of_the_library(values):
    spelled = {value: letter for letter, value in letters().items()}
    assert sorted(spelled) == [*range(256)]
    assert set(letters()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    text = bytes(values).decode(errors="replace")
    written = tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text)
    assert "".join(part for part, _ in written) == "".join(spelled[b] for b in text.encode())


def test_tokens_are_shown_as_they_are_read():
    bpe = KINDS["bpe"]
    assert bpe.token(bpe.encode("on the")[-1]) == " the"
    assert [bpe.token(token) for token in bpe.encode("\u2028")] == [r"\xe2", r"\x80", r"\xa8"]
    assert "".join(bpe.token(token) for token in bpe.encode("a sea\n")) == "a sea\n"
    assert [KINDS["characters"].token(t) for t in KINDS["characters"].encode("a\n☀")] == [*"a\n☀"]
    assert "##" in "".join(
        KINDS["wordpiece"].token(t) for t in KINDS["wordpiece"].encode("teasand")
    )


def test_small_letters_where_they_are_asked_for():
    for make in (train_bpe, train_wordpiece, words):
        small = make(TEXTS, 300, lowercase=True)
        large = make(TEXTS, 300, lowercase=False)
        assert small.encode("THE SEA") == small.encode("the sea") != large.encode("THE SEA")


def test_bytes_are_merged_by_how_often_they_meet():
    # "ab" 5 times, then "ab" + "c" 3 times; nothing else more than twice.
    tokenizer = train_bpe(["abc", "abc", "abc", "ab", "ab", "xy"], 262)
    assert [tokenizer.token(token) for token in (260, 261)] == ["ab", "abc"]
    assert [tokenizer.token(token) for token in tokenizer.encode("abcab")] == ["abc", "ab"]


MAKE_ALL = """
import hashlib, sys
from glasshead.tasks.tokenizers import *
texts = ["".join(chr(97 + (i * i * k + k) % 26) for k in range(1, 8)) for i in range(500)]
texts = [" ".join(texts), "äöü straße ñandú, été"]
made = [train_bpe(texts, 400), train_wordpiece(texts, 400), words(texts, 60), characters(texts)]
print([hashlib.sha256(tokenizer.inner.to_str().encode()).hexdigest() for tokenizer in made])
"""


@pytest.mark.slow
def test_another_process_makes_the_same_tokenizers(capsys):
    exec(MAKE_ALL, {})
    done = subprocess.run([sys.executable, "-c", MAKE_ALL], capture_output=True, check=True)
    assert done.stdout.decode() == capsys.readouterr().out != ""


FORK = """
import os
from glasshead.tasks.tokenizers import characters
tokenizer = characters(["sun"])
expected = tokenizer.encode_batch(["sun"] * 500)
if os.fork() == 0:
    os._exit(0 if tokenizer.encode_batch(["sun"] * 500) == expected else 1)
print(os.wait()[1], os.environ["TOKENIZERS_PARALLELISM"])
"""


@systems.fork
@pytest.mark.slow
def test_a_forked_process_encodes_without_a_word():
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    # Since 3.12 Python itself warns of a fork among threads.
    environment["PYTHONWARNINGS"] = "ignore::DeprecationWarning"
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, check=True, env=environment
    )
    assert (done.stdout, done.stderr) == (b"0 false\n", b"")
    environment["TOKENIZERS_PARALLELISM"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", FORK.replace("os.fork()", "1").replace("os.wait()", "[0, 0]")],
        capture_output=True,
        check=True,
        env=environment,
    )
    assert done.stdout == b"0 1\n"


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: characters([]), ValueError, "at least one text with a word in it, got none"),
        (lambda: characters("sun"), TypeError, "must be several texts, got one. Put it into"),
        (lambda: train_bpe([" "], 300), ValueError, "at least one text with a word"),
        (lambda: train_bpe(["a"], 259), ValueError, "vocab_size must be.* at least 260, got 259"),
        (lambda: train_wordpiece([], 300), ValueError, "at least one text"),
        (lambda: train_wordpiece(["sunny sea"], 9), ValueError, "must be at least 15.*got 9"),
        (lambda: words(["sun"], 4), ValueError, "vocab_size must be.* at least 5, got 4"),
        (lambda: KINDS["bpe"].encode(3), TypeError, "must be a string, got int"),
        (
            lambda: KINDS["bpe"].encode("a\ud83d"),
            ValueError,
            r"half of one, '\\ud83d', at position 1",
        ),
        (
            lambda: KINDS["bpe"].decode([3, -1]),
            ValueError,
            r"numbers from 0 to .*, got -1\. Use",
        ),
        (lambda: KINDS["words"].decode([23]), ValueError, "from 0 to 22, got 23"),
        (lambda: KINDS["bpe"].token(10**9), ValueError, "got 1000000000"),
        (lambda: StreamDecoder(KINDS["bpe"]).add(-1), ValueError, "got -1"),
    ],
)
def test_what_cannot_be_done_is_said(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a":\n 1', r"tokenizer\.json, line 2: expected the JSON of a tokenizer.*invalid JSON"),
        ('{"a": 1}', "does not hold a tokenizer that can be used"),
        ("[1]", "does not hold a tokenizer that can be used"),
        (
            "9" * 5000,
            r"tokenizer\.json does not hold a tokenizer that can be used \(Exceeds the limit",
        ),
        ("[" * 100_000, "nested too deeply"),
        (
            tokenizers.Tokenizer(tokenizers.models.BPE()).to_str(),
            r"does not hold a tokenizer.*has neither <pad> nor <\|endoftext\|>",
        ),
        ("", "is empty"),
    ],
)
def test_a_file_without_a_tokenizer_is_named(tmp_path, content, match):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=match) as raised:
        Tokenizer.load(path)
    assert str(path) in str(raised.value)


def test_files_that_cannot_be_written_or_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*a\.json\. Check"):
        Tokenizer.load(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError, match=r"cannot be written \(No such file"):
        KINDS["bpe"].save(tmp_path / "none" / "a.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="cannot be written"):
        KINDS["bpe"].save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def small_gpt2(folder):
    """A vocabulary in GPT-2's two files: bytes, one merge, the end."""
    tokens = [*sorted(letters()), "Ġa", "<|endoftext|>"]
    (folder / "encoder.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\nĠ a\n", encoding="utf-8")
    return folder / "encoder.json", folder / "vocab.bpe"


def test_the_files_of_gpt2_make_a_tokenizer(tmp_path):
    tokenizer = gpt2(*small_gpt2(tmp_path))
    assert tokenizer.vocab_size == 258
    assert tokenizer.pad_id == tokenizer.start_id == tokenizer.end_id == tokenizer.unknown_id == 257
    assert [tokenizer.token(token) for token in tokenizer.encode("b ab")] == ["b", " a", "b"]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(" a") == [256]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("encoder.json", "{", r"encoder\.json: expected JSON of tokens.* invalid JSON"),
        ("encoder.json", '{"a": 0}', r"encoder\.json: .* got another\. Name GPT-2's"),
        ("encoder.json", '{"a": 5, "<|endoftext|>": 0}', "got another"),
        (
            "vocab.bpe",
            "#version: 0.2\nĠ a\nabc\n",
            r"vocab\.bpe, line 3: expected two tokens.*'abc'",
        ),
        ("vocab.bpe", "Ġ a\nĠ b\n", r"vocab\.bpe does not fit .*encoder\.json \("),
    ],
)
def test_files_that_are_not_gpt2s_are_named(tmp_path, name, content, match):
    files = small_gpt2(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        gpt2(*files)


def test_gpt2s_own_vocabulary(data_folder):
    folder = data_folder / "gpt2_bpe"
    tokenizer = gpt2(folder / "encoder.json", folder / "vocab.bpe")
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert (tokenizer.vocab_size, tokenizer.end_id) == (50257, 50256)
    assert tokenizer.token(262) == " the"
    text = (data_folder / "shakespeare" / "input.txt").read_text()
    tokens = tokenizer.encode(text)
    # As nanoGPT's data preparation counts, on the first nine tenths and the rest.
    cut = int(len(text) * 0.9)
    assert len(tokenizer.encode(text[:cut])) == 301_966
    assert len(tokenizer.encode(text[cut:])) == 36_059
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize(
    ("kind", "text", "groups"),
    [
        ("characters", "the tub", [["t", "h", "e", " "], ["t", "u", "b"]]),
        ("wordpiece", "teasand, tea", [["tea", "##s", "##and"], [","], ["tea"]]),
        # A character of three bytes.
        ("bpe", "語,語", [["\\xe8", "\\xaa", "\\x9e"], [","], ["\\xe8", "\\xaa", "\\x9e"]]),
        ("words", "", []),
    ],
)
def test_tokens_are_grouped_into_words(kind, text, groups):
    tokenizer = KINDS[kind]
    found = whole_words(tokenizer, tokenizer.encode(text))
    assert list(map(tokenizer.token, tokenizer.encode(text))) == [
        token for group in groups for token in group
    ]
    assert found.word_of.tolist() == [place for place, group in enumerate(groups) for _ in group]
    ones = torch.ones(2, len(found.word_of))
    assert found.sum(ones).tolist() == [list(map(len, groups))] * 2
    assert found.mean(ones).tolist() == [[1.0] * len(groups)] * 2


def test_a_long_text_is_grouped_by_decoding_it_a_fixed_number_of_times(monkeypatch):
    tokenizer = KINDS["characters"]
    tokens, decode, lengths = tokenizer.encode("the tub " * 997), tokenizer.decode, []
    monkeypatch.setattr(tokenizer, "decode", lambda some: lengths.append(len(some)) or decode(some))
    assert len(whole_words(tokenizer, tokens).words) == 2 * 997
    assert len(lengths) <= 3

"""Long texts, long words, and tokenizers that fail: what is cut, what is refused, what is told."""

import json
import os
import random
import threading

import pytest
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner

from glasshead.cli import main
from glasshead.tasks.readers.open_reader import open_reader
from glasshead.tasks.tokenizers import chunks as cutting
from glasshead.tasks.tokenizers import train_tokenizer as making
from glasshead.tasks.tokenizers.chunks import chunks_of_text, panics_as_errors
from glasshead.tasks.tokenizers.tokenizer import Tokenizer
from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe, train_wordpiece, words
from written import written

SEEN = [
    "the shiny sun, the sea's sand and 1009 ships they've 'd seen\n\n",
    "ΣΟΦΟΣ İstanbul über ﬁn e\u0301\n",
]
# Spaces of several kinds, marks, marks that join letters, numbers, and letters whose small ones are
# others, or several.
PARTS = [
    *("sun", "sea's", "'ve", "1009", "½", "٣", ",", "…", "e\u0301", "\u0301", "İ", "ΣΟΦΟΣ", "太陽"),
    *("_", "\u200d", "\x1c", "😀", "<end>", " ", " ", " ", " ", "  ", "\n", "\n", "\n\n", "\t"),
    *("\u00a0", "\u3000", "\u2028", "\r\n"),
]
MAKE = {
    "bpe": lambda: train_bpe(SEEN, 307),
    "lowercase bpe": lambda: train_bpe(SEEN, 307, lowercase=True),
    "wordpiece": lambda: train_wordpiece(SEEN, 131),
    "lowercase wordpiece": lambda: train_wordpiece(SEEN, 131, lowercase=True),
    "words": lambda: words(SEEN, 31),
    "characters": lambda: characters(SEEN),
}


def random_text(seed, count):
    return "".join(random.Random(seed).choices(PARTS, k=count))


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("length", [1, 7, 101])
def test_pieces_have_the_tokens_of_the_whole(make, length):
    tokenizer = make()
    cut = 0
    for seed in range(61):
        text = random_text(seed, 211)
        parts = chunks_of_text(text, length)
        cut += len(parts) - 1
        assert "".join(parts) == text
        whole = tokenizer.inner.encode(text, add_special_tokens=False).ids
        assert [token for part in parts for token in tokenizer.encode(part)] == whole
    assert cut > 61


def test_a_line_of_words_is_cut():
    line = " ".join(["sun"] * 20_011)
    parts = chunks_of_text(line)
    assert "".join(parts) == line
    assert max(map(len, parts)) < 2**14 + 11


def test_a_token_that_holds_a_space_is_not_cut(monkeypatch):
    tokenizer = train_bpe(SEEN, 307)
    tokenizer.inner.add_tokens(["shiny sun"])
    text = " ".join(["a shiny sun"] * 5003)
    whole = tokenizer.inner.encode(text, add_special_tokens=False).ids
    assert Tokenizer(tokenizer.inner, tokenizer.special).encode(text) == whole


def test_a_text_without_a_place_to_cut_it_has_a_bound(monkeypatch):
    monkeypatch.setattr(cutting, "_MOST", 20_011)
    tokenizer = train_bpe(SEEN, 307)
    assert len(tokenizer.encode("s" * 20_011)) == 20_011
    assert tokenizer.encode(("sun " * 11_003).strip())
    with pytest.raises(ValueError, match="at most 20,011 characters without a place"):
        tokenizer.encode("s" * 20_012)


@pytest.mark.parametrize("part", ["s", "7", " ", "!", "ab", "太陽", "e\u0301x"], ids=repr)
@pytest.mark.parametrize("train", [train_bpe, train_wordpiece])
def test_of_a_long_word_parts_are_learned(train, part, monkeypatch):
    learned = []
    monkeypatch.setattr(
        making, "chunks_of_text", lambda text: learned.append(text) or chunks_of_text(text)
    )
    text = f"{SEEN[0]}{part * 5003}{SEEN[0]}"
    tokenizer = train([text, *SEEN], 331)
    assert "".join(learned) == "".join([text, *SEEN])
    longest = max(
        len(word)
        for piece in learned
        for word, _ in tokenizer.inner.pre_tokenizer.pre_tokenize_str(piece)
    )
    # In letters that stand for bytes, of which a character has three at most here.
    assert longest <= 3 * 2048


@pytest.mark.parametrize("train", [train_bpe, train_wordpiece])
def test_texts_of_words_are_learned_from_whole(train):
    texts = [random_text(seed, 211) for seed in range(7)]
    assert list(making._in_parts(texts, making._KINDS)) == texts
    assert list(making._in_parts(texts, making._BETWEEN)) == texts


def exploding(inner, place):
    """The same with a regular expression that takes time by a power of the length."""
    told = json.loads(inner.to_str())
    made = {
        "pre_tokenizer": pre_tokenizers.Split(Regex("(s+)+$"), "isolated"),
        "normalizer": normalizers.Replace(Regex("(s+)+$"), "!"),
    }[place]
    other = Inner.from_str(inner.to_str())
    setattr(other, place, made)
    return json.dumps(told | {place: json.loads(other.to_str())[place]})


@pytest.mark.parametrize("place", ["pre_tokenizer", "normalizer"])
def test_a_tokenizer_that_fails_is_named_in_a_sentence(tmp_path, capfd, place):
    file = tmp_path / "tokenizer.json"
    file.write_text(exploding(train_bpe(SEEN, 307).inner, place))
    tokenizer = Tokenizer.load(file)
    capfd.readouterr()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"tokenizer\.json has a tokenizer that fails on thi"):
            tokenizer.encode("s" * 53 + "!")
    assert capfd.readouterr().err == ""
    assert tokenizer.encode("sun")


def test_a_command_with_a_tokenizer_that_fails_says_one_sentence(tmp_path, capfd):
    folder = written(tmp_path / "run")
    inner = Inner.from_file(str(folder.tokenizer))
    folder.tokenizer.write_text(exploding(inner, "pre_tokenizer"))
    capfd.readouterr()
    code = main(["write", str(folder.path), "--prompt", "s" * 59 + "!"])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"glasshead: error: {folder.tokenizer} has a tokenizer that")
    assert err.count("\n") == 1


def test_what_else_is_written_to_standard_error_is_kept(capfd):
    within, on = threading.Event(), threading.Event()

    def other():
        with panics_as_errors("a.json"):
            os.write(2, b"second\n")
            within.set()
            on.wait(60)

    with panics_as_errors("b.json"):
        os.write(2, b"first\n")
        thread = threading.Thread(target=other)
        thread.start()
        within.wait(60)
    on.set()
    thread.join()
    os.write(2, b"third\n")
    assert capfd.readouterr().err == "first\nsecond\nthird\n"
    with pytest.raises(ZeroDivisionError), panics_as_errors("c.json"):
        os.write(2, b"fourth\n") / 0
    assert capfd.readouterr().err == "fourth\n"


def gpt2_folder(folder, tokenizer):
    """A GPT-2 that nobody trained, with a tokenizer.json."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 307, "n_embd": 12, "n_head": 3, "n_layer": 1, "n_positions": 31}
    config = transformers.GPT2Config(**sizes, bos_token_id=2, eos_token_id=3)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tokenizer)
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def test_a_model_of_others_reads_a_long_text_as_the_whole(tmp_path):
    from transformers import AutoTokenizer

    inner = train_bpe(SEEN, 307).inner
    reader = open_reader(gpt2_folder(tmp_path / "model", inner.to_str()))
    texts = [" ".join([random_text(3, 7001)] * 7), "", random_text(5, 211)]
    whole = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert reader.encode(texts) == whole(texts, add_special_tokens=False)["input_ids"]


def test_a_model_of_others_with_a_tokenizer_that_fails_is_named(tmp_path, capfd):
    folder = gpt2_folder(tmp_path / "model", exploding(train_bpe(SEEN, 307).inner, "pre_tokenizer"))
    (tmp_path / "text.txt").write_text("s" * 61 + "!")
    capfd.readouterr()
    code = main(["observe", str(folder), "--text", str(tmp_path / "text.txt")])
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"glasshead: error: {folder}/tokenizer.json has a tokenizer")
    assert err.count("\n") == 1

"""Texts are a stream: a batch of them is in memory, and the numbers are those of all at once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.tasks.data import files
from glasshead.tasks.readers import observe_texts, text_stream
from glasshead.tasks.readers.open_reader import reader_of_model
from glasshead.tasks.readers.text_stream import TextStream
from glasshead.tasks.readers.texts import load_texts
from glasshead.tasks.tokenizers import words
from glasshead.tasks.tokenizers.train_tokenizer import characters, train_bpe

CONTEXT, HEADS = 7, 3
WORDS = ["the", "cat", "sat", "on", "mat", "and", "dog", "a"]
TEXTS = [" ".join(WORDS[(row * place) % 8] for place in range(row % 13)) for row in range(101)]
TOKENIZER = words([" ".join(WORDS)], vocab_size=17)
STATISTICS = [gh.Entropy(), gh.Received(), gh.MaxScore()]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    config = gh.LanguageModelConfig(
        vocab_size=17, d_model=12, num_heads=HEADS, num_layers=2, context_length=CONTEXT
    )
    model = gh.LanguageModel(config).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.fixture
def small(monkeypatch):
    """Two chunks in a batch, and fifty characters tokenized at once."""
    monkeypatch.setattr(text_stream, "_TOKENS_AT_ONCE", 2 * CONTEXT)
    monkeypatch.setattr(text_stream, "_CHARACTERS_AT_ONCE", 50)


@pytest.fixture
def observed(model):
    def run(texts, statistics=STATISTICS, **options):
        return gh.observe_texts(model, texts, statistics, tokenizer=TOKENIZER, **options)

    return run


def assert_same_bits(found, expected):
    assert list(found) == list(expected)
    assert found.documents == expected.documents
    for layer in expected:
        for name, value in expected[layer].items():
            assert torch.equal(found[layer][name], value)


class Counting:
    """An iterator that counts how many of its texts were taken."""

    def __init__(self, texts):
        self.taken, self._texts = 0, iter(texts)

    def __iter__(self):
        return self

    def __next__(self):
        text = next(self._texts)
        self.taken += 1
        return text


def stream_of(model, texts, *given, **options):
    reader = reader_of_model(model, TOKENIZER, torch.device("cpu"))
    return TextStream(reader, load_texts(texts), *given, **options)


@pytest.mark.usefixtures("small")
def test_no_more_of_an_iterator_is_read_than_a_batch_takes(model):
    """Of each batch the last token belongs to a text; fifty characters beyond it may be read."""
    texts = Counting(TEXTS)
    stream = stream_of(model, texts)
    # Where the tokens of each text end, with the end token.
    ends = torch.tensor([len(TOKENIZER.encode(text)) + 1 for text in TEXTS]).cumsum(0)
    done, most_ahead = 0, 0
    for batch in stream.batches(stream.new_counts()):
        done += batch.numel()
        needed = int((ends < done).sum()) + 1
        ahead = TEXTS[needed : texts.taken]
        most_ahead = max(most_ahead, len(ahead))
        # The last text passes the fifty, or none would.
        assert sum(len(text) + 1 for text in ahead[:-1]) < 50
    assert done == ends[-1]
    assert texts.taken == len(TEXTS)
    assert 0 < most_ahead < 25


def test_an_iterator_that_never_ends_is_read_as_far_as_it_is_wanted(model):
    def forever():
        while True:
            yield from TEXTS

    stream = stream_of(model, forever())
    batches = stream.batches(stream.new_counts())
    assert [next(batches).shape[1] for _ in range(5)] == [CONTEXT] * 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("length", [None, 3])
def test_an_iterator_gives_the_bits_of_a_list(observed, length):
    told = []
    found = observed(iter(TEXTS), length=length, progress=lambda *numbers: told.append(numbers))
    expected = observed(TEXTS, length=length)
    assert_same_bits(found, expected)
    assert found.source == {**expected.source, "text": "the texts of an iterator"}
    assert {of for _, of in told[:-1]} == {None}
    assert told[-1] == (expected.source["tokens"],) * 2


@pytest.mark.parametrize("texts", [["the cat sat"], ["the", "cat"]])
def test_an_iterator_that_ends_within_a_chunk_is_a_short_chunk(observed, texts):
    assert_same_bits(observed(iter(texts)), observed(texts))


def test_an_iterator_of_files_is_a_list_of_them(observed, tmp_path):
    for place, text in enumerate(filter(None, TEXTS)):
        (tmp_path / f"{place:03}.txt").write_text(text)
    expected = observed(tmp_path)
    for texts in (iter(sorted(tmp_path.iterdir())), tmp_path / "*.txt", tmp_path / "**" / "0*.txt"):
        found = observed(texts)
        assert_same_bits(found, expected)
    named = observed(iter(sorted(tmp_path.iterdir()))).source["text"]
    assert named.endswith("007.txt and 85 more")


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "words"])
@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_long_file_is_tokenized_in_parts_as_it_would_be_whole(
    model, tokenizer, block, monkeypatch, tmp_path
):
    """Where a token could span a cut, as with words, the text is tokenized whole."""
    text = "".join(f"The {n}th cät,\nsat  on\n\na mat; and 🐈 dogs' {n * n}\n" for n in range(211))
    made = {
        "bytes": lambda: train_bpe([text], vocab_size=300),
        "characters": lambda: characters([text]),
        "words": lambda: words([text], vocab_size=300),
    }[tokenizer]()
    reader = replace(
        reader_of_model(model, TOKENIZER, torch.device("cpu")),
        encode=made.encode_batch,
        cut=made.cut,
    )
    monkeypatch.setattr(files, "_BLOCK", block)
    monkeypatch.setattr(text_stream, "_CHARACTERS_AT_ONCE", 3 * block)
    monkeypatch.setattr("glasshead.tasks.tokenizers.chunks.chunks_of_text.__defaults__", (11,))
    parts = []
    encode = reader.encode
    counting = replace(reader, encode=lambda texts: parts.extend(texts) or encode(texts))
    file = tmp_path / "long.txt"
    file.write_text(text, encoding="utf-8-sig")
    found = TextStream(counting, load_texts(file), 5).tokens()
    assert found == made.encode(text)
    assert "".join(parts) == text
    if tokenizer != "words":
        # A block, and up to the next place where it can be cut.
        assert max(map(len, parts)) < 4 * block + 50


def test_whole_texts_are_sorted_within_a_window(observed, model, monkeypatch):
    """All texts fit into the window: the longest first. In small windows, the sums are the same."""
    options = {"length": "whole", "truncate": True}
    expected = observed(TEXTS, **options)
    lengths = sorted((min(len(TOKENIZER.encode(text)), CONTEXT) for text in TEXTS), reverse=True)

    def shapes(stream):
        batches = stream.batches(stream.new_counts())
        return [length for batch in batches for length in [batch.shape[1]] * len(batch)]

    assert shapes(stream_of(model, TEXTS, "whole", truncate=True)) == [n for n in lengths if n]
    monkeypatch.setattr(text_stream, "_TOKENS_SORTED", 3 * CONTEXT)
    monkeypatch.setattr(text_stream, "_CHARACTERS_AT_ONCE", 1)
    stream, taken = stream_of(model, TEXTS, "whole", truncate=True), []
    parts = stream._texts.parts
    counted = replace(stream._texts, parts=lambda: (taken.append(one) or one for one in parts()))
    monkeypatch.setattr(stream, "_texts", counted)
    read = 0
    for batch in stream.batches(stream.new_counts()):
        read += len(batch)
        # Of 21 tokens; of the first batch of the next window no text is left out.
        assert len([part for part in taken if part.text]) - read <= 3 * CONTEXT
    assert len(taken) == len(TEXTS)
    found = observed(TEXTS, **options)
    assert found.source == expected.source
    for layer in expected:
        for name, value in expected[layer].items():
            torch.testing.assert_close(found[layer][name], value, atol=1e-6, rtol=1e-6)


def test_whole_texts_of_an_iterator_are_refused(observed):
    sentence = r"length='whole' needs texts that can be read twice, .* got an iterator\. Pass a"
    with pytest.raises(ValueError, match=sentence):
        observed(iter(TEXTS), length="whole")


@pytest.mark.parametrize(
    ("texts", "kind", "sentence"),
    [
        (lambda: iter(["the", 3]), TypeError, "must be strings, or Paths of files, got int"),
        (lambda: iter(["the", "cat", 3]), TypeError, "must be strings, or Paths of files, got i"),
        (lambda: iter([]), ValueError, "texts must have at least one text"),
        (lambda: iter([" ", "", " "]), ValueError, "the texts of an iterator contains no text"),
        (
            lambda: Path("none/*.txt"),
            ValueError,
            r"none/\*.txt matches no file\. Check the pattern",
        ),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(observed, texts, kind, sentence):
    with pytest.raises(kind, match=sentence):
        observed(texts())


def test_what_is_wrong_in_the_last_file_is_told_before_the_model_reads(observed, tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on the mat")
    (tmp_path / "b.jsonl").write_text('{"text": "the dog"}\n{"text": 3}\n')
    told = []
    with pytest.raises(ValueError, match=r"b\.jsonl, line 2: expected a text as 'text'"):
        observed(tmp_path, progress=lambda *numbers: told.append(numbers))
    assert not told


def test_texts_that_change_while_they_are_read_are_refused(observed, tmp_path, monkeypatch):
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat")
    sentence = r"text\.txt has changed while it was read\. Read"

    counted = TextStream.counted

    def then_change(self, *given):
        counts = counted(self, *given)
        file.write_text("the cat sat on the dog")
        return counts

    monkeypatch.setattr(TextStream, "counted", then_change)
    with pytest.raises(ValueError, match=sentence):
        observed(file)


class Killed(BaseException):
    """In place of a signal."""


@pytest.fixture
def killed(observed, monkeypatch, small, tmp_path):
    """Keep the sums after each batch, and be killed in a later one."""
    monkeypatch.setattr(observe_texts, "_EVERY", 0.0)

    def run(texts, tokens):
        def progress(read, of):
            if read >= tokens:
                raise Killed

        with pytest.raises(Killed):
            observed(texts, progress=progress, partial=tmp_path / "partial")
        return tmp_path / "partial"

    return run


@pytest.mark.parametrize("tokens", [2 * CONTEXT + 1, 9 * CONTEXT])
def test_an_iterator_goes_on_where_it_was_interrupted(observed, killed, tokens):
    partial = killed(iter(TEXTS), tokens)
    found = observed(iter(TEXTS), partial=partial)
    assert_same_bits(found, observed(iter(TEXTS)))
    assert not partial.exists()


def test_an_iterator_of_other_texts_is_refused(observed, killed):
    partial = killed(iter(TEXTS), 9 * CONTEXT)
    kept = partial.read_bytes()
    sentence = "partial holds the sums of a run with another text or length. Read what it began"
    for texts in (["dog", *TEXTS[1:]], TEXTS[:5], TEXTS[::-1]):
        with pytest.raises(ValueError, match=sentence):
            observed(iter(texts), partial=partial)
        assert partial.read_bytes() == kept
    with pytest.raises(ValueError, match=sentence):
        observed(iter(TEXTS), partial=partial, length=5)


@pytest.mark.parametrize("change", ["append", "remove", "add", "rename"])
def test_files_that_have_changed_are_noticed(observed, killed, tmp_path, change):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for place in range(5):
        rows = [json.dumps({"text": text}) for text in TEXTS[place::5]]
        (folder / f"{place}.jsonl").write_text("\n".join(rows))
    partial = killed(folder, 5 * CONTEXT)
    if change == "append":
        with (folder / "4.jsonl").open("a") as file:
            file.write('\n{"text": "a cat"}')
    elif change == "remove":
        (folder / "3.jsonl").unlink()
    elif change == "add":
        (folder / "9.txt").write_text("a cat")
    else:
        (folder / "0.jsonl").rename(folder / "8.jsonl")
    with pytest.raises(ValueError, match="partial holds the sums of a run with another text or le"):
        observed(folder, partial=partial)

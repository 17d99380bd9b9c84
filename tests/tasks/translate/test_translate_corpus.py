"""Pairs: read from text files beside each other and from tables, and a share of them held out."""

import gzip
import json
import lzma

import pytest

from glasshead.tasks.data.sentences import HELD_OUT
from glasshead.tasks.translate.train import TranslateData, make_tokenizer, read_corpus, read_pairs

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
ONE = [("Guten Morgen", "Good morning"), ("Danke, gut", "Fine, thanks")]
TWO = [("Tür\u2028auf", "Open the door"), ("", "Nothing"), ("Ja", " ")]


@pytest.fixture
def write(tmp_path):
    """A file with some content, packed as its name says."""

    def written(name, content):
        path = tmp_path / name
        path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](content.encode()))
        return str(path)

    return written


@pytest.fixture
def parallel(write):
    """Two text files side by side."""

    def written(name, pairs, packing="", end="\n"):
        return [
            write(f"{name}.{language}{packing}", "".join(f"{pair[side]}{end}" for pair in pairs))
            for side, language in enumerate(("de", "en"))
        ]

    return written


@pytest.fixture
def table(write):
    """A table of pairs."""

    def written(name, pairs, names=("source", "target")):
        rows = [dict(zip(names, pair, strict=True)) for pair in pairs]
        if ".jsonl" in name:
            return write(name, "".join(f"{json.dumps({**row, 'id': 1})}\n" for row in rows))
        cells = "\t" if ".tsv" in name else ","
        lines = [(names[1], names[0]), *((row[names[1]], row[names[0]]) for row in rows)]
        return write(name, "".join(f'"{a}"{cells}"{b}"\n' for a, b in lines))

    return written


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_two_text_files_stand_side_by_side(parallel, packing, end):
    assert read_pairs(parallel("train", [*ONE, *TWO], packing, end)) == [*ONE, *TWO]


def test_files_may_be_packed_each_in_its_way_and_end_without_a_line_break(write):
    german, english = write("a.de.xz", "eins\nzwei"), write("a.en.gz", "one\ntwo\n")
    assert read_pairs([german, english]) == [("eins", "one"), ("zwei", "two")]


def test_four_text_files_are_two_pairs_of_them(parallel):
    assert read_pairs([*parallel("a", ONE), *parallel("b", TWO)]) == [*ONE, *TWO]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv"])
def test_tables_have_both_in_named_columns(table, ending, packing):
    assert read_pairs([table(f"a.{ending}{packing}", ONE)]) == ONE
    named = table(f"b.{ending}{packing}", ONE, ("de", "en"))
    assert read_pairs([named], "de", "en") == ONE
    data = TranslateData(files=(named,), source="en", target="de", held_out=0.5)
    corpus = read_corpus(data)
    assert {*corpus.training, *corpus.held_out} == {(english, german) for german, english in ONE}


def test_tables_may_stand_between_text_files(parallel, table):
    german, english = parallel("a", ONE)
    assert read_pairs([german, table("b.tsv", ONE[:1]), english]) == [*ONE, *ONE[:1]]


@pytest.mark.parametrize(
    ("short", "few", "many"), [("a.de", 2, 3), ("a.en", 3, 2)], ids=["source", "target"]
)
def test_unequal_numbers_of_lines_are_told_by_file_and_line(write, short, few, many):
    german, english = write("a.de", "x\n" * few), write("a.en", "y\n" * many)
    with pytest.raises(ValueError) as caught:
        read_pairs([german, english])
    said = str(caught.value)
    assert f"{short} ends after line 2, and the file beside it goes on" in said
    assert f"as many lines in {german} ({few}) as in {english} ({many})" in said


@pytest.mark.parametrize("more", [[], ["b.jsonl"]])
def test_one_text_file_alone_is_told(write, table, more):
    files = [write("a.de", "x\n"), *(table(name, ONE) for name in more)]
    with pytest.raises(ValueError, match=r"text files in twos, .*and got 1, with .*a\.de alone"):
        read_pairs(files)


MANY = [(f"satz {number}", f"sentence {number}") for number in range(101)]


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.25, 25), (0.005, 1)])
def test_a_share_is_held_out_always_the_same(parallel, share, count):
    data = TranslateData(files=tuple(parallel("many", MANY)), held_out=share)
    corpus, again = read_corpus(data), read_corpus(data)
    assert len(corpus.held_out) == count
    assert not {*corpus.held_out} & {*corpus.training}
    assert sorted([*corpus.held_out, *corpus.training]) == sorted(MANY)
    assert (corpus.held_out, corpus.training) == (again.held_out, again.training)
    assert corpus.found == again.found == {**again.found, "pairs": 101 - count}
    # Drawn, and not the first or the last ones.
    assert corpus.held_out not in (MANY[:count], MANY[-count:])


def test_files_of_their_own_are_held_out(parallel, table):
    files, held_out = tuple(parallel("a", MANY)), (table("b.csv", ONE),)
    corpus = read_corpus(TranslateData(files=files, held_out_files=held_out))
    assert (corpus.training, corpus.held_out) == (MANY, ONE)


def test_pairs_with_an_empty_side_are_left_out_and_counted(parallel):
    corpus = read_corpus(TranslateData(files=tuple(parallel("a", [*MANY, *TWO]))))
    assert corpus.empty == 2
    assert {*corpus.training, *corpus.held_out} == {*MANY, TWO[0]}


@pytest.mark.parametrize(
    ("pairs", "held_out", "said"),
    [
        ([("a", ""), ("", "b")], None, "one pair of texts with words in both to train on"),
        ([("a", "b")], None, "pair of texts with words in both to train on, and got none"),
        (ONE, [("a", ""), ("", "b")], "texts with words in both to hold out, and got none"),
    ],
)
def test_pairs_of_which_nothing_is_left_are_told(parallel, pairs, held_out, said):
    apart = tuple(parallel("held_out", held_out)) if held_out else ()
    with pytest.raises(ValueError, match=said):
        read_corpus(TranslateData(files=tuple(parallel("a", pairs)), held_out_files=apart))


def test_the_tokenizer_knows_both_sides_and_nothing_that_is_held_out(parallel):
    data = TranslateData(files=tuple(parallel("many", MANY)), tokenizer="words")
    corpus = read_corpus(data)
    tokenizer = make_tokenizer(data, corpus)
    for part, unknown in ((corpus.training, False), (corpus.held_out, True)):
        for pair in part:
            for text in pair:
                assert (tokenizer.unknown_id in tokenizer.encode(text)) is unknown


def test_without_files_german_is_made_up_and_the_sentence_of_the_texts_held_out():
    corpus = read_corpus(TranslateData(made_up=1009))
    assert len(corpus.training) == 1009
    assert not {*corpus.training} & {*corpus.held_out}
    german = {text for text, _ in corpus.training}
    assert HELD_OUT.german not in german


def test_other_pairs_and_divisions_are_another_corpus(parallel):
    data = TranslateData(files=tuple(parallel("a", MANY)))
    found = {read_corpus(data).found["sha256"]}
    for changed in (
        [("anders", "sentence 0"), *MANY[1:]],
        [("satz 0", "other"), *MANY[1:]],
        [*MANY[1:], MANY[0]],
    ):
        parallel("a", changed)
        found.add(read_corpus(data).found["sha256"])
    found.add(read_corpus(TranslateData(files=data.files, held_out=0.2)).found["sha256"])
    assert len(found) == 5

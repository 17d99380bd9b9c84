"""Labelled texts: read from every kind of table, and a share of them held out."""

import csv
import gzip
import io
import json
import lzma

import pytest

from glasshead.tasks.classify.train import ClassifyData, make_tokenizer, read_corpus, read_labelled

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
ROWS = [("Not bad, at all.", "good"), ('Two\nlines, "quoted"', "bad"), ("Fine ☀", "good")]


def as_json(rows, names):
    lines = [json.dumps({**dict(zip(names, row, strict=True)), "by": 7}) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def as_cells(rows, names, delimiter):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(
        [[names[1], "by", names[0]], *([label, "7", text] for text, label in rows)]
    )
    return out.getvalue()


def content(ending, rows, names=("text", "label")):
    if ending == ".jsonl":
        return as_json(rows, names)
    return as_cells(rows, names, "," if ending == ".csv" else "\t")


@pytest.fixture
def table(tmp_path):
    """A table of rows, packed as its name says."""

    def written(name, rows, names=("text", "label")):
        path = tmp_path / name
        bare = path.with_suffix("") if path.suffix in PACK else path
        packed = PACK[path.suffix if path.suffix in PACK else ""]
        path.write_bytes(packed(content(bare.suffix, rows, names).encode()))
        return str(path)

    return written


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv"])
def test_every_kind_of_table_is_read(table, ending, packing):
    assert read_labelled([table(f"reviews{ending}{packing}", ROWS)]) == ROWS


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_columns_are_named(table, ending):
    file = table(f"reviews{ending}", ROWS, ("review", "mark"))
    data = ClassifyData(files=(file,), text="review", label="mark", held_out=0.3)
    corpus = read_corpus(data)
    assert sorted([*corpus.training, *corpus.held_out]) == sorted(ROWS)
    assert corpus.answers == ("bad", "good")


def test_files_of_several_kinds_are_read_one_after_another(table):
    files = [table("a.tsv.xz", ROWS[:1]), table("b.jsonl", ROWS[1:])]
    assert read_labelled(files) == ROWS


def test_a_number_is_the_label_that_it_is_written_as(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one", "label": 1}\n{"text": "no", "label": 0}\n')
    (tmp_path / "b.csv").write_text("text,label\nyes,1\n")
    (tmp_path / "c.jsonl").write_text('{"text": "so", "label": true}\n')
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.jsonl")]
    labels = [label for _, label in read_labelled(files)]
    assert labels == ["1", "0", "1", "true"]


MANY = [(f"text {number}", f"label {number % 3}") for number in range(101)]


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.25, 25), (0.005, 1)])
def test_a_share_is_held_out_always_the_same(table, share, count):
    data = ClassifyData(files=(table("many.csv", MANY),), held_out=share)
    corpus, again = read_corpus(data), read_corpus(data)
    assert len(corpus.held_out) == count
    assert not {*corpus.held_out} & {*corpus.training}
    assert sorted([*corpus.held_out, *corpus.training]) == sorted(MANY)
    assert (corpus.held_out, corpus.training) == (again.held_out, again.training)
    assert corpus.found == again.found
    # Drawn, and not the first or the last ones.
    assert corpus.held_out not in (MANY[:count], MANY[-count:])


def test_neighbours_are_held_out_together_where_they_are_of_one_thing(table):
    data = ClassifyData(files=(table("many.csv", MANY),), held_out=0.1, blocks=3)
    corpus = read_corpus(data)
    # Blocks end after 33, 67 and 101 texts; of 10 texts to be held out they have 3, 3 and 4.
    apart = [*range(30, 33), *range(64, 67), *range(97, 101)]
    assert corpus.held_out == [MANY[place] for place in apart]
    assert corpus.training == [row for place, row in enumerate(MANY) if place not in apart]
    one = read_corpus(ClassifyData(files=data.files, held_out=0.25, blocks=1))
    assert (one.training, one.held_out) == (MANY[:76], MANY[76:])
    many = read_corpus(ClassifyData(files=data.files, held_out=0.1, blocks=53))
    assert len(many.held_out) == 10


def test_files_of_their_own_are_held_out(table):
    files, held_out = (table("a.csv", MANY),), (table("b.csv", ROWS),)
    data = ClassifyData(files=files, held_out_files=(table("c.csv", MANY[:2]),))
    corpus = read_corpus(data)
    assert (corpus.training, corpus.held_out) == (MANY, MANY[:2])
    with pytest.raises(ValueError, match=r"b\.csv, line 2: expected a label that there was in"):
        read_corpus(ClassifyData(files=files, held_out_files=held_out))


def test_other_texts_labels_and_divisions_are_another_corpus(table):
    data = ClassifyData(files=(table("a.csv", MANY),))
    found = {read_corpus(data).found["sha256"]}
    for changed in (
        [("other", "label 0"), *MANY[1:]],
        [("text 0", "label 1"), *MANY[1:]],
        [*MANY[1:], MANY[0]],
    ):
        table("a.csv", changed)
        found.add(read_corpus(data).found["sha256"])
    found.add(read_corpus(ClassifyData(files=data.files, held_out=0.2)).found["sha256"])
    assert len(found) == 5


def test_the_tokenizer_knows_no_word_that_is_held_out(table):
    data = ClassifyData(files=(table("many.csv", MANY),))
    corpus = read_corpus(data)
    tokenizer = make_tokenizer(data, corpus)
    for part, unknown in ((corpus.training, False), (corpus.held_out, True)):
        for text, _ in part:
            assert (tokenizer.unknown_id in tokenizer.encode(text)) is unknown


def test_without_files_reviews_are_made_up():
    corpus = read_corpus(ClassifyData(made_up=211))
    assert (len(corpus.training), len(corpus.answers)) == (211, 2)
    assert {label for _, label in corpus.held_out} == {*corpus.answers}
    assert not {text for text, _ in corpus.held_out} & {text for text, _ in corpus.training}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", "x"), ("b", "x")], r"a\.csv has the label 'x' alone: a classifier takes texts of"),
        ([("a", "x"), ("b", "y")], r"a\.csv has too few texts of the label '[xy]': all were held"),
    ],
)
def test_too_few_labels_are_told(table, rows, said):
    with pytest.raises(ValueError, match=said):
        read_corpus(ClassifyData(files=(table("a.csv", rows),)))


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", 'text,label\n"two\n\nlines",good\nfine,bad\nodd,godo\n', 6),
        ("a.csv", 'text,label\r\n\r\n"two\r\nlines",good\r\nodd,godo\r\n', 5),
        ("a.tsv", 'label\ttext\ngood\t"a\n""b"""\n\ngodo\tc\n', 5),
        ("a.jsonl", '{"text": "a", "label": "bad"}\n\n{"text": "b", "label": "godo"}\n', 3),
    ],
)
@pytest.mark.parametrize("packing", PACK)
def test_a_label_that_training_never_saw_is_told_by_file_and_line(
    tmp_path, name, text, line, packing
):
    path = tmp_path / f"{name}{packing}"
    path.write_bytes(PACK[packing](text.encode()))
    with pytest.raises(ValueError) as caught:
        read_labelled([str(path)], known=("bad", "good"))
    assert str(caught.value) == (
        f"{path}, line {line}: expected a label that there was in training, and got 'godo': did "
        "you mean 'good'?"
    )

"""Labelled texts: read from every kind of table, and a share of them held out.

Batches of labelled texts: what is read of each, and that no text hears of its neighbours.
Settings of `classify`: presets, and what --set changes.
"""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.models import ClassifierConfig
from glasshead.tasks.classify import PRESETS, ClassifySettings
from glasshead.tasks.tokenizers.train_tokenizer import words
from glasshead.tasks.train_classifier import (
    ClassifyData,
    ClassifyObjective,
    LabelledBatches,
    encoded,
    make_tokenizer,
    read_corpus,
    read_labelled,
)
from glasshead.tasks.training import TrainingSettings
from tasks.objectives import assert_parts_sum_to_the_whole

PEOPLES = Path(__file__).parents[2] / "data" / "tables"
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


def test_tables_as_people_have_them_train_the_same_rows():
    tables = [str(path) for path in PEOPLES.iterdir() if path.suffix != ".md"]
    corpora = [read_corpus(ClassifyData(files=(file,), held_out_files=(file,))) for file in tables]
    (rows,) = {tuple(corpus.training) for corpus in corpora}
    assert [label for _, label in rows] == ["good", "bad", "good"]
    assert len(tables) >= 40


def test_held_out_files_have_the_columns_that_were_found(table):
    train = table("a.csv", MANY, ("yorum", "etiket"))
    held_out = table("b.csv", MANY[:3], ("yorum", "etiket"))
    corpus = read_corpus(ClassifyData(files=(train,), held_out_files=(held_out,)))
    assert (corpus.training, corpus.held_out) == (MANY, MANY[:3])
    assert (corpus.found["text"], corpus.found["label"]) == ("yorum", "etiket")
    other = table("c.csv", MANY[:3])
    with pytest.raises(ValueError, match=r"c\.csv has no columns 'yorum', 'etiket', but"):
        read_corpus(ClassifyData(files=(train,), held_out_files=(other,)))


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
    with pytest.raises(ValueError, match=r"b\.csv, line 2: expected a label of the training texts"):
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
        ([("a", "x"), ("b", "x")], "a classifier needs texts of"),
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
        f"{path}, line {line}: expected a label of the training texts, got 'godo'. Did "
        "you mean 'good'?"
    )


def test_a_label_of_a_column_without_a_name_is_called_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("one;good\ntwo;godo\nthree;good\n")
    with pytest.raises(ValueError, match="line 2: expected a label of the training texts"):
        read_labelled([str(path)], "1", "2", known=("good",))


WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]


TOKENIZER = words([" ".join(WORDS)], 100)


A, B, C, D, E, F, G, H = TOKENIZER.encode(" ".join(WORDS))


PAD = TOKENIZER.pad_id


LABELLED = [
    ("a b c", "good"),
    ("", "bad"),
    ("d e f g h a b", "so so"),
    ("c", "good"),
    ("h h", "bad"),
    ("b a d e f", "good"),
    (" ", "so so"),
]


def data_of(**given):
    return ClassifyData(**{"answers": ("bad", "good", "so so"), "batch_tokens": 17, **given})


@pytest.fixture
def batches():
    return LabelledBatches(TOKENIZER, LABELLED, data_of(), seed=3)


@pytest.mark.parametrize(
    ("first", "last", "read"),
    [
        (3, 2, [A, B, C, G, H]),
        (5, 0, [A, B, C, D, E]),
        (1, 6, [A, C, D, E, F, G, H]),
        (5, 3, [A, B, C, D, E, F, G, H]),
        (4, 9, [A, B, C, D, E, F, G, H]),
    ],
)
def test_of_a_long_text_the_first_and_the_last_tokens_are_read(first, last, read):
    data = data_of(first=first, last=last)
    assert encoded(TOKENIZER, [" ".join(WORDS), "h g", ""], data) == [read, [H, G], []]


def test_texts_stand_side_by_side_with_their_lengths_and_answers(batches):
    found = batches.collate([0, 1, 4])
    assert found["tokens"].tolist() == [[A, B, C], [PAD, PAD, PAD], [H, H, PAD]]
    assert found["lengths"].tolist() == [3, 0, 2]
    assert found["answers"].tolist() == [1, 0, 0]


def test_an_epoch_has_every_text_once_in_batches_that_fit(batches):
    epochs = [batches.batches(epoch) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(index for batch in epoch for index in batch) == [*range(len(LABELLED))]
        for batch in epoch:
            assert batches.collate(batch)["tokens"].numel() <= 17
            assert batches.count(batch) == len(batch) == len(batches.collate(batch)["answers"])
    assert epochs[0] == batches.batches(0)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]


def model_of(**given):
    torch.manual_seed(7)
    sizes = {"vocab_size": TOKENIZER.vocab_size, "d_model": 12, "num_heads": 3, "num_layers": 2}
    config = gh.ClassifierConfig(**{**sizes, "num_answers": 3, "dropout": 0.0, **given})
    model = gh.Classifier(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return model


def learned(task, batch):
    """The loss of a batch, and the gradient of every parameter."""
    task.model.zero_grad()
    loss = task.loss(batch)
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in task.model.parameters()]


SETTINGS = [
    {"pooling": "max", "positions": "sinusoidal", "order": "post", "embedding_norm": True},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"pooling": "mean", "positions": "alibi"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_batch_learns_what_its_texts_learn_alone(settings, batches):
    task = ClassifyObjective(model_of(**settings), smoothing=0.2)
    together, gradient = learned(task, batches.collate(range(7)))
    apart = [learned(task, batches.collate([index])) for index in range(7)]
    torch.testing.assert_close(together, sum(loss for loss, _ in apart))
    for place, whole in enumerate(gradient):
        torch.testing.assert_close(whole, sum(own[place] for _, own in apart))
        assert whole.any()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_stands_in_the_padding_changes_nothing(settings, batches):
    task = ClassifyObjective(model_of(**settings))
    batch = batches.collate(range(7))
    real = torch.arange(7) < batch["lengths"][:, None]
    noise = torch.randint(TOKENIZER.vocab_size, batch["tokens"].shape)
    other = {**batch, "tokens": batch["tokens"].where(real, noise)}
    assert not torch.equal(batch["tokens"], other["tokens"])
    expected = learned(task, batch)
    torch.testing.assert_close(learned(task, other), expected)


class Fixed(torch.nn.Module):
    """A classifier that gives what it was told to."""

    def __init__(self, shares):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(shares).log())

    def forward(self, tokens, lengths):
        del lengths
        return self.logits[: len(tokens)]


def test_figures_by_hand_and_without_smoothing(batches):
    # The right answers are good, bad and so so: numbers 1, 0 and 2.
    shares = [[0.25, 0.5, 0.25], [0.125, 0.75, 0.125], [0.2, 0.2, 0.6]]
    task, batch = ClassifyObjective(Fixed(shares), smoothing=0.3), batches.collate([0, 1, 2])
    sums = {name: value.item() for name, value in task.validate(batch).items()}
    loss = -torch.tensor([0.5, 0.125, 0.6]).log().sum().item()
    assert sums == {"loss": pytest.approx(loss), "targets": 3, "right": 2}
    assert task.metrics(sums) == {
        "loss": pytest.approx(loss / 3),
        "accuracy": pytest.approx(2 / 3),
    }
    smoothed = ClassifyObjective(Fixed(shares)).loss(batch)
    assert smoothed.item() == pytest.approx(loss)
    assert task.loss(batch).item() > loss + 0.01


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_of_a_batch_sum_to_the_whole(parts, batches):
    task = ClassifyObjective(model_of(), smoothing=0.2)
    assert_parts_sum_to_the_whole(task, batches, [3, 0, 6, 2, 1, 5, 4], parts)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole(name):
    settings = ClassifySettings.from_preset(name)
    config = settings.model_config(vocab_size=7, num_answers=3)
    assert (config.vocab_size, config.num_answers) == (7, 3)
    told = json.loads(json.dumps(settings.to_json(config)))
    assert told["task"] == "classify"
    assert ClassifyData(**told["data"]) == settings.data
    assert TrainingSettings(**told["training"]) == settings.training
    assert ClassifierConfig.from_json(told["model"]) == config
    # What is read of a text fits the model, and a batch.
    assert settings.data.first + settings.data.last <= config.context_length
    assert settings.data.first + settings.data.last <= settings.data.batch_tokens


def test_assignments_go_where_their_key_belongs():
    settings = ClassifySettings.from_preset(
        "tiny",
        ["label=stars", "first=31", "last=7", "label_smoothing=0.2", "word_dropout=0.3"],
        ["a.csv"],
        ["b.csv"],
    )
    data = settings.data
    assert (data.label, data.text, data.first, data.last) == ("stars", "auto", 31, 7)
    assert [len(files) for files in (data.files, data.held_out_files)] == [1, 1]
    assert settings.training.label_smoothing == 0.2
    assert settings.model_config(vocab_size=7).word_dropout == 0.3


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            "label_smoothing=1",
            "label_smoothing must be a share from 0 to below 1, as in 0.1, got 1.",
        ),
        (
            "label_smoothing=-0.1",
            "label_smoothing must be a share from 0 to below 1, as in 0.1, got -0.1.",
        ),
        (
            "label_smoothing=much",
            "label_smoothing must be a share from 0 to below 1, as in 0.1, got 'much'.",
        ),
        ("held_out=2", "held_out must be a share between 0 and 1, as in 0.1, got 2."),
        ("held_out=0", "held_out must be a share between 0 and 1, as in 0.1, got 0."),
        ("tokenizer=xyz", "tokenizer must be one of auto, words, bpe, wordpiece, got 'xyz'."),
        ("lowercase=maybe", "lowercase must be true or false, got 'maybe'."),
        ("vocabulary=0", "vocabulary must be a whole number of at least 1, got 0"),
        ("first=0", "first must be a whole number of at least 1, got 0"),
        ("last=-1", "last must be a whole number of at least 0, got -1"),
        ("blocks=-1", "blocks must be a whole number of at least 0, got -1"),
        ("batch_tokens=many", "batch_tokens must be a whole number of at least 1, got 'many'"),
        ("text=true", "text must be the name of a column, got True."),
        ("label=none", "label must be the name of a column, got None."),
        ("num_answers=3", "--set has no 'num_answers'"),
        ("answers=3", "--set has no 'answers'"),
        ("files=a.csv", "--set has no 'files'"),
        ("held_out_files=a.csv", "--set has no 'held_out_files'"),
        ("pooling=sum", "pooling must be 'mean', 'max' or 'both', got 'sum'."),
        ("word_dropout=1", "word_dropout must be a probability from 0 to below 1, got 1"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        ClassifySettings.from_preset("tiny", [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_to_be_held_out_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out needs files to train on"):
        ClassifySettings.from_preset("tiny", held_out_files=["b.csv"])

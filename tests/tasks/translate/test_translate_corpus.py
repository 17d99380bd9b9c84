"""Pairs: read from text files beside each other and from tables, and a share of them held out.

Batches of pairs: what is shown and told, and that no pair hears of its neighbours.
Settings of `translate`: presets, and what --set changes.
"""

import gzip
import json
import lzma
import math
import re
from collections import Counter

import pytest
import torch

import glasshead as gh
from glasshead.models import TranslatorConfig
from glasshead.tasks.data.sentences import HELD_OUT, held_out, pairs
from glasshead.tasks.tokenizers.train_tokenizer import words
from glasshead.tasks.train_translator import (
    PairBatches,
    TranslateData,
    TranslateObjective,
    make_tokenizer,
    read_corpus,
    read_pairs,
)
from glasshead.tasks.training import TrainingSettings
from glasshead.tasks.training.task import IGNORED
from glasshead.tasks.translate import PRESETS, TranslateSettings
from tasks.objectives import assert_parts_sum_to_the_whole

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


WORD = re.compile(r"\w+")


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
    assert f"{short} ends after line 2: expected as many lines" in said
    assert f"as many lines in {german} ({few}) as in {english} ({many})" in said


@pytest.mark.parametrize("more", [[], ["b.jsonl"]])
def test_one_text_file_alone_is_told(write, table, more):
    files = [write("a.de", "x\n"), *(table(name, ONE) for name in more)]
    with pytest.raises(
        ValueError, match=r"text files must come in pairs, .*got 1, with .*a\.de alone"
    ):
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
        ([("a", "b")], None, "pair of texts with words in both to train on, got none"),
        (ONE, [("a", ""), ("", "b")], "texts with words in both to hold out, got none"),
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
    german = {" ".join(WORD.findall(text)) for text, _ in corpus.training}
    assert " ".join(WORD.findall(HELD_OUT.german)) not in german


def test_made_up_german_comes_with_its_punctuation_and_without():
    corpus = read_corpus(TranslateData(made_up=1009))
    generated = pairs(1009), held_out(len(corpus.held_out))
    for part, whole in zip((corpus.training, corpus.held_out), generated, strict=True):
        kinds = Counter()
        for (german, english), pair in zip(part, whole, strict=True):
            assert WORD.findall(german) == WORD.findall(pair.german)
            assert WORD.findall(english) == WORD.findall(pair.english)
            # English ends as its German does.
            assert german[-1] == pair.german[-1] or german[-1].isalpha()
            assert english[-1] == pair.english[-1] or english[-1].isalpha()
            assert german[-1].isalpha() == english[-1].isalpha()
            if "," in pair.german:
                kinds["," in german, german[-1] in ".?"] += 1
        assert len(kinds) == 4
        assert min(kinds.values()) > kinds.total() / 10
        assert kinds[True, True] > kinds.total() / 3


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


WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]


TOKENIZER = words([" ".join(WORDS)], 100)


A, B, C, D, E, F, G, H = TOKENIZER.encode(" ".join(WORDS))


PAD, START, END = TOKENIZER.pad_id, TOKENIZER.start_id, TOKENIZER.end_id


PAIRS = [
    ("a b c", "d e"),
    ("d", "a b c d e f g"),
    ("e f g h a b c d e", "h"),
    ("c c", "b b b"),
    ("h", "g f"),
    ("b a d e f", "a a a a b"),
    ("g", "c"),
]


@pytest.fixture
def batches():
    return PairBatches(TOKENIZER, PAIRS, tokens=23, seed=3)


def test_a_translation_is_shown_after_a_start_and_told_with_an_end(batches):
    found = batches.collate([0, 1, 6])
    assert found["source"].tolist() == [[A, B, C], [D, PAD, PAD], [G, PAD, PAD]]
    assert found["lengths"].tolist() == [3, 1, 1]
    filled, ignored = [PAD] * 5, [IGNORED] * 5
    assert found["target"].tolist() == [
        [START, D, E, *filled],
        [START, A, B, C, D, E, F, G],
        [START, C, PAD, *filled],
    ]
    assert found["answers"].tolist() == [
        [D, E, END, *ignored],
        [A, B, C, D, E, F, G, END],
        [C, END, IGNORED, *ignored],
    ]


def test_an_epoch_has_every_pair_once_in_batches_that_fit(batches):
    assert batches.longest == 9
    # Beside the end of a translation.
    assert PairBatches(TOKENIZER, [("a b", "c d e"), ("f", "g")], tokens=23).longest == 4
    epochs = [batches.batches(epoch) for epoch in range(3)]
    for epoch in epochs:
        assert sorted(index for batch in epoch for index in batch) == [*range(len(PAIRS))]
        for batch in epoch:
            collated = batches.collate(batch)
            assert max(collated["source"].numel(), collated["target"].numel()) <= 23
            assert batches.count(batch) == (collated["answers"] != IGNORED).sum()
    assert epochs[0] == batches.batches(0)
    assert epochs[0] != epochs[1] or epochs[1] != epochs[2]


def model_of(**given):
    torch.manual_seed(7)
    sizes = {"vocab_size": TOKENIZER.vocab_size, "d_model": 12, "num_heads": 3, "num_layers": 2}
    model = gh.Translator(gh.TranslatorConfig(**{**sizes, "dropout": 0.0, **given})).double()
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
    {},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "bias": False},
    {"positions": "learned", "order": "post", "num_decoder_layers": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_batch_learns_what_its_pairs_learn_alone(settings, batches):
    task = TranslateObjective(model_of(**settings), smoothing=0.2)
    together, gradient = learned(task, batches.collate(range(7)))
    apart = [learned(task, batches.collate([index])) for index in range(7)]
    torch.testing.assert_close(together, sum(loss for loss, _ in apart))
    for place, whole in enumerate(gradient):
        torch.testing.assert_close(whole, sum(own[place] for _, own in apart))
        assert whole.any()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_stands_in_the_padding_changes_nothing(settings, batches):
    task = TranslateObjective(model_of(**settings), smoothing=0.2)
    batch = batches.collate(range(7))
    real = {
        "source": torch.arange(9) < batch["lengths"][:, None],
        "target": batch["answers"] != IGNORED,
    }
    other = dict(batch)
    for name, where in real.items():
        noise = torch.randint(TOKENIZER.vocab_size, batch[name].shape)
        other[name] = batch[name].where(where, noise)
        assert not torch.equal(batch[name], other[name])
    expected = learned(task, batch)
    torch.testing.assert_close(learned(task, other), expected)


class Fixed(torch.nn.Module):
    """A translator that gives what it was told to."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, source, lengths, target):
        del source, lengths
        return self.logits[:, : target.shape[1]]


def test_figures_by_hand_and_without_smoothing(batches):
    """Of the pairs 4 and 6 five answers count: g, f, end and c, end."""
    batch = batches.collate([4, 6])
    shares = torch.full((2, 3, TOKENIZER.vocab_size), 0.01)
    for row, place, token, share in [
        *[(0, 0, G, 0.5), (0, 1, A, 0.8), (0, 1, F, 0.125), (0, 2, END, 0.25)],
        *[(1, 0, C, 0.75), (1, 1, B, 0.5)],
        # Not an answer, and yet the likeliest of all.
        (1, 2, 0, 0.9),
    ]:
        shares[row, place, token] = share
    shares /= shares.sum(-1, keepdim=True)
    task = TranslateObjective(Fixed(shares.log()), smoothing=0.3)
    sums = {name: value.item() for name, value in task.validate(batch).items()}
    told = [shares[0, 0, G], shares[0, 1, F], shares[0, 2, END], shares[1, 0, C], shares[1, 1, END]]
    loss = -sum(math.log(share) for share in told)
    assert sums == {"loss": pytest.approx(loss), "targets": 5, "right": 3}
    assert task.metrics(sums) == {
        "loss": pytest.approx(loss / 5),
        "perplexity": pytest.approx(math.exp(loss / 5)),
        "accuracy": pytest.approx(3 / 5),
    }
    assert TranslateObjective(Fixed(shares.log()), smoothing=0.0).loss(batch) == pytest.approx(loss)
    assert task.loss(batch).item() > loss + 0.01


def test_a_loss_beyond_all_numbers_has_a_perplexity(batches):
    task = TranslateObjective(model_of(), smoothing=0.0)
    assert math.isfinite(task.metrics({"loss": 1e6, "targets": 5, "right": 0})["perplexity"])


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_of_a_batch_sum_to_the_whole(parts, batches):
    task = TranslateObjective(model_of(), smoothing=0.2)
    assert_parts_sum_to_the_whole(task, batches, [3, 0, 6, 2, 1, 5, 4], parts)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole(name):
    settings = TranslateSettings.from_preset(name)
    config = settings.model_config(vocab_size=7)
    told = json.loads(json.dumps(settings.to_json(config)))
    assert told["task"] == "translate"
    assert TranslateData(**told["data"]) == settings.data
    assert TrainingSettings(**told["training"]) == settings.training
    assert TranslatorConfig.from_json(told["model"]) == config
    # A text as long as the model reads fits a batch.
    assert config.context_length <= settings.data.batch_tokens


def test_assignments_go_where_their_key_belongs():
    settings = TranslateSettings.from_preset(
        "small",
        ["source=de", "target=en", "lowercase=false", "label_smoothing=0", "num_decoder_layers=1"],
        ["a.de", "a.en"],
        ["b.de", "b.en"],
    )
    data = settings.data
    assert (data.source, data.target, data.lowercase) == ("de", "en", False)
    assert [len(files) for files in (data.files, data.held_out_files)] == [2, 2]
    assert settings.training.label_smoothing == 0
    assert settings.model_config(vocab_size=7).num_decoder_layers == 1


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (
            "label_smoothing=1",
            "label_smoothing must be a share from 0 to below 1, as in 0.1, got 1.",
        ),
        ("held_out=2", "held_out must be a share between 0 and 1, as in 0.1, got 2."),
        ("tokenizer=xyz", "tokenizer must be one of bpe, wordpiece, words, got 'xyz'."),
        ("tokenizer=characters", "tokenizer must be one of bpe, wordpiece, words, got"),
        ("lowercase=maybe", "lowercase must be true or false, got 'maybe'."),
        ("lowercase=1", "lowercase must be true or false, got 1."),
        ("made_up=0", "made_up must be a whole number of at least 1, got 0"),
        ("batch_tokens=0.5", "batch_tokens must be a whole number of at least 1, got 0.5"),
        ("source=[1]", "source must be the name of a column, got [1]."),
        ("pairs=3", "--set has no 'pairs'"),
        ("text=a", "--set has no 'text'"),
        ("num_decoder_layers=0", "num_decoder_layers must be a whole number of at least 1"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        TranslateSettings.from_preset("tiny", [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_to_be_held_out_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out needs files to train on"):
        TranslateSettings.from_preset("tiny", held_out_files=["b.de", "b.en"])

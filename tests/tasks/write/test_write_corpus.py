"""Settings: presets, and what --set changes.

Files of their own that a language model is validated with.
Windows: which pieces of a text are trained on, and which are told.
Writing with stop strings, and for several prompts at once.
"""

import json
from pathlib import Path

import pytest
import torch

from glasshead.models import LanguageModelConfig
from glasshead.models.decoding import Beam, Greedy, Sampling
from glasshead.models.language_model import LanguageModelSteps
from glasshead.tasks.train_writer import (
    HeldOutWindows,
    RepeatingWindows,
    TrainingWindows,
    WriteData,
    read_corpus,
)
from glasshead.tasks.training import TrainingSettings
from glasshead.tasks.training.task import IGNORED
from glasshead.tasks.write import PRESETS, Writer, WriteSettings, evaluate
from written import written


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole(name):
    settings = WriteSettings.from_preset(name)
    assert settings.model_config(vocab_size=7).vocab_size == 7
    told = json.loads(json.dumps(settings.to_json(settings.model_config(vocab_size=7))))
    assert WriteData(**told["data"]) == settings.data
    assert TrainingSettings(**told["training"]) == settings.training
    assert LanguageModelConfig.from_json(told["model"]) == settings.model_config(vocab_size=7)


def test_assignments_go_where_their_key_belongs():
    settings = WriteSettings.from_preset(
        "nano",
        ["steps=201", "d_model=64", "vocabulary=311", "clip=none", "bias=true", "norm=rms"],
        ["a.txt"],
    )
    assert settings.training.steps == 201
    assert settings.training.clip is None
    assert settings.data.vocabulary == 311
    assert settings.data.files == (str(Path("a.txt").absolute()),)
    config = settings.model_config(vocab_size=7)
    assert (config.d_model, config.bias, config.norm) == (64, True, "rms")


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("steps", "--set must be key=value, as in --set steps=500, got 'steps'. Add the value."),
        ("=5", "--set must be key=value"),
        ("stepz=5", "--set has no 'stepz'. Did you mean 'steps'?"),
        ("sha256=5", "--set has no 'sha256'"),
        ("vocab_size=5", "--set has no 'vocab_size'"),
        ("steps=many", "steps must be a whole number of at least 1, got 'many'"),
        ("learning_rate=nan", "learning_rate must be a number from 0, got "),
        ("num_heads=7", "num_heads must divide d_model=128, got 7"),
        ("tokenizer=words", "tokenizer must be one of characters, bpe, wordpiece, gpt2, got"),
        ("tokenizer=gpt2", "tokenizer=gpt2 needs the folder with encoder.json and vocab.bpe. Add"),
        ("held_out=2", "held_out must be a share between 0 and 1, as in 0.1, got 2"),
        ("batch_size=0", "batch_size must be a whole number"),
        ("gpt2=3", "gpt2 must be a text, got 3."),
        ("field=3.5", "field must be the name of a column, got 3.5"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        WriteSettings.from_preset("nano", [assignment])
    assert said in str(caught.value)


def test_an_unknown_preset_is_told():
    with pytest.raises(ValueError, match="--preset has no 'nanno'. Did you mean 'nano'?"):
        WriteSettings.from_preset("nanno")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("One sunny day Emma took her ball. " * 40)
    (tmp_path / "valid.txt").write_text("Her red ball was under the tree. " * 7)
    return str(tmp_path / "train.txt"), str(tmp_path / "valid.txt")


def test_all_of_the_others_is_trained_on(files):
    train, valid = files
    corpus = read_corpus(WriteData(files=(train,), held_out_files=(valid,)))
    assert corpus.training == ("One sunny day Emma took her ball. " * 40,)
    assert corpus.held_out == ("Her red ball was under the tree. " * 7,)
    # Without them, a part of the text is held out.
    (cut,) = read_corpus(WriteData(files=(train,))).training
    assert len(cut) == 34 * 36


def test_they_are_what_a_run_is_evaluated_on(files, tmp_path):
    train, valid = files
    writer = Writer.load(written(tmp_path / "run", files=(train,), held_out=(valid,)).path)
    assert evaluate(writer) == evaluate(writer, [valid])
    (tmp_path / "valid.txt").write_text("Her red ball. " * 7)
    with pytest.raises(ValueError, match="the texts must be those .*. Name a FILE to evaluate on"):
        evaluate(writer)


def test_they_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out needs files to train on"):
        WriteSettings.from_preset("nano", held_out_files=["valid.txt"])


def test_held_out_windows_tell_each_token_but_the_first_once():
    tokens = torch.arange(100, 123)
    windows = HeldOutWindows(tokens, length=5)
    told, after = [], []
    for batch in windows.batches():
        collated = windows.collate(batch)
        counted = collated["targets"] != IGNORED
        assert windows.count(batch) == counted.sum()
        told += collated["targets"][counted].tolist()
        after += collated["tokens"][counted].tolist()
    assert told == list(range(101, 123))
    assert after == list(range(100, 122))


def test_a_training_epoch_has_no_token_twice_and_misses_less_than_two_pieces():
    tokens = torch.arange(211)
    windows = TrainingWindows(tokens, length=7, batch_size=1, seed=3)
    seen = [
        token
        for batch in windows.batches(epoch=5)
        for token in windows.collate(batch)["tokens"].flatten().tolist()
    ]
    assert len(seen) == len(set(seen))
    assert len(seen) > 211 - 2 * 7


def test_what_follows_each_token_is_its_target():
    windows = TrainingWindows(torch.arange(53), length=5, batch_size=3, seed=0)
    for batch in windows.batches(epoch=0):
        collated = windows.collate(batch)
        assert torch.equal(collated["targets"], collated["tokens"] + 1)


def test_epochs_are_functions_of_seed_and_number():
    def places(seed, epoch):
        return TrainingWindows(torch.arange(211), 7, 3, seed).batches(epoch)

    assert places(1, 0) == places(1, 0)
    assert places(1, 0) != places(1, 1)
    assert places(1, 0) != places(2, 0)


@pytest.mark.parametrize("tokens", [8, 9, 13])
def test_a_text_of_hardly_more_than_one_piece_has_a_batch(tokens):
    windows = TrainingWindows(torch.arange(tokens), length=7, batch_size=11, seed=0)
    for epoch in range(5):
        (batch,) = windows.batches(epoch)
        assert windows.collate(batch)["targets"].max() < tokens
        assert windows.count(batch) == 7


def repeating(**changed):
    given = {"length": 23, "batch_size": 7, "seed": 3, "repeats": 3, "vocab_size": 97}
    return RepeatingWindows(torch.arange(211), **given | {"special": {0, 5}} | changed)


def test_rows_of_random_tokens_stand_beside_windows_and_repeat():
    windows, texts = repeating(), TrainingWindows(torch.arange(211), 23, batch_size=4, seed=3)
    batches = windows.batches(epoch=2)
    assert [[place for place in batch if place >= 0] for batch in batches] == texts.batches(2)
    for batch in batches:
        assert len(batch) == 7
        assert windows.count(batch) == 7 * 23
        collated = windows.collate(batch)
        own = texts.collate(batch[:4])
        for name, rows in collated.items():
            assert torch.equal(rows[:4], own[name])
        assert torch.equal(collated["targets"][:, :-1], collated["tokens"][:, 1:])
        for row in collated["tokens"][4:].tolist():
            period = next(p for p in range(2, 23) if row[p:] == row[:-p])
            assert period <= 23 // 5
            assert len({*row}) == period
            assert not {0, 5} & {*row}


def test_each_row_of_random_tokens_is_its_own_and_follows_from_seed_and_epoch():
    def rows(epoch, **changed):
        windows = repeating(**changed)
        drawn = [place for batch in windows.batches(epoch) for place in batch if place < 0]
        return {tuple(row) for row in windows.collate(drawn)["tokens"].tolist()}

    assert rows(0) == rows(0)
    assert len(rows(0)) == 3 * len(repeating().batches(0))
    assert not rows(0) & rows(1)
    assert not rows(0) & rows(0, seed=4)


def test_repeats_leave_room_for_text():
    with pytest.raises(ValueError, match=r"repeats must be less than batch_size=12, got 12\."):
        WriteData(repeats=12)


PROMPTS = ["One day", "", "The sun", "A", "O", "One sunny day Emma", "One d"]


STRATEGIES = [Greedy(), Greedy(repetition_penalty=1.4), Sampling(0.0), Beam(3)]


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return Writer.load(written(tmp_path_factory.mktemp("runs") / "run", "context_length=23").path)


def alone(writer, prompt, strategy, **asked):
    return "".join(writer.write(prompt, strategy, **asked))


@pytest.fixture
def fed(monkeypatch):
    """How many rows and tokens the model was fed, step by step."""
    shapes, next_ = [], LanguageModelSteps.next

    def counted(self, tokens):
        shapes.append(tuple(tokens.shape))
        return next_(self, tokens)

    monkeypatch.setattr(LanguageModelSteps, "next", counted)
    return shapes


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("tokens", [3, 16])
def test_prompts_side_by_side_have_the_texts_that_they_have_alone(writer, strategy, tokens):
    found = writer.write_all(PROMPTS, strategy, max_tokens=tokens)
    expected = [alone(writer, prompt, strategy, max_tokens=tokens) for prompt in PROMPTS]
    assert found == expected
    assert len(set(found)) > 3


def test_prompts_are_written_together_within_the_context_alone(writer, fed):
    # A context of 23: 18 + 5 tokens fit into it, 18 + 6 do not.
    writer.write_all(PROMPTS, Greedy(), max_tokens=5)
    assert fed[0] == (7, 18)
    fed.clear()
    writer.write_all(PROMPTS, Greedy(), max_tokens=6)
    assert [shape for shape in fed if shape[1] > 1] == [(6, 7), (1, 18)]


def test_equal_prompts_are_drawn_apart_and_the_same_again(writer):
    texts = writer.write_all(["One"] * 5, Sampling(seed=3), max_tokens=13)
    assert len(set(texts)) == 5
    assert texts == writer.write_all(["One"] * 5, Sampling(seed=3), max_tokens=13)
    assert texts[0] == alone(writer, "One", Sampling(seed=3), max_tokens=13)
    # The place decides, and not the company.
    others = writer.write_all(["One", "A", "One sunny"], Sampling(seed=3), max_tokens=13)
    assert others[0] == texts[0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_text_ends_before_a_stop_string(writer, strategy):
    whole = writer.write_all(PROMPTS, strategy, max_tokens=15)
    stop = [whole[0][3:5], whole[5][6:9]]
    expected = [min((text.split(one)[0] for one in stop), key=len) for text in whole]
    assert writer.write_all(PROMPTS, strategy, max_tokens=15, stop=stop) == expected
    assert alone(writer, PROMPTS[5], strategy, max_tokens=15, stop=stop) == expected[5]
    assert expected != whole


def test_nothing_is_computed_after_a_stop_string(writer, fed):
    whole = alone(writer, "One day", Greedy(), max_tokens=15)
    stop = next(whole[:end] for end in range(1, 9) if whole.find(whole[:end]) == 0)
    fed.clear()
    assert alone(writer, "One day", Greedy(), max_tokens=15, stop=[whole[:3]]) == ""
    assert fed == [(1, 7), (1, 1), (1, 1)]
    fed.clear()
    texts = writer.write_all(["One day"] * 2, Greedy(), max_tokens=15, stop=[stop, whole[:3]])
    assert texts == ["", ""]
    assert len(fed) == len(stop)


def test_pieces_come_as_they_are_written(writer, fed):
    pieces = writer.write("One day", Greedy(), max_tokens=9, stop=["no such text"])
    assert fed == []
    next(pieces)
    assert fed == [(1, 7)]


@pytest.mark.parametrize(
    ("asked", "error", "match"),
    [
        ({"prompts": "One"}, TypeError, "prompts must be several texts, got one. Put it"),
        ({"prompts": ["One", "Straße"]}, ValueError, "the prompt has 'ß', which the texts of this"),
        ({"max_tokens": 0}, ValueError, "max_tokens must be a whole number of at least 1, got 0"),
        (
            {"stop": "x"},
            TypeError,
            "stop must be a list of strings, got 'x'. Put the text into a list",
        ),
    ],
)
def test_what_cannot_be_written_is_told(writer, asked, error, match):
    asked = {"prompts": ["One"], "strategy": Greedy(), "max_tokens": 3, **asked}
    with pytest.raises(error, match=match):
        writer.write_all(asked.pop("prompts"), asked.pop("strategy"), **asked)


def test_no_prompts_have_no_texts(writer):
    assert writer.write_all([], Greedy(), max_tokens=3) == []

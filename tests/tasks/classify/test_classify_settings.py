"""Settings of `classify`: presets, and what --set changes."""

import json

import pytest

from glasshead.models import ClassifierConfig
from glasshead.tasks.classify import PRESETS, ClassifySettings
from glasshead.tasks.classify.train import ClassifyData
from glasshead.tasks.training import TrainingSettings


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
    assert (data.label, data.text, data.first, data.last) == ("stars", "text", 31, 7)
    assert [len(files) for files in (data.files, data.held_out_files)] == [1, 1]
    assert settings.training.label_smoothing == 0.2
    assert settings.model_config(vocab_size=7).word_dropout == 0.3


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("label_smoothing=1", "label_smoothing takes a share below 1, as in 0.1, and got 1."),
        ("label_smoothing=-0.1", "label_smoothing takes a number from 0, and got -0.1."),
        ("label_smoothing=much", "label_smoothing takes a number from 0, and got 'much'."),
        ("held_out=2", "held_out takes a share between 0 and 1, as in 0.1, and got 2."),
        ("held_out=0", "held_out takes a share between 0 and 1, as in 0.1, and got 0."),
        ("tokenizer=xyz", "tokenizer takes one of words, bpe, wordpiece, and got 'xyz'."),
        ("lowercase=maybe", "lowercase takes true or false, and got 'maybe'."),
        ("vocabulary=0", "vocabulary takes a whole number of at least 1, and got 0"),
        ("first=0", "first takes a whole number of at least 1, and got 0"),
        ("last=-1", "last takes a whole number of at least 0, and got -1"),
        ("blocks=-1", "blocks takes a whole number of at least 0, and got -1"),
        ("batch_tokens=many", "batch_tokens takes a whole number of at least 1, and got str"),
        ("text=3", "text takes the name of a column, and got 3."),
        ("label=none", "label takes the name of a column, and got None."),
        ("num_answers=3", "--set knows no 'num_answers'"),
        ("answers=3", "--set knows no 'answers'"),
        ("files=a.csv", "--set knows no 'files'"),
        ("held_out_files=a.csv", "--set knows no 'held_out_files'"),
        ("pooling=sum", "pooling takes one of 'mean', 'max', 'both', and got 'sum'."),
        ("word_dropout=1", "word_dropout takes a probability from 0 to below 1, and got 1"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        ClassifySettings.from_preset("tiny", [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_to_be_held_out_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out takes files beside those that are trained on"):
        ClassifySettings.from_preset("tiny", held_out_files=["b.csv"])

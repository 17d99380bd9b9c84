"""Settings of `translate`: presets, and what --set changes."""

import json

import pytest

from glasshead.models import TranslatorConfig
from glasshead.tasks.training import TrainingSettings
from glasshead.tasks.translate import PRESETS, TranslateSettings
from glasshead.tasks.translate.train import TranslateData


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
        ("label_smoothing=1", "label_smoothing takes a share below 1, as in 0.1, and got 1."),
        ("held_out=2", "held_out takes a share between 0 and 1, as in 0.1, and got 2."),
        ("tokenizer=xyz", "tokenizer takes one of bpe, wordpiece, words, and got 'xyz'."),
        ("tokenizer=characters", "tokenizer takes one of bpe, wordpiece, words, and got"),
        ("lowercase=maybe", "lowercase takes true or false, and got 'maybe'."),
        ("lowercase=1", "lowercase takes true or false, and got 1."),
        ("made_up=0", "made_up takes a whole number of at least 1, and got 0"),
        ("batch_tokens=0.5", "batch_tokens takes a whole number of at least 1, and got 0.5"),
        ("source=[1]", "source takes the name of a column, and got [1]."),
        ("pairs=3", "--set knows no 'pairs'"),
        ("text=a", "--set knows no 'text'"),
        ("num_decoder_layers=0", "num_decoder_layers takes a whole number of at least 1"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        TranslateSettings.from_preset("tiny", [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_to_be_held_out_take_files_to_train_on():
    with pytest.raises(ValueError, match="--held-out takes files beside those that are trained on"):
        TranslateSettings.from_preset("tiny", held_out_files=["b.de", "b.en"])

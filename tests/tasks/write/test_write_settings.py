"""Settings: presets, and what --set changes."""

import json
from pathlib import Path

import pytest

from glasshead.models import LanguageModelConfig
from glasshead.tasks.training import TrainingSettings
from glasshead.tasks.write import PRESETS, WriteSettings
from glasshead.tasks.write.train import WriteData


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
        ("steps", "--set takes key=value, as in --set steps=500, and got 'steps': add the value."),
        ("=5", "--set takes key=value"),
        ("stepz=5", "--set knows no 'stepz': did you mean 'steps'?"),
        ("sha256=5", "--set knows no 'sha256'"),
        ("vocab_size=5", "--set knows no 'vocab_size'"),
        ("steps=many", "steps takes a whole number from 1, and got 'many'"),
        ("learning_rate=nan", "learning_rate takes a number from 0, and got "),
        ("num_heads=7", "num_heads takes a number that divides d_model=128, and got 7"),
        ("tokenizer=words", "tokenizer takes one of characters, bpe, wordpiece, gpt2, and got"),
        ("tokenizer=gpt2", "tokenizer=gpt2 takes the folder with encoder.json and vocab.bpe too"),
        ("held_out=2", "held_out takes a share between 0 and 1, as in 0.1, and got 2"),
        ("batch_size=0", "batch_size takes a whole number"),
        ("field=3", "field takes the name of a column, and got 3"),
    ],
)
def test_bad_assignments_are_told(assignment, said):
    with pytest.raises((ValueError, TypeError)) as caught:
        WriteSettings.from_preset("nano", [assignment])
    assert said in str(caught.value)


def test_an_unknown_preset_is_told():
    with pytest.raises(ValueError, match="--preset knows no 'nanno': did you mean 'nano'?"):
        WriteSettings.from_preset("nanno")

"""Bounds of settings: a number beyond all use is refused where it is read, and nothing is built."""

import dataclasses
import json

import pytest

from glasshead import models
from glasshead.models.decoding import Beam
from glasshead.tasks import run_settings
from glasshead.tasks.classify import ClassifySettings
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware, check_hardware
from glasshead.tasks.translate import TranslateSettings
from glasshead.tasks.write import WRITE, WriteSettings

KINDS = [WriteSettings, ClassifySettings, TranslateSettings]


def numbers(kind):
    """The names of all settings that are whole numbers, but for what is found out."""
    parts = (kind.data_kind, kind.config_kind, type(kind.from_preset("tiny").training))
    return [
        field.name
        for part in parts
        for field in dataclasses.fields(part)
        if "int" in str(field.type)
        and field.name not in (*kind.unknown, *getattr(part, "found", ()))
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [2**64 + 13, 10**29 + 7, 7**2003])
def test_no_setting_takes_a_number_beyond_all_use(kind, number):
    names = numbers(kind)
    assert {"steps", "seed", "vocabulary", "num_layers", "d_hidden"} <= set(names)
    for name in names:
        with pytest.raises(
            ValueError, match=f"^{name} takes .*(at most|60 bits).*and got "
        ) as told:
            kind.from_preset("tiny", [f"{name}={number}"])
        assert len(str(told.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("written", ["9" * 5003, "[" * 5003, f"1{'0' * 401}", "1e999", "NaN"])
@pytest.mark.parametrize("name", ["steps", "learning_rate", "d_model", "dropout", "vocabulary"])
def test_what_is_no_number_is_told_in_a_sentence(kind, name, written):
    with pytest.raises((ValueError, TypeError), match=f"^{name} takes a") as told:
        kind.from_preset("tiny", [f"{name}={written}"])
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_what_presets_ask_for_is_within_the_bounds(kind):
    for name in kind.presets:
        kind.from_preset(name).check_memory(vocab_size=50_257)


def test_a_model_that_no_memory_holds_is_refused_before_it_is_built(tmp_path, monkeypatch):
    settings = WriteSettings.from_preset("tiny", ["d_model=1031", "num_heads=1", "positions=none"])
    least = settings.model_config().least_parameters
    monkeypatch.setattr(run_settings, "available_memory", lambda: 12 * least - 1)
    with pytest.raises(ValueError, match=r"takes 0\.3 GB of memory at least, and there is 0\.3 GB"):
        WRITE.begin(settings, RunFolder(tmp_path / "run"), "glasshead train write")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(run_settings, "available_memory", lambda: 12 * least)
    settings.check_memory()
    monkeypatch.setattr(run_settings, "available_memory", lambda: None)
    settings.check_memory()


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_counted_as_they_are_built(kind):
    settings = kind.from_preset("tiny", ["d_model=24", "num_heads=3", "num_layers=2"])
    config = settings.model_config(vocab_size=53)
    names = {"write": "LanguageModel", "classify": "Classifier", "translate": "Translator"}
    model = getattr(models, names[kind.task])(config)
    built = sum(parameter.numel() for parameter in model.parameters())
    assert 0.8 * built < config.least_parameters <= built
    assert json.dumps(config.to_json())


@pytest.mark.parametrize("name", ["devices", "nodes"])
@pytest.mark.parametrize("number", [1031, 10**29])
def test_processes_and_machines_have_a_bound(name, number):
    with pytest.raises(ValueError, match=f"{name} takes a whole number of at most 1024, and got 1"):
        Hardware(**{name: number})


def test_a_cpu_has_a_process_for_each_core_at_most(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    check_hardware(Hardware(devices=5, accelerator="cpu"), "adamw", resume=False)
    with pytest.raises(ValueError, match="devices takes at most 5 on this CPU, .* and got 7: ask"):
        check_hardware(Hardware(devices=7, accelerator="cpu"), "adamw", resume=False)


@pytest.mark.parametrize("width", [1031, 2**31, 10**29])
def test_a_beam_has_a_bound(width):
    with pytest.raises(ValueError, match=r"Beam\(width\) takes a whole number of at most 1024, an"):
        Beam(width)

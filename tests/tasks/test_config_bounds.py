"""Configs that ask for more than the weights beside them hold are refused before it is built.

Bounds of settings: a number beyond all use is refused where it is read, and nothing is built.
"""

import dataclasses
import json
import shutil
from contextlib import contextmanager

import pytest
import torch
from torch.nn.modules import module as modules

from glasshead import models
from glasshead.models.decoding import Beam
from glasshead.models.saving import bounded_by
from glasshead.tasks import run_settings
from glasshead.tasks.classify import ClassifySettings
from glasshead.tasks.readers.open_reader import open_any_reader
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import Hardware, check_hardware
from glasshead.tasks.translate import TranslateSettings
from glasshead.tasks.write import WRITE, Writer, WriteSettings
from pretrained_folders import TOKENS, tokenizer_files
from written import written

VOCABULARY = len(TOKENS) + 3


@contextmanager
def nothing_built():
    """Fail where a parameter is made that takes memory."""

    def refuse(module, name, tensor):
        assert tensor is None or tensor.is_meta, (type(module), name, tensor.shape)

    hook = modules.register_module_parameter_registration_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run").path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small models of transformers, by what their configs call the number of layers and heads."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": 67,
    }
    made = {
        "bert": transformers.BertModel(transformers.BertConfig(**sizes)),
        "neox": transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes)),
        "gpt2": transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=VOCABULARY,
                n_embd=24,
                n_head=3,
                n_layer=2,
                n_positions=67,
                bos_token_id=1,
                eos_token_id=2,
            )
        ),
        "distilbert": transformers.DistilBertModel(
            transformers.DistilBertConfig(
                vocab_size=VOCABULARY, dim=24, n_layers=2, n_heads=3, hidden_dim=20
            )
        ),
    }
    root = tmp_path_factory.mktemp("models")
    for name, model in made.items():
        model.save_pretrained(root / name)
        tokenizer_files(root / name, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return root


def changed(folder, target, section=None, **values):
    """A copy of a folder whose config.json says something else."""
    shutil.copytree(folder, target)
    file = target / "config.json"
    config = json.loads(file.read_text())
    (config if section is None else config[section]).update(values)
    file.write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    "values",
    [
        {"num_layers": 4093},
        {"num_layers": 10**12},
        {"num_layers": 2**64},
        {"d_model": 2**19, "num_heads": 2},
        {"d_hidden": 2**23},
        {"head_dim": 10**6 + 1},
        {"positions": "learned", "context_length": 2**29},
        {"num_heads": -1},
        {"d_model": float("nan")},
    ],
    ids=str,
)
def test_a_run_is_no_larger_than_its_weights(tmp_path, run, values):
    folder = changed(run, tmp_path / "run", "model", **values)
    with (
        nothing_built(),
        pytest.raises(ValueError, match=r"config\.json (describes|is not what)"),
    ):
        Writer.load(folder)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *(("bert", {"num_hidden_layers": value}) for value in (2**64, 10**7, 0, -3)),
        *(("gpt2", {"n_layer": value}) for value in (10**12, 1009)),
        ("distilbert", {"n_layers": 2**33}),
        ("neox", {"num_hidden_layers": 5003}),
        ("bert", {"intermediate_size": 2**34}),
        ("gpt2", {"n_embd": 3 * 2**20}),
        ("gpt2", {"vocab_size": 2**31}),
        ("neox", {"max_position_embeddings": 2**65}),
    ],
    ids=str,
)
def test_a_model_is_no_larger_than_its_weights(tmp_path, folders, kind, values):
    folder = changed(folders / kind, tmp_path / kind, **values)
    with (
        nothing_built(),
        pytest.raises(
            ValueError, match=r"config\.json (states|describes|needs|must)|in .*config\.json must"
        ) as told,
    ):
        open_any_reader(folder)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bert", {"num_attention_heads": -1}),
        ("bert", {"hidden_dropout_prob": float("nan")}),
        ("bert", {"architectures": 7}),
        ("bert", {"architectures": {"a": 1}}),
        ("distilbert", {"n_heads": -2}),
        ("gpt2", {"n_head": "three"}),
        ("neox", {"num_attention_heads": None}),
        ("neox", {"hidden_size": [24]}),
    ],
    ids=str,
)
def test_a_config_is_read_or_refused_in_a_sentence(tmp_path, folders, kind, values):
    folder = changed(folders / kind, tmp_path / kind, **values)
    said = ""
    try:
        open_any_reader(folder).read(torch.tensor([[3, 5, 7]]))
    except ValueError as error:
        said = str(error)
    assert not said or str(folder) in said
    assert "\n" not in said


@pytest.mark.parametrize("kind", ["bert", "gpt2", "neox", "distilbert"])
def test_a_model_that_fits_its_weights_is_read(folders, kind):
    open_any_reader(folders / kind).read(torch.tensor([[3, 5, 7]]))


def test_what_is_built_is_counted_in_tensors_and_in_numbers():
    shapes = {"weight": (3, 5), "bias": (5,)}
    with bounded_by(shapes, "config.json"), torch.device("meta"):
        torch.nn.Linear(3, 5)
    with (
        torch.device("meta"),
        pytest.raises(
            ValueError, match=("weights next to it, which have 2 tensors with 20 numbers in all")
        ),
        bounded_by(shapes, "config.json"),
    ):
        torch.nn.Linear(2**14, 2**13)
    with (
        pytest.raises(ValueError, match=r"config\.json describes a larger model than the weights"),
        bounded_by(shapes, "config.json"),
    ):
        [torch.nn.LayerNorm(3) for _ in range(37)]
    # Afterwards all is as before.
    assert len([torch.nn.LayerNorm(3) for _ in range(101)]) == 101


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
        with pytest.raises(ValueError, match=f"^{name} must be .*(at most|60 bits).*got ") as told:
            kind.from_preset("tiny", [f"{name}={number}"])
        assert len(str(told.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("written", ["9" * 5003, "[" * 5003, f"1{'0' * 401}", "1e999", "NaN"])
@pytest.mark.parametrize("name", ["steps", "learning_rate", "d_model", "dropout", "vocabulary"])
def test_what_is_no_number_is_told_in_a_sentence(kind, name, written):
    with pytest.raises((ValueError, TypeError), match=f"^{name} must be a") as told:
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
    with pytest.raises(ValueError, match=r"needs at least 0\.3 GB of memory, got 0\.3 GB"):
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
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at most 1024, got 1"):
        Hardware(**{name: number})


def test_a_cpu_has_a_process_for_each_core_at_most(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    check_hardware(Hardware(devices=5, accelerator="cpu"), "adamw", resume=False)
    with pytest.raises(ValueError, match="devices must be at most 5 on this CPU, .* got 7"):
        check_hardware(Hardware(devices=7, accelerator="cpu"), "adamw", resume=False)


@pytest.mark.parametrize("width", [1031, 2**31, 10**29])
def test_a_beam_has_a_bound(width):
    with pytest.raises(ValueError, match=r"Beam\(width\) must be a whole number of at most 1024"):
        Beam(width)

"""What each command and function takes: it runs with its extra alone, and names it without."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

import forked
from classified import classified
from environments import libraries
from glasshead import extras
from glasshead.cli import main
from glasshead.extras import EXTRAS
from pretrained_folders import llama2c_files, llama_folder
from scripts import ROOT
from translated import translated
from written import written

# By the extras that it takes, a command and who says so where they are missing.
TAKES = {
    "": ("explain", "diagnose mask.npy", "observe", "explain --html page.html"),
    "hf": (
        "observe llama --text text.txt",
        "observe run --text text.txt",
        "roles llama",
        "roles run",
        "report llama --text text.txt --html page.html",
        "report run --text text.txt --html page.html",
        "write run --prompt Lily --tokens 3",
        "write llama2c --prompt a --tokens 3",
        "near run a",
        "near llama2c ab",
        "classify classifier fine",
        "translate translator ich",
        "evaluate write run",
        "evaluate classify classifier",
    ),
    "png,hf": ("near run a --png near.png", "roles run --png roles.png"),
    "train": (
        "train write --run new --set steps=2 --set warmup=1 --set stories=211",
        "evaluate translate translator --beam 1",
    ),
}
COMMANDS = [(extra, command) for extra, commands in TAKES.items() for command in commands]
RUN = """
import contextlib, io, json, sys
from glasshead.cli import main
results = {}
for command in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = main(command.split())
    results[command] = [code, said.getvalue()]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with models of every kind, untrained, and texts."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("place")
    written(folder / "run", "tokenizer=characters")
    classified(folder / "classifier")
    translated(folder / "translator")
    llama2c_files(folder / "llama2c")
    transformers.utils.logging.disable_progress_bar()
    llama_folder(folder / "llama")
    transformers.utils.logging.enable_progress_bar()
    (folder / "text.txt").write_text("a b a b c abc " * 3)
    np.save(folder / "mask.npy", np.tril(np.ones((5, 5), dtype=bool)))
    return folder


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    """A folder with the libraries that the package takes without extras."""
    return libraries(tmp_path_factory.mktemp("core") / "site")


@pytest.fixture
def with_extras(core, place, tmp_path) -> Any:
    """What code prints as JSON where nothing is installed but the libraries of some extras."""

    def run(extras: str, code: str, *arguments: str) -> Any:
        site = core
        if extras:
            site = libraries(tmp_path / "site", *extras.split(","))
        path = os.pathsep.join([str(ROOT), str(site)])
        done = forked.Process(
            *("-c", code, *arguments),
            fresh=True,
            libraries=core,
            cwd=place,
            env=os.environ | {"COLUMNS": "80", "PYTHONPATH": path},
        ).ended()
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.slow
@pytest.mark.parametrize("extra", TAKES)
def test_a_command_runs_with_its_extra_alone(extra, with_extras):
    outcomes = with_extras(extra, RUN, json.dumps(TAKES[extra]))
    assert {command: said for command, (code, said) in outcomes.items() if code} == {}


def test_without_its_extra_a_command_names_it(place, with_extras):
    commands = [command for extra, command in COMMANDS if extra]
    words = json.dumps([*commands, "studio --no-open", "demo"])
    before = {path.name for path in place.iterdir()}
    outcomes = with_extras("", RUN, words)
    assert {path.name for path in place.iterdir()} == before
    named = {
        command: said.partition("not installed here. Run pip install ")[2]
        for command, (code, said) in outcomes.items()
        if code == 2 and said.startswith(f"glasshead: error: glasshead {command.split()[0]}")
    }
    # What opens a model is missed before what draws it.
    expected = {
        command: "'glasshead[hf]'.\n" if extra == "png,hf" else f"'glasshead[{extra}]'.\n"
        for extra, command in COMMANDS
        if extra
    }
    studio = {"studio --no-open": "'glasshead[studio]'.\n", "demo": "'glasshead[train]'.\n"}
    assert named == expected | studio


@pytest.mark.parametrize("command", TAKES["png,hf"])
def test_a_picture_takes_its_own_extra(command, place, monkeypatch, capsys):
    deny(monkeypatch, "matplotlib")
    monkeypatch.chdir(place)
    assert main(command.split()) == 2
    told = f"glasshead {command.split()[0]} --png needs matplotlib, not installed here. Run "
    assert f"{told}pip install 'glasshead[png]'." in capsys.readouterr().err


# What only a part of an extra's commands takes, and one that does.
OF_SOME = {
    "torchmetrics": "evaluate classify classifier",
    "transformers": "roles llama",
    "tokenizers": "near run a",
    "pydantic": "train write --run new",
    "lightning": "train write --run new",
    "sacrebleu": "evaluate translate translator",
    "matplotlib": "near run a --png near.png",
    "fastapi": "studio --no-open",
    "uvicorn": "studio --no-open",
}


@pytest.mark.parametrize("library", OF_SOME)
def test_each_library_of_an_extra_is_one_that_a_command_takes(library, place, monkeypatch, capsys):
    deny(monkeypatch, library)
    monkeypatch.chdir(place)
    assert main(OF_SOME[library].split()) == 2
    assert f" needs {library}, not installed here. " in capsys.readouterr().err


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    written = {
        extra: tuple(sorted(Requirement(line).name for line in lines))
        for extra, lines in project["optional-dependencies"].items()
        # A dataset of Ray is given by who has Ray, and an engine of vLLM by who has vLLM.
        if extra not in {"ray", "gpu", "vllm"}
    }
    assert written == {extra: tuple(sorted(names)) for extra, names in EXTRAS.items()}
    # gh.flow is no command, and takes networkx: test_analytics_rollout.
    brought = {library for libraries in EXTRAS.values() for library in libraries}
    assert brought == {*OF_SOME, "networkx"}


def test_without_an_extra_eight_libraries_are_brought():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {Requirement(line).name for line in project["dependencies"]}
    core = "torch numpy numba jaxtyping safetensors typer rich jinja2"
    assert brought == set(core.split())


# By name, the library that the function takes; what is not here takes none.
FUNCTIONS = {
    "CorpusStatistics": "torchmetrics",
    "Writer": "tokenizers",
    "find_roles": "tokenizers",
    "observe_dataset": "tokenizers",
    "observe_texts": "tokenizers",
}
IMPORTED = """
import glasshead as gh, json
results = {}
for name in gh.__all__:
    try:
        getattr(gh, name)
    except ImportError as error:
        results[name] = str(error)
for path in ("with_lightning", "with_transformers"):
    try:
        __import__(f"glasshead.watching.alarms.{path}")
    except ImportError as error:
        results[path] = str(error)
for folder in ("run", "llama"):
    try:
        gh.Report(folder, "a b")
    except ImportError as error:
        results[f"Report {folder}"] = str(error)
gh.Report(None, "a b").html()
print(json.dumps(results))
"""


@pytest.mark.slow
def test_public_names_take_no_extra_or_name_it(core, with_extras):
    told = with_extras("", IMPORTED)
    take = "{} needs {}, not installed here. Run pip install 'glasshead[{}]'."
    expected = {
        name: take.format(f"gh.{name}", library, "hf") for name, library in FUNCTIONS.items()
    }
    if not (core / "pydantic").exists():
        # Some versions of what is always installed bring it.
        expected["find_roles"] = take.format("gh.find_roles", "pydantic", "hf")
    expected["CorpusStatistics"] = take.format("CorpusStatistics", "torchmetrics", "hf")
    expected["with_lightning"] = take.format("LightningAlarms", "lightning", "train")
    expected["with_transformers"] = take.format("TransformersAlarms", "transformers", "hf")
    expected["Report run"] = take.format("a report of a model", "tokenizers", "hf")
    expected["Report llama"] = take.format("a report of a model", "transformers", "hf")
    assert told == expected


def test_a_model_of_hugging_face_says_that_it_takes_transformers(place, monkeypatch):
    import glasshead as gh

    deny(monkeypatch, "transformers")
    with pytest.raises(ImportError, match=r"opening .*llama needs transformers, .*glasshead\[hf\]"):
        gh.find_roles(place / "llama", period=5)


def test_measuring_a_model_says_what_it_takes(place, monkeypatch):
    from glasshead.models.decoding import Greedy
    from glasshead.tasks import classify, translate

    deny(monkeypatch, "sacrebleu")
    translator = translate.TextTranslator.load(place / "translator")
    with pytest.raises(ImportError, match=r"needs sacrebleu, .*glasshead\[train\]"):
        translate.evaluate(translator, (), Greedy())
    deny(monkeypatch, "torchmetrics")
    classifier = classify.TextClassifier.load(place / "classifier")
    with pytest.raises(ImportError, match=r"needs torchmetrics, .*glasshead\[hf\]"):
        classify.evaluate(classifier)


def deny(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Let a library look as if it were not installed."""
    find = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == library else find(name))


def test_a_library_that_no_extra_brings_has_none():
    with pytest.raises(KeyError, match="jupyter"):
        extras.extra_of(["jupyter"])
    with pytest.raises(KeyError, match="jupyter"):
        extras.extra_of(["transformers", "jupyter"])

"""What the README and the docs show is what their commands print now."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from glasshead.cli import _usage_error, main
from glasshead.cli.app import program
from scripts import ROOT, script

README = ROOT / "README.md"
TEXTS = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]


@pytest.fixture(scope="module")
def pictures():
    return script("docs/pictures.py")


def output_in_process(command: str) -> str:
    """What a command prints, as `docs/pictures.py` has it from a process."""
    program, *arguments = shlex.split(command)
    assert program == "glasshead"
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert main(arguments) == 0
    return told.getvalue().rstrip()


@pytest.mark.parametrize("in_process", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_outputs_are_those_of_their_commands(pictures, monkeypatch, in_process):
    if in_process:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setattr(pictures, "output", output_in_process)
    shown = 0
    for file in TEXTS:
        text = file.read_text(encoding="utf-8")
        shown += len(pictures.OUTPUT.findall(text))
        assert pictures.with_outputs(text) == text, f"{file.name}: run make pictures"
    assert shown


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_and_picture_is_there(file):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", file.read_text(encoding="utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


def commands(file: Path) -> list[list[str]]:
    """The words of each command in the blocks of a page, without what is printed."""
    text = file.read_text(encoding="utf-8")
    found = []
    for kind, block in re.findall(r"^```(sh|console)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        lines = block.replace("\\\n", " ").splitlines()
        if kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [words for line in lines if (words := shlex.split(line, comments=True))]
    return found


def of_glasshead(words: list[str]) -> list[str] | None:
    """The arguments of a command of glasshead, however it is started; None for another."""
    if "glasshead" not in words:
        return None
    # It may read what another command writes.
    own = words[words.index("glasshead") + 1 :]
    end = next((at for at, word in enumerate(own) if word in {">", "|", "&&", "<"}), len(own))
    return own[:end] or None


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_command_that_is_shown_has_these_options(file):
    for words in commands(file):
        arguments = of_glasshead(words)
        if arguments is None:
            continue
        assert parsed(program(), arguments), shlex.join(words)


def parsed(command: Any, arguments: list[str]) -> bool:
    """Whether a command takes these arguments; `evaluate RUN` those of any task."""
    if hasattr(command, "commands"):
        name, *others = arguments
        if name in command.commands:
            return parsed(command.commands[name], others)
        return any(parsed(task, arguments) for task in command.commands.values())
    try:
        command.make_context("glasshead", [*arguments])
    except _usage_error():
        return False
    return True


def test_an_option_that_is_not_there_is_found():
    assert not parsed(program(), ["explain", "--colour", "red"])
    assert parsed(program(), ["evaluate", "runs/a", "--beam", "3"])


# What is made or served elsewhere, takes minutes, or needs the network.
NOT_RUN = ("git", "python3", "pip", "make", "glasshead studio", "glasshead demo")
# What a name of a file looks like: a folder before it, or an ending.
FILE = re.compile(r"[\w-]+(/[\w.-]+)+/?|[\w-]+\.(?!format)[a-z]{2,12}")


def test_the_readme_names_files_that_are_there_or_made():
    made, named = {".venv/bin/activate"}, []
    for words in commands(README):
        made |= {
            word for before, word in pairwise(words) if before in {">", "--run", "--html", "--save"}
        }
        named += [word for word in words[1:] if FILE.fullmatch(word) and word not in made]
    assert [word for word in named if not (ROOT / word).exists()] == []
    assert made > {"runs/stories", "story.txt"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    run = 0
    for words in commands(README):
        # A model that has hardly begun to learn is read as any other.
        line = shlex.join(words).replace("'>'", ">").replace("steps=600", "steps=40")
        if line.startswith(NOT_RUN):
            continue
        # What needs no shell saves the start of a process, which most of these take longer for.
        if of_glasshead(words) == words[1:]:
            code = main(shlex.split(line)[1:])
            said = capsys.readouterr().err
        else:
            done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
            code, said = done.returncode, done.stderr
        assert code == 0, f"{line}: {said}"
        run += 1
    assert run >= 8
    assert {"runs", "story.txt", "seen.html", "seen.safetensors", "report.html"} == {
        path.name for path in tmp_path.iterdir()
    }


def test_a_clone_and_two_commands_come_first_and_three_install_and_explain():
    clone, *first, shown, torch, package, explain = commands(README)[:7]
    assert clone[:2] == ["git", "clone"]
    assert first == [["make", "demo"], ["make", "test"]]
    assert torch[:3] == ["pip", "install", "torch"]
    assert package[:2] == ["pip", "install"]
    assert shown == explain == ["glasshead", "explain"]


def test_the_readme_is_a_page():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


WATCHED = re.compile(r"^```python\n(import glasshead as gh\n.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("file", sorted(ROOT.glob("README*.md")), ids=lambda file: file.name)
def test_what_the_readme_watches_has_the_shape_that_it_says(file, monkeypatch, capsys):
    """On a GPT-2 of random weights, as the real one is downloaded."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=24, n_layer=6, eos_token_id=None, pad_token_id=0)
    made = transformers.GPT2LMHeadModel(config).eval()
    # GPT-2 reads the sentence as five tokens.
    prompt = {"input_ids": torch.tensor([[7575, 17607, 588, 281, 15452]])}
    for name, value in (("ForCausalLM", made), ("Tokenizer", lambda *_, **__: prompt)):
        kind = getattr(transformers, f"AutoModel{name}" if name != "Tokenizer" else "AutoTokenizer")
        monkeypatch.setattr(kind, "from_pretrained", lambda _, value=value: value)
    (code,) = WATCHED.findall(file.read_text(encoding="utf-8"))
    exec(code, {})
    shape, row = capsys.readouterr().out.splitlines()[0], code.count("[1, 12, 20]")
    assert (shape, row) == ("torch.Size([1, 12, 20])", 1)

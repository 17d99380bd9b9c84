"""A command run in this process: its exit code, and what it printed."""

import json
import os
import sys
from dataclasses import dataclass

import pytest

from glasshead.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def command(capsys):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def explained(command):
    """What `--json` prints for some options, and each step's numbers by the step's name."""

    def run(*arguments):
        outcome = command("explain", *arguments, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        told = json.loads(outcome.out)
        told["data"] = {step["name"]: step["data"] for step in told["steps"]}
        return told

    return run


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Put bytes where standard input is read, by Python's name for it or by its number."""
    before = os.dup(0)

    def put(content):
        (tmp_path / "typed").write_bytes(content)
        file = os.open(tmp_path / "typed", os.O_RDONLY)
        os.dup2(file, 0)
        os.close(file)
        monkeypatch.setattr(sys, "stdin", os.fdopen(0, encoding="utf-8", closefd=False))

    yield put
    os.dup2(before, 0)
    os.close(before)


@pytest.fixture
def no_bars():
    """Without the bars of transformers, which saving a model shows, too."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()

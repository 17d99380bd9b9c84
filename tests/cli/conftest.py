"""A command run in this process: its exit code, and what it printed."""

import json
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

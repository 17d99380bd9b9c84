"""What is said of a run while it goes on."""

import io

import pytest
from lightning.pytorch.loggers.logger import DummyLogger
from rich.console import Console
from tiny_training import SETTINGS, rows, run

from glasshead.tasks.training import logs, loop, progress
from glasshead.tasks.training.progress import Progress


@pytest.fixture
def said(monkeypatch):
    """What a terminal, or else a file, is told when the clock goes fast."""

    def watched(tmp_path, terminal):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
        monkeypatch.setattr(loop, "Console", lambda stderr: console if stderr else None)
        run(tmp_path, SETTINGS)
        return out.getvalue()

    return watched


def test_a_file_gets_a_line_for_each_validation(tmp_path, said):
    lines = said(tmp_path, terminal=False).splitlines()
    assert [line.split(":")[0] for line in lines] == [f"step {n} of 13" for n in (5, 10, 13)]
    assert "validation loss 2." in lines[0]
    assert ", the best so far; " in lines[0]
    assert lines[0].endswith(" left")


def test_a_file_gets_more_lines_where_steps_are_slow(tmp_path, said, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    lines = said(tmp_path, terminal=False).splitlines()
    assert [int(line.split()[1]) for line in lines if "validation" not in line] == [*range(1, 14)]
    assert lines[0].startswith("step 1 of 13: loss 2.")


def test_a_terminal_gets_a_bar(tmp_path, said, monkeypatch):
    monkeypatch.setattr(progress, "_BAR_SECONDS", 0.0)
    out = said(tmp_path, terminal=True)
    assert "step  7/13 ━" in out
    assert "validating" in out
    assert "steps/s" in out
    assert "step 10 of 13: validation loss 2." in out
    # The cursor that the bar hid is shown again.
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")


def test_a_bar_is_drawn_seldom(tmp_path, said, monkeypatch):
    shown, show = [], Progress._show

    def counted(self, step, text):
        shown.append(text)
        show(self, step, text)

    monkeypatch.setattr(Progress, "_show", counted)
    monkeypatch.setattr(progress, "_BAR_SECONDS", 1000.0)
    said(tmp_path, terminal=True)
    assert [text for text in shown if text != "validating"] == [shown[0]]


def test_loggers_of_lightning_are_told_what_the_log_has(tmp_path, monkeypatch):
    told = []

    class Listener(DummyLogger):
        def log_metrics(self, metrics, step=None):
            told.append((step, metrics))

    monkeypatch.setattr(logs, "loggers", lambda folder: [Listener()])
    logged = rows(run(tmp_path))
    assert [step for step, _ in told] == [int(row["step"]) for row in logged]
    assert [figures["loss"] for _, figures in told] == [float(row["loss"]) for row in logged]

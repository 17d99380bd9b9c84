"""The command `tune`: its table, its JSON, and what it refuses."""

import json
import time
from functools import partial

import pytest

from glasshead.attention import load, profiles, tuning
from glasshead.attention.load import Reading
from glasshead.explanation.translations import Say


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def times(monkeypatch):
    """Take the calls for measured: 3 µs each of streaming, and 2 µs each of SDPA."""
    world(monkeypatch)


def world(monkeypatch, others=0.0, *, told=True):
    """Let calls take 0.1 s of a clock, while others keep a part of two processors busy."""
    wall = 0.0

    def call(seconds):
        nonlocal wall
        wall += 0.1
        return seconds

    def reading():
        busy = wall * (1 + others)
        return Reading(wall, wall, (busy, 2 * wall - busy) if told else None, 2)

    found = {
        (dtype, engine, way, shape.name): 2e-6 if engine == "fused" else 3e-6
        for dtype in profiles.DTYPES
        for engine in tuning.ENGINES
        for way in tuning.WAYS
        for shape in tuning.SHAPES
    } | {("copy",): 0.1, ("operator",): 1e-4}
    calls = {key: partial(call, seconds) for key, seconds in found.items()}
    monkeypatch.setattr(tuning, "measurements", lambda _: calls)
    monkeypatch.setattr(load, "reading", reading)


@pytest.mark.usefixtures("times")
@pytest.mark.parametrize("columns", [80, 100])
def test_the_table_fits_the_terminal(command, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    outcome = command("tune")
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= columns
    assert outcome.out.count("1.50") == 48
    assert outcome.err.startswith(f"Wrote {profiles.own_file()}.")


@pytest.mark.usefixtures("times")
def test_json_is_the_profile(command):
    outcome = command("tune", "--json", "--seconds", "3")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    profiles.parsed(found)
    assert found["file"] == str(profiles.own_file())
    assert found["ratios"]["bfloat16"]["both"]["wide"] == pytest.approx(1.5)


@pytest.mark.parametrize("seconds", ["0", "601", "-3", "x", "1.5"])
def test_seconds_that_are_refused(command, seconds):
    outcome = command("tune", "--seconds", seconds)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--seconds" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not profiles.own_file().exists()


def test_an_interruption_leaves_no_profile(command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "measurements", interrupt)
    assert command("tune").code == 130
    assert not profiles.own_file().exists()


def test_an_interruption_leaves_the_earlier_profile(command, monkeypatch):
    world(monkeypatch)
    assert command("tune").code == 0
    before = profiles.own_file().read_bytes()

    def interrupt():
        raise KeyboardInterrupt

    calls = {**tuning.measurements(time.perf_counter), ("operator",): interrupt}
    monkeypatch.setattr(tuning, "measurements", lambda _: calls)
    assert command("tune").code == 130
    assert profiles.own_file().read_bytes() == before


REFUSED = (
    "The machine must be quiet to be measured, but other programs kept 1.3 of 2 processors busy; "
    "close them and try again, or add --loaded to measure all the same."
)


def test_a_loaded_machine_is_refused_in_one_sentence(command, monkeypatch):
    world(monkeypatch)
    assert command("tune").code == 0
    before = profiles.own_file().read_bytes()
    world(monkeypatch, others=1.3)
    outcome = command("tune", "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"glasshead: error: {REFUSED}\n"
    assert profiles.own_file().read_bytes() == before


def test_whoever_insists_reads_the_load_in_the_profile(command, monkeypatch):
    world(monkeypatch, others=1.3)
    outcome = command("tune", "--loaded", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["how"].endswith("--loaded, while other programs kept 1.3 of 2 processors busy")
    assert json.loads(profiles.own_file().read_text("utf-8"))["how"] == found["how"]


UNCHECKED = "This system does not report its load: the times hold if no other program was running."


@pytest.mark.parametrize("told", [True, False])
def test_a_load_that_the_system_does_not_report_is_stated(command, monkeypatch, told):
    world(monkeypatch, told=told)
    outcome = command("tune")
    assert outcome.code == 0
    assert (UNCHECKED in outcome.err.splitlines()) is not told


@pytest.mark.parametrize("lang", ["tr", "es", "zh-Hant", "zh-Hans"])
def test_what_is_printed_next_to_the_table_is_translated(command, monkeypatch, lang):
    monkeypatch.setenv("LC_ALL", f"{lang.replace('-', '_')}.UTF-8")
    world(monkeypatch, told=False)
    outcome = command("tune")
    assert outcome.err.splitlines()[1:] == [Say(lang)(UNCHECKED)] != [UNCHECKED]
    assert str(profiles.own_file()) in outcome.err
    assert "Wrote" not in outcome.err
    world(monkeypatch, others=1.3)
    refused = command("tune").err
    assert "--loaded" in refused
    assert "1.3" in refused
    assert "quiet" not in refused


@pytest.mark.usefixtures("times")
def test_a_cache_folder_that_cannot_be_written_is_named(command, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    outcome = command("tune")
    assert outcome.code == 2
    assert str(tmp_path / "file") in outcome.err

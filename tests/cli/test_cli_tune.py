"""The command `tune`: its table, its JSON, and what it refuses."""

import json

import pytest

from glasshead.attention import profiles, tuning


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def times(monkeypatch):
    """Take the calls for measured: 3 µs each of streaming, and 2 µs each of SDPA."""
    given = json.loads((profiles.SHIPPED / "zen5.json").read_text("utf-8"))
    given = {**given, "machine": profiles.machine()._asdict()}
    found = {
        (dtype, engine, way, shape.name): 2e-6 if engine == "fused" else 3e-6
        for dtype in profiles.DTYPES
        for engine in tuning.ENGINES
        for way in tuning.WAYS
        for shape in tuning.SHAPES
    }
    monkeypatch.setattr(tuning, "measured", lambda *_: (given, found))


@pytest.mark.usefixtures("times")
@pytest.mark.parametrize("columns", [80, 100])
def test_the_table_fits_the_terminal(command, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    outcome = command("tune")
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= columns
    assert outcome.out.count("1.50") == 30
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

    monkeypatch.setattr(tuning, "measured", interrupt)
    assert command("tune").code == 130
    assert not profiles.own_file().exists()


@pytest.mark.usefixtures("times")
def test_a_cache_folder_that_cannot_be_written_is_named(command, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    outcome = command("tune")
    assert outcome.code == 2
    assert str(tmp_path / "file") in outcome.err

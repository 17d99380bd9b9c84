"""The example that lets models collapse: what it tells and draws, at small settings."""

import math

import pytest

import glasshead as gh
from scripts import script


@pytest.fixture(scope="module")
def example():
    return script("examples/collapse.py")


def test_it_teaches_each_model_tells_and_draws(example, tmp_path, capsys):
    file = tmp_path / "pictures" / "collapse.png"
    assert example.main([str(file), "--seeds", "3", "--steps", "7"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()[:2]] == [
        "healthy, seed 3",
        "too fast, seed 3",
    ]
    assert out.count("no alarm; the loss came to 2.") == 2
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_run_says_by_how_much_the_alarm_was_ahead(example):
    run = example.Run(example.TEACHINGS[1], 7, [3.0, 2.0, 1.0, 1.9, 2.1, math.nan])
    assert (run.diverged, run.alarmed, run.ahead) == (5, None, None)
    assert run.said() == "too fast, seed 7: no alarm; the loss was twice its minimum in step 5."
    run.alarms.append(gh.Alarm(2, "blocks.0.attention", 1, "maximum_logit", 120.0, 100.0))
    assert run.ahead == 3
    assert run.said().endswith(
        "in step 2; the loss was twice its minimum in step 5, 3 steps later."
    )
    run.alarms[0] = gh.Alarm(6, "blocks.0.attention", 1, "maximum_logit", 120.0, 100.0)
    assert run.said().endswith("minimum in step 5, 1 steps before.")
    silent = example.Run(example.TEACHINGS[0], 7, [3.0, 2.0, 1.0, 1.9, 2.0])
    assert (silent.diverged, silent.ahead) == (None, None)
    assert example.Run(example.TEACHINGS[1], 7, [3.0, math.nan]).diverged == 2


def test_what_is_no_setting_and_no_place_is_refused(example, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert example.main([str(tmp_path / "file" / "picture.png"), "--steps", "1"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    for steps in ("many", "0"):
        with pytest.raises(SystemExit, match="2"):
            example.main(["--steps", steps])
    assert "--steps takes a number from 1, and got 0." in capsys.readouterr().err

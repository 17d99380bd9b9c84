"""`glasshead demo`: explains, trains, translates, and says where everything is."""

import dataclasses

import pytest

from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.translate import PRESETS

TITLES = (
    "glasshead: attention you can see through",
    "Attention, step by step: “shiny”",
    "A translator, trained from nothing",
    "A sentence that it has never seen",
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    tiny = PRESETS["tiny"]
    quick = dataclasses.replace(
        tiny,
        data={**tiny.data, "made_up": 211, "vocabulary": 300},
        model={**tiny.model, "d_model": 12, "num_heads": 3},
        training={**tiny.training, "steps": 3, "warmup": 1, "validate_every": 2, "save_every": 1},
    )
    monkeypatch.setitem(PRESETS, "tiny", quick)


def test_the_demo_does_all_that_it_says_and_trains_once(command, tmp_path):
    folder = tmp_path / "new" / "demo"
    first = command("demo", "--folder", folder)
    assert first.code == 0
    places = [first.out.index(title) for title in TITLES]
    assert places == sorted(places)
    assert "German: Kannst du mir helfen, diesen Satz zu übersetzen?" in first.out
    assert f"{folder / 'glasshead.html'}  is all of this as a page" in first.out
    assert first.out.endswith(f"\nglasshead studio {folder / 'translator'}\n")
    assert "step 3 of 3: validation loss" in first.err
    page = (folder / "glasshead.html").read_text()
    assert page.count("<svg") == 1
    assert "übersetzen" in page
    assert "[0.3990, 0.3854, 0.8610]" in page
    assert RunFolder(folder / "translator").read_metrics()["last"]["step"] == 3

    again = command("demo", "--folder", folder)
    assert "It is there already, from the last time" in again.err
    assert again.out == first.out


def test_the_demo_goes_on_where_it_was_interrupted(command, tmp_path, monkeypatch):
    tiny = PRESETS["tiny"]
    short = dataclasses.replace(tiny, training={**tiny.training, "steps": 2})
    with monkeypatch.context() as patch:
        patch.setitem(PRESETS, "tiny", short)
        command("demo", "--folder", tmp_path)
    # As if it had been stopped: the run is to have more steps than were made.
    run = RunFolder(tmp_path / "translator")
    config = run.read_config()
    config["training"]["steps"] = 3
    run.write_config(config)
    went_on = command("demo", "--folder", tmp_path)
    assert went_on.code == 0
    assert "step 3 of 3: validation loss" in went_on.err
    assert "step 2 of" not in went_on.err


def test_what_is_no_folder_is_refused(command, tmp_path):
    (tmp_path / "file").write_text("")
    refused = command("demo", "--folder", tmp_path / "file")
    assert refused.code == 2
    assert "--folder takes a folder, and" in refused.err
    assert refused.err.count("\n") == 1
    assert "--folder takes a folder, and got nothing" in command("demo", "--folder", "").err

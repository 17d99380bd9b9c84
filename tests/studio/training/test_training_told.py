"""What the studio tells of a run: its curves, its pace, its phase, its heads."""

import csv
import json

import pytest
from fastapi.testclient import TestClient

from glasshead.studio.app import application
from glasshead.studio.studio import Studio
from glasshead.studio.views.training import TrainingLog
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import read_attention_log, train
from glasshead.tasks.write import WRITE, WriteSettings
from pretrained_folders import llama2c_files
from studio.asking import ask
from studio.small_runs import ALARMS, COLUMNS, SmallRun
from studio.training.told import curve, old
from written import SMALL


def test_the_curves_are_the_columns_of_the_log(run, log):
    run.go(23)
    told = log.summary()
    with run.folder.log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in set(COLUMNS) - {"step", "seconds"}:
        assert curve(told, name) == {int(r["step"]): float(r[name]) for r in rows if r[name]}
    assert told["table"]["columns"] == COLUMNS
    assert list(told["charts"]) == ["loss", "validation_accuracy", "learning_rate"]
    steps = [row[0] for row in told["table"]["rows"]]
    assert steps == [70, 140, 160, 170, 180, 190, 200, 210, 220, 230]
    assert told["table"]["rows"][-1] == [*(float(cell) for cell in run.row(230)[:4]), None, None]


def test_a_training_is_told_as_its_own_files_have_it(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create()
    quick = ("stories=101", "warmup=0", "steps=11", "validate_every=5", "log_every=2")
    settings = WriteSettings.from_preset("nano", [*SMALL, *quick], (), ())
    made = WRITE.begin(settings, folder, "glasshead train write")
    log = TrainingLog(folder.path)
    assert (log.summary()["phase"], log.summary()["charts"]) == ("waiting", {})
    train(made.task, made.source, made.held_out, made.settings.training, folder, watch=True)
    told = log.summary()
    assert (told["phase"], told["pace"]["step"]) == ("finished", 11)
    assert list(curve(told, "loss")) == [2, 4, 5, 6, 8, 10, 11]
    metrics = folder.read_metrics()
    best = metrics["best"]
    assert (told["best"]["step"], told["best"]["value"]) == (best["step"], best["loss"])
    assert curve(told, "validation_loss")[11] == pytest.approx(metrics["last"]["loss"], rel=1e-7)
    assert told["heads"]["columns"] == [[1, 1], [8, 8]]
    assert len(told["heads"]["heads"]) == 6
    assert told["problems"] == []


def test_pace_is_that_of_the_last_rows(run, log):
    # A hundred rows of 4 seconds a step, after some that were slower.
    slow = [f"{step},2.0,0.1,{9 * step}," for step in range(1, 14)]
    rows = [f"{step},2.0,0.1,{117 + 4 * (step - 13)}," for step in range(14, 114)]
    run.folder.append(run.folder.log, "\n".join([*slow, *rows]) + "\n")
    pace = log.summary()["pace"]
    assert (pace["step"], pace["steps"], pace["seconds"]) == (113, 700, 517.0)
    assert pace["speed"] == 0.25
    assert pace["left"] == 587 / 0.25


def test_the_best_validation_is_that_of_the_metrics(run, log):
    assert log.summary()["best"] is None
    run.go(23)
    assert log.summary()["best"] == {"step": 140, "monitor": "accuracy", "value": 0.75}


def test_heads_and_alarms_are_those_of_the_attention_log(run, log):
    run.go(29)
    told, seen = log.summary(), read_attention_log(run.folder.path)
    heads = told["heads"]
    for row, (layer, head) in enumerate(heads["heads"]):
        own = [r for r in seen.readings if (r.layer, r.head) == (heads["layers"][layer], head)]
        assert heads["columns"] == [[reading.step, reading.step] for reading in own]
        for name, values in heads["measures"].items():
            assert values["values"][row] == [getattr(reading, name) for reading in own]
    assert len(heads["heads"]) == 8
    for said, alarm in zip(told["alarms"], ALARMS, strict=True):
        assert said["sentence"] == alarm.sentence
        assert f" is {said['value']}" in alarm.sentence
        layer, head = heads["heads"][said["row"]]
        assert (heads["layers"][layer], head) == (alarm.layer, alarm.head)
    assert heads["measures"]["normalized_entropy"]["range"] == [0, 1]
    top = max(reading.max_score for reading in seen.readings)
    assert heads["measures"]["max_score"]["range"] == [0, top]
    assert told["problems"] == []


@pytest.mark.parametrize(
    ("rows", "age", "phase"),
    [(0, 0, "waiting"), (0, 700, "quiet"), (3, 0, "going"), (3, 50, "quiet"), (70, 50, "finished")],
)
def test_the_phase_follows_from_the_last_row_and_its_age(run, log, rows, age, phase):
    run.go(rows)
    old(run, age)
    told = log.summary()
    assert told["phase"] == phase
    assert told["age"] == pytest.approx(age, abs=5)
    assert (told["pace"]["left"] is None) == (phase in ("finished", "waiting") or not rows)


def test_a_run_whose_rows_are_far_apart_is_not_quiet_between_them(run, log):
    run.folder.append(run.folder.log, "10,2,1,99.0,,\n20,2,1,100.0,,\n30,2,1,400.0,,\n")
    old(run, 900)
    assert log.summary()["phase"] == "going"
    old(run, 1300)
    assert log.summary()["phase"] == "quiet"


def test_patience_ends_a_run_after_so_many_validations_without_a_better_one(run, log):
    run.go(7 * 8)
    assert log.summary()["phase"] == "going"
    run.go(7)
    told = log.summary()
    assert (told["phase"], told["pace"]["left"]) == ("patience", None)


def test_what_has_not_changed_is_not_told_again(run, log):
    run.go(5)
    first = log.summary(smoothing=0.5)
    again = log.summary(first["version"], 0.5)
    assert set(again) == {"changed", "version", "age", "phase"}
    assert not again["changed"]
    assert log.summary(first["version"], 0.9)["changed"]
    old(run, 0.5)
    run.go(1)
    later = log.summary(first["version"], 0.5)
    assert later["changed"]
    assert later["pace"]["step"] == 60


def test_nothing_is_read_again_where_nothing_has_changed(run, log, monkeypatch):
    run.go(5)
    version = log.summary()["version"]
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: pytest.fail("it was read"))
    assert not log.summary(version)["changed"]


def test_a_run_that_is_not_watched_has_no_heads(tmp_path):
    run = SmallRun(tmp_path / "run").go(3)
    told = TrainingLog(run.folder.path).summary()
    assert (told["heads"], told["alarms"], told["notes"]) == (None, [], [])


def test_the_route_tells_refuses_and_bounds(run):
    run.go(9)
    client = TestClient(application(Studio(run.folder.path)), base_url="http://127.0.0.1")
    told = client.get("/api/training", params={"smoothing": 0.5}).json()
    assert told["pace"]["step"] == 90
    again = client.get("/api/training", params={"smoothing": 0.5, "version": told["version"]})
    assert again.json()["changed"] is False
    assert len(again.content) < 100
    for wrong in ({"smoothing": 1.5}, {"smoothing": "nan"}, {"version": 65 * "a"}):
        assert client.get("/api/training", params=wrong).status_code == 422
    run.folder.path.rename(run.folder.path.with_name("away"))
    gone = client.get("/api/training")
    assert (gone.status_code, "at the moment" in gone.json()["detail"]) == (404, True)


def test_without_a_run_there_is_none():
    client = TestClient(application(Studio()), base_url="http://127.0.0.1")
    answer = client.get("/api/training")
    assert answer.status_code == 404
    assert "Start the studio with the folder of one" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["none", "weights", "model"])
def test_what_is_no_run_has_no_learning_curve(tmp_path, kind):
    place = {
        "none": lambda: None,
        "model": lambda: llama2c_files(tmp_path),
        "weights": lambda: tmp_path / "kept.safetensors",
    }[kind]()
    (tmp_path / "kept.safetensors").write_bytes(b"")
    holds = {
        "none": "no model",
        "model": f"a model without its training in {place}",
        "weights": f"stored weights alone in {place}",
    }[kind]
    answer = ask(application(Studio(place)), "/api/training")
    assert (answer.status, json.loads(answer.body)["detail"]) == (
        404,
        f"a learning curve needs a run, got {holds}. Start the studio with the folder of one.",
    )

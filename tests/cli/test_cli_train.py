"""`glasshead train`, and what is done with its runs.

`glasshead train write` as a process: killed, interrupted, and in two.
`glasshead demo`: explains, trains, translates, and says where everything is.
"""

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import forked
import systems
from glasshead.cli import main
from glasshead.cli.output import print_text
from glasshead.tasks.run_folder import RunFolder
from glasshead.tasks.training import loop, read_attention_log
from glasshead.tasks.translate import PRESETS
from written import SMALL, written

QUICK = [
    part
    for each in (*SMALL, "stories=101", "warmup=0", "steps=4", "validate_every=2", "save_every=1")
    for part in ("--set", each)
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "run", "tokenizer=bpe", "vocabulary=300").path


def test_training_is_told_in_the_language_of_the_environment(command, tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    made = command("train", "write", "--run", tmp_path / "run", "--preset", "nano", *QUICK)
    assert made.code == 0
    assert "parametre, eğitim için" in made.err
    assert "adım 4 / 4: doğrulama: loss" in made.err
    assert "bir metni sürdürür" in made.out
    assert not re.search(r"\b(step|steps|left|held|train|continues)\b", made.err)


def test_a_run_is_trained_used_evaluated_and_explored(command, tmp_path):
    folder = tmp_path / "run"
    made = command("train", "write", "--run", folder, "--preset", "nano", *QUICK)
    assert made.code == 0
    assert re.search(r"^step +4\nloss +\d\.\d{4} nats per token\nperplexity ", made.out)
    assert "parameters" in made.err
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert there == {
        "README.md",
        "checkpoints/last.safetensors",
        "checkpoints/previous.safetensors",
        "config.json",
        "curve.png",
        "log.csv",
        "metrics.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert "glasshead train write --run" in (folder / "README.md").read_text()
    best = json.loads((folder / "metrics.json").read_text())["best"]
    evaluated = command("evaluate", folder, "--json")
    assert json.loads(evaluated.out)["loss"] == pytest.approx(best["loss"], rel=1e-6)
    told = command("write", folder, "--prompt", "One", "--tokens", 9, "--temperature", 0)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("One")
    again = command("train", "write", "--run", folder, "--preset", "nano", *QUICK)
    assert again.code == 2
    assert "already has a run. Resume it with --resume" in again.err
    over = command("train", "write", "--run", folder, "--resume")
    assert "got 4. To continue, ask for more" in over.err


def test_a_watched_run_says_what_its_heads_did(command, tmp_path):
    folder = tmp_path / "run"
    sets = [*QUICK, "--set", "log_every=1"]
    begin = ("train", "write", "--run", folder, "--preset", "nano", *sets)
    made = command(*begin, "--watch")
    assert made.code == 0
    assert re.search(r"^attention +0 of 6 heads raised an alarm$", made.out, re.MULTILINE)
    # Whether it is watched is no part of what the run is.
    assert "--watch" not in (folder / "README.md").read_text().split("| file |")[0]
    assert "watch" not in (folder / "config.json").read_text()
    more = command(*begin, "--resume", "--set", "steps=6")
    assert (more.code, "alarm" in more.out) == (0, False)
    assert {one.step for one in read_attention_log(folder).readings} == {1, 4}
    last = command(*begin, "--resume", "--watch", "--set", "steps=8")
    assert last.code == 0
    assert {one.step for one in read_attention_log(folder).readings} == {1, 4, 8}


def test_an_alarm_is_said_when_it_comes_and_at_the_end(command, tmp_path):
    sets = (*QUICK, "--set", "learning_rate=30", "--set", "clip=1e9", "--set", "log_every=1")
    begin = ("train", "write", "--run", tmp_path / "run", "--preset", "nano", "--watch")
    made = command(*begin, *sets, "--set", "steps=13", "--set", "validate_every=13")
    alarms = read_attention_log(tmp_path / "run").alarms
    assert alarms[0].sentence in made.err
    if made.code == 0:
        assert f"heads raised an alarm, the first at {alarms[0].sentence}" in made.out


def test_the_same_command_makes_the_same_weights(command, tmp_path):
    for name in "ab":
        made = command("train", "write", "--run", tmp_path / name, "--preset", "nano", *QUICK)
        assert made.code == 0
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_run_goes_on_by_the_same_command_and_further(command, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("One sunny day Emma took her red ball to the park. " * 40)
    begin = ("train", "write", text, "--run", tmp_path / "run", "--preset", "nano", *QUICK)
    assert command(*begin).code == 0
    more = command(*begin, "--resume", "--set", "steps=6")
    assert more.code == 0
    assert f"Resuming {tmp_path / 'run'} at step 4 of 6.\n" in more.err
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["last"]["step"] == 6
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["steps"] == 6
    other = command(*begin, "--resume", "--set", "d_model=24")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "d_model must be 12, got 24, to resume" in other.err


def test_seeded_writing_is_the_same_and_streams(command, run):
    one = command("write", run, "--prompt", "One", "--seed", 5, "--tokens", 30)
    assert one.out == command("write", run, "--prompt", "One", "--seed", 5, "--tokens", 30).out
    assert one.out != command("write", run, "--prompt", "One", "--seed", 6, "--tokens", 30).out
    beam = command("write", run, "--prompt", "One", "--beam", 3, "--tokens", 7)
    assert (beam.code, beam.err) == (0, "")


def test_a_terminal_is_not_steered_by_what_a_model_writes(monkeypatch, capsys):
    print_text("one\x1b[2J\ntwo")
    assert capsys.readouterr().out == "one\x1b[2J\ntwo"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_text("one\x1b[2J\ntwo", end="\n")
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert told.startswith("one")
    assert told.endswith("\ntwo\n")


def test_neighbours_are_listed_and_drawn(command, run, tmp_path):
    near = command("near", run, "e", "--count", 3, "--png", tmp_path / "new" / "space.png")
    assert near.code == 0
    assert len(near.out.splitlines()) == 3
    assert re.match(r"^ ?-?\d\.\d{3}  \S", near.out)
    assert (tmp_path / "new" / "space.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--preset", "huge"], "--preset has no 'huge'"),
        (["--set", "stepz=3"], "--set has no 'stepz'. Did you mean 'steps'?"),
        (["--devices", "0"], "devices must be a whole number of at least 1, got 0."),
        (["--devices", "9" * 31], "devices must be a whole number of at most 1024, got 9999"),
        (["--devices", "+1021", "--accelerator", "cpu"], "on this CPU, a process for each core"),
        (
            ["--set", "vocabulary=100000000000"],
            "vocabulary must be a whole number of at most 10485",
        ),
        (["--strategy", "horovod"], "strategy must be one of auto, ddp, fsdp, got 'horovod'."),
        (["--strategy", "fsdp", "--accelerator", "cpu"], "strategy fsdp needs a GPU"),
        (["--accelerator", "mps"], "accelerator mps is not available here"),
        (["no/such.txt"], "such.txt"),
        (["--resume"], "there is no folder"),
        (["text.txt", "--resume"], "there is no folder"),
    ],
)
def test_bad_options_are_one_sentence(command, tmp_path, options, said):
    outcome = command("train", "write", "--run", tmp_path / "run", *options)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    # What was wrong by itself has made no run.
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "empty"),
        ("short.txt", b"Hello shiny sun!", "the training part of the text must have at least 65"),
        ("bytes.txt", b"one\ntwo\n\xff\xfe three\n", "bytes.txt, line 3"),
        ("rows.jsonl", b'{"text": "one"}\n{"text": two}\n', "rows.jsonl, line 2"),
        (
            "column.csv",
            b"no,more\n1,one day\n",
            "'more'. Choose columns, as in --set field=more.\n",
        ),
        ("packed.txt.gz", b"not packed", "packed.txt.gz"),
        ("text.pdf", b"%PDF", "text.pdf"),
    ],
)
def test_bad_files_are_told_by_name_and_line(command, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    run = tmp_path / "run"
    outcome = command("train", "write", tmp_path / name, "--run", run, "--preset", "nano")
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert not run.exists()


def test_a_learning_rate_that_makes_the_loss_no_number_is_told(command, tmp_path):
    outcome = command(
        *("train", "write", "--run", tmp_path / "run", "--preset", "nano", *QUICK),
        *("--set", "learning_rate=1e30", "--set", "minimum_learning_rate=1e30"),
        *("--set", "clip=none", "validate_every=4", "save_every=4"),
    )
    assert outcome.code == 2
    assert re.search(
        r"step \d, with learning rate 1e\+30, has .* NaN or infinite\. Train again", outcome.err
    )
    assert "Traceback" not in outcome.err
    # What it takes to understand the failure stays.
    kept = {file.name for file in (tmp_path / "run").iterdir()}
    assert {"config.json", "failure.json", "log.csv"} <= kept


@pytest.mark.parametrize("wrong", [["--set", "steps=0"], ["no.txt"], ["b.csv"], ["--devices", "0"]])
def test_what_was_wrong_leaves_a_folder_as_it_was(command, tmp_path, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.csv").write_text("id,words\n1,One day\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").write_text("mine")
    assert command("train", "write", "--run", "run", "--preset", "nano", *QUICK).code == 0
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    places = sorted(tmp_path.rglob("*"))
    for folder in ("new/run", "own", "own/run", "run"):
        for resume in ([], ["--resume"]):
            refused = command("train", "write", "--run", folder, *wrong, *resume)
            assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert sorted(tmp_path.rglob("*")) == places
    assert {file: file.read_bytes() for file in before} == before


def test_one_machine_does_not_wait_for_others_that_nobody_starts(command, tmp_path, monkeypatch):
    for name in ("RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    refused = command("train", "write", "--run", tmp_path / "run", "--nodes", 2)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "--nodes 2 needs torchrun on each machine. Start" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["write", "RUN", "--tokens", "0"],
            "--tokens must be a number from 1 to 1000000000, got 0.",
        ),
        (["write", "RUN", "--temperature", "-1"], "--temperature must be at least 0"),
        (["write", "RUN", "--top-p", "2"], "--top-p must be above 0 and at most 1"),
        (["write", "RUN", "--beam", "3", "--top-k", "2"], "--beam searches, so --top-k would"),
        (["write", "RUN", "--length-penalty", "1"], "--length-penalty needs --beam"),
        (["write", "RUN", "--temperature", "0", "--top-k", "2"], "--top-k would change nothing"),
        (["write", "nowhere"], "there is no folder nowhere"),
        (["near", "RUN", "zyx"], "'zyx' must be a token of this run, but is cut into"),
        (["near", "RUN", ""], "a word must have at least one letter, got ''"),
        (["near", "RUN", "e", "--count", "0"], "--count must be a number from 1"),
        (["near", "RUN", "e", "--png", os.devnull], "--png must be a file to write"),
        (["evaluate", "RUN", "nothing.txt"], "nothing.txt"),
    ],
)
def test_bad_uses_of_a_run_are_one_sentence(command, run, arguments, said):
    outcome = command(*[run if each == "RUN" else each for each in arguments])
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_no_folder_is_none(command):
    outcome = command("train", "write", "--run", "")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--run must be a folder, got an" in outcome.err


def test_train_alone_tells_what_there_is_to_train(command):
    outcome = command("train")
    assert (outcome.code, outcome.err) == (0, "")
    assert "write" in outcome.out


def test_help_needs_no_library_of_training():
    code = (
        "import sys; from glasshead.cli import main; main(['train', 'write', '--help']);"
        "heavy = {'torch', 'lightning', 'datasets'}; print(heavy & {*sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
    assert "--preset" in done.stdout


LONG = ("stories=101", "dropout=0.1", "steps=300", "warmup=0", "validate_every=110", "save_every=7")


def sets(*assignments):
    return [part for each in assignments for part in ("--set", each)]


def begin(folder, *more):
    return ["train", "write", "--run", str(folder), "--preset", "nano", *sets(*SMALL), *more]


def process(*arguments):
    """The command as a process, on as many threads as the tests themselves."""
    variables = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return forked.Process("-m", "glasshead", *arguments, env=os.environ | variables)


def when_logged(running, folder, rows):
    """Wait until the log of a run has so many rows."""
    log = folder / "log.csv"
    while running.poll() is None:
        if log.exists() and log.read_text().count("\n") > rows:
            return
        time.sleep(0.002)
    raise AssertionError(running.communicate())


def assert_same(folder, whole):
    for name in ("model.safetensors", "checkpoints/last.safetensors"):
        own, other = load_file(folder / name), load_file(whole / name)
        assert own.keys() == other.keys()
        assert [key for key in own if not torch.equal(own[key], other[key])] == []
    assert (folder / "metrics.json").read_text() == (whole / "metrics.json").read_text()
    steps = [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()]
    assert steps == [line.split(",")[0] for line in (whole / "log.csv").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(begin(folder, *sets(*LONG))) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3, 17])
@systems.signals
def test_killed_it_goes_on_by_the_same_command_to_the_same_weights(command, tmp_path, whole, rows):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, rows)
    running.kill()
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    assert command(*begin(folder, *sets(*LONG)), "--resume").code == 0
    assert_same(folder, whole)


@systems.signals
@pytest.mark.slow
def test_interrupted_it_says_how_to_go_on(command, tmp_path, whole):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, 5)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in told
    assert "To resume it, run the same command with --resume" in told.splitlines()[-1]
    assert command("train", "write", "--run", folder, "--resume").code == 0
    assert_same(folder, whole)


@pytest.mark.slow
def test_two_processes_reach_the_weights_of_one(command, tmp_path):
    # The second is a new one, as Lightning starts it.
    few = sets("stories=101", "dropout=0.0", "steps=5", "warmup=0", "optimizer=sgd")
    assert command(*begin(tmp_path / "one", *few)).code == 0
    two = process(
        *begin(tmp_path / "two", *few),
        "--devices",
        "2",
        "--strategy",
        "ddp",
        "--accelerator",
        "cpu",
    )
    said, told = two.communicate()
    assert two.returncode == 0, told
    assert said.count("perplexity") == 1
    one, both = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(both[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_run_is_trained_by_one_process_at_a_time(command, tmp_path):
    folder = tmp_path / "run"
    running = process(*begin(folder, *sets(*LONG)))
    when_logged(running, folder, 3)
    # It keeps the folder while it stands still, and makes no more steps than are asked for below.
    running.send_signal(signal.SIGSTOP)
    for more in ((), ("--resume",)):
        second = command(*begin(folder, *sets(*LONG)), *more)
        assert second.code == 2
        assert "another process is training in" in second.err
    running.kill()
    running.communicate()
    assert command(*begin(folder, *sets(*LONG, "steps=130")), "--resume").code == 0
    steps = [int(line.split(",")[0]) for line in (folder / "log.csv").read_text().splitlines()[1:]]
    assert steps == sorted(set(steps))


TITLES = (
    "glasshead: attention you can see through",
    "Self-attention, step by step: “shiny”",
    "A translator, trained from scratch",
    "A new sentence",
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
    assert f"{folder / 'glasshead.html'}  shows all of this as a page" in first.out
    assert first.out.endswith(f"\nglasshead studio {folder / 'translator'}\n")
    assert "step 3 of 3: validation loss" in first.err
    page = (folder / "glasshead.html").read_text()
    # The bands, once for a wide page and once upright for a narrow one.
    assert page.count("<svg") == 2
    assert "übersetzen" in page
    assert "[0.3990, 0.3854, 0.8610]" in page
    assert RunFolder(folder / "translator").read_metrics()["last"]["step"] == 3

    again = command("demo", "--folder", folder)
    assert "The translator exists from an earlier demo" in again.err
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
    assert f"Resuming {run.path} at step 2 of 3.\n" in went_on.err
    assert "step 3 of 3: validation loss" in went_on.err
    assert "step 2 of 3: " not in went_on.err


def test_the_demo_is_resumed_as_it_says_and_as_the_readme_says(command, tmp_path, monkeypatch):
    begin = ("demo", "--folder", tmp_path / "the demo")
    run = tmp_path / "the demo" / "translator"
    nothing = command(*begin, "--resume")
    assert (nothing.code, nothing.out) == (2, "")
    assert f"{run} has no run to resume. Omit --resume to begin one." in nothing.err
    with monkeypatch.context() as patch:
        # As if Ctrl-C were pressed during the first step.
        patch.setattr(loop, "any_of", lambda fabric, own: True)
        stopped = command(*begin)
    assert stopped.code == 130
    said = f"Training was interrupted after step 1 of 3, and is saved in {run}."
    assert stopped.err.endswith(f"{said} To resume it, run the same command with --resume.\n")
    readme = (run / "README.md").read_text()
    written = re.search(r"Made by\n\n    (.*)\n\nand, .*, the same command with `--resume`", readme)
    assert shlex.split(written[1]) == ["glasshead", *map(str, begin)]
    went_on = command(*begin, "--resume")
    assert went_on.code == 0
    assert f"Resuming {run} at step 1 of 3.\n" in went_on.err
    assert "step 3 of 3: validation loss" in went_on.err


def test_what_is_no_folder_is_refused(command, tmp_path):
    (tmp_path / "file").write_text("")
    refused = command("demo", "--folder", tmp_path / "file")
    assert refused.code == 2
    assert "--folder must be a folder, got the file" in refused.err
    assert refused.err.count("\n") == 1
    assert "--folder must be a folder, got an" in command("demo", "--folder", "").err


OTHERS = [each for each in QUICK[1::2] if not each.startswith("steps=")]


@pytest.mark.parametrize(
    "typed",
    [
        ["--set", *OTHERS, "steps=5", "--set", "steps=7"],
        ["--set", "steps=5", *OTHERS, "--set=steps=7"],
        ["--set=steps=5", "--set", *OTHERS, "steps=7"],
        ["--set", "steps=7", *OTHERS, "steps=5", "--set", "steps=7"],
    ],
)
def test_the_later_of_two_overrides_wins(command, tmp_path, typed):
    assert command("train", "write", "--run", tmp_path / "run", *typed).code == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["training"]["steps"] == 7


@pytest.mark.parametrize("name", ["RANK", "SLURM_PROCID"])
def test_a_rank_without_other_processes_is_named(command, tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    outcome = command("train", "write", "--run", tmp_path / "run", *QUICK)
    assert outcome.code == 2
    assert f"{name}=1 in the environment says that another process writes the run" in outcome.err
    assert not (tmp_path / "run").exists()


def test_data_that_moved_are_gone_on_with_and_others_are_not(command, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("Once upon a time there was a girl and a dog in a house.\n" * 97)
    run = tmp_path / "run"
    assert command("train", "write", book, "--run", run, *QUICK).code == 0
    moved = book.replace(tmp_path / "moved.txt")
    more = ("--run", run, "--resume", "--set", "steps=6")
    assert command("train", "write", *more).code == 2
    outcome = command("train", "write", moved, *more)
    assert outcome.code == 0, outcome.err
    assert json.loads((run / "config.json").read_text())["data"]["files"] == [str(moved)]
    moved.write_text("Another text, that no one has seen before this line was written.\n" * 97)
    outcome = command("train", "write", moved, "--run", run, "--resume", "--set", "steps=9")
    assert outcome.code == 2
    assert "the texts must be those that the run in" in outcome.err


@pytest.mark.parametrize(
    "row", ["5," + "1" * 200_000, "\u00b2,1,1,1", "x,1,1,1", "5,word,1,1", "-1,1,1,1"]
)
def test_a_damaged_log_is_named_and_the_checkpoint_stays(command, tmp_path, row):
    run = tmp_path / "run"
    assert command("train", "write", "--run", run, *QUICK).code == 0
    log = run / "log.csv"
    lines = len(log.read_text().splitlines())
    log.write_text(log.read_text() + row + "\n", encoding="utf-8")
    before = (run / "checkpoints" / "last.safetensors").read_bytes()
    outcome = command("train", "write", "--run", run, "--resume", "--set", "steps=6")
    assert outcome.code == 2
    assert f"log.csv is broken in line {lines + 1}. Fix it, or move it away" in outcome.err
    assert (run / "checkpoints" / "last.safetensors").read_bytes() == before

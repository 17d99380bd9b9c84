"""`glasshead studio`: what it refuses, what it says, and how it ends."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path

import pytest
import torch

import forked
import glasshead as gh
import systems
from cli.lines_of_a_process import talking
from glasshead import extras
from glasshead.cli.studio import studio
from glasshead.studio import app
from glasshead.tasks.story_model import FOLDER
from pretrained_folders import llama2c_files, packed
from translated import translated
from written import written


def asked(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--port", "65536"],
            "--port must be a number from 0 to 65535, got 65536. Use 0 for a free one.",
        ),
        (["--port", "x"], "--port"),
        (["--host", " "], "--host must be an address of this machine, got none"),
        (["no/such"], "RUN_OR_HF_DIR must be the folder of a run or a model, a .bin"),
        (["--host", "no.such.host.invalid"], "the studio cannot listen on no.such.host.invalid"),
        (["--host", "192.0.2.1"], "the studio cannot listen on 192.0.2.1, port 0 ("),
        (["--host", "a" * 70], "the studio cannot listen on aaaa"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(command, options, sentence):
    outcome = command("studio", "--no-open", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("glasshead: error: ")
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_port_that_is_taken_is_refused_before_anything_is_said(command, taken):
    outcome = command("studio", "--no-open", "--port", taken)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"glasshead: error: the studio cannot listen on 127.0.0.1, port {taken} (Address already "
        f"in use). Use --port 0 for one that is free, and an address of this machine.\n"
    )


def test_a_folder_that_is_no_run_is_refused(command, tmp_path):
    outcome = command("studio", "--no-open", tmp_path)
    assert outcome.code == 2
    assert f"{tmp_path} has no run: there is no config.json in it" in outcome.err
    (tmp_path / "config.json").write_text('{"task": "sing"}')
    assert "got one of sing. Name another" in command("studio", "--no-open", tmp_path).err


def test_a_file_that_is_no_model_of_llama2c_is_refused(command, tmp_path):
    file = tmp_path / "tok.bin"
    file.write_bytes(packed())
    outcome = command("studio", "--no-open", file)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"glasshead: error: {file} must be a model of llama2.c, in its first format. Name another "
        f"file, or the folder of a run or a model.\n"
    )


def test_broken_weights_are_refused_before_a_page_opens(command, tmp_path):
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"abc")
    outcome = command("studio", "--no-open", file)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"glasshead: error: {file} is not a safetensors file (")


def test_several_models_all_read_texts(command, tmp_path):
    run = written(tmp_path / "run").path
    file = tmp_path / "weights.safetensors"
    gh.Attention().weights(torch.ones(5, 3), torch.ones(5, 3)).save(file)
    for given in ([run, file], [file, run]):
        outcome = command("studio", "--no-open", *given)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == (
            f"glasshead: error: models to compare must read a text, got {file}, which holds stored "
            f"weights alone. Name it alone.\n"
        )
    outcome = command("studio", "--no-open", run, tmp_path / "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_what_is_not_installed_is_named(command, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    outcome = command("studio")
    assert outcome.code == 2
    assert "needs fastapi, uvicorn, not installed here. Run pip install 'glasshead[studio]'" in (
        outcome.err
    )


@pytest.mark.parametrize(
    ("config", "library", "extra"),
    [('{"task": "write"}', "tokenizers", "hf"), ('{"model_type": "x"}', "transformers", "hf")],
)
def test_what_opens_the_model_is_named_before_a_page_opens(
    command, tmp_path, monkeypatch, config, library, extra
):
    run = tmp_path / "demo" / "translator"
    run.mkdir(parents=True)
    (run / "config.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == library else name)
    for given in ([], [run]):
        outcome = command("studio", "--no-open", *given)
        assert outcome.code == 2
        assert outcome.err == (
            f"glasshead: error: glasshead studio RUN_OR_HF_DIR needs {library}, not installed "
            f"here. Run pip install 'glasshead[{extra}]'.\n"
        )


def test_its_help_needs_nothing_heavy():
    heavy = "{'torch', 'fastapi', 'uvicorn', 'numpy'} & set(sys.modules)"
    code = f"import sys; from glasshead.cli import main; main(['studio', '--help']); sys.exit({heavy} or 0)"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    for word in (b"--host", b"--port", b"--no-open", b"RUN_OR_HF_DIR"):
        assert word in done.stdout


@pytest.mark.slow
def test_it_serves_until_it_is_interrupted():
    with talking("studio", "--no-open", start=forked.NewProcess) as talk:
        url = re.fullmatch(r"The studio is at (\S+)\n", talk.answer(""))[1]
        assert url.startswith("http://127.0.0.1:")
        assert (asked(url), asked(f"{url}api/about"), asked(f"{url}no")) == (200, 200, 404)
        talk.interrupt()
        assert talk.left() == (130, "Press Ctrl-C to stop it.\n", "")


# A thread that no interruption reaches, as one deep in a product of matrices.
STUCK = """
import sys, threading, time
from glasshead.cli import main
from glasshead.studio import app
from glasshead.tasks.story_model import FOLDER
from glasshead.studio.answers import run_job
from fastapi import Request

def stuck(work):
    print("stuck", flush=True)
    time.sleep(3600)

made = app.application
def with_one_more(*given, **named):
    one = made(*given, **named)
    @one.get("/api/stuck")
    async def route(request: Request) -> None:
        await run_job(request, stuck)
    return one

app.application = with_one_more
sys.exit(main(["studio", "--no-open"]))
"""


@systems.signals
@pytest.mark.slow
def test_work_that_hears_of_nothing_does_not_keep_it():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = forked.Process("-c", STUCK)
    signal.signal(signal.SIGINT, before)
    try:
        url = process.stdout.readline().removeprefix("The studio is at ").strip()
        host, port = url.removeprefix("http://").strip("/").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET /api/stuck HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while process.stdout.readline() != "stuck\n":
                pass
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 130
            assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def served(monkeypatch):
    """What `serve` was given, in place of serving."""
    given = {}
    monkeypatch.setattr(app, "serve", lambda studio, **named: given.update(named, of=studio))
    return given


def test_without_a_folder_it_opens_the_run_of_the_demo_where_there_is_one(
    served, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    studio()
    assert served["of"].subject.folder == FOLDER
    with monkeypatch.context() as patch:
        patch.setattr(extras, "find_spec", lambda name: None if name == "tokenizers" else name)
        studio()
    assert served["of"].subject.folder is None
    translated(tmp_path / "demo" / "translator")
    studio()
    assert served["of"].subject.folder == Path("demo/translator")
    assert served["of"].subject.kind == "translate"


def test_a_file_of_llama2c_is_opened_as_its_folder_is(served, tmp_path):
    file = llama2c_files(tmp_path / "model")
    for named in (file, file.parent):
        studio([str(named)])
        assert served["of"].subject.kind == "model"
        assert served["of"].subject.reader().context == 31


def test_further_models_stand_beside_the_first(served, tmp_path):
    folders = [written(tmp_path / name).path for name in ("early", "late")]
    studio([*map(str, folders)])
    of = served["of"]
    assert (of.subject.folder, of.other_folders) == (folders[0], (folders[1],))
    assert [of.model(number).folder for number in range(2)] == folders


def test_an_address_with_a_token_is_said_to_open_for_others(served, capsys):
    studio()
    served["announce"]("http://127.0.0.1:5/")
    ended = "Press Ctrl-C to stop it.\n"
    assert capsys.readouterr().out == f"The studio is at http://127.0.0.1:5/\n{ended}"
    served["announce"]("http://192.168.0.7:5/?token=x")
    assert capsys.readouterr().out == (
        "The studio is at http://192.168.0.7:5/?token=x\n"
        f"Anyone who has this address can open it, also from other machines.\n{ended}"
    )


class Browser:
    def __init__(self, name):
        self.name, self.opened = name, []

    def open(self, url):
        self.opened.append(url)


def test_the_browser_of_the_desktop_is_opened_and_none_in_the_terminal(monkeypatch):
    for name, opened in (("firefox", ["http://x/"]), ("lynx", []), ("www-browser", [])):
        browser = Browser(name)
        monkeypatch.setattr(webbrowser, "get", lambda browser=browser: browser)
        app._browse("http://x/")
        assert browser.opened == opened

    def none():
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", none)
    app._browse("http://x/")

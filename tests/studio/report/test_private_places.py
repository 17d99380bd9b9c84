"""What is exported for others names files without their folders, and neither user nor host."""

import base64
import getpass
import json
import re
import socket
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import glasshead as gh
from classified import classified
from glasshead.cli import main
from glasshead.studio.report import without_places
from studio.report.conftest import held_in
from translated import translated
from written import written

SECRET = "secret-project-7"


@pytest.fixture
def place(tmp_path, monkeypatch):
    place = tmp_path / SECRET
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def all_of(file: Path) -> str:
    """A file's text, with what is packed into it and the attributes of pictures."""
    content = file.read_bytes()
    text = content.decode(errors="replace")
    for part in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", text):
        packed = base64.b64decode(part + "=" * (-len(part) % 4))
        for open_it in (zlib.decompress, bytes):
            try:
                text += open_it(packed).decode(errors="replace")
            except zlib.error:
                continue
    return text


def check_private(file: Path, place: Path) -> None:
    text = all_of(file)
    assert len(text) > 100
    # Names of one or two letters stand in any page.
    names = [name for name in (getpass.getuser(), socket.gethostname()) if len(name) > 5]
    private = (str(place), SECRET, f"{Path.home()}/", str(Path.cwd()), *names)
    assert [one for one in private if one in text] == []


@pytest.mark.parametrize("change", ["missing", "changed", "unreadable"])
@pytest.mark.parametrize("task", ["write", "classify", "translate"])
def test_a_report_of_a_run_whose_data_are_gone_names_them_alone(place, task, change):
    made = {"write": written, "classify": classified, "translate": translated}[task]
    run = made(place / "run").path
    config = json.loads((run / "config.json").read_text())
    data = {
        "missing": str(place / "gone" / "patients.txt"),
        "changed": str(place / "patients.txt"),
        "unreadable": str(place / "folder"),
    }[change]
    (place / "folder").mkdir()
    (place / "patients.txt").write_text("a,b\nNothing,here\n")
    config["data"] |= {"files": [data], "sha256": "0" * 64}
    (run / "config.json").write_text(json.dumps(config))
    report = gh.Report(run, lang="tr")
    assert report.sample.origin == "unreadable"
    assert SECRET in report.sample.why
    report.save(place / "report.html")
    check_private(place / "report.html", place)
    why = held_in(report.html()).told["sample"]["why"]
    assert Path(data).name in why


def test_a_sentence_keeps_the_names_of_files():
    places = (Path("/home/ada/secret/a.txt"), Path("/home/ada/run"))
    sentence = "/home/ada/secret/a.txt is not in /home/ada/secret; /home/ada/run is."
    assert without_places(sentence, places) == "a.txt is not in …; run is."


def test_pages_of_the_commands_name_files_alone(place):
    run = written(place / "run").path
    classifier, translator = classified(place / "c").path, translated(place / "t").path
    (place / "text.txt").write_text("Once upon a time there was a girl. " * 5)
    save_file({"mask": torch.ones(5, 5).tril().bool()}, place / "mask.safetensors")
    vectors = {word: [0.1 * n, 0.2, -0.3 * n] for n, word in enumerate(["a", "b", "c"])}
    (place / "vectors.json").write_text(json.dumps(vectors))
    commands = {
        "observe": (run, "--text", place / "text.txt"),
        "report": (run, "--text", place / "text.txt"),
        "diagnose": (f"{place / 'mask.safetensors'}:mask",),
        "explain": ("a b c", "--vectors", place / "vectors.json"),
        "classify": (classifier, "A fine film."),
        "translate": (translator, "Ihr seht das.", "--attention"),
    }
    for name, options in commands.items():
        page = place / f"{name}.html"
        words = [name, *map(str, options), "--html", str(page)]
        main(words)
        assert page.exists(), name
        check_private(page, place)


@pytest.mark.slow
def test_pictures_name_files_alone(place):
    run = written(place / "run").path
    (place / "text.txt").write_text("Once upon a time there was a girl. " * 31)
    for words in (
        ["roles", str(run), "--text", str(place / "text.txt"), "--png", "roles.png"],
        ["near", str(run), "e", "--png", "near.png"],
    ):
        assert main(words) == 0
        check_private(place / words[-1], place)

"""The versions that pyproject.toml asks for are those that the tests were run with."""

import email
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from scripts import ROOT, script


@pytest.fixture(scope="module")
def matrix():
    return script("matrix/run.py")


def test_the_page_shows_the_cells_that_were_green(matrix):
    cells, _ = matrix.table()
    written = matrix.PAGE.read_text(encoding="utf-8")
    assert matrix.page(written, matrix.results(), cells.values()) == written


def test_each_cell_says_what_it_is_and_names_folders_that_exist(matrix):
    cells, library = matrix.table()
    assert [folder for folder in library if not (ROOT / folder).is_dir()] == []
    assert {cell.scope for cell in cells.values()} == {"all", "library", "serving"}
    assert all(cell.about and re.fullmatch(r"3\.\d+", cell.python) for cell in cells.values())
    assert set(matrix.results()) <= set(cells)


def test_every_requirement_has_a_lower_bound_and_no_upper_one(matrix):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["train"], *extras["hf"], *extras["studio"]]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", line)] == []
    assert len(matrix.lower_bounds()) == len({line.partition(">")[0] for line in lines})


def test_the_lower_bounds_are_the_versions_of_the_oldest_cell(matrix):
    known = matrix.results()
    if os.environ.get("GLASSHEAD_CELL") == "oldest":
        pytest.skip("this run of the oldest cell tells")
    if "oldest" not in known:
        pytest.skip("the oldest cell was not run yet: make matrix CELLS=oldest")
    there = {name: found.partition("+")[0] for name, found in known["oldest"]["versions"].items()}
    assert known["oldest"]["failed"] == 0
    assert {name: there[name] for name in matrix.lower_bounds()} == matrix.lower_bounds()


def test_a_table_has_the_green_cells_and_tells_why_others_are_not_in_it(matrix):
    def cell(name):
        return matrix.Cell(name, "3.11", (), "library", f"about {name}")

    there = dict.fromkeys(matrix.SHOWN, "2.3+cpu") | {"python": "3.11.7"}
    found = {"passed": 1237, "mended": 3, "skipped": 5, "date": "2026-11-23", "versions": there}
    known = {"green": {**found, "failed": 0}, "red": {**found, "failed": 7}}
    drawn = matrix.rendered(known, [cell("green"), cell("red"), cell("new")])
    assert "| **green**: about green | 3.11.7 | 2.3 | 2.3 |" in drawn
    assert "| library | 1,237 | 3 | 5 | 2026-11-23 |" in drawn
    assert "- red (about red): 7 tests failed." in drawn
    assert "- new (about new): not run yet." in drawn
    assert "**red**" not in drawn


def test_a_cell_that_fails_names_its_tests_from_the_end_of_the_log(matrix, tmp_path):
    body = "import pytest\n\n@pytest.fixture\ndef none():\n    raise OSError('no disk')\n"
    body += "def test_error(none): pass\ndef test_passes(): print('FAILED only a word')\n"
    body += "@pytest.mark.parametrize('n', range(37))\ndef test_failed(n): assert n == -1\n"
    (tmp_path / "test_of_cell.py").write_text(body)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    log = subprocess.run(
        command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False
    ).stdout
    named = matrix.failed_tests(log)
    assert len(named) == 30
    assert named[0].startswith("FAILED test_of_cell.py::test_failed[8] ")
    assert named[-1].startswith("ERROR test_of_cell.py::test_error - OSError: no disk")
    assert matrix.failed_tests("FAILED before the summary\n1 passed") == []


def test_a_run_that_fails_prints_the_names_and_its_log(matrix, monkeypatch, tmp_path, capsys):
    log = tmp_path / "newest.log"
    log.write_text("=== short test summary info ===\nFAILED tests/test_a.py::test_b - assert 2\n")
    versions = {"torch": "2.13.0"}
    counted = {"passed": 7, "failed": 1, "skipped": 3, "mended": 0, "seconds": 5}
    monkeypatch.setattr(matrix, "BUILD", tmp_path)
    monkeypatch.setattr(matrix, "results", dict)
    monkeypatch.setattr(matrix, "write", lambda *_: None)
    monkeypatch.setattr(matrix, "run", lambda *_, **__: {**counted, "versions": versions})
    monkeypatch.setattr(sys, "argv", ["run.py", "newest"])
    assert matrix.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "newest: 7 passed (0 mended), 1 failed, 3 skipped, in 5 s",
        f"newest: see {log}",
        "FAILED tests/test_a.py::test_b - assert 2",
    ]


def test_a_cell_without_its_python_is_skipped_with_a_sentence(matrix, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(matrix.CellError, match=r"no Python 3\.19: .* GLASSHEAD_PYTHON_3_19"):
        matrix.interpreter("3.19")
    here = "{}.{}".format(*sys.version_info)
    monkeypatch.setenv(f"GLASSHEAD_PYTHON_{here.replace('.', '_')}", sys.executable)
    assert matrix.interpreter(here) == sys.executable


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_cell_that_cannot_be_run_fails_in_ci(matrix, monkeypatch, capsys, ci, code):
    def run(*_, **__):
        raise matrix.CellError("less than 9 GB of disk are free")

    monkeypatch.setattr(matrix, "results", dict)
    monkeypatch.setattr(matrix, "run", run)
    monkeypatch.setattr(sys, "argv", ["run.py", "newest"])
    monkeypatch.setenv("CI", ci)
    assert matrix.main() == code
    assert capsys.readouterr().out == "newest: skipped, less than 9 GB of disk are free.\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT]
    # Its metadata is read, and no machine code.
    environment = {**os.environ, "GLASSHEAD_PROCESSORS": "none"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (made,) = folder.glob("*.whl")
    return made


def pip(folder: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    """Ask pip what it would install into an environment, as a user's own pip would."""
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    command += ["--dry-run", "--quiet", "--disable-pip-version-check"]
    command += ["--retries=1", "--timeout=20", "--report=-", *wanted]
    variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_CONSTRAINT": ""}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def planned(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What pip would install: the metadata of each distribution by its name."""
    if re.search("No matching distribution|Connection", done.stderr):
        pytest.skip(f"pip cannot reach what it needs: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    install = json.loads(done.stdout)["install"]
    return {line["metadata"]["name"].lower(): line["metadata"] for line in install}


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> Path:
    """An environment whose metadata says that a PyTorch is installed, which is not the newest."""
    folder, torch = tmp_path_factory.mktemp("user"), "2.14.0"
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    info = site / f"torch-{torch}.dist-info"
    info.mkdir()
    message = email.message.Message()
    message["Metadata-Version"], message["Name"], message["Version"] = "2.1", "torch", torch
    (info / "METADATA").write_text(message.as_string())
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text("")
    return folder


@pytest.mark.slow
def test_a_users_own_torch_is_left_as_it_is(wheel, user):
    plan = planned(pip(user, f"{wheel}[hf,train,studio]"))
    assert {"glasshead", "numba", "transformers", "lightning", "fastapi"} <= set(plan)
    assert "torch" not in plan
    assert [name for name in plan if name.startswith(("nvidia", "cuda", "triton"))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "theirs"),
    [
        ("vllm==0.33.0", {"numba": "==0.65.0", "transformers": "<5.21"}),
        ("kvpress==0.5.5", {"transformers": "<5.3"}),
    ],
)
def test_it_is_installed_beside_libraries_with_pins_of_their_own(
    wheel, user, tmp_path, peer, theirs
):
    (alone,) = planned(pip(user, "--no-deps", peer)).values()
    lines = map(Requirement, alone["requires_dist"])
    # As constraints they bind what this package brings, and download nothing that it does not.
    pins = [
        f"{line.name}{line.specifier}\n"
        for line in lines
        if not line.marker or line.marker.evaluate({"extra": ""})
    ]
    (tmp_path / "pins.txt").write_text("".join(pins))
    plan = planned(pip(user, f"--constraint={tmp_path / 'pins.txt'}", f"{wheel}[hf]"))
    assert plan["glasshead"]["version"] == version("glasshead")
    # The PyTorch that is there is one that both take.
    assert "torch" not in plan
    for name, pin in theirs.items():
        assert plan[name]["version"] in SpecifierSet(pin)

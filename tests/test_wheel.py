"""What is installed from a wheel, and what an sdist holds: both are built, and tried elsewhere."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TITLES = {
    "en": "Attention, step by step",
    "tr": "Dikkat mekanizması, adım adım",
    "es": "La atención, paso a paso",
    "zh-Hant": "一步一步看注意力：「",
    "zh-Hans": "一步一步看注意力：“",
}
STUDIO_ALONE = """
import sys
sys.modules |= dict.fromkeys(["lightning", "transformers", "sacrebleu", "matplotlib", "pandas"])
from glasshead.cli import main
sys.argv = ["glasshead", "studio", "--no-open"]
main()
"""


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def installed(built, tmp_path_factory) -> Path:
    """The bin folder of an environment with the wheel, where its dependencies are already."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Dependencies only: an editable package is a .pth file, and those there are not read from here.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    subprocess.run([*command, "--no-deps", "--no-index", "--quiet", wheel], check=True)
    return folder / "bin"


def run(folder: Path, *command: object, cwd: Path) -> str:
    """What a program of the environment prints, started outside the repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(folder / str(command[0])), *map(str, command[1:])]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_installed_wheel_is_what_runs(installed, tmp_path):
    code = "import glasshead; print(glasshead.__file__)"
    assert Path(run(installed, "python", "-c", code, cwd=tmp_path)).is_relative_to(installed.parent)


@pytest.mark.parametrize("language", TITLES)
def test_an_installed_wheel_explains_in_each_language(installed, tmp_path, language):
    text = run(installed, "glasshead", "explain", "--lang", language, cwd=tmp_path)
    assert text.startswith(TITLES[language])
    assert "0.2291" in text


def test_an_installed_wheel_serves_the_studio_without_what_training_and_models_need(
    installed, tmp_path
):
    command = [installed / "python", "-u", "-c", STUDIO_ALONE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            url = next(word for line in server.stdout for word in line.split() if "http://" in word)
            for path, said in (("", b"<!doctype html>"), ("api/health", b"{")):
                with urllib.request.urlopen(url + path, timeout=20) as answer:
                    assert answer.read().lower().startswith(said)
        finally:
            server.terminate()


def test_a_wheel_holds_every_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    package = ROOT / "glasshead"
    files = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("glasshead/")}
    assert packed == files


def test_the_tests_run_from_an_sdist(built, installed, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert (folder / "conftest.py").is_file()
    tests = ["tests/recipe/test_parts.py", "tests/test_package.py", "docs/statistics.md"]
    told = run(
        installed, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder
    )
    assert "passed" in told
    assert "failed" not in told

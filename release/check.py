"""Check a release: build it, install it into empty environments, try it, and compare its names.

    python release/check.py              dependencies come from the package index, as for a user
    python release/check.py --offline    the libraries of this environment serve; no download

Prints one line per check: "ok", or what is wrong. The exit code is 1 if a check failed. Needs
`build`, `twine`, `readme_renderer[md]` and Babel.
"""
# ruff: noqa: INP001, S603, T201

import argparse
import datetime as dt
import email
import importlib
import math
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("wheel", "sdist")
# Engines, masks, caches, watching and explanations, and the numbers that the tutorials print.
SMOKE_TESTS = (
    "tests/engines/test_fused.py",
    "tests/engines/test_streaming.py",
    "tests/explanation/test_explanation_sums.py",
    "tests/ladder/test_printed_numbers.py",
    "tests/layers/test_layers_cache.py",
    "tests/watching/torch/test_watching_sdpa.py",
)
SMOKE_TESTS_NEED = ("hypothesis", "pytest", "pytest-timeout")
# What is put next to the smoke tests; the package itself is the installed one.
_NEXT_TO_TESTS = ("conftest.py", "pyproject.toml", "examples", "tests")
CATALOGUES = ("glasshead/explanation/locales", "docs/locales")
TEXT = "one day a cat saw the sun"
# All weights are 0, so that each token attends evenly to itself and all tokens before it.
OBSERVE = f"""
import torch
from glasshead.cli import main
from pathlib import Path
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = "<unk> {TEXT}".split()
pieces = Tokenizer(models.WordLevel({{word: i for i, word in enumerate(words)}}, unk_token="<unk>"))
pieces.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="<unk>").save_pretrained("model")
model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), hidden_size=24, intermediate_size=20,
    num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=67))
for parameter in model.parameters():
    torch.nn.init.zeros_(parameter)
model.save_pretrained("model")
Path("text.txt").write_text("{TEXT}\\n")
raise SystemExit(main(["observe", "model", "--text", "text.txt"]))
"""
_SECTION = re.compile(r"^## (?P<title>.+)\n(?P<body>(?:(?!^## ).*\n?)*)", re.MULTILINE)
_CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


class WrongError(Exception):
    """What is wrong with the release, in a sentence."""


class Check(NamedTuple):
    """A check: its name, what it does, and the check without which it cannot run.

    `run` returns what was found, or raises WrongError.
    """

    name: str
    run: Callable[[], str]
    needs: str = ""


@dataclass(frozen=True)
class Release:
    """A release that is tried in a folder outside the repository."""

    root: Path
    folder: Path
    offline: bool
    tests: tuple[str, ...] = SMOKE_TESTS

    def file(self, kind: str) -> Path:
        """Return the wheel or the sdist."""
        ending = {"wheel": "whl", "sdist": "tar.gz"}[kind]
        (found,) = (self.folder / "dist").glob(f"*.{ending}")
        return found

    def environment(self, kind: str) -> Path:
        """Return the virtual environment for the wheel or the sdist."""
        return self.folder / kind / "venv"

    def program(self, kind: str, name: str) -> str:
        """Return the path of a program of an environment."""
        return str(self._place(kind, "scripts") / name)

    def packages(self, kind: str) -> Path:
        """Return the folder with the packages of an environment."""
        return self._place(kind, "purelib")

    def _place(self, kind: str, what: str) -> Path:
        base = {"base": str(self.environment(kind))}
        return Path(sysconfig.get_path(what, "venv", vars=base))

    def run(self, kind: str, name: str, *arguments: str, within: str = ".") -> str:
        """Run a program of an environment outside the repository; return its standard output."""
        command = [self.program(kind, name), *arguments]
        return run(command, self.folder / kind / within)


def run(command: list[str], folder: Path) -> str:
    """Run a program in a folder and return its standard output.

    Errors: WrongError with the end of its output if it fails.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # What is printed does not depend on the terminal or the language of the machine.
    variables |= {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        said = [*done.stdout.splitlines(), *done.stderr.splitlines()][-15:]
        name = " ".join(word for word in command[1:4] if "\n" not in word)
        raise WrongError(
            "\n    ".join([f"{Path(command[0]).name} {name} ended with {done.returncode}:", *said])
        )
    return done.stdout


def tool(name: str, package: str) -> ModuleType:
    """Import a development tool.

    Errors: WrongError with the command that installs it if it is missing.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise WrongError(f"{package} is missing: pip install '{package}'") from None


def version(root: Path) -> str:
    """Return the version that the package states."""
    text = (root / "glasshead" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if not found or not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", found[1]):
        raise WrongError("glasshead/__init__.py must have a version such as 0.1.0 or 0.1.0rc1.")
    return found[1]


def release_date(changelog: str, number: str) -> dt.date:
    """Return the date of a version in a changelog, whose newest section it must be.

    Errors: WrongError if something is left under "Unreleased", or if the section is missing.
    """
    sections = [(found["title"], found["body"].strip()) for found in _SECTION.finditer(changelog)]
    if not sections or sections[0][0] != "Unreleased":
        raise WrongError('CHANGELOG.md must begin with "## Unreleased".')
    if sections[0][1]:
        raise WrongError(f'move what is below "Unreleased" to "## {number} - YYYY-MM-DD".')
    title, body = sections[1] if len(sections) > 1 else ("no section", "")
    name, _, date = title.partition(" - ")
    if name != number:
        raise WrongError(f'the newest section must be "## {number} - YYYY-MM-DD", got "{title}".')
    if not body:
        raise WrongError(f'"{title}" must say what is in the version.')
    try:
        return dt.date.fromisoformat(date)
    except ValueError:
        raise WrongError(f'the date of "{title}" must be YYYY-MM-DD.') from None


def changelog(root: Path) -> str:
    """Check that the newest section of the changelog is the version's."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return f"the section of {version(root)} is dated {release_date(text, version(root))}"


def citation(root: Path) -> str:
    """Check that CITATION.cff has the version and the date of the changelog, if it has a date."""
    file, number = root / "CITATION.cff", version(root)
    if not file.exists():
        return "there is no CITATION.cff"
    text = file.read_text(encoding="utf-8")
    found = dict(re.findall(r"""^(version|date-released):\s*["']?([^"'\s]+)""", text, re.MULTILINE))
    if found.get("version") != number:
        raise WrongError(f"CITATION.cff must have version: {number}, got {found.get('version')}.")
    day = release_date((root / "CHANGELOG.md").read_text(encoding="utf-8"), number).isoformat()
    if found.get("date-released", day) != day:
        raise WrongError(f"CITATION.cff must have date-released: {day} as CHANGELOG.md has.")
    return f"CITATION.cff has version {number}"


def tag(root: Path) -> str:
    """Check that a tag on this commit, and the tag of this version, belong together."""
    number = version(root)
    wanted = f"v{number}"
    if not (root / ".git").exists():
        return "this folder is not a clone"
    git = ["git", "-C", str(root)]
    here = run([*git, "tag", "--points-at", "HEAD", "v*"], root).split()
    if here and wanted not in here:
        raise WrongError(f"the tag of this commit must be {wanted}, got {' '.join(here)}.")
    if not here and run([*git, "tag", "--list", wanted], root).strip():
        raise WrongError(f"the tag {wanted} is on another commit: raise the version.")
    return f"{wanted} is on this commit" if here else f"no tag yet; it will be {wanted}"


def translations(root: Path) -> str:
    """Count what is not translated, or marked as fuzzy, in each catalogue."""
    read_po = tool("babel.messages.pofile", "babel").read_po
    files = [file for place in CATALOGUES for file in sorted((root / place).rglob("*.po"))]
    if not files:
        raise WrongError(f"there are no catalogues in {' and '.join(CATALOGUES)}.")
    total, missing = 0, []
    for file in files:
        with file.open("rb") as stream:
            messages = [message for message in read_po(stream) if message.id]
        count = sum(not message.string or message.fuzzy for message in messages)
        total += len(messages)
        if count:
            missing.append(f"{count} in {file.relative_to(root).as_posix()}")
    if missing:
        raise WrongError(f"translations are missing: {', '.join(missing)}.")
    return f"none of {total:,} is missing in {len(files)} catalogues"


def catalogues(root: Path) -> str:
    """Check that the catalogues hold the sentences of the code, with their placeholders."""
    file = root / "tests" / "explanation" / "test_catalogues.py"
    run([sys.executable, "-m", "pytest", "-q", "-m", "release", str(file)], root)
    return "they hold the sentences of the code"


def build(release: Release) -> str:
    """Build the sdist, and the wheel from the sdist."""
    tool("build", "build")
    dist = release.folder / "dist"
    options = ["--no-isolation"] if release.offline else []
    run([sys.executable, "-m", "build", *options, "--outdir", str(dist), str(release.root)], dist)
    number = version(release.root)
    found = [release.file(kind) for kind in KINDS]
    for file in found:
        if not file.name.startswith(f"glasshead-{number}"):
            raise WrongError(f"{file.name} must have the version {number}.")
    return ", ".join(f"{file.name} ({file.stat().st_size / 1e6:.1f} MB)" for file in found)


def machine_code(release: Release) -> str:
    """Check that the wheel has all kernels for each processor that it is built for."""
    asked = os.environ.get("GLASSHEAD_PROCESSORS", "").split()
    if asked == ["none"]:
        return "none, as GLASSHEAD_PROCESSORS says"
    from glasshead.engines.streaming.kernels.arguments import ENTRIES
    from glasshead.engines.streaming.kernels.processor import SHIPPED

    names = asked or [one.name for one in SHIPPED]
    with zipfile.ZipFile(release.file("wheel")) as archive:
        files = [Path(name).name for name in archive.namelist() if name.endswith(".o")]
    for name in names:
        count = sum(file.startswith(f"{name}.") for file in files)
        if count != 2 * len(ENTRIES):
            raise WrongError(f"{name} must have {2 * len(ENTRIES)} object files, got {count}.")
    return f"{len(files)} object files for {', '.join(names)}"


def metadata(release: Release) -> Message:
    """Return the metadata of the wheel; its payload is the long description."""
    with zipfile.ZipFile(release.file("wheel")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def twine(release: Release) -> str:
    """Let twine check the metadata of both files."""
    tool("twine", "twine")
    files = [str(release.file(kind)) for kind in KINDS]
    run([sys.executable, "-m", "twine", "check", "--strict", *files], release.folder)
    return f"twine check --strict passes, metadata {metadata(release)['Metadata-Version']}"


def licences(release: Release) -> str:
    """Check that the metadata name each licence that the wheel holds."""
    found = metadata(release)
    named = set(found.get_all("License-File") or ())
    with zipfile.ZipFile(release.file("wheel")) as archive:
        held = {
            name
            for name in archive.namelist()
            if "LICENSE" in name and not name.partition("/")[0].endswith(".dist-info")
        }
    if not held | {"LICENSE"} <= named:
        missing = ", ".join(sorted((held | {"LICENSE"}) - named))
        raise WrongError(f"license-files in pyproject.toml must name {missing}.")
    return f"{found['License-Expression']}, {len(named)} licence files"


def long_description(release: Release) -> str:
    """Check that the long description becomes HTML whose links and pictures lead somewhere."""
    found = metadata(release)
    payload = found.get_payload(decode=True)
    seen = rendered(payload.decode() if isinstance(payload, bytes) else "")
    urls = found.get_all("Project-URL")
    return f"{seen}, {f'{len(urls)} project URLs' if urls else 'no GLASSHEAD_REPOSITORY'}"


def rendered(text: str) -> str:
    """Check that Markdown becomes HTML as on the page of the package index."""
    with warnings.catch_warnings():
        # Without its extra it warns and renders nothing.
        warnings.simplefilter("ignore")
        renderer = tool("readme_renderer.markdown", "readme_renderer[md]")
        if not renderer.variants:
            raise WrongError("readme_renderer[md] is missing: pip install 'readme_renderer[md]'")
        html = renderer.render(text)
    if not html:
        raise WrongError("the README does not become HTML.")
    written = len(re.findall(r"^#{1,6} ", _CODE_BLOCK.sub("", text), re.MULTILINE))
    headings = len(re.findall(r"<h[1-6][ >]", html))
    if headings != written:
        raise WrongError(f"{written} headings are written, and {headings} appear.")
    places = re.findall(r'(?:href|src)="([^"]*)"', html)
    lost = [place for place in places if not re.match("https?:|mailto:|#", place)]
    if lost:
        raise WrongError(f"links must be full addresses, got {', '.join(lost)}.")
    return f"{headings} headings, {html.count('<pre')} code blocks, {html.count('<img')} pictures"


def install(release: Release, kind: str) -> str:
    """Install the wheel or the sdist into an empty virtual environment."""
    folder = release.environment(kind)
    venv.create(folder, symlinks=os.name != "nt")
    python = release.program(kind, "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    pip += ["--disable-pip-version-check"]
    file = release.file(kind)
    if release.offline:
        # Python does not read the .pth files there, so that an editable package is not found.
        libraries = release.packages(kind) / "libraries.pth"
        libraries.write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        pip += ["--no-deps", "--no-index", "--no-build-isolation"]
        run([*pip, str(file)], release.folder)
    else:
        run([*pip, f"glasshead[hf] @ {file.as_uri()}", *SMOKE_TESTS_NEED], release.folder)
    code = "import glasshead as gh, importlib.metadata as metadata; "
    code += "print(gh.__version__, metadata.version('torch'), gh.__file__)"
    number, torch, place = release.run(kind, "python", "-c", code).strip().split(" ", 2)
    if number != version(release.root) or not Path(place).is_relative_to(folder):
        raise WrongError(f"the environment runs glasshead {number} of {place}.")
    return f"glasshead {number} and torch {torch}"


def shows_help(release: Release, kind: str) -> str:
    """Run `glasshead --help`."""
    return said(release.run(kind, "glasshead", "--help"), "Usage: glasshead", "explain", "observe")


def explains(release: Release) -> str:
    """Explain the worked example."""
    return said(release.run("wheel", "glasshead", "explain"), "0.2291", "0.4063", "0.3646")


def observes(release: Release) -> str:
    """Make a model, and observe it in the same process."""
    out = release.run("wheel", "python", "-c", OBSERVE)
    tokens = len(TEXT.split())
    entropy = math.log(math.factorial(tokens)) / tokens
    return said(out, f"tokens: {tokens}", f"{entropy:.3f}")


def said(output: str, *wanted: str) -> str:
    """Check that an output holds some words or numbers."""
    missing = [words for words in wanted if words not in output]
    if missing:
        raise WrongError(f"it prints no {', '.join(missing)}:\n{output[:1000]}")
    return f"prints {', '.join(wanted)}"


def smoke_tests(release: Release) -> str:
    """Run the smoke tests of the sdist on the installed package."""
    with tarfile.open(release.file("sdist")) as archive:
        inside = [
            member
            for member in archive.getmembers()
            if member.name.split("/")[1:2] and member.name.split("/")[1] in _NEXT_TO_TESTS
        ]
        archive.extractall(release.folder / "wheel", members=inside, filter="data")
    (folder,) = (release.folder / "wheel").glob("glasshead-*")
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow"]
    out = release.run(
        "wheel", "python", "-m", "pytest", *options, *release.tests, within=folder.name
    )
    return out.strip().splitlines()[-1].strip("= ")


def same_files(release: Release) -> str:
    """Check that the sdist installs what the wheel does, so that what was tried holds for it."""
    tried, other = (_contents(release.packages(kind) / "glasshead") for kind in KINDS)
    differ = sorted(name for name in tried.keys() | other if tried.get(name) != other.get(name))
    if differ:
        raise WrongError(
            f"the sdist must install the files of the wheel, got others: {', '.join(differ[:7])}."
        )
    return f"the {len(tried)} files of the wheel"


def _contents(package: Path) -> dict[str, bytes]:
    """Return the files of a package by name; another Numba makes other machine code."""
    return {
        file.relative_to(package).as_posix(): b"" if file.suffix == ".o" else file.read_bytes()
        for file in package.rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }


def checks(release: Release) -> Iterator[Check]:
    """Return all checks of a release, the quickest first."""
    for quick in (version, changelog, citation, tag, translations):
        yield Check(quick.__name__, partial(quick, release.root))
    yield Check("catalogues", partial(catalogues, release.root))
    yield Check("build", partial(build, release))
    yield Check("machine code", partial(machine_code, release), needs="build")
    yield Check("metadata", partial(twine, release), needs="build")
    yield Check("licences", partial(licences, release), needs="build")
    yield Check("README", partial(long_description, release), needs="build")
    for kind in KINDS:
        installed = f"{kind}: install"
        yield Check(installed, partial(install, release, kind), needs="build")
        yield Check(f"{kind}: glasshead --help", partial(shows_help, release, kind), installed)
    for name, step in (
        ("glasshead explain", explains),
        ("glasshead observe", observes),
        ("smoke tests", smoke_tests),
    ):
        yield Check(f"wheel: {name}", partial(step, release), "wheel: install")
    yield Check("sdist: files", partial(same_files, release), "sdist: install")


def perform(checks: Iterable[Check]) -> list[str]:
    """Run checks, print a line for each, and return the names of those that failed."""
    failed: list[str] = []
    for check in checks:
        print(f"{check.name} … ", end="", flush=True)
        start = time.monotonic()
        if check.needs in failed:
            failed.append(check.name)
            print(f"left out, as {check.needs} failed")
            continue
        try:
            found = check.run()
        except WrongError as reason:
            failed.append(check.name)
            print(f"WRONG: {reason}", flush=True)
        else:
            seconds = round(time.monotonic() - start)
            print(f"ok: {found}" + (f" ({seconds} s)" if seconds else ""), flush=True)
    return failed


def main() -> int:
    """Check the release; the exit code is 1 if a check failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="files with tests, instead of the smoke tests")
    parser.add_argument(
        "--offline", action="store_true", help="use the libraries of this environment"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="glasshead-release-") as folder:
        tests = tuple(asked.tests) or SMOKE_TESTS
        release = Release(ROOT, Path(folder).resolve(), asked.offline, tests)
        for name in ("dist", *KINDS):
            (release.folder / name).mkdir()
        failed = perform(checks(release))
    print(f"{len(failed)} checks failed: {', '.join(failed)}." if failed else "All checks passed.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

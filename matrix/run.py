"""Run the tests with other versions of Python, PyTorch and the rest, each in its own environment.

python matrix/run.py                    every cell of cells.toml that is not green for this code
python matrix/run.py oldest newest      these
python matrix/run.py --again --keep vllm    although it is green; its environment is kept
python matrix/run.py --failed --keep vllm   what failed there before, after a mend
python matrix/run.py --again --install vllm its environment alone, which the next run uses

An environment takes up to 8 GB, as PyTorch comes with CUDA for most versions, and is deleted when
its tests have run, unless it is kept; one that was kept is used again while it is what the cell
asks for. What came out is kept in results.json after each cell, so that an interrupted run goes on
where it was; results.md shows it.
"""

import argparse
import datetime as dt
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "matrix"
BUILD = ROOT / "build" / "matrix"
RESULTS = HERE / "results.json"
PAGE = HERE / "results.md"
EXTRAS = ("train", "hf", "studio")
SHOWN = ("torch", "transformers", "numpy", "numba", "lightning", "fastapi", "typer", "rich")
# What other libraries say of their own future is no failure with versions that are not pinned.
IGNORED = (
    "ignore::DeprecationWarning",
    "ignore::PendingDeprecationWarning",
    "ignore::FutureWarning",
    # Of PyTorch, on Python 3.13.0.
    "ignore:Guards may run slower:RuntimeWarning",
)
NEEDED_DISK = 9 * 10**9
# How many of the tests that failed are named, the last ones of the log.
_NAMED = 30
_TABLE = re.compile(r"(?<=<!-- cells -->\n).*(?=<!-- end of cells -->)", re.DOTALL)


class CellError(Exception):
    """A cell that cannot be run here, with the reason."""


@dataclass(frozen=True)
class Cell:
    """Versions to install, and the tests to run with them."""

    name: str
    python: str
    requires: tuple[str, ...]
    scope: str
    about: str
    without: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is the environment of the project itself, as `make setup` makes it."""
        return self.requires == ("constraints.txt",)


def table() -> tuple[dict[str, Cell], list[str]]:
    """Return the cells of cells.toml by name, and the folders of tests of scope "library"."""
    read = tomllib.loads((HERE / "cells.toml").read_text(encoding="utf-8"))
    cells = {}
    for name, entry in read["cells"].items():
        listed = {one: tuple(entry.get(one, ())) for one in ("requires", "without")}
        cells[name] = Cell(name, **{**entry, **listed})
    return cells, read["library"]


def lower_bounds() -> dict[str, str]:
    """Return the lower bound of every requirement that users install, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    found = (re.match(r"([A-Za-z0-9_.-]+)(?:\[.*\])?>=([0-9.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def source() -> str | None:
    """Return what tells one state of the code and its tests from another; None outside of git."""
    tested = ("glasshead", "tests", "examples", "README.md", "pyproject.toml")
    command = ["git", "-C", str(ROOT), "ls-files", "-s", *tested]
    try:
        listed = subprocess.run(command, capture_output=True, check=True)
        hashed = ["git", "-C", str(ROOT), "hash-object", "--stdin"]
        return subprocess.run(
            hashed, input=listed.stdout, capture_output=True, check=True
        ).stdout.decode()[:12]
    except (OSError, subprocess.CalledProcessError):
        return None


def interpreter(version: str) -> str:
    """Return the Python of a version: from GLASSHEAD_PYTHON_3_14, the path, or pyenv.

    Errors: CellError where there is none.
    """
    variable = f"GLASSHEAD_PYTHON_{version.replace('.', '_')}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = (
        os.environ.get(variable),
        shutil.which(f"python{version}"),
        *sorted(map(str, pyenv.glob(f"{version}.*/bin/python"))),
    )
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return candidate
    raise CellError(f"no Python {version}: install it, or name it in {variable}")


def install(cell: Cell, folder: Path) -> Path:
    """Make the environment of a cell, or take one that is there, and return its Python.

    Errors: CellError where there is no such Python, no room, or pip does not find the versions.
    """
    if cell.is_own:
        # This script runs in it.
        return Path(sys.executable)
    first = interpreter(cell.python)
    requires = list(cell.requires)
    if "oldest" in requires:
        requires.remove("oldest")
        requires += [f"{name}=={bound}" for name, bound in lower_bounds().items()]
    wanted, python, made = folder.with_suffix(".txt"), folder / "bin" / "python", folder / "made"
    lines = "".join(f"{line}\n" for line in requires)
    asked = f"{first}\n{lines}{' '.join(cell.without)}"
    if made.exists() and made.read_text(encoding="utf-8") == asked:
        return python
    if shutil.disk_usage(ROOT).free < NEEDED_DISK:
        raise CellError(f"less than {NEEDED_DISK / 1e9:.0f} GB of disk are free")
    shutil.rmtree(folder, ignore_errors=True)
    wanted.write_text(lines)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [first, "-m", "venv", str(folder)],
        # The first that knows dependency groups; the group has the extras.
        [*pip, "pip>=25.1"],
        [*pip, "-c", str(wanted), "-e", str(ROOT), "--group", f"{ROOT / 'pyproject.toml'}:test"],
        *([[str(python), str(HERE / "without.py"), *cell.without]] if cell.without else []),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise CellError(f"it could not be installed: {(said or ['no reason given'])[0]}")
    made.write_text(asked)
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the version of Python and of what matters, as they are installed."""
    code = (
        "import json, platform\nfrom importlib.metadata import version\n"
        f"print(json.dumps({{'python': platform.python_version(), "
        f"**{{name: version(name) for name in {(*SHOWN, *lower_bounds())!r}}}}}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test(
    cell: Cell, python: Path, library: list[str], processes: int, before: dict[str, Any] | None
) -> dict[str, int]:
    """Run the tests of a cell, and return how many passed, failed and were skipped.

    With the counts before, only what failed then is run again, and added to them.
    """
    log, counts = (BUILD / cell.name).with_suffix(".log"), (BUILD / cell.name).with_suffix(".xml")
    counts.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", f"--numprocesses={processes}", f"--junitxml={counts}"]
    if cell.scope == "serving":
        # Each engine is started once, for all tests of a file.
        command.append("--dist=loadfile")
    cache = log.with_suffix(".cache")
    command.append(f"--override-ini=cache_dir={cache}")
    if cell.scope != "library":
        # The slow ones, too.
        command += ["-m", ""]
    # Of tests that start tests, too.
    options = "" if cell.is_own else shlex.join(f"-W{ignored}" for ignored in IGNORED)
    # Doctests and documents show today's figures and messages of other libraries: "all" has them.
    paths = {"library": library, "serving": ["tests/serving"]}.get(cell.scope, [])
    if before is not None:
        # Of a file that could not be collected its name is there, and all of it is run.
        failures = cache / "v" / "cache" / "lastfailed"
        paths = [*json.loads(failures.read_text(encoding="utf-8"))]
        # The name of a file would stay there whatever its tests do.
        failures.unlink()
    with log.open("w") as file:
        subprocess.run(
            [*command, *paths],
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
            env={
                **os.environ,
                "OMP_WAIT_POLICY": "passive",
                "PYTEST_ADDOPTS": options,
                "GLASSHEAD_CELL": cell.name,
            },
        )
    if not counts.exists():
        raise CellError(f"pytest did not come to its end: see {log.relative_to(ROOT)}")
    suite = next(ET.parse(counts).getroot().iter("testsuite")).attrib
    failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    counted = {
        "passed": int(suite["tests"]) - failed - skipped,
        "failed": failed,
        "skipped": skipped,
        "mended": 0,
    }
    if before is None:
        return counted
    # There are more where a file could not be collected, which counts as one failure.
    if int(suite["tests"]) < before["failed"]:
        raise CellError(f"{before['failed']} tests failed before, and {suite['tests']} were found")
    counted["mended"] = before["mended"] + counted["passed"]
    counted["passed"] += before["passed"]
    counted["skipped"] += before["skipped"]
    return counted


def failed_tests(log: str) -> list[str]:
    """Return the lines of pytest's short summary that name what failed, at most 30, the last."""
    _, header, summary = log.rpartition(" short test summary info ")
    lines = summary.splitlines() if header else []
    return [line for line in lines if line.startswith(("FAILED ", "ERROR "))][-_NAMED:]


def results() -> dict[str, Any]:
    """Return what came out of each cell that was run."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def rendered(known: dict[str, Any], cells: Iterable[Cell]) -> str:
    """Return the cells that were green as a table of Markdown, and the others with the reason."""
    head = ("cell", "Python", *SHOWN, "tests", "passed", "fixed", "skipped", "date")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    others = []
    for cell in cells:
        found = known.get(cell.name)
        if found is None or found["failed"]:
            why = "not run yet" if found is None else f"{found['failed']} tests failed"
            others.append(f"- {cell.name} ({cell.about}): {why}.")
            continue
        there = found["versions"]
        shown = (
            f"**{cell.name}**: {cell.about}",
            there["python"],
            *(there[name].partition("+")[0] for name in SHOWN),
            cell.scope,
            f"{found['passed']:,}",
            found["mended"],
            found["skipped"],
            found["date"],
        )
        lines.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join([*lines, "", *others, ""] if others else [*lines, ""])


def page(text: str, known: dict[str, Any], cells: Iterable[Cell]) -> str:
    """Return the page with the table of these results."""
    return _TABLE.sub(lambda _: rendered(known, cells), text)


def write(known: dict[str, Any], cells: dict[str, Cell]) -> None:
    """Write the results, and the page that shows them."""
    ordered = {name: known[name] for name in cells if name in known}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(
        page(PAGE.read_text(encoding="utf-8"), ordered, cells.values()), encoding="utf-8"
    )


def run(
    cell: Cell,
    library: list[str],
    *,
    processes: int,
    keep: bool,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Install and test a cell; with its result before, only what failed then.

    Errors: CellError where it cannot be run here.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    folder = BUILD / cell.name
    state, start = source(), time.monotonic()
    try:
        print(f"{cell.name}: installing, for Python {cell.python} …", flush=True)
        python = install(cell, folder)
        there = versions(python)
        print(f"{cell.name}: testing with torch {there['torch']} …", flush=True)
        counted = test(cell, python, library, processes, before)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    seconds = round(time.monotonic() - start) + (before["seconds"] if before else 0)
    return {**counted, "seconds": seconds, "date": today, "source": state, "versions": there}


def main() -> int:
    """Run the cells asked for; the exit code is 1 where tests failed, or in CI one was skipped."""
    cells, library = table()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cells", nargs="*", help=f"cells; all if none: {', '.join(cells)}")
    parser.add_argument("--again", action="store_true", help="run those that are green, too")
    parser.add_argument("--failed", action="store_true", help="run only what failed before, again")
    parser.add_argument("--install", action="store_true", help="only make the environments")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--processes", type=int, default=2, help="processes that test (2)")
    asked = parser.parse_args()
    unknown = [name for name in asked.cells if name not in cells]
    if unknown:
        parser.error(f"expected cells of cells.toml, {', '.join(cells)}, and got {unknown[0]!r}.")
    failed = False
    for cell in (cells[name] for name in asked.cells or cells):
        found = results().get(cell.name)
        if found and not found["failed"] and found["source"] == source() and not asked.again:
            print(f"{cell.name}: green already, on {found['date']}")
            continue
        try:
            if asked.install:
                BUILD.mkdir(parents=True, exist_ok=True)
                install(cell, BUILD / cell.name)
                continue
            before = found if asked.failed and found and found["failed"] else None
            found = run(cell, library, processes=asked.processes, keep=asked.keep, before=before)
        except CellError as reason:
            print(f"{cell.name}: skipped, {reason}.")
            # Nothing is left out in CI.
            failed |= bool(os.environ.get("CI"))
            continue
        except KeyboardInterrupt:
            print(f"\n{cell.name}: interrupted; the same command goes on with it.")
            return 130
        print(
            "{0}: {passed} passed ({mended} mended), {failed} failed, {skipped} skipped, "
            "in {seconds} s".format(cell.name, **found)
        )
        if found["failed"]:
            log = (BUILD / cell.name).with_suffix(".log")
            print(f"{cell.name}: see {log}")
            print(*failed_tests(log.read_text(encoding="utf-8", errors="replace")), sep="\n")
        failed |= bool(found["failed"])
        write({**results(), cell.name: found}, cells)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""What stands beside the code: workflows, forms, hooks, the citation, and the versions for uv."""

import re
import shlex
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

import glasshead
from scripts import ROOT, script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))

of_a_clone = pytest.mark.skipif(not GITHUB.is_dir(), reason="an sdist has no .github")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def jobs() -> dict[str, dict[str, Any]]:
    return {
        f"{file.stem}.{name}": job
        for file in WORKFLOWS
        for name, job in read(str(file.relative_to(ROOT)))["jobs"].items()
    }


SCHEMAS = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.citation-file-format": "CITATION.cff",
}


@of_a_clone
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_for_the_host_follow_its_schemas(schema, capsys):
    check = pytest.importorskip("check_jsonschema").main
    files = [str(file) for file in ROOT.glob(SCHEMAS[schema])]
    assert files
    with pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", schema, *files])
    assert ended.value.code == 0, capsys.readouterr().out


@of_a_clone
def test_workflows_may_only_read_and_use_actions_of_the_host():
    assert {file.stem for file in WORKFLOWS} == {"docs", "lint", "test", "wheels"}
    for file in WORKFLOWS:
        workflow = read(str(file.relative_to(ROOT)))
        assert workflow["permissions"] == {"contents": "read"}
        assert workflow["concurrency"]["cancel-in-progress"] is True
    for job in jobs().values():
        assert "permissions" not in job
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)] == []


@of_a_clone
@pytest.mark.parametrize("job", ["test.test", "wheels.install"])
def test_a_workflow_takes_the_oldest_and_the_newest_python_on_each_system(job):
    found = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    ends = sorted(found, key=lambda version: int(version[2:]))[:: len(found) - 1]
    assert PROJECT["project"]["requires-python"] == f">={ends[0]}"
    assert jobs()[job]["strategy"]["matrix"] == {
        "os": ["ubuntu-latest", "macos-latest", "windows-latest"],
        "python": ends,
    }


@of_a_clone
@pytest.mark.parametrize(
    ("job", "target"), [("test.test", "test"), ("lint.code", "lint"), ("docs.site", "docs")]
)
def test_a_workflow_runs_what_a_developer_runs(job, target):
    commands = [step.get("run", "") for step in jobs()[job]["steps"]]
    assert f"make {target} PYTHON=python" in commands
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_hooks_before_a_commit_run_what_make_lint_runs():
    if not (ROOT / ".git").exists() or shutil.which("make") is None:
        pytest.skip("hooks are for a clone, and make says what it runs")
    (repository,) = read(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = [shlex.split(hook["entry"]) for hook in repository["hooks"]]
    # Without what `make setup` and npm install first.
    command = ["make", "--dry-run", "--no-print-directory", "lint", "--assume-old=setup"]
    command.append("--assume-old=node_modules/installed")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert hooks == [shlex.split(line) for line in done.stdout.splitlines()]
    for hook in repository["hooks"]:
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_the_citation_is_of_this_version():
    cited = read("CITATION.cff")
    assert cited["version"] == glasshead.__version__
    # The fonts that come with it have their own.
    assert cited["license"] == PROJECT["project"]["license"].partition(" AND ")[0]
    assert cited["authors"] == PROJECT["project"]["authors"]
    assert [word.lower() for word in cited["keywords"]] == PROJECT["project"]["keywords"]
    assert len(str(cited["date-released"]).split("-")) == 3


def test_the_newest_version_gets_security_fixes():
    table = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    supported = re.findall(r"^\| ([\d.]+) \| yes \|$", table, re.MULTILINE)
    assert supported == [glasshead.__version__.rpartition(".")[0]]


def test_uv_takes_the_versions_of_the_constraints():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert PROJECT["tool"]["uv"]["constraint-dependencies"] == pins, "python matrix/pins.py"


def test_pins_are_copied_in_place_of_those_that_were_there():
    before = 'a = [\n    "x",\n]\nconstraint-dependencies = [\n    "old==1",\n]\nb = 1\n'
    pins = [f"package-with-a-long-name-{number}==2.{number}" for number in range(7)]
    after = script("matrix/pins.py").with_pins(before, "\n".join(pins) + "\n")
    assert tomllib.loads(after) == {"a": ["x"], "constraint-dependencies": pins, "b": 1}
    assert max(map(len, after.splitlines())) <= 100


def test_development_is_in_groups_and_extras_are_for_users():
    groups = PROJECT["dependency-groups"]
    assert {*groups} == {"docs", "test", "dev"}
    assert not {*groups} & {*PROJECT["project"]["optional-dependencies"]}
    included = [line["include-group"] for line in groups["dev"] if isinstance(line, dict)]
    assert included == ["docs", "test"]
    # With the package itself, the extras that a cell of versions has.
    extras = ",".join(script("matrix/run.py").EXTRAS)
    assert groups["test"][0] == f"glasshead[{extras}]"


def test_an_sdist_has_what_its_tests_read():
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/*.md", "/CITATION.cff", "/constraints.txt", "/matrix", "/tests"} <= {*included}

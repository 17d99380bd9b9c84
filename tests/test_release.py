"""A release is checked before it is made: names that agree, and files that install and run."""

import os
import re
import subprocess
import sys

import pytest

from scripts import ROOT, script

# While the next version is written, these may be wrong.
OF_A_RELEASE = {"changelog", "citation", "tag", "translations", "catalogues"}
# One of the smoke tests.
QUICK = "tests/ladder/test_printed_numbers.py"
NOTES = (
    "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2027-01-31\n\n- Less.\n\n## 0.1.0 - 2026-11-26\n"
)


@pytest.fixture(scope="module")
def check():
    return script("release/check.py")


@pytest.fixture
def project(tmp_path):
    """A folder whose files all name version 0.2.0."""
    (tmp_path / "glasshead").mkdir()
    (tmp_path / "glasshead" / "__init__.py").write_text('"""glasshead."""\n__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    (tmp_path / "CITATION.cff").write_text(
        "cff-version: 1.2.0\nversion: 0.2.0\ndate-released: '2027-01-31'\n"
    )
    return tmp_path


def test_the_names_of_a_release_agree(check, project):
    assert check.version(project) == "0.2.0"
    assert check.changelog(project) == "the section of 0.2.0 is dated 2027-01-31"
    assert check.citation(project) == "CITATION.cff has version 0.2.0"


@pytest.mark.parametrize("written", ["", '__version__ = "0.2"\n', '__version__ = "0.2.0.dev1"\n'])
def test_a_version_that_cannot_be_released_is_wrong(check, project, written):
    (project / "glasshead" / "__init__.py").write_text(written)
    with pytest.raises(check.WrongError, match=r"must have a version such as 0\.1\.0"):
        check.version(project)


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("# Changelog\n", 'must begin with "## Unreleased"'),
        ("## 0.2.0 - 2027-01-31\n\n- Less.\n", 'must begin with "## Unreleased"'),
        ("## Unreleased\n", "the newest section must be .* got .no section"),
        ("## Unreleased\n\n- More.\n\n## 0.2.0 - 2027-01-31\n\n- Less.\n", 'what is below "Unr'),
        ("## Unreleased\n\n## 0.1.0 - 2026-11-26\n\n- All.\n", "must be .## 0.2.0 .* got .0.1.0"),
        ("## Unreleased\n\n## 0.2.0 - 2027-01-31\n", "must say what is in the version"),
        ("## Unreleased\n\n## 0.2.0 - 31.1.2027\n\n- Less.\n", "must be YYYY-MM-DD"),
        ("## Unreleased\n\n## 0.2.0\n\n- Less.\n", "must be YYYY-MM-DD"),
    ],
)
def test_a_changelog_without_the_section_of_the_version_is_wrong(check, written, wrong):
    with pytest.raises(check.WrongError, match=wrong):
        check.release_date(written, "0.2.0")


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ('version: "0.1.0"\n', r"must have version: 0\.2\.0, got 0\.1\.0"),
        ("cff-version: 0.2.0\n", r"must have version: 0\.2\.0, got None"),
        ("version: 0.2.0\ndate-released: 2027-02-01\n", "must have date-released: 2027-01-31"),
    ],
)
def test_a_citation_of_another_version_or_date_is_wrong(check, project, written, wrong):
    (project / "CITATION.cff").write_text(written)
    with pytest.raises(check.WrongError, match=wrong):
        check.citation(project)


def test_a_citation_may_lack_a_date_and_a_project_a_citation(check, project):
    (project / "CITATION.cff").write_text('version: "0.2.0"\n')
    assert check.citation(project) == "CITATION.cff has version 0.2.0"
    (project / "CITATION.cff").unlink()
    assert check.citation(project) == "there is no CITATION.cff"


def test_a_tag_and_the_version_belong_together(check, project):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", project, *identity, *words], check=True, capture_output=True)

    assert check.tag(project) == "this folder is not a clone"
    git("init")
    git("commit", "--allow-empty", "--message", "first")
    assert check.tag(project) == "no tag yet; it will be v0.2.0"
    git("tag", "v0.1.0")
    with pytest.raises(check.WrongError, match=r"must be v0\.2\.0, got v0\.1\.0"):
        check.tag(project)
    git("tag", "v0.2.0")
    assert check.tag(project) == "v0.2.0 is on this commit"
    git("commit", "--allow-empty", "--message", "second")
    with pytest.raises(check.WrongError, match=r"v0\.2\.0 is on another commit"):
        check.tag(project)


def test_missing_and_fuzzy_translations_are_counted_by_catalogue(check, tmp_path):
    with pytest.raises(check.WrongError, match="there are no catalogues in glasshead/explanation"):
        check.translations(tmp_path)
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    entries = 'msgid "scores"\nmsgstr "puanlar"\n\nmsgid "keys"\nmsgstr ""\n\n'
    fuzzy = '#, fuzzy\nmsgid "query"\nmsgstr "sorgu"\n'
    for place, text in zip(check.CATALOGUES, (head + entries + fuzzy, head + entries), strict=True):
        file = tmp_path / place / "tr" / "LC_MESSAGES" / "some.po"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    wrong = "missing: 2 in glasshead/.*/some.po, 1 in docs/locales/tr/LC_MESSAGES/some.po"
    with pytest.raises(check.WrongError, match=wrong):
        check.translations(tmp_path)
    file.write_text(head + entries.replace('""', '"anahtarlar"'), encoding="utf-8")
    (tmp_path / check.CATALOGUES[0] / "tr" / "LC_MESSAGES" / "some.po").unlink()
    assert check.translations(tmp_path) == "none of 2 is missing in 1 catalogues"


def test_a_readme_with_headings_code_and_full_addresses_is_rendered(check):
    pytest.importorskip("comrak", reason="readme_renderer[md] is not installed")
    text = (
        "# A\n\n[x](https://w.org) [y](#a) ![p](https://w.org/p.png)\n\n```sh\n# no heading\n```\n"
    )
    assert check.rendered(text) == "1 headings, 1 code blocks, 1 pictures"
    with pytest.raises(check.WrongError, match=r"full addresses, got docs/x\.md, p\.png"):
        check.rendered(text + "\n[x](docs/x.md) ![p](p.png)\n")
    with pytest.raises(check.WrongError, match="2 headings are written, and 1 appear"):
        check.rendered("# A\n\n<pre>\n# b\n</pre>\n")
    with pytest.raises(check.WrongError, match="does not become HTML"):
        check.rendered("")


def test_a_tool_that_is_missing_is_named_with_its_command(check):
    with pytest.raises(check.WrongError, match=r"nothing\[md\] is missing: pip install 'nothing"):
        check.tool("nothing_like_it", "nothing[md]")


def test_a_program_that_fails_is_shown_with_the_end_of_its_output(check, tmp_path):
    code = "import sys; print(*range(100), sep='\\n'); sys.exit('no disk')"
    with pytest.raises(check.WrongError, match=r"-c .*ended with 1:\n    86\n") as caught:
        check.run([sys.executable, "-c", code], tmp_path)
    assert str(caught.value).splitlines()[-1].strip() == "no disk"
    where = "import os; print(os.getcwd(), os.environ.get('PYTHONPATH'))"
    out = check.run([sys.executable, "-c", where], tmp_path)
    assert out.split() == [str(tmp_path.resolve()), "None"]


def test_an_output_without_what_is_wanted_is_wrong(check):
    assert check.said("mean 1.218 nats", "1.218", "nats") == "prints 1.218, nats"
    with pytest.raises(check.WrongError, match=r"prints no 1\.219:\nmean 1\.218"):
        check.said("mean 1.218", "1.219", "mean")


def test_each_check_is_one_line_and_what_needs_a_failed_one_is_left_out(check, capsys):
    def wrong():
        raise check.WrongError("no disk")

    def never():
        raise AssertionError

    steps = [
        check.Check("first", lambda: "found"),
        check.Check("second", wrong),
        check.Check("third", never, needs="second"),
        check.Check("fourth", never, needs="third"),
        check.Check("fifth", lambda: "it", needs="first"),
    ]
    assert check.perform(steps) == ["second", "third", "fourth"]
    assert capsys.readouterr().out.splitlines() == [
        "first … ok: found",
        "second … WRONG: no disk",
        "third … left out, as second failed",
        "fourth … left out, as third failed",
        "fifth … ok: it",
    ]


@pytest.mark.parametrize("failed", [[], ["build"]])
def test_the_exit_code_tells_whether_a_check_failed(check, monkeypatch, capsys, failed):
    monkeypatch.setattr(check, "perform", lambda _: failed)
    monkeypatch.setattr(sys, "argv", ["check.py", "--offline"])
    assert check.main() == len(failed)
    end = "1 checks failed: build." if failed else "All checks passed."
    assert capsys.readouterr().out.splitlines() == [end]


def test_the_checks_are_of_files_that_are_there(check, tmp_path):
    assert [name for name in check.SMOKE_TESTS if not (ROOT / name).is_file()] == []
    steps = list(check.checks(check.Release(ROOT, tmp_path, offline=True)))
    names = [step.name for step in steps]
    assert len(names) == len(set(names))
    assert all(not step.needs or step.needs in names[:at] for at, step in enumerate(steps))


def test_an_sdist_that_installs_other_files_than_the_wheel_is_wrong(check, tmp_path):
    release = check.Release(ROOT, tmp_path, offline=True)
    wheel, sdist = (release.packages(kind) / "glasshead" for kind in check.KINDS)
    for package, made in ((wheel, "one compiler"), (sdist, "another")):
        package.joinpath("part").mkdir(parents=True)
        package.joinpath("__init__.py").write_text("version = 7")
        package.joinpath("part", "kernel.o").write_text(made)
        package.joinpath("part", "kernel.pyc").write_text(made)
    assert check.same_files(release) == "the 2 files of the wheel"
    (sdist / "__init__.py").write_text("version = 5")
    (sdist / "part" / "more.py").touch()
    (sdist / "part" / "kernel.o").unlink()
    named = r"got others: __init__\.py, part/kernel\.o, part/more\.py\."
    with pytest.raises(check.WrongError, match=named):
        check.same_files(release)


def test_every_section_of_the_changelog_has_a_version_and_a_date():
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert titles[1:]
    dated = r"\d+\.\d+\.\d+((a|b|rc)\d+)? - \d{4}-\d\d-\d\d"
    assert [title for title in titles[1:] if not re.fullmatch(dated, title)] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_release_of_this_project_installs_and_runs(check, tmp_path):
    for name in ("build", "twine", "comrak"):
        pytest.importorskip(name, reason="the tools of a release are not installed")
    done = subprocess.run(
        [sys.executable, ROOT / "release" / "check.py", "--offline", QUICK],
        cwd=tmp_path,
        env={**os.environ, "GLASSHEAD_PROCESSORS": "none"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    lines = dict(re.findall(r"^(\S.*?) … (.*)$", done.stdout, re.MULTILINE))
    release = check.Release(ROOT, tmp_path, offline=True)
    assert list(lines) == [step.name for step in check.checks(release)], done.stderr
    failed = {name for name, found in lines.items() if not found.startswith("ok: ")}
    assert failed <= OF_A_RELEASE, done.stdout
    assert done.returncode == bool(failed)

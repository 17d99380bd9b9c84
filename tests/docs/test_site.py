"""The documentation site: it builds without a warning, has every name, and no dead link."""

import ast
import re
import shutil
import zlib
from html.parser import HTMLParser

import pytest
from babel.messages.pofile import read_po

import forked
import glasshead
import glasshead.ladder
from docs.conftest import BUILDER
from glasshead.cli import main
from scripts import ROOT, script

LOCALES = ROOT / "docs" / "locales"
SPHINX_LANGUAGES = ("tr", "es", "zh_TW", "zh_CN")
LARGEST, LIVE = 500_000, "studio/index.html"


@pytest.fixture(scope="module")
def links():
    return script("docs/building/links.py")


@pytest.fixture(scope="module")
def pages():
    return script("docs/building/pages.py")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_built_without_a_warning(built):
    folder, said = built
    assert said.splitlines() == [f"wrote {folder / 'index.html'}"]


def entries(site):
    """The names that the index of the site has, with where each leads."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(packed).decode().splitlines()
    found = (re.fullmatch(r"(\S+) py:(\S+) \S+ (\S+) .*", line) for line in lines)
    return {one[1]: one[3].replace("$", one[1]) for one in found if one}


# The modules whose names a page of the reference lists.
FROM = re.compile(r"^ +:from: (.+)$", re.MULTILINE)
PUBLIC = [f"glasshead.{name}" for name in glasshead.__all__]
PUBLIC += [f"glasshead.ladder.{name}" for name in glasshead.ladder.__all__]


@pytest.mark.slow
def test_every_public_name_has_an_entry_with_its_docstring(site):
    """One that is missing comes from a module that no page of docs/reference/api names yet."""
    known = entries(site)
    assert [name for name in PUBLIC if name not in known] == []
    text = {}
    for name in PUBLIC:
        page, _, place = known[name].partition("#")
        text.setdefault(page, (site / page).read_text(encoding="utf-8"))
        assert f'id="{place}"' in text[page], name


def test_every_module_of_public_names_is_on_a_page_of_the_reference():
    pages = [
        file.read_text(encoding="utf-8")
        for file in (ROOT / "docs" / "reference" / "api").glob("*.rst")
    ]
    named = {name for page in pages for line in FROM.findall(page) for name in line.split()}
    stub = ast.parse((ROOT / "glasshead" / "__init__.pyi").read_text(encoding="utf-8"))
    homes = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    assert {f"glasshead.{line.module}" if line.level else line.module for line in homes} == named
    assert any(".. public-names:: glasshead.ladder\n" in page for page in pages)


def test_each_option_of_each_command_is_in_the_reference(with_sphinx, capsys):
    reference = script("docs/building/commands.py")
    for path, command in reference.commands():
        assert main([*path.split()[1:], "--help"]) == 0
        options = {*re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)} - {"--help"}
        section = "\n".join(reference.described(path, command))
        assert options, path
        assert [option for option in sorted(options) if option not in section] == [], path


@pytest.mark.slow
def test_signatures_are_as_they_are_written(site):
    for page in (site / "docs" / "reference" / "api").glob("*.html"):
        text = re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))
        assert re.findall(r"~?jaxtyping\.|&lt;(?:factory|class|function|object)", text) == [], page
    text = (site / "docs" / "reference" / "api" / "attention.html").read_text(encoding="utf-8")
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text))
    assert "forward( query: Float[Tensor, '... queries dim']" in shown
    assert "engine: str = 'auto'" in shown


@pytest.mark.slow
def test_names_in_the_guide_lead_to_their_entries(site):
    text = (site / "docs" / "start" / "watch.html").read_text(encoding="utf-8")
    assert 'href="../reference/api/watching.html#glasshead.watch"' in text
    assert 'href="../../_modules/glasshead/models/language_model.html"' in (
        (site / "docs" / "reference" / "models.html").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("other.html#there", False),
        ("other.html#gone", True),
        ("folder/gone.html", True),
        ("folder", True),
        ("#here", False),
        ("#gone", True),
        ("https://example.org/gone", False),
        ("picture%20one.png", False),
    ],
)
def test_a_dead_link_is_found(links, tmp_path, link, dead):
    (tmp_path / "folder").mkdir()
    (tmp_path / "picture one.png").touch()
    (tmp_path / "other.html").write_text('<p id="there">')
    (tmp_path / "page.html").write_text(f'<p id="here"><a href="{link}">a</a>')
    assert links.dead_links(tmp_path) == ([f"page.html: {link}"] if dead else [])


class _Loaded(HTMLParser):
    """The scripts and style sheets of a page."""

    def __init__(self):
        super().__init__()
        self.files = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "script" and "src" in given:
            self.files.add(given["src"])
        if tag == "link" and given.get("rel") == "stylesheet":
            self.files.add(given["href"])


@pytest.mark.slow
def test_no_page_is_heavy_without_its_pictures(site):
    weights = {}
    for page in site.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        files = {(page.parent / file.partition("?")[0]).resolve() for file in loaded.files}
        weights[str(page.relative_to(site))] = sum(file.stat().st_size for file in {page, *files})
    assert len(weights) > 60
    # A page that brings a model is as heavy as that.
    assert weights.pop(LIVE) < 4 * LARGEST
    assert {page: weight for page, weight in weights.items() if weight > LARGEST} == {}


def catalogue(name, domain):
    with (LOCALES / name / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        return {message.id: message.string for message in read_po(file) if message.id}


@pytest.mark.parametrize("name", SPHINX_LANGUAGES)
@pytest.mark.parametrize("domain", ["docs/index", "sphinx"])
def test_no_translation_is_missing(name, domain):
    said = catalogue(name, domain)
    assert [sentence for sentence, translation in said.items() if not translation] == []
    assert said.keys() == catalogue("tr", domain).keys()


@pytest.mark.parametrize("name", SPHINX_LANGUAGES)
def test_a_translation_has_the_links_of_its_sentence(name):
    for sentence, translation in catalogue(name, "docs/index").items():
        if not sentence.startswith("!"):
            found = [sorted(re.findall(r"\]\(([^)]+)\)", text)) for text in (sentence, translation)]
            assert found[0] == found[1], sentence


@pytest.mark.slow
def test_the_catalogues_are_those_of_the_landing_page(with_sphinx, tmp_path):
    shutil.copytree(LOCALES, tmp_path / "locales", ignore=shutil.ignore_patterns("*.mo"))
    done = forked.Process(BUILDER, "--translations", tmp_path / "locales").ended()
    assert done.returncode == 0, done.stderr
    for name in SPHINX_LANGUAGES:
        file = f"{name}/LC_MESSAGES/docs/index.po"
        updated = (tmp_path / "locales" / file).read_text(encoding="utf-8")
        assert updated == (LOCALES / file).read_text(encoding="utf-8"), "run make translations"


def test_the_language_of_a_page_is_the_code_at_the_end_of_its_name(pages):
    of = {
        "docs/start/watch": "en",
        "docs/tutorials/readers/a.tr": "tr",
        "docs/tutorials/readers/c.zh-Hant.md": "zh-Hant",
        "notebooks/e-zh-Hans.ipynb": "zh-Hans",
        "notebooks/es": "en",
        "README.zh_hant": "zh-Hant",
    }
    assert {page: pages.language_of(page) for page in of} == of


def test_every_page_is_in_one_language_and_the_landing_page_in_all(pages):
    of = {language: set(pages.pages_of(language)) for language in pages.LANGUAGES}
    landing = f"{pages.LANDING}.md"
    assert set.intersection(*of.values()) == {landing}
    assert sum(len(found - {landing}) for found in of.values()) + 1 == len(set.union(*of.values()))


def test_the_site_goes_to_no_folder_that_holds_something_else(tmp_path):
    (tmp_path / "mine.txt").touch()
    build = script("docs/build_site.py")
    with pytest.raises(SystemExit, match="is no site that was built here"):
        build.build(tmp_path)
    assert (tmp_path / "mine.txt").exists()

"""The bundled scripts: complete, small, and safe inside a page."""

import gzip
import json
import re
from pathlib import Path

import pytest

from glasshead.studio.page import brotli, bundles, page
from glasshead.studio.views.table import VIEWS

STUDIO = Path(__file__).parents[2] / "glasshead" / "studio"
ROOTS = ("style.css", "report.css")
MAPS = {name: json.loads(text) for name, text in bundles().items() if name.endswith(".map")}


def received(*names):
    """How many bytes of the page and of bundles a browser receives."""
    shared = len(gzip.compress(page().encode())) + len(brotli("style.css"))
    return shared + sum(len(brotli(name)) for name in names)


def imported(name):
    """A bundle and what it imports as it starts."""
    found = {name}
    for other in re.findall(r'(?:from|import)"\./([^"]+)"', bundles()[name]):
        found |= imported(other)
    return found


def test_every_module_is_in_a_bundle_and_its_source_map():
    named = {source for found in MAPS.values() for source in found["sources"]}
    own = {name for name in named if name.startswith("../static/")}
    sources = own - {"../static/present.css"}
    assert all("/node_modules/" in name for name in named - own)
    modules = {f"../{one.relative_to(STUDIO)}" for one in STUDIO.joinpath("static").rglob("*.js")}
    # What works without a server comes with no studio that has one.
    served = {name for name in modules if not name.startswith("../static/live/")}
    # It has imports alone, of which no code is left.
    served.remove("../static/base.js")
    assert sources == served
    for name in MAPS:
        code = bundles()[name.removesuffix(".map")]
        assert code.rstrip().endswith(f"//# sourceMappingURL={name}")


def test_every_view_has_its_code_and_its_style():
    table = STUDIO.joinpath("static", "views", "table.js").read_text(encoding="utf-8")
    named = re.findall(r"^  (\w+): \(\) => import", table, re.MULTILINE)
    assert named == [view.name for view in VIEWS]
    for view in VIEWS:
        for style in ROOTS:
            assert f".studio .{view.name}{{" in bundles()[style]


def test_every_style_sheet_is_in_the_bundle():
    static = STUDIO / "static"
    imports = [static.joinpath(name).read_text(encoding="utf-8") for name in ROOTS]
    named = re.findall(r'@import "\./([^"]+)"', "".join(imports))
    files = {file.relative_to(static).as_posix() for file in static.rglob("*.css")}
    # That of a presentation comes with its code.
    assert {*named} == files - {"style.css", "present.css"}


def test_a_browser_receives_little():
    every = [name for name in bundles() if name.endswith(".js")]
    every = [name for name in every if name not in ("report.js", "live.js")]
    for view in VIEWS:
        (own,) = (name for name in every if re.fullmatch(rf"{view.name}-\w+\.js", name))
        first = imported("app.js") | imported(own)
        assert 18_000 < received(*first) <= 43_300
    # What presents, guides, asks and shares arrives when it is chosen.
    chosen = re.compile("chunk-|(steps-exercises|training-comparison|tour|present|sharing)-")
    views = set().union(*(imported(name) for name in every if not chosen.match(name)))
    assert received(*views) <= 95_000
    assert received(*every) <= 114_800


@pytest.mark.parametrize("name", ["report.js", "live.js"])
def test_a_script_inside_a_page_is_whole_and_strict_and_does_not_end_its_element(name):
    code = bundles()[name]
    assert imported(name) == {name}
    assert code.startswith('"use strict";')
    assert not any(markup in code.lower() for markup in ("</script", "<script", "<!--"))


@pytest.mark.parametrize("name", [name for name in bundles() if name.endswith(".js")])
def test_a_script_does_what_a_strict_policy_allows(name):
    code = bundles()[name]
    assert not re.findall(r"\beval\(|\bFunction\(|document\.write|insertAdjacentHTML", code)
    assert 'setAttribute("style"' not in code


def test_no_markup_is_made_of_text():
    markup = re.compile(r"innerHTML|outerHTML|dangerouslySetInnerHTML|createContextualFragment")
    for file in STUDIO.joinpath("static").rglob("*.js"):
        assert not markup.search(file.read_text(encoding="utf-8")), file.name


def test_a_report_has_the_code_of_all_views():
    assert "import(" not in bundles()["report.js"]
    assert bundles()["live.js"].count("import(") == len(VIEWS) - 3

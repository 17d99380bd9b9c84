"""The strings of the page: each panel has those that its scripts and data name, and no others."""

import re
from pathlib import Path

from glasshead import studio
from glasshead.studio.shell import words
from glasshead.studio.views.table import VIEWS

FOLDER = Path(studio.__file__).parent
STATIC = FOLDER / "static"
SCRIPTS = "".join(file.read_text("utf-8") for file in sorted(STATIC.rglob("*.js")))
DATA = "".join(
    re.sub(r'^    "[a-z_.]+": _\(', "", file.read_text("utf-8"), flags=re.MULTILINE)
    for file in sorted(FOLDER.rglob("*.py"))
)
TEMPLATES = re.findall(r"`([a-z]+\.(?:\$\{[^{}]*\}|[^`\s])*)`", SCRIPTS) + re.findall(
    r'f"([a-z]+\.[^"\s]*)"', DATA
)
# Names that are composed, such as `heads.role.${role}`: each place holds a word of the code.
COMPOSED = [
    "(.+)".join(map(re.escape, re.split(r"\$?\{[^{}]*\}", template)))
    for template in TEMPLATES
    if "{" in template
]
OF_EACH_VIEW = {f"{view.name}.{name}" for view in VIEWS for name in ("title", "what", "none")}


def is_named(name):
    if name in OF_EACH_VIEW or f'"{name}"' in SCRIPTS + DATA:
        return True
    found = filter(None, (re.fullmatch(composed, name) for composed in COMPOSED))
    places = [part for one in found for place in one.groups() for part in place.split(".")]
    return any(re.search(rf"\b{re.escape(place)}\b", SCRIPTS + DATA) for place in places)


def test_each_string_is_named_by_a_script_or_by_data():
    assert [name for name in words("en") if not is_named(name)] == []
    assert not is_named("heads.nothing_of_that_name")


def test_each_name_has_a_string():
    named = re.findall(r'\bt\(\s*"([a-z_.]+)"', SCRIPTS)
    assert len(named) > 100
    assert set(named) - set(words("en")) == set()


def test_no_two_panels_have_a_string_of_the_same_name():
    every = [name for view in VIEWS for panel in view.panels for name in panel.words]
    assert len(set(every)) == len(every)
    # Every view has its title, and says why it is missing, unless it never is.
    kinds = {kind for view in VIEWS for kind in view.kinds}
    always = {f"{view.name}.none" for view in VIEWS if set(view.kinds) == kinds}
    assert OF_EACH_VIEW - set(every) == always

"""Which pages the site has, and in which language each is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDINGS = (".md", ".rst", ".ipynb")
LANDING = "docs/index"
# The studio without a server, which no page is built of.
LIVE = "studio/index.html"
FOLDERS = ("docs", "notebooks")
# The languages, as each calls itself.
LANGUAGES = {
    "en": "English",
    "tr": "Türkçe",
    "es": "Español",
    "zh-Hant": "繁體中文",
    "zh-Hans": "简体中文",
}
# What Sphinx calls them.
SPHINX_LANGUAGES = {"en": "en", "tr": "tr", "es": "es", "zh-Hant": "zh_TW", "zh-Hans": "zh_CN"}
OTHERS = tuple(code for code in LANGUAGES if code != "en")
_CODE = re.compile(rf"[._-]({'|'.join(OTHERS)})(?:\.md|\.ipynb)?$", re.IGNORECASE)


def language_of(page: str) -> str:
    """Return the language of a page, by the code at the end of its name.

    >>> language_of("docs/tutorials/readers/a.tr.md"), language_of("docs/start/watch")
    ('tr', 'en')
    """
    found = _CODE.search(page.replace("_", "-"))
    codes = {code.lower(): code for code in OTHERS}
    return codes[found[1].lower()] if found else "en"


def pages_of(language: str) -> list[str]:
    """Return the files of the site of a language; each has the landing page.

    A notebook is its `.ipynb`, which has the outputs, rather than the text beside it.
    """
    files = [ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    for folder in FOLDERS:
        files += [file for end in ENDINGS for file in sorted((ROOT / folder).rglob(f"*{end}"))]
    names = [file.relative_to(ROOT).as_posix() for file in files]
    pages = [
        name
        for name in names
        if not (name.endswith(".md") and f"{name.removesuffix('.md')}.ipynb" in names)
        and not any(part.startswith((".", "_")) for part in name.split("/"))
    ]
    landing = f"{LANDING}.md"
    return [page for page in pages if page == landing or language_of(page) == language]


def is_page(name: str) -> bool:
    """Say whether a file without its ending is a page of the site, in any language."""
    return any(name == page.rpartition(".")[0] for code in LANGUAGES for page in pages_of(code))


def address(page: str, language: str, fragment: str | None = None) -> str:
    """Return where a page is, from the root of the site of a language."""
    home = language_of(page)
    into = "" if home == "en" else f"{home}/"
    out = "" if language == "en" else "../"
    return f"{out}{into}{page}.html" + (f"#{fragment}" if fragment else "")

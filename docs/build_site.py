"""Build the documentation site, in English and in the languages of its landing page.

    python docs/build_site.py [FOLDER]                 builds it, into build/site if none is named
    python docs/build_site.py --translations [FOLDER]  updates the catalogues of the landing page

A warning is an error, and so is a link that leads nowhere. Nothing is fetched.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path

# The pages are about this package, whichever is installed.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from building.links import dead_links
from building.pages import LANDING, LIVE, OTHERS, ROOT, SPHINX_LANGUAGES

from glasshead.studio.live import live_page

SITE = ROOT / "build" / "site"
LOCALES = ROOT / "docs" / "locales"
# Whoever opens the folder arrives at the landing page.
ENTRY = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>glasshead</title>
<link rel="icon" href="_static/icon.svg">
<meta http-equiv="refresh" content="0; url={landing}">
<a href="{landing}">glasshead</a>
</html>
"""


def sphinx(language: str, builder: str, folder: Path, *options: str) -> None:
    """Run Sphinx for a language; its output goes to a folder of that name within `folder`."""
    from sphinx.cmd.build import main as run

    os.environ["GLASSHEAD_DOCS_LANGUAGE"] = language
    reference = folder / "en" / "objects.inv"
    if reference.exists():
        os.environ["GLASSHEAD_DOCS_INVENTORY"] = str(reference)
    arguments = ["--quiet", "--fail-on-warning", "--keep-going", "-b", builder, *options]
    arguments += ["-c", str(ROOT / "docs"), "-d", str(folder / "read" / language)]
    code = run([*arguments, str(ROOT), str(folder / language)])
    if code:
        raise SystemExit(code)


def _each_in_a_process(languages: Iterable[str], folder: Path) -> None:
    """Build the pages of some languages, as Sphinx keeps its first language in a process."""
    import furo  # noqa: F401
    import myst_nb.sphinx_ext  # noqa: F401 - and Sphinx: forks have what is imported

    start = get_context("fork" if sys.platform == "linux" else None).Process
    processes = [start(target=sphinx, args=(language, "html", folder)) for language in languages]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(1)


def build(site: Path) -> None:
    """Build all languages anew, and check the links within and between them."""
    ours = (site / "objects.inv").exists()
    if site.exists() and any(site.iterdir()) and not ours:
        raise SystemExit(f"{site} is no site that was built here: name an empty folder.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The others name entries of the English reference.
        for languages in (("en",), OTHERS):
            _each_in_a_process(languages, folder)
        for language in OTHERS:
            shutil.move(folder / language, folder / "en" / language)
        built = folder / "en"
        (built / "index.html").write_text(ENTRY.format(landing=f"{LANDING}.html"), encoding="utf-8")
        (built / LIVE).parent.mkdir()
        (built / LIVE).write_text(live_page(), encoding="utf-8")
        dead = dead_links(built)
        if dead:
            raise SystemExit("\n".join(["links that lead nowhere:", *dead]))
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(built, site)
    print(f"wrote {site / 'index.html'}")


def update_translations(locales: Path) -> None:
    """Collect the sentences of the landing page, and add new ones to each catalogue."""
    with tempfile.TemporaryDirectory() as folder:
        # The smallest site, untranslated.
        sphinx("tr", "gettext", Path(folder), "-D", "language=en")
        template = Path(folder) / "tr" / f"{LANDING}.pot"
        for language in OTHERS:
            name = SPHINX_LANGUAGES[language]
            catalogue = locales / name / "LC_MESSAGES" / f"{LANDING}.po"
            catalogue.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "babel.messages.frontend", "--quiet", "update"]
            command += ["--init-missing", "--no-fuzzy-matching", "--ignore-obsolete"]
            command += ["--ignore-pot-creation-date", "--width=100", f"--locale={name}"]
            command += [f"--input-file={template}", f"--output-file={catalogue}"]
            subprocess.run(command, check=True)


def main() -> None:
    """Build the site, or update its translations."""
    match sys.argv[1:]:
        case ["--translations", *folders] if len(folders) < 2:
            update_translations(Path(*folders or [LOCALES]).resolve())
        case [] | [_]:
            build(Path(*sys.argv[1:2] or [SITE]).resolve())
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()

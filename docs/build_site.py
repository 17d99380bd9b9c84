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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from building.links import dead_links
from building.pages import LANDING, OTHERS, ROOT, SPHINX_LANGUAGES

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
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["-b", builder, "-c", "docs", "-d", str(folder / "read" / language), *options]
    environment = os.environ | {
        "GLASSHEAD_DOCS_LANGUAGE": language,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    reference = folder / "en" / "objects.inv"
    if reference.exists():
        environment["GLASSHEAD_DOCS_INVENTORY"] = str(reference)
    command += [".", str(folder / language)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def build(site: Path) -> None:
    """Build all languages anew, and check the links within and between them."""
    ours = (site / "objects.inv").exists()
    if site.exists() and any(site.iterdir()) and not ours:
        raise SystemExit(f"{site} is no site that was built here: name an empty folder.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The others name entries of the English reference.
        sphinx("en", "html", folder)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda language: sphinx(language, "html", folder), OTHERS))
        for language in OTHERS:
            shutil.move(folder / language, folder / "en" / language)
        built = folder / "en"
        (built / "index.html").write_text(ENTRY.format(landing=f"{LANDING}.html"), encoding="utf-8")
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

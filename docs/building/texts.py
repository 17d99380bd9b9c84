"""The pages and notebooks for the readers of the texts, as the landing page lists them."""

import json
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.util.osutil import relative_uri

from .pages import LANDING, LANGUAGES, OTHERS, ROOT, address, pages_of

_FOLDERS = ("docs/tutorials/readers/", "notebooks/")


class Texts(TocTree):
    """A toctree of its own pages and those for readers in the language of the site.

    The English one lists those of the other languages, too.
    """

    def run(self) -> list[nodes.Node]:
        """Return the toctree, and below it the pages of the other languages."""
        language = self.config.html_context["language"]
        others = OTHERS if language == "en" else ()
        pages = [f"/{page}" for page in pages_for_readers(language)]
        self.content = StringList([*self.content, *pages], "texts")
        return super().run() + [item for code in others for item in self.listed(code)]

    def listed(self, code: str) -> list[nodes.Node]:
        """Return links to the pages of another language, below its name."""
        items = [
            f'<li><p><a href="{relative_uri(f"{self.env.docname}.html", address(page, "en"))}">'
            f"{escape(title_of(page))}</a></p></li>"
            for page in pages_for_readers(code)
        ]
        # As HTML, since only there a list says what language it is in.
        listed = f'<p class="rubric">{LANGUAGES[code]}</p><ul>{"".join(items)}</ul>'
        whole = f'<div lang="{code}">{listed}</div>'
        return [nodes.raw("", whole, format="html")] if items else []


def pages_for_readers(language: str) -> list[str]:
    """Return the pages in a language, without the endings of their files; of English some."""
    folders = _FOLDERS if language == "en" else ("",)
    names = [page.rpartition(".")[0] for page in pages_of(language)]
    return [name for name in names if name != LANDING and name.startswith(folders)]


def title_of(page: str) -> str:
    """Return the first heading of a page or a notebook."""
    file = next(file for end in (".ipynb", ".md") if (file := ROOT / f"{page}{end}").exists())
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        prose = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in prose)
    titles = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    return titles[0] if titles else Path(page).name


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("texts", Texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Links to what is no page of the site that is built: pages of another language, and code."""

import posixpath
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

import glasshead

from .pages import LANDING, ROOT, address, is_page
from .public_names import public_names

_PUBLIC = re.compile(r"gh\.([A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)


def link(app: Sphinx, document: nodes.document) -> None:
    """Lead the links of a page to where their targets are on the site."""
    page, language = app.env.docname, app.config.html_context["language"]
    for node in list(document.findall(addnodes.pending_xref)):
        target, fragment = node["reftarget"], node.get("reftargetid")
        elsewhere = node.get("refdomain") == "doc" and target not in app.env.found_docs
        own = f"{target}.{language}"
        if elsewhere and page == LANDING and own in app.env.found_docs:
            # The landing page, which is translated, leads to what is in its language.
            node["reftarget"] = own
        elif elsewhere and is_page(target):
            _replace(node, page, address(target, language, fragment))
        elif (ROOT / _place(page, target)).is_dir():
            # A folder is a page in the repository alone.
            node.replace_self(node.children)
    # Code is on the English site alone, and to find which takes the import of all public names.
    downloads = document.findall(addnodes.download_reference) if language == "en" else ()
    for node in list(downloads):
        module = _place(page, node["reftarget"]).removesuffix(".py")
        if module.replace("/", ".") in _shown():
            _replace(node, page, f"_modules/{module}.html")
    for node in list(document.findall(nodes.literal)):
        name = _PUBLIC.fullmatch(node.astext())
        if name and not _within_a_link(node):
            _refer(node, page, f"glasshead.{name[1]}")


def _replace(node: nodes.Element, page: str, to: str) -> None:
    """Put a link in the place of what would be resolved in another way."""
    uri = relative_uri(f"{page}.html", to)
    node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def _within_a_link(node: nodes.Node | None) -> bool:
    """Say whether a part of a page is a link's, or a heading's, which lists of headings repeat."""
    links = nodes.reference | addnodes.pending_xref | nodes.title
    return node is not None and (isinstance(node, links) or _within_a_link(node.parent))


def _refer(node: nodes.literal, page: str, name: str) -> None:
    """Make of a name in code a reference to its entry, where there is one."""
    reference = addnodes.pending_xref(
        "", refdomain="py", reftype="obj", reftarget=name, refdoc=page, refwarn=False
    )
    node.replace_self(reference)
    reference += node


def _place(page: str, target: str) -> str:
    """Return the place in the repository that a page names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _shown() -> set[str]:
    """Return the modules whose code is on the site: those that a public name is from."""
    return {getattr(glasshead, name).__module__ for name in public_names("glasshead")}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what follows the links of each page."""
    navigation: dict[str, Callable[..., str]] = {}

    def of_code(
        _app: Sphinx, page: str, _template: str, context: dict[str, Any], _document: object
    ) -> None:
        """Let the pages of code in a folder, none of which is in the navigation, share it."""
        if page.startswith("_modules/"):
            own = cache(context["toctree"])
            context["toctree"] = navigation.setdefault(posixpath.dirname(page), own)

    # Before the theme, which asks for the navigation.
    app.connect("html-page-context", of_code, priority=400)
    app.connect("doctree-read", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

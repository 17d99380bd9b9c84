"""Mend what Sphinx, its theme and drawings in notebooks write, for all who read a page."""

import re
from collections import Counter
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# The parameters of a long signature are a list of definitions, of which none is a term.
_PARAMETERS = re.compile(r"<dl>\s*((?:<dd>(?:(?!</?d[dl]>).)*</dd>\s*)+)</dl>", re.DOTALL)
_EMPTY_HEADING = re.compile(r"<th\b[^>]*>(?:<p></p>)?</th>")
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
# A drawing in an output has headings and regions as if it were a page of its own.
_OUTPUT = re.compile(r'<div class="output .*?(?=<div class="cell|<section|</section>)', re.DOTALL)
_HEADING = re.compile(r"<(h[1-6])\b(?=[ >])")
_REGION = re.compile(r'(role="region"[^>]*aria-label="[^"]*)(?=")')


def mend(
    _app: Sphinx,
    _page: str,
    _template: str,
    context: dict[str, Any],
    _document: nodes.document | None,
) -> None:
    """Mend the body of a page, and the captions of the navigation beside it."""
    body = context.get("body") or ""
    body = _OUTPUT.sub(lambda found: _HEADING.sub(r'<\1 role="presentation"', found[0]), body)
    body = _PARAMETERS.sub(_lines, body)
    body = _EMPTY_HEADING.sub("<td></td>", body)
    body = _numbered(_once(body))
    context["body"] = body.replace('role="heading">', 'role="heading" aria-level="3">')
    context["furo_navigation_tree"] = context.get("furo_navigation_tree", "").replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def _lines(found: re.Match[str]) -> str:
    """Return the parameters as lines of the signature."""
    lines = found[1].replace("<dd>", '<span class="parameter">').replace("</dd>", "</span>")
    return f'<span class="parameters">{lines}</span>'


def _once(body: str) -> str:
    """Return a page on which each style sheet of its drawings stands once."""
    known: set[str] = set()

    def first(found: re.Match[str]) -> str:
        again = found[0] in known
        known.add(found[0])
        return "" if again else found[0]

    return _STYLE.sub(first, body)


def _numbered(body: str) -> str:
    """Return a page whose regions have names of their own: Table, Table 2, Table 3."""
    seen: Counter[str] = Counter()

    def named(found: re.Match[str]) -> str:
        label = found[1].rpartition('"')[2]
        seen[label] += 1
        return found[1] if seen[label] == 1 else f"{found[1]} {seen[label]}"

    return _REGION.sub(named, body)


def trim(_app: Sphinx, document: nodes.document) -> None:
    """Leave out the empty line that ends an example, which the doctests of a page want."""
    for block in document.findall(nodes.literal_block):
        code = block.astext().rstrip()
        block.rawsource, block.children = code, []
        block.append(nodes.Text(code))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both; the theme has made the navigation by then."""
    app.connect("html-page-context", mend, priority=900)
    app.connect("doctree-read", trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

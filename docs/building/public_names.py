"""The API reference: an entry for each public name of a package, in the order of its stub."""

import ast
import importlib
import inspect
import re
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from .pages import ROOT

# Words that open a paragraph of a docstring as a heading on its line.
_NO_LITERAL = re.compile(r"<[^<>]+>")
_NO_PROSE = re.compile(r"$|\w+:\n|[-*] |>>> ")
_OPENING = re.compile(r"^(Source|Errors|Yields|Example|Returns|Inputs): (?=\S)")


def public_names(package: str) -> dict[str, str]:
    """Return the public names of a package, each with the module that its stub takes it from."""
    stub = ROOT.joinpath(*package.split("."), "__init__.pyi").read_text(encoding="utf-8")
    lines = [line for line in ast.parse(stub).body if isinstance(line, ast.ImportFrom)]
    return {
        alias.name: f"{package}.{line.module}" if line.level else str(line.module)
        for line in lines
        for alias in line.names
    }


class PublicNames(SphinxDirective):
    """Document the public names of a package, of some modules or of all.

    .. public-names:: glasshead
       :from: glasshead.statistics glasshead.watching
    """

    required_arguments = 1
    option_spec: ClassVar = {"from": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        modules = self.options.get("from", "").split()
        homes = public_names(package)
        names = [name for name, home in homes.items() if not modules or home in modules]
        if modules:
            names.sort(key=lambda name: modules.index(homes[name]))
        block = nodes.Element()
        lines = [line for name in names for line in entry(package, name)]
        self.state.nested_parse(StringList(lines, source=package), self.content_offset, block)
        return block.children


def entry(package: str, name: str) -> list[str]:
    """Return the directive that documents a name."""
    value = getattr(importlib.import_module(package), name)
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    lines = [f".. auto{kind}:: {package}.{name}"]
    return [*lines, "   :no-value:", ""] if kind == "data" else [*lines, ""]


def mark_up(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Mark up a docstring, in place, where reStructuredText would take it for something else.

    A formula is an indented block, which "::" keeps as it is. A bar is the sign of an absolute
    value, and not of a substitution.
    """
    paragraphs, above = [], ""
    for paragraph in "\n".join(lines).split("\n\n"):
        indented = paragraph.startswith("    ")
        if indented and not _NO_PROSE.match(above):
            paragraphs.append("::")
        elif not indented:
            above = paragraph
        code = (indented and paragraphs[-1:] == ["::"]) or paragraph.lstrip().startswith(">>>")
        paragraphs.append(paragraph if code else _marked(paragraph))
    lines[:] = "\n\n".join(paragraphs).split("\n")


def _marked(prose: str) -> str:
    """Return a paragraph with its first word as a heading, and its bars as bars."""
    return _OPENING.sub(r"**\1:** ", prose).replace("|", r"\|")


def readable(
    _app: Sphinx,
    _what: str,
    _name: str,
    _value: object,
    _options: object,
    arguments: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Return a signature whose defaults are Python, as one that is made anew prints otherwise."""
    return arguments and _NO_LITERAL.sub("...", arguments), result


def resolve_gh(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.reference | None:
    """Find what is written as `gh.watch` under its full name."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("gh."):
        return None
    full = "glasshead." + target.removeprefix("gh.")
    return env.get_domain("py").resolve_xref(
        env, node["refdoc"], app.builder, "obj", full, node, content
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and what goes with it."""
    app.add_directive("public-names", PublicNames)
    # Before napoleon, which leaves what is marked up already.
    app.connect("autodoc-process-docstring", mark_up, priority=400)
    app.connect("autodoc-process-signature", readable)
    app.connect("missing-reference", resolve_gh)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

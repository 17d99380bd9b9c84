"""The studio's single page: its document, style sheet and linked script, served or in one file."""

import base64
import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath
from types import MappingProxyType

from glasshead.drawing.page import paper, rendered, style
from glasshead.studio.panel import View
from glasshead.studio.views.table import VIEWS


def page() -> str:
    """Return the HTML document of the page, which loads all else from the studio alone."""
    return static("index.html")


def style_sheet() -> str:
    """Return the CSS of drawings, of the studio and of each view."""
    views = "".join(static(f"views/{view.name}.css") for view in VIEWS)
    whole = paper() + style() + static("studio.css") + views
    return _INDENT.sub("", _STYLE_COMMENT.sub("", whole))


def served_style() -> str:
    """Return the CSS of the page with its typeface, which only a studio serves."""
    return style_sheet() + static("type.css")


def typeface(name: str) -> bytes:
    """Return a file of letters, one of `TYPEFACES`."""
    return files("glasshead.studio").joinpath("static", name).read_bytes()


TYPEFACES = ("source-sans-3.woff2", "source-sans-3-turkish.woff2", "glasshead-signs.woff2")
"""Subsets of Source Sans 3, under the SIL Open Font License; the last one with another name."""


def static(name: str) -> str:
    """Return a text file of the page, such as "index.html"."""
    return files("glasshead.studio").joinpath("static", name).read_text(encoding="utf-8")


def document(
    answers: str,
    title: str,
    language: str,
    without_script: str,
    *,
    scripts: Sequence[str] | None = None,
    story: str = "",
) -> str:
    """Assemble the page as one HTML file with a content security policy that allows no other code.

    Args:
        answers: Answers to its views' requests, as JSON that may stand in a script element.
        title: Title of the window, as plain text.
        language: Language code of the document.
        without_script: Message shown where JavaScript is disabled.
        scripts: Modules that run before the page starts; None: those of all views.
        story: A model that the page runs itself, as JSON; it comes last, as the page starts before.
    """
    scripts = [*map(_script_of, VIEWS)] if scripts is None else scripts
    whole = linked(modules(), *scripts, "app.js")
    css, code = f"\n{style_sheet()}", f"\n{whole}"
    policy = (
        f"default-src 'none'; script-src '{_hash(code)}'; style-src '{_hash(css)}'; "
        f"img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    made = rendered(
        "report.html",
        package="glasshead.studio",
        language=language,
        policy=policy,
        title=title,
        icon=icon(),
        style=css,
        without_script=without_script,
        answers=answers,
        code=code,
        story=story,
    )
    return made + "\n"


def framed(page: str, title: str) -> str:
    """Wrap the page in a sandboxed iframe, isolated from the notebook that shows it.

    Args:
        page: HTML, as from `document`.
        title: Title of the frame, as plain text.
    """
    return rendered("frame.html", package="glasshead.studio", page=page, title=title)


def icon() -> str:
    """Return the favicon as a data: URL."""
    content = files("glasshead.studio").joinpath("static", "icon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


@cache
def script() -> str:
    """Return the modules that the studio's page begins with, linked to one script."""
    return linked(modules(), *_early())


@cache
def later_scripts() -> Mapping[str, str]:
    """Return the scripts of the views that the page loads when they are opened, by path."""
    early = _needed(modules(), _early())
    return MappingProxyType(
        {
            (path := _script_of(view)): linked(modules(), path, after=early)
            for view in VIEWS
            if not view.is_early
        }
    )


def _early() -> list[str]:
    """Return the paths of the scripts that the page begins with; the last one starts it."""
    return [*(_script_of(view) for view in VIEWS if view.is_early), "app.js"]


def _script_of(view: View) -> str:
    return f"views/{view.name}.js"


# Comments that have lines of their own; no string or template of the modules has several lines.
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)\n", re.MULTILINE)
# Which a reader wants and a browser does not; compressed they are a twenty-fifth of the whole.
_INDENT = re.compile(r"^[ \t\n]+", re.MULTILINE)
_STYLE_COMMENT = re.compile(r"/\*[\s\S]*?\*/")


@cache
def modules() -> Mapping[str, str]:
    """Return the page's JavaScript modules by path, without their comments and indents."""
    found = _below(files("glasshead.studio").joinpath("static"), "")
    return MappingProxyType(
        {path: _INDENT.sub("", _COMMENT.sub("", source)) for path, source in found}
    )


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _below(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".js"):
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")


_SKIPPED = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<string> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<expression> /(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]* )
    """,
    re.VERBOSE | re.DOTALL,
)
# The text of a template literal up to its end or to a `${`.
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{)", re.DOTALL)
# After these a slash begins a regular expression; after a value it divides.
_BEFORE_EXPRESSION = re.compile(
    r"(?:^|[(,=:\[!&|?{};+\-*%~^<>]|\b(?:return|typeof|case|of|in))\s*$"
)

# Characters searched before a slash: an indented line or two.
_LOOKBEHIND = 400


def code_alone(source: str) -> str:
    """Blank out comments, strings, templates and regular expressions of a JavaScript source.

    Each is replaced by spaces, so that offsets and line numbers stay those of the source.

    Errors: a ValueError if a string or a template has no end.

    >>> code_alone('let a = "import";  // export')
    'let a =         ;           '
    >>> code_alone("f(`a ${b} c`)")
    'f(    b   )'
    """
    kept: list[str] = []
    inside: list[str] = []
    at = 0
    while at < len(source):
        end = _end(source, at, kept)
        if end is not None:
            at = _blank(source, at, end, kept)
        elif source[at] == "`" or (source[at] == "}" and inside[-1:] == ["${"]):
            if source[at] == "}":
                inside.pop()
            found = _TEMPLATE.match(source, at + 1)
            if found is None:
                raise ValueError(f"line {_line(source, at)}: this template has no end.")
            if found["end"] == "${":
                inside.append("${")
            at = _blank(source, at, found.end(), kept)
        else:
            if source[at] in "\"'":
                raise ValueError(f"line {_line(source, at)}: this string has no end.")
            if source[at] == "{":
                inside.append("{")
            elif source[at] == "}" and inside:
                inside.pop()
            kept.append(source[at])
            at += 1
    return "".join(kept)


def _end(source: str, at: int, kept: list[str]) -> int | None:
    """Return the end of the comment, string or regular expression at an offset, or None."""
    found = _SKIPPED.match(source, at)
    if found is None:
        return None
    if found["expression"] and not _BEFORE_EXPRESSION.search("".join(kept[-_LOOKBEHIND:])):
        return None
    return found.end()


def _blank(source: str, at: int, end: int, kept: list[str]) -> int:
    kept.extend("\n" if letter == "\n" else " " for letter in source[at:end])
    return end


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1


_NAME = r"[\w$]+(?: as [\w$]+)?"
_IMPORT = re.compile(rf'import \{{\s*({_NAME}(?:,\s*{_NAME})*),?\s*\}} from "(\.{{1,2}}/[^"\n]+)";')
_EXPORT = re.compile(r"export (?=(?:(?:async )?function\*?|const|class) ([\w$]+))")
_WORD = re.compile(r"(?<![.\w$])(?:import|export)(?![\w$])(?!:)")
# Markup inside a script that would change where its element ends.
_MARKUP = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_KNOWN = "$modules"


@dataclass(frozen=True)
class Module:
    """A parsed JavaScript module.

    Attributes:
        name: Its path.
        needs: Imports: the path of another module, and names, some with an `as` alias.
        gives: Exported names.
        body: Its source as a function body.
    """

    name: str
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    gives: tuple[str, ...]
    body: str


def linked(sources: Mapping[str, str], *entries: str, after: Container[str] = ()) -> str:
    r"""Link modules to one script that runs as loading the modules `entries` would.

    A module imports by `import { a, b as c } from "./x.js";`, before any other statement, and
    exports by `export` before a function, a class or a const, at the start of a line. Modules that
    are not imported are left out.

    Args:
        sources: The sources of the modules by path.
        entries: Paths of the entry modules.
        after: Paths of the modules of a script that has run before.

    Errors: a ValueError if a module has another form, imports a name that does not exist, or
    imports in a circle.

    >>> sources = {"a.js": 'import { b } from "./b.js";\nb();', "b.js": "export const b = f;"}
    >>> script = linked(sources, "a.js")
    >>> script.index('$modules["b.js"] ??=') < script.index('$modules["a.js"] ??=')
    True
    >>> "b.js" in linked(sources, "a.js", after=["b.js"]).partition("??=")[0]
    False
    """
    modules = _needed(sources, entries)
    scopes = "".join(_scope(module) for name, module in modules.items() if name not in after)
    known = f"const {_KNOWN} = window.{_KNOWN} ??= {{}};"
    script = f'(function () {{\n"use strict";\n{known}\n{scopes}}})();\n'
    found = _MARKUP.search(script)
    if found is not None:
        raise ValueError(
            f"a script in a page cannot hold {found[0]!r}. Write it in two parts that are joined."
        )
    return script


def _needed(sources: Mapping[str, str], entries: Sequence[str]) -> dict[str, Module]:
    """Return modules and what they import, by path, in the order in which they run."""
    modules: dict[str, Module] = {}
    for entry in entries:
        _visit(entry, sources, modules, ())
    return modules


def _visit(
    name: str, sources: Mapping[str, str], modules: dict[str, Module], above: tuple[str, ...]
) -> None:
    """Parse a module after the modules that it imports."""
    if name in modules:
        return
    if name in above:
        circle = " > ".join((*above[above.index(name) :], name))
        raise ValueError(f"modules cannot import in a circle, as {circle} do. Take one apart.")
    module = read(name, sources[name])
    for other, names in module.needs:
        if other not in sources:
            raise ValueError(f"{name} imports {other}, which does not exist. Check its path.")
        _visit(other, sources, modules, (*above, name))
        imported = [each.split(" as ")[0] for each in names]
        missing = [each for each in imported if each not in modules[other].gives]
        if missing:
            raise ValueError(f"{name} imports {missing[0]} of {other}, which does not export it.")
    modules[name] = module


def read(name: str, source: str) -> Module:
    """Parse a module: its imports, its exports, and its source without the keywords for them.

    Errors: a ValueError if it is written in another form.
    """
    try:
        code = code_alone(source)
    except ValueError as error:
        raise ValueError(f"{name}, {error}") from error
    needs, gives, parts, done = [], [], [], 0
    for word in _WORD.finditer(code):
        at = word.start()
        imported, exported = _IMPORT.match(source, at), _EXPORT.match(source, at)
        begins = at == 0 or source[at - 1] == "\n"
        if imported and begins and not "".join([*parts, code[done:at]]).strip():
            needs.append((_path(name, imported[2]), tuple(re.split(r",\s*", imported[1]))))
            done = imported.end()
        elif exported and begins:
            gives.append(exported[1])
            parts.append(squeezed(source[done:at], code[done:at]))
            done = exported.end()
        else:
            raise ValueError(_form(name, source, at))
    parts.append(squeezed(source[done:], code[done:]))
    return Module(name, tuple(needs), tuple(gives), "".join(parts).strip("\n"))


_BLANKS = re.compile(r"\s+")
# Beside these no blank is needed, and after some no line has to end.
_MARKS = frozenset(",{}()=:;?&|<>[]")
_GOES_ON = frozenset("{(,;[")
_ENDS = frozenset(")]")


def squeezed(source: str, code: str) -> str:
    """Remove the blanks of a JavaScript source that only people need.

    Args:
        source: The source.
        code: The same, from `code_alone`: blanks within strings stand beside no mark there.

    >>> line = 'const { a } = f("b, c", 1);'
    >>> squeezed(line, code_alone(line))
    'const{a}=f("b, c",1);'
    """

    def shorter(found: re.Match[str]) -> str:
        begin, end = found.span()
        before, after = code[begin - 1 : begin] or "\n", code[end : end + 1] or "\n"
        if "\n" in found[0]:
            return "" if before in _GOES_ON or after in _ENDS else "\n"
        return "" if before in _MARKS or after in _MARKS else found[0]

    return _BLANKS.sub(shorter, source)


def _path(name: str, written: str) -> str:
    return normpath(join(dirname(name), written))


def _form(name: str, source: str, at: int) -> str:
    line = source[at:].split("\n", 1)[0][:60]
    return (
        f"{name}, line {source.count(chr(10), 0, at) + 1}: a module of the studio imports by "
        f'import {{ a, b }} from "./x.js"; above all else, and exports by export function, class '
        f"or const where a line begins, and here is {line!r}: write it so."
    )


def _scope(module: Module) -> str:
    taken = "".join(
        f'const {{ {", ".join(names).replace(" as ", ": ")} }} = {_KNOWN}["{other}"];\n'
        for other, names in module.needs
    )
    return (
        f'{_KNOWN}["{module.name}"] ??= (function () {{\n{taken}{module.body}\n'
        f"return {{ {', '.join(module.gives)} }};\n}})();\n"
    )

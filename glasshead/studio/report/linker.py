"""Linking the page's JavaScript modules to one script, and packing the answers it reads."""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from posixpath import dirname, join, normpath
from typing import Any

from jaxtyping import Float
from torch import Tensor

from glasshead.studio.background_jobs import Work
from glasshead.studio.page import float32, modules

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

    Errors: a ValueError where a string or a template has no end.

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


def linked(sources: Mapping[str, str], entry: str) -> str:
    r"""Link modules to one script that runs as loading the module `entry` would.

    A module imports by `import { a, b as c } from "./x.js";`, before any other statement, and
    exports by `export` before a function, a class or a const, at the start of a line. Modules that
    are not imported are left out.

    Args:
        sources: The sources of the modules by path.
        entry: Path of the entry module.

    Errors: a ValueError where a module has another form, imports a name that does not exist, or
    imports in a circle.

    >>> sources = {"a.js": 'import { b } from "./b.js";\nb();', "b.js": "export const b = f;"}
    >>> script = linked(sources, "a.js")
    >>> script.index('$modules["b.js"] =') < script.index('$modules["a.js"] =')
    True
    """
    modules: dict[str, Module] = {}
    _visit(entry, sources, modules, ())
    scopes = "".join(_scope(module) for module in modules.values())
    script = f'(function () {{\n"use strict";\nconst {_KNOWN} = {{}};\n{scopes}}})();\n'
    found = _MARKUP.search(script)
    if found is not None:
        raise ValueError(
            f"a script in a page cannot hold {found[0]!r}: write it in two parts that are joined."
        )
    return script


def _visit(
    name: str, sources: Mapping[str, str], modules: dict[str, Module], above: tuple[str, ...]
) -> None:
    """Parse a module after the modules that it imports."""
    if name in modules:
        return
    if name in above:
        circle = " > ".join((*above[above.index(name) :], name))
        raise ValueError(f"modules cannot import in a circle, as {circle} do: take one apart.")
    module = read(name, sources[name])
    for other, names in module.needs:
        if other not in sources:
            raise ValueError(f"{name} imports {other}, which is not there: check its path.")
        _visit(other, sources, modules, (*above, name))
        imported = [each.split(" as ")[0] for each in names]
        missing = [each for each in imported if each not in modules[other].gives]
        if missing:
            raise ValueError(f"{name} imports {missing[0]} of {other}, which does not export it.")
    modules[name] = module


def read(name: str, source: str) -> Module:
    """Parse a module: its imports, its exports, and its source without the keywords for them.

    Errors: a ValueError where it is written in another form.
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
            parts.append(source[done:at])
            done = exported.end()
        else:
            raise ValueError(_form(name, source, at))
    return Module(name, tuple(needs), tuple(gives), "".join([*parts, source[done:]]).strip("\n"))


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
        f'{_KNOWN}["{module.name}"] = (function () {{\n{taken}{module.body}\n'
        f"return {{ {', '.join(module.gives)} }};\n}})();\n"
    )


_ENTRY = "app.js"


@cache
def script() -> str:
    """Return the studio page's modules linked to one script."""
    return linked(modules(), _ENTRY)


_STRONGEST = 9
# JavaScript writes numbers outside this range with an exponent, in its own format.
_PLAIN = (1e-6, 1e15)


class Answers:
    """Answers to the page's requests, keyed by path and parameters as `stored` in source.js is.

    Plain answers repeat each other and are compressed together; tensors, which the page unpacks
    one by one, are compressed apart, equal ones once.

    >>> answers = Answers()
    >>> answers.hold("words", {"lang": "en"}, {"shell.views": "Views"})
    >>> answers.told
    {'words|lang=en': {'shell.views': 'Views'}}
    """

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.numbers: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}

    def hold(self, path: str, given: Mapping[str, Any], answer: Any) -> None:
        """Add an answer.

        Args:
            path: Path in the studio's API, without `api/`.
            given: Parameters by name; those that are None are left out.
            answer: Plain data, or a tensor.
        """
        key = key_of(path, given)
        if isinstance(answer, Tensor):
            self.numbers[key] = self._deduplicated(key, answer)
        else:
            self.told[key] = answer

    def hold_all(self, given: Iterable[tuple[str, Mapping[str, Any], Any]], work: Work) -> None:
        """Add answers one by one until the work is cancelled.

        Args:
            given: Path, parameters and answer of each.
            work: Checked for cancellation before each.

        Errors: `Cancelled` where the work was cancelled.
        """
        for path, parameters, answer in given:
            work.check()
            self.hold(path, parameters, answer)

    def json(self, missing: str) -> str:
        """Serialize all answers to JSON that may stand in a script element.

        Args:
            missing: The page's message for a request without an answer.

        Errors: a ValueError where a number in a plain answer is not finite.
        """
        try:
            told = json.dumps(self.told, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(
                "the numbers of this model grow beyond all bounds: train it again, or name another."
            ) from error
        return in_a_script({"missing": missing, "told": packed(told), "numbers": self.numbers})

    def _deduplicated(self, key: str, values: Float[Tensor, "*shape"]) -> dict[str, Any]:
        data, shape = packed(float32(values)), list(values.shape)
        first = self._keys.setdefault(data, key)
        return {"shape": shape, "data": data} if first == key else {"shape": shape, "as": first}


def key_of(path: str, given: Mapping[str, Any]) -> str:
    """Return the key of a request, as `keyOf` in source.js computes it.

    Errors: a ValueError for a number that JavaScript formats in another way.

    >>> key_of("steps/trace", {"mask": "causal", "beta": 1.0, "soft": True, "head": None})
    'steps/trace|beta=1|mask=causal|soft=true'
    """
    named = {name: _written(value) for name, value in sorted(given.items()) if value is not None}
    return "|".join([path, *(f"{name}={value}" for name, value in named.items())])


def packed(content: bytes) -> str:
    """Compress bytes and encode them as base64.

    >>> packed(bytes(1000))
    'eNpjYBgFo2AUDHcAAAPoAAE='
    """
    return base64.b64encode(zlib.compress(content, _STRONGEST)).decode()


def in_a_script(value: Any) -> str:
    r"""Serialize a value to ASCII JSON that is safe inside a script element.

    Errors: a ValueError where a number is not finite.

    >>> in_a_script("<!-- \u2028")
    '"\\u003c!-- \\u2028"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _written(value: Any) -> str:
    """Format a parameter as JavaScript's `String` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value and not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        raise ValueError(f"a report names answers by plain numbers, and got {value}: give a text.")
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"

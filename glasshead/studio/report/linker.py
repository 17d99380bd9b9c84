"""The page's modules linked to one script, and the answers that stand beside it."""

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

from glasshead.studio.page import float32, modules
from glasshead.studio.work import Work

_SKIPPED = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<string> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<expression> /(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]* )
    """,
    re.VERBOSE | re.DOTALL,
)
# The text of a template up to what ends it or a part of it.
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{)", re.DOTALL)
# Behind these a slash begins a regular expression; behind a value it divides.
_BEFORE_EXPRESSION = re.compile(
    r"(?:^|[(,=:\[!&|?{};+\-*%~^<>]|\b(?:return|typeof|case|of|in))\s*$"
)

# How far back is looked for what stands before a slash: over an indented line or two.
_FAR = 400


def code_alone(source: str) -> str:
    """The source with spaces in place of comments, strings, templates and regular expressions.

    Lines and places stay what they were, so that what is found here is found there.

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
    """Where what begins here ends, if it is a comment, a string or a regular expression."""
    found = _SKIPPED.match(source, at)
    if found is None:
        return None
    if found["expression"] and not _BEFORE_EXPRESSION.search("".join(kept[-_FAR:])):
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
# No part of a script may end its element, or begin what changes where it ends.
_MARKUP = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_KNOWN = "$modules"


@dataclass(frozen=True)
class Module:
    """A module that was read.

    Attributes:
        name: Its path.
        needs: Which names of which other modules, some as another one.
        gives: The names that it exports.
        body: Its source as what a function does.
    """

    name: str
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    gives: tuple[str, ...]
    body: str


def linked(sources: Mapping[str, str], entry: str) -> str:
    r"""One script that does what loading the module `entry` does.

    A module imports by `import { a, b as c } from "./x.js";`, above all that it does, and exports
    by `export` before a function, a class or a const, where a line begins. Modules that are not
    needed are left out.

    Args:
        sources: The sources of the modules by path.
        entry: The path of the one that is loaded.

    Errors: a ValueError where a module has another form, imports what is not there, or imports in
    a circle.

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
    """Read a module after all that it needs."""
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
        wanted = [each.split(" as ")[0] for each in names]
        missing = [each for each in wanted if each not in modules[other].gives]
        if missing:
            raise ValueError(f"{name} imports {missing[0]} of {other}, which does not export it.")
    modules[name] = module


def read(name: str, source: str) -> Module:
    """What a module needs and gives, and its source without `import` and `export`.

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
    """What the studio's page runs, as one script."""
    return linked(modules(), _ENTRY)


_STRONGEST = 9
# JavaScript writes other numbers with an exponent, and in its own way.
_PLAIN = (1e-6, 1e15)


class Answers:
    """Answers by path and parameters, as `stored` in source.js finds them.

    Plain answers say much the same again and again, and are packed together; tensors, which are
    unpacked one by one when they are looked at, apart, each content once.

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
        """Hold an answer.

        Args:
            path: Of the studio's API, without its `api/`.
            given: The parameters by name; those that are None are not given.
            answer: Plain data, or a tensor as `numbers` gives it.
        """
        key = key_of(path, given)
        if isinstance(answer, Tensor):
            self.numbers[key] = self._held_once(key, answer)
        else:
            self.told[key] = answer

    def hold_all(self, given: Iterable[tuple[str, Mapping[str, Any], Any]], work: Work) -> None:
        """Hold answers one by one, as long as somebody waits.

        Args:
            given: The path, the parameters and the answer of each.
            work: Is asked before each.

        Errors: `Cancelled` where nobody waits any more.
        """
        for path, parameters, answer in given:
            work.check()
            self.hold(path, parameters, answer)

    def json(self, missing: str) -> str:
        """All of them as JSON that may stand in a script element.

        Args:
            missing: What is said where something else is asked for.

        Errors: a ValueError where a plain number is not finite, which JSON cannot hold.
        """
        try:
            told = json.dumps(self.told, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(
                "the numbers of this model grow beyond all bounds: train it again, or name another."
            ) from error
        return in_a_script({"missing": missing, "told": packed(told), "numbers": self.numbers})

    def _held_once(self, key: str, values: Float[Tensor, "*shape"]) -> dict[str, Any]:
        data, shape = packed(float32(values)), list(values.shape)
        first = self._keys.setdefault(data, key)
        return {"shape": shape, "data": data} if first == key else {"shape": shape, "as": first}


def key_of(path: str, given: Mapping[str, Any]) -> str:
    """What was asked, as `keyOf` in source.js names it.

    Errors: a ValueError for a number that JavaScript writes in another way.

    >>> key_of("steps/trace", {"mask": "causal", "beta": 1.0, "soft": True, "head": None})
    'steps/trace|beta=1|mask=causal|soft=true'
    """
    named = {name: _written(value) for name, value in sorted(given.items()) if value is not None}
    return "|".join([path, *(f"{name}={value}" for name, value in named.items())])


def packed(content: bytes) -> str:
    """Bytes as text, compressed.

    >>> packed(bytes(1000))
    'eNpjYBgFo2AUDHcAAAPoAAE='
    """
    return base64.b64encode(zlib.compress(content, _STRONGEST)).decode()


def in_a_script(value: Any) -> str:
    r"""JSON in ASCII, in which no text can end a script element, or begin another.

    Errors: a ValueError where a number is not finite, which JSON cannot hold.

    >>> in_a_script("<!-- \u2028")
    '"\\u003c!-- \\u2028"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _written(value: Any) -> str:
    """A parameter as JavaScript writes it into a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float):
        return str(value)
    if value and not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        raise ValueError(f"a report names answers by plain numbers, and got {value}: give a text.")
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"

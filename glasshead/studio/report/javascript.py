"""JavaScript: which part of a source is code, and which is text."""

import re

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

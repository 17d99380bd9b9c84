"""Translators' catalogues: collected from the code, brought up to date, compiled and checked.

`python -m glasshead.explanation.catalogues` collects the sentences of `explanation`, `drawing`,
`cli` and `studio` into `locales/glasshead.pot`, brings each language's `glasshead.po` up to date
and compiles its `glasshead.mo`. With `--check` it changes nothing, and says what is missing
instead. It needs Babel.

The same code gives the same files, wherever and whenever it runs.
"""

import io
import re
import string
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_file
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

from glasshead.explanation.language import LANGUAGES

PACKAGE = Path(__file__).parents[1]
LOCALES = PACKAGE / "explanation" / "locales"
TEMPLATE = LOCALES / "glasshead.pot"
_FOLDERS = ("cli", "drawing", "explanation", "studio")
_MARKS: dict[str, None] = {"_": None, "say": None}
_HEADER = """\
# Translations for glasshead.
# This file is distributed under the same license as glasshead.
#"""
# Header lines that change with the time or the version of Babel.
_CHANGING = re.compile(
    r'^"(POT-Creation-Date|PO-Revision-Date|Generated-By|Last-Translator|Language-Team|'
    r"Project-Id-Version|Report-Msgid-Bugs-To): .*\n",
    re.MULTILINE,
)


def collected() -> Catalog:
    """Collect the sentences of the code, in the order of files and lines."""
    catalog = _empty(None)
    for folder in _FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            place = path.relative_to(PACKAGE.parent).as_posix()
            for _, sentence, _, _ in extract_from_file("python", path, keywords=_MARKS):
                catalog.add(sentence, locations=[(place, 0)])
    return catalog


def update() -> None:
    """Write the template, and each language's catalogue and its compiled form."""
    template = collected()
    LOCALES.mkdir(exist_ok=True)
    _write(TEMPLATE, _as_po(template))
    for language in translated():
        catalog = _updated(language, template)
        _write(_path(language, "po"), _as_po(catalog))
        _write(_path(language, "mo"), _as_mo(catalog))


def check() -> list[str]:
    """Check the catalogues; return a line for each problem."""
    template = collected()
    problems = []
    if not TEMPLATE.exists() or TEMPLATE.read_bytes() != _as_po(template):
        problems.append("glasshead.pot lags behind the code")
    for language in translated():
        problems += [f"{language}: {problem}" for problem in _problems(language, template)]
    return problems


def translated() -> tuple[str, ...]:
    """Return the languages with a catalogue, all but English, by folder name."""
    return tuple(language.replace("-", "_") for language in LANGUAGES if language != "en")


def _problems(language: str, template: Catalog) -> Iterator[str]:
    """Yield the problems of one language."""
    if not _path(language, "po").exists():
        yield "there is no glasshead.po"
        return
    catalog = _read(language)
    for message in filter(lambda message: message.id, template):
        found = catalog.get(str(message.id))
        if found is None:
            yield f"not in the catalogue: {message.id}"
        else:
            yield from _faults(found)
    for sentence in [*catalog.obsolete, *(m.id for m in catalog if m.id and m.id not in template)]:
        yield f"obsolete: {sentence}"
    if not _path(language, "mo").exists() or _compiled(language) != _sentences(catalog):
        yield "glasshead.mo lags behind glasshead.po"


def _faults(message: Message) -> Iterator[str]:
    """Yield the problems of one translation."""
    if not message.string:
        yield f"missing: {message.id}"
    elif message.fuzzy:
        yield f"fuzzy: {message.id}"
    elif _places(str(message.id)) != _places(str(message.string)):
        yield f"other places than in English: {message.id} → {message.string}"


def _places(sentence: str) -> set[str | None]:
    """Return the placeholders of a sentence; for an unbalanced brace the sentence itself."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}
    except ValueError:
        return {sentence}


def _updated(language: str, template: Catalog) -> Catalog:
    """Update the catalogue of a language to the current sentences."""
    catalog = _read(language) if _path(language, "po").exists() else _empty(language)
    catalog.update(template, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    return catalog


def _empty(language: str | None) -> Catalog:
    fixed = datetime(2000, 1, 1, tzinfo=UTC)
    return Catalog(
        locale=language,
        project="glasshead",
        version="",
        header_comment=_HEADER,
        creation_date=fixed,
        revision_date=fixed,
        fuzzy=False,
    )


def _read(language: str) -> Catalog:
    with _path(language, "po").open("rb") as file:
        return read_po(file, locale=language)


def _sentences(catalog: Catalog) -> dict[str, str]:
    """Return the translated sentences and their translations."""
    return {str(m.id): str(m.string) for m in catalog if m.id and m.string and not m.fuzzy}


def _compiled(language: str) -> dict[str, str]:
    with _path(language, "mo").open("rb") as file:
        return _sentences(read_mo(file))


def _as_po(catalog: Catalog) -> bytes:
    catalog.header_comment = _HEADER
    file = io.BytesIO()
    write_po(file, catalog, width=100, include_lineno=False, ignore_obsolete=True)
    return _CHANGING.sub("", file.getvalue().decode()).encode()


def _as_mo(catalog: Catalog) -> bytes:
    """Compile a catalogue with only the encoding and the translations."""
    plain = _empty(str(catalog.locale))
    for sentence, translation in _sentences(catalog).items():
        plain.add(sentence, translation)
    file = io.BytesIO()
    write_mo(file, plain)
    return file.getvalue()


def _write(path: Path, content: bytes) -> None:
    """Write a file if its content changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def _path(language: str, ending: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / f"glasshead.{ending}"


def main(arguments: list[str]) -> int:
    """Update the catalogues, or with --check report problems; return 1 where there are any."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"catalogues takes --check or nothing, and got {' '.join(arguments)}.\n")
        return 2
    if not arguments:
        update()
    problems = check()
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

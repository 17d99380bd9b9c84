"""The commands of `make translations`, and what is wrong with catalogues."""

import functools
import io
import re
import shlex
import shutil
import string
import tempfile
from contextlib import chdir
from pathlib import Path

from babel.messages.frontend import CommandLineInterface
from babel.messages.pofile import read_po

import glasshead
from glasshead.explanation.translations import LANGUAGES

ROOT = Path(glasshead.__file__).parents[1]
UNTRANSLATED = ("missing", "fuzzy")
LOCALES = ROOT / "glasshead" / "explanation" / "locales"


def update(locales):
    """Run the commands of the Makefile on a folder of catalogues."""
    commands = _commands()
    (locales / "glasshead.pot").write_bytes(_extracted())
    _run(commands[1], locales)


def _commands():
    recipe = (ROOT / "Makefile").read_text().replace("\\\n", "")
    found = re.findall(r"^\t\$\(BIN\)/(pybabel .*)", recipe, re.MULTILINE)
    assert len(found) == 2
    return found


@functools.cache
def _extracted():
    """The template of the sentences in the code."""
    with tempfile.TemporaryDirectory() as folder:
        _run(_commands()[0], folder)
        return (Path(folder) / "glasshead.pot").read_bytes()


def _run(command, locales):
    with chdir(ROOT):
        CommandLineInterface().run(shlex.split(command.replace("$(LOCALES)", str(locales))))


def collected():
    """The sentences that are collected from the code."""
    return {str(message.id) for message in read_po(io.BytesIO(_extracted())) if message.id}


def problems(locales):
    """What is not translated, and which files the commands would change."""
    with tempfile.TemporaryDirectory() as folder:
        updated = Path(folder) / "locales"
        shutil.copytree(locales, updated)
        update(updated)
        found = [
            f"{file.relative_to(updated)} lags behind"
            for file in sorted(updated.rglob("glasshead.po*"))
            if file.read_bytes() != (locales / file.relative_to(updated)).read_bytes()
        ]
        for language in LANGUAGES[1:]:
            name = language.replace("-", "_")
            found += [f"{name}: {fault}" for fault in faults(catalogue(updated, language))]
    return found


def catalogue(locales, language):
    return locales / language.replace("-", "_") / "LC_MESSAGES" / "glasshead.po"


def faults(path):
    """What is wrong with a catalogue; what is `UNTRANSLATED` is said in English."""
    if not path.exists():
        yield "there is no glasshead.po"
        return
    with path.open("rb") as file:
        messages = [message for message in read_po(file) if message.id]
    for message in messages:
        if not message.string:
            yield f"missing: {message.id}"
        elif message.fuzzy:
            yield f"fuzzy: {message.id}"
        elif _places(message.id) != _places(message.string):
            yield f"other places than in English: {message.id} → {message.string}"


def _places(sentence):
    """The placeholders of a sentence; for an unbalanced brace the sentence itself."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}
    except ValueError:
        return {sentence}

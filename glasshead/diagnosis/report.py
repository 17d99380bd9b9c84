"""Report: a diagnosis in plain words, with a small picture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from glasshead.diagnosis.code import Code
from glasshead.diagnosis.conventions import DESCRIBED
from glasshead.diagnosis.findings.words import counted
from glasshead.drawing import Block, Document, Formula, Heading, Paragraph

if TYPE_CHECKING:
    from glasshead.diagnosis.diagnosis import Diagnosis


def report(diagnosis: "Diagnosis") -> Document:
    """The blocks of a diagnosis, from what it is to how it is converted."""
    return Document(list(_blocks(diagnosis)), title=_title(diagnosis))


def _title(diagnosis: "Diagnosis") -> str:
    errors, warnings = (
        sum(finding.severity == severity for finding in diagnosis.findings)
        for severity in ("error", "warning")
    )
    if not errors and not warnings:
        return "A healthy mask"
    found = [counted(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n]
    return f"A mask with {' and '.join(found)}"


def _blocks(diagnosis: "Diagnosis") -> Iterator[Block]:
    convention = diagnosis.convention
    named = "undecided" if convention is None else f"{convention} ({DESCRIBED[convention]})"
    yield Paragraph(f"{diagnosis.portrait.subject}. Convention: {named}.")
    yield Formula(diagnosis.portrait.drawing)
    yield Paragraph(diagnosis.portrait.legend)
    for finding in diagnosis.findings:
        yield Paragraph(f"{finding.severity.upper()} {finding.kind}: {finding.sentence}")
    if diagnosis.conversion is not None:
        yield Heading("How to convert it")
        lines = [diagnosis.conversion] + ([diagnosis.sdpa] if diagnosis.sdpa else [])
        yield Code("\n".join(lines))

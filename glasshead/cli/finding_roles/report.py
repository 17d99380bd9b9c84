"""Report: the roles of the heads as a document for the terminal."""

from collections.abc import Iterator

from glasshead.cli.finding_roles.reading import Found
from glasshead.drawing import Block, Document, Heading, Note, Paragraph, Table
from glasshead.watching.analytics.roles import NEAR

MEANINGS = {
    "previous": "the token before its own",
    "first": "the first token, the sink",
    "induction": "what followed an earlier place of its token",
    "duplicate": "an earlier place of its token",
    "local": f"tokens at most {NEAR} away",
    "broad": "all alike: entropy / ln(visible keys)",
}
_LATER = (
    "Here a query sees what comes after it, so that nothing needs to be found in an earlier place: "
    "induction and duplicate count later places, too."
)


def report(name: str, tests: list[Found]) -> Document:
    """For each text the role of every head, and the best head of each role; then what they mean."""
    blocks = [block for test in tests for block in _of(test)]
    return Document([*blocks, *_legend(tests)], title=f"The roles of the heads of {name}")


def _of(test: Found) -> Iterator[Block]:
    yield Heading(f"On {test.name}")
    yield Paragraph(test.said)
    yield from test.roles.document().blocks


def _legend(tests: list[Found]) -> Iterator[Block]:
    rows = [[role, meaning] for role, meaning in MEANINGS.items()]
    yield Heading("What they mean")
    yield Table(["role", "a query looks at"], rows)
    yield Paragraph(
        "A score is the mean weight on these keys, from 0 to 1, over the queries that see one of "
        "them and another key. A head has a role where its score lies half of the way, or further, "
        "from what an even look at all keys would score to 1; broad from 0.9 on. Of several it has "
        "the first of broad, induction, duplicate, previous, first, local."
    )
    if any(test.sees_later for test in tests):
        yield Note(_LATER)

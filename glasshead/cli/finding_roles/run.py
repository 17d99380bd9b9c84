"""Run: from the options of `glasshead roles` to what is printed and written."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from glasshead.cli.finding_roles.picture import picture
from glasshead.cli.finding_roles.reading import Found, found
from glasshead.cli.finding_roles.repeated import repeated
from glasshead.cli.finding_roles.report import report
from glasshead.cli.finding_roles.request import PICTURE, SCORES, RolesRequest
from glasshead.cli.finding_roles.told import told
from glasshead.cli.inputs.reading import shown
from glasshead.cli.observing.runs.pieces import Pieces, read_pieces
from glasshead.cli.outputs.page_file import write_bytes
from glasshead.cli.outputs.progress import Counter
from glasshead.cli.outputs.terminal import print_drawing, remark
from glasshead.tasks.readers.base import Reader
from glasshead.tasks.readers.open_reader import open_reader

_LEAST = 3


def run(request: RolesRequest) -> None:
    """Find the roles, write what is to be written, and print.

    Errors: a ValueError, TypeError or OSError in one sentence. Then nothing was printed.
    """
    reader = open_reader(request.folder)
    tests = list(_tests(request, reader))
    if request.png is not None:
        write_bytes(request.png, picture(reader.name, tests), PICTURE)
    if request.json is not None:
        write_bytes(request.json, told(reader, tests).encode(), SCORES)
    print_drawing(report(reader.name, tests), request.width)
    for what, path in (("The picture is", request.png), ("The scores are", request.json)):
        if path is not None:
            remark(f"{what} at {shown(path)}")


def _tests(request: RolesRequest, reader: Reader) -> Iterator[Found]:
    """Both texts are made before either is read, so that what is wrong is told at once."""
    random = repeated(reader, request.period, request.seed)
    pieces = None if request.text is None else _pieces(reader, request.text)
    look = partial(_found, reader)
    yield look("repeated random tokens", random.said, (random.tokens,))
    if pieces is not None and request.text is not None:
        yield look(shown(request.text), _said(pieces), pieces.groups)


def _found(reader: Reader, name: str, said: str, groups: tuple[torch.Tensor, ...]) -> Found:
    with Counter(f"reading {name}") as counter:
        return found(reader, name, said, groups, counter.show)


def _pieces(reader: Reader, text: Path) -> Pieces:
    """The text in pieces that the model can read.

    Errors: a ValueError where it is too short for a query to have a choice.
    """
    with Counter("reading texts") as counter:
        pieces = read_pieces(reader, text, None, progress=counter.show)
    if pieces.length < _LEAST:
        raise ValueError(
            f"a head has a role among {_LEAST} tokens at least, and {shown(text)} has "
            f"{pieces.length}: name a longer text."
        )
    return pieces


def _said(pieces: Pieces) -> str:
    """How many tokens there are, in how many pieces."""
    if pieces.count == 1:
        return f"{pieces.tokens:,} tokens."
    last = "" if len(pieces.groups) == 1 else f", the last of {pieces.groups[-1].shape[1]:,}"
    return (
        f"{pieces.tokens:,} tokens in {pieces.count:,} pieces of {pieces.length:,}{last}, each "
        f"read from its own beginning."
    )

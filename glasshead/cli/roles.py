"""The command `roles`: find what each attention head of a model does."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from glasshead.cli.inputs.files import TextModel, input_file, output_file, shown, titled
from glasshead.cli.inputs.messages import (
    as_option,
    check_task,
    print_stderr,
    unobserved_as_value_error,
    whole_number,
)
from glasshead.cli.output import (
    OUTPUT,
    Counter,
    Kind,
    Lang,
    Width,
    check_language,
    check_outputs,
    check_width,
    in_language,
    print_drawing,
    spoken,
    write_bytes,
)
from glasshead.extras import require
from glasshead.message import Message
from glasshead.tasks.run_folder import require_for_model

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from glasshead import HeadRoles
    from glasshead.drawing import Block, Document
    from glasshead.tasks.readers.reader import Reader
    from glasshead.tasks.readers.text_stream import ChunkCounts

_PICTURE = Kind("--png", "the picture", "roles.png")
_SCORES = Kind("--json", "the file of scores", "roles.json")
# Half as many bits as a seed of PyTorch may have at most.
_LARGEST_SEED = 2**32
_text_option = partial(Option, rich_help_panel="Test texts")


def roles(
    model: TextModel,
    *,
    text: Annotated[
        str | None,
        _text_option(
            metavar="FILE",
            help="Also score the heads on a text: a plain text file, a .jsonl, .csv or .tsv file "
            "of texts, or a folder of such files.",
        ),
    ] = None,
    period: Annotated[
        int | None,
        _text_option(
            metavar="N",
            parser=whole_number,
            show_default=False,
            help="Number of random tokens that are repeated. Default: 25, or fewer if the context "
            "of MODEL is shorter than 50 tokens.",
        ),
    ] = None,
    seed: Annotated[
        int,
        _text_option(
            metavar="N",
            parser=whole_number,
            help="Random seed of the tokens.",
        ),
    ] = 0,
    png: Annotated[
        str | None,
        Option(
            metavar="FILE",
            rich_help_panel=OUTPUT,
            help="Also draw all scores as PNG, layers × heads. Missing folders are created.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        Option(metavar="FILE", rich_help_panel=OUTPUT, help="Also write all scores as JSON."),
    ] = None,
    width: Width = None,
    lang: Lang = None,
) -> None:
    """Find the role of each head of a model, on repeated random tokens and on a text."""
    folder, text_file = Path(model), input_file(text, "--text")
    picture_file, scores_file = output_file(png, "--png"), output_file(json, "--json")
    if not model:
        raise ValueError(Message("MODEL must be the folder of a model, got an empty name."))
    if period is not None and period < 2:
        raise ValueError(
            Message("--period must be a number of tokens from 2, got {period}.", period=period)
        )
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(Message("--seed must be a number from 0 to 2^32, got {seed}.", seed=seed))
    check_width(width)
    check_language(lang)
    from glasshead.tasks.data.texts import text_files

    texts = [] if text_file is None else text_files(text_file)
    own = list(folder.iterdir()) if folder.is_dir() else []
    check_outputs([(_PICTURE, picture_file), (_SCORES, scores_file)], [*texts, *own])
    require_for_model(folder, "glasshead roles MODEL")
    if picture_file is not None:
        require("glasshead roles --png", "matplotlib")
    check_task(folder, "write", "roles")
    from glasshead.tasks.readers.open_reader import open_reader

    reader = open_reader(folder)
    tests = score_texts(reader, text_file, period=period, seed=seed)
    if picture_file is not None:
        write_bytes(picture_file, picture(reader.name, tests), _PICTURE)
    if scores_file is not None:
        write_bytes(scores_file, scores_json(reader, tests).encode(), _SCORES)
    say = spoken(lang)
    print_drawing(in_language(report(reader.name, tests), say), width)
    if picture_file is not None:
        print_stderr(say("The picture is at {place}", place=shown(picture_file)))
    if scores_file is not None:
        print_stderr(say("The scores are at {place}", place=shown(scores_file)))


@dataclass(frozen=True, eq=False)
class RoleScores:
    """Role scores of all heads on some texts.

    Attributes:
        name: Name of the texts.
        description: The texts, in words.
        tokens: Number of tokens.
        roles: Scores and roles of the heads.
        sees_later: Whether a query sees keys after it.
    """

    name: str
    description: str
    tokens: int
    roles: "HeadRoles"
    sees_later: bool


_LATER = Message(
    "In this model, a query also sees later tokens. Induction and duplicate therefore also "
    "count later occurrences."
)


def meanings() -> dict[str, str]:
    """Return what a query looks at, by role."""
    from glasshead.watching.analytics.roles import NEAR

    return {
        "previous": Message("the token before its own"),
        "first": Message("the first token, the sink"),
        "induction": Message("the token after an earlier occurrence of its token"),
        "duplicate": Message("an earlier occurrence of its token"),
        "local": Message("tokens at most {most} positions away", most=NEAR),
        "broad": Message("all tokens alike: entropy / ln(visible keys)"),
    }


def report(name: str, tests: list[RoleScores]) -> "Document":
    """Tabulate the role of every head and the best head of each role, with a legend."""
    from glasshead.drawing import Document

    blocks = [block for test in tests for block in _of(test)]
    return Document([*blocks, *_legend(tests)], title=Message("Head roles of {name}", name=name))


def _of(test: RoleScores) -> "Iterator[Block]":
    from glasshead.drawing import Heading, Paragraph

    yield Heading(Message("On {text}", text=test.name))
    yield Paragraph(test.description)
    yield from test.roles.document().blocks


def _legend(tests: list[RoleScores]) -> "Iterator[Block]":
    from glasshead.drawing import Heading, Note, Paragraph, Table

    rows = [[Message(role), meaning] for role, meaning in meanings().items()]
    yield Heading(Message("Meaning of the roles"))
    yield Table([Message("role"), Message("a query looks at")], rows)
    yield Paragraph(
        Message(
            "A score is the mean weight on these keys, from 0 to 1, over the queries that "
            "see at least one of them and one other key. A head has a role if its score is "
            "at least halfway between the score of uniform attention and 1; broad needs at "
            "least 0.9. If several roles fit, the head gets the first of broad, induction, "
            "duplicate, previous, first, local."
        )
    )
    if any(test.sees_later for test in tests):
        yield Note(_LATER)


_ACROSS = 3
_MARK = "#d1495b"
# Beyond these a number has no room in its cell.
_MOST_HEADS, _MOST_LAYERS = 16, 32
_LONGEST_NAME = 50


def picture(name: str, tests: list[RoleScores]) -> bytes:
    """Draw the scores of each role and text as a PNG; heads that have the role are framed."""
    from matplotlib.figure import Figure

    from glasshead.drawing import shorten

    layers = len(tests[0].roles.names)
    panel = min(6.0, max(1.3, 0.24 * layers + 0.9))
    block = math.ceil(len(meanings()) / _ACROSS) * panel + 0.5
    figure = Figure(figsize=(11.5, block * len(tests) + 0.6), layout="constrained", dpi=150)
    title = f"Head roles of {shorten(Path(name).name or name, _LONGEST_NAME)}"
    figure.suptitle(title, fontsize=13, weight="bold", parse_math=False)
    layout: Any = figure.get_layout_engine()
    layout.set(w_pad=0.06, h_pad=0.06)
    parts = figure.subfigures(len(tests), 1, squeeze=False)[:, 0]
    for part, test in zip(parts, tests, strict=True):
        _draw(part, test)
    written = BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _draw(part: Any, test: RoleScores) -> None:
    """Draw the panels of one text, under its name."""
    from glasshead.drawing import shorten

    title = f"on {shorten(titled(test.name), _LONGEST_NAME)}: {test.description}"
    part.suptitle(title, fontsize=9, color="0.3", parse_math=False)
    roles = meanings()
    rows = math.ceil(len(roles) / _ACROSS)
    panels = part.subplots(rows, _ACROSS, sharex=True, sharey=True)
    image: Any = None
    for place, (axes, (role, meaning)) in enumerate(zip(panels.flat, roles.items(), strict=True)):
        image = _panel(axes, test, role, meaning)
        if place % _ACROSS == 0:
            axes.set_ylabel("layer", fontsize=8)
        if place >= len(roles) - _ACROSS:
            axes.set_xlabel("head", fontsize=8)
    bar = part.colorbar(image, ax=panels, fraction=0.02, pad=0.01, aspect=30)
    bar.set_label("score; framed: the head has the role", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def _panel(axes: Any, test: RoleScores, role: str, meaning: str) -> Any:
    scores = test.roles.scores[role]
    layers, heads = scores.shape
    image = axes.imshow(scores.tolist(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_facecolor("0.93")
    axes.set_title(role, loc="left", fontsize=11, weight="bold")
    axes.set_title(meaning, loc="right", fontsize=7, color="0.35")
    for axis, count in ((axes.xaxis, heads), (axes.yaxis, layers)):
        axis.set_ticks(range(0, count, max(1, math.ceil(count / 16))))
    axes.tick_params(length=0, labelsize=7)
    axes.spines[:].set_visible(False)
    if scores.isnan().all():
        axes.text(
            0.5,
            0.5,
            "no query counts",
            transform=axes.transAxes,
            ha="center",
            va="center",
            color="0.35",
            fontsize=8,
        )
    _cells(axes, test, role)
    return image


def _cells(axes: Any, test: RoleScores, role: str) -> None:
    """Write the scores where there is room, and frame each head that has the role."""
    from matplotlib.patches import Rectangle

    layers, heads = test.roles.scores[role].shape
    numbered = heads <= _MOST_HEADS and layers <= _MOST_LAYERS
    for layer, row in enumerate(test.roles.scores[role].tolist()):
        for head, score in enumerate(row):
            if numbered and not math.isnan(score):
                color = "white" if score > 0.5 else "0.25"
                axes.text(
                    head, layer, f"{score:.2f}", ha="center", va="center", color=color, fontsize=6.5
                )
            if test.roles.roles[layer][head] == role:
                corner = (head - 0.45, layer - 0.42)
                axes.add_patch(Rectangle(corner, 0.9, 0.84, fill=False, color=_MARK, lw=1.8))


def scores_json(reader: "Reader", tests: list[RoleScores]) -> str:
    """Return JSON with an entry for each text: layers, roles, scores, and those of uniform weights.

    A score that no query counts for is null, and so is the role of a head that has none.
    """
    entries = [
        {
            "text": test.name,
            "tokens": test.tokens,
            "layers": test.roles.names,
            "roles": test.roles.roles,
            "scores": _numbers(test.roles.scores),
            "even": _numbers(test.roles.even),
            "thresholds": dict(test.roles.thresholds),
        }
        for test in tests
    ]
    return dumps({reader.kind: reader.name, "tests": entries}, indent=1) + "\n"


def _numbers(values: 'Mapping[str, Float[Tensor, "layers heads"]]') -> dict[str, Any]:
    return {
        role: [[None if math.isnan(x) else x for x in row] for row in rows.tolist()]
        for role, rows in values.items()
    }


def score_texts(
    reader: "Reader", text: Path | None, *, period: int | None, seed: int
) -> list[RoleScores]:
    """Score the roles on repeated random tokens, and on a text if one is given.

    Errors: a ValueError if the model cannot read a test text, before it reads any.
    """
    from glasshead.tasks.readers.find_roles import chunks_for_roles, repeated, score_roles
    from glasshead.tasks.readers.texts import load_texts

    random = repeated(reader, period, seed, as_option)
    tests: list[tuple[str, str, tuple[Tensor, ...]]] = [
        (Message("repeated random tokens"), random.description, (random.tokens,))
    ]
    if text is not None:
        with Counter("reading texts") as counter:
            chunks = chunks_for_roles(reader, load_texts(text, reader.field), None, counter.show)
        tests.append((shown(text), _description(chunks.counts), chunks.groups))
    scores = []
    for name, description, groups in tests:
        with Counter(f"reading {name}") as counter, unobserved_as_value_error():
            found = score_roles(reader, groups, progress=counter.show)
        tokens = sum(group.numel() for group in groups)
        scores.append(RoleScores(name, description, tokens, *found))
    return scores


def _description(chunks: "ChunkCounts") -> str:
    """Describe the number and length of the chunks."""
    if chunks.count == 1:
        return Message("{tokens:,} tokens.", tokens=chunks.tokens)
    last = "" if chunks.shortest == chunks.length else _last(chunks)
    return Message(
        "{tokens:,} tokens in {count:,} pieces of {length:,}{last}, each read from its own "
        "beginning.",
        tokens=chunks.tokens,
        count=chunks.count,
        length=chunks.length,
        last=last,
    )


def _last(chunks: "ChunkCounts") -> str:
    return Message(", the last of {length:,}", length=chunks.shortest)

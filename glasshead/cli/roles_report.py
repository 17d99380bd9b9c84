"""Roles of the heads of a model: test texts, scores, tables and pictures."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

import glasshead as gh
from glasshead.cli.corpus_observer import unseen_as_value_error
from glasshead.cli.inputs.files import shown
from glasshead.cli.inputs.texts import TextChunks, read_chunks
from glasshead.cli.output import Counter
from glasshead.drawing import Block, Document, Heading, Note, Paragraph, Table, shorten
from glasshead.tasks.readers.base import Reader
from glasshead.watching.analytics.role_scores import ROLES, THRESHOLDS
from glasshead.watching.analytics.roles import NEAR, Masses, masses_of_layers, roles_of

# As Olsson et al. 2022 have it.
_PERIOD, _TIMES = 25, 4
_ROWS = 8


@dataclass(frozen=True, eq=False)
class Repeated:
    """Random tokens, repeated.

    Attributes:
        tokens: Input of the model.
        period: Number of random tokens before the first repetition.
        times: Number of periods in a row.
    """

    tokens: Int[Tensor, "rows length"]
    period: int
    times: int

    @property
    def description(self) -> str:
        """The texts, in words."""
        rows, length = self.tokens.shape
        return (
            f"{rows} texts of {length} tokens: {self.period} at random, none of them special or "
            f"twice, and the same again, {self.times} times in all."
        )


def repeated(reader: Reader, asked: int | None, seed: int) -> Repeated:
    """Draw rows of repeated random tokens, within the vocabulary and context of the model.

    Errors: a ValueError where there is no room for two periods, or too few tokens to draw from.
    """
    before, after = reader.around
    # Where a text begins with nothing of its own, another text has just ended.
    before = before or reader.ending[:1]
    room = None if reader.context is None else reader.context - len(before) - len(after)
    known = len(reader.ordinary)
    most = known if room is None else min(known, room // 2)
    if most < 2:
        reads = "" if room is None else f" and reads {reader.context} at once"
        raise ValueError(
            f"the test repeats two tokens at least, and {reader.name} knows {known}{reads}: name "
            f"another model."
        )
    if asked is not None and asked > most:
        raise ValueError(
            f"--period takes at most {most} tokens, and got {asked}: {reader.name} knows "
            f"{known:,}, and two periods stand in what it reads at once."
        )
    period = asked or min(_PERIOD, most)
    times = _TIMES if room is None else min(_TIMES, room // period)
    places = gh.repeated_random_tokens(known, period, _ROWS, seed, times=times)
    drawn = torch.tensor(reader.ordinary)[places]
    sides = (torch.tensor(side, dtype=torch.long).expand(_ROWS, -1) for side in (before, after))
    first, last = sides
    return Repeated(torch.cat([first, drawn, last], 1), period, times)


# Queries and keys of every layer are kept until their roles are found.
_TOKENS_AT_ONCE = 1024
_BUDGET = 2**34


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
    roles: gh.HeadRoles
    sees_later: bool


def score_roles(
    reader: Reader,
    name: str,
    description: str,
    groups: Sequence[Int[Tensor, "texts length"]],
    progress: Callable[[int, int], None],
) -> RoleScores:
    """Score the roles of all heads on texts, in groups of one length.

    Args:
        reader: The model.
        name, description: Of the texts.
        groups: Their tokens.
        progress: Called with the number of batches done, and the total.

    Errors: a ValueError where an attention cannot be seen, or its numbers overflow.
    """
    batches = [
        batch
        for group in groups
        for batch in group.split(max(1, _TOKENS_AT_ONCE // group.shape[1]))
    ]
    masses: dict[str, Masses] = {}
    sees_later = False
    for done, batch in enumerate(batches):
        progress(done, len(batches))
        with torch.inference_mode(), unseen_as_value_error():
            with gh.watch(reader.model, keep="weights", budget=_BUDGET) as seen:
                reader.read(batch)
            sees_later = sees_later or _sees_later(seen)
            masses = _sum(masses, masses_of_layers(seen, batch))
    if any(one.sums.isnan().any() for one in masses.values()):
        raise ValueError(
            "the scores grow beyond all numbers: train the model again, or name another."
        )
    tokens = sum(group.numel() for group in groups)
    return RoleScores(name, description, tokens, roles_of(masses, THRESHOLDS), sees_later)


def _sees_later(seen: gh.Seen) -> bool:
    """Whether the first query of a text puts weight on any key but the first."""
    weights = next(iter(seen.values())).weights
    return bool(weights[..., 0, 1:].any())


def _sum(left: Mapping[str, Masses], right: Mapping[str, Masses]) -> dict[str, Masses]:
    return {name: left[name] + one if name in left else one for name, one in right.items()}


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


def report(name: str, tests: list[RoleScores]) -> Document:
    """Tabulate the role of every head and the best head of each role, with a legend."""
    blocks = [block for test in tests for block in _of(test)]
    return Document([*blocks, *_legend(tests)], title=f"The roles of the heads of {name}")


def _of(test: RoleScores) -> Iterator[Block]:
    yield Heading(f"On {test.name}")
    yield Paragraph(test.description)
    yield from test.roles.document().blocks


def _legend(tests: list[RoleScores]) -> Iterator[Block]:
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


_ACROSS = 3
_MARK = "#d1495b"
# Beyond these a number has no room in its cell.
_MOST_HEADS, _MOST_LAYERS = 16, 32
_LONGEST_NAME = 50


def picture(name: str, tests: list[RoleScores]) -> bytes:
    """Draw the scores of each role and text as a PNG; heads that have the role are framed."""
    from matplotlib.figure import Figure

    layers = len(tests[0].roles.names)
    panel = min(6.0, max(1.3, 0.24 * layers + 0.9))
    block = math.ceil(len(ROLES) / _ACROSS) * panel + 0.5
    figure = Figure(figsize=(11.5, block * len(tests) + 0.6), layout="constrained", dpi=150)
    title = f"The roles of the heads of {shorten(Path(name).name or name, _LONGEST_NAME)}"
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
    title = f"on {shorten(test.name, _LONGEST_NAME)}: {test.description}"
    part.suptitle(title, fontsize=9, color="0.3", parse_math=False)
    rows = math.ceil(len(ROLES) / _ACROSS)
    panels = part.subplots(rows, _ACROSS, sharex=True, sharey=True)
    image: Any = None
    for place, (axes, role) in enumerate(zip(panels.flat, ROLES, strict=True)):
        image = _panel(axes, test, role)
        if place % _ACROSS == 0:
            axes.set_ylabel("layer", fontsize=8)
        if place >= len(ROLES) - _ACROSS:
            axes.set_xlabel("head", fontsize=8)
    bar = part.colorbar(image, ax=panels, fraction=0.02, pad=0.01, aspect=30)
    bar.set_label("score; framed: the head has the role", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def _panel(axes: Any, test: RoleScores, role: str) -> Any:
    scores = test.roles.scores[role]
    layers, heads = scores.shape
    image = axes.imshow(scores.tolist(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_facecolor("0.93")
    axes.set_title(role, loc="left", fontsize=11, weight="bold")
    axes.set_title(MEANINGS[role], loc="right", fontsize=7, color="0.35")
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


def scores_json(reader: Reader, tests: list[RoleScores]) -> str:
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
    return json.dumps({reader.kind: reader.name, "tests": entries}, indent=1) + "\n"


def _numbers(values: Mapping[str, Float[Tensor, "layers heads"]]) -> dict[str, Any]:
    return {
        role: [[None if math.isnan(x) else x for x in row] for row in rows.tolist()]
        for role, rows in values.items()
    }


_LEAST = 3


def score_texts(
    reader: Reader, text: Path | None, *, period: int | None, seed: int
) -> list[RoleScores]:
    """Score the roles on repeated random tokens, and on a text where one is given.

    Errors: a ValueError where the model cannot read a test text, before it reads any.
    """
    random = repeated(reader, period, seed)
    chunks = None if text is None else _chunks(reader, text)
    tests: list[tuple[str, str, tuple[Tensor, ...]]] = [
        ("repeated random tokens", random.description, (random.tokens,))
    ]
    if chunks is not None and text is not None:
        tests.append((shown(text), _description(chunks), chunks.groups))
    scores = []
    for name, description, groups in tests:
        with Counter(f"reading {name}") as counter:
            scores.append(score_roles(reader, name, description, groups, counter.show))
    return scores


def _chunks(reader: Reader, text: Path) -> TextChunks:
    """Read a text in chunks that fit into the context of the model.

    Errors: a ValueError where it is too short for a query to have a choice.
    """
    with Counter("reading texts") as counter:
        chunks = read_chunks(reader, text, None, progress=counter.show)
    if chunks.length < _LEAST:
        raise ValueError(
            f"a head has a role among {_LEAST} tokens at least, and {shown(text)} has "
            f"{chunks.length}: name a longer text."
        )
    return chunks


def _description(chunks: TextChunks) -> str:
    """Describe the number and length of the chunks."""
    if chunks.count == 1:
        return f"{chunks.tokens:,} tokens."
    last = "" if len(chunks.groups) == 1 else f", the last of {chunks.groups[-1].shape[1]:,}"
    return (
        f"{chunks.tokens:,} tokens in {chunks.count:,} pieces of {chunks.length:,}{last}, each "
        f"read from its own beginning."
    )

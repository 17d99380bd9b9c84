"""Report: what was observed of a model, as a document for the terminal and for a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glasshead.cli.observing.pooled import MAP, drawn_map
from glasshead.cli.observing.runs.choice import Choice
from glasshead.cli.observing.runs.gathering import Gathered
from glasshead.cli.observing.runs.heads_table import HeadsTable
from glasshead.cli.observing.runs.pieces import Pieces
from glasshead.cli.observing.statistics import Asked
from glasshead.cli.observing.tables import counted, histogram_table, receiving_table
from glasshead.cli.observing.weights_map import WeightsMap
from glasshead.drawing import Block, Document, HeatMap, Note, Paragraph, number
from glasshead.recipe.masks import Mask
from glasshead.statistics import DistanceHistogram, MaxScore, Received, Statistic
from glasshead.tasks.readers.base import Reader


@dataclass(frozen=True, eq=False)
class Observed:
    """What was seen of a model, and whose of its heads are drawn.

    Attributes:
        reader: The model.
        text: What the text is called.
        pieces: What it read.
        names: The tokens of the piece, where one alone has the full length.
        tokens: All tokens in their order, where they are those of one text.
        asked: The statistics.
        gathered: Their values.
        mask: Which pairs of a piece see each other.
        choice: Whose keys and map are drawn.
        seconds: How long it took.
    """

    reader: Reader
    text: str
    pieces: Pieces
    names: tuple[str, ...] | None
    tokens: list[str] | None
    asked: tuple[Asked, ...]
    gathered: Gathered
    mask: Mask | None
    choice: Choice
    seconds: float

    @property
    def shape(self) -> tuple[int, int]:
        """How many layers there are, and how many heads each has."""
        layers, heads = next(iter(self.gathered.values.values())).shape[:2]
        return layers, heads


def report(observed: Observed) -> Document:
    """The pieces, each statistic of all layers and heads, and the map of those that are chosen."""
    blocks: list[Block] = [Paragraph(_inputs(observed)), *_notes(observed)]
    for one in observed.asked:
        statistic = observed.gathered.statistics[one.name]
        value = observed.gathered.values[one.name]
        if isinstance(statistic, DistanceHistogram):
            rows = observed.choice.rows(value)
            label = f"{one.written.partition(':')[0]} {observed.choice.said_of_rows()}"
            names = observed.choice.names(*observed.shape)
            blocks.append(histogram_table(statistic, rows, names, label))
        elif isinstance(statistic, Received):
            blocks += _received(observed, one, value)
        else:
            blocks += _heads(one, statistic, value)
    if MAP in observed.gathered.values:
        blocks.append(_map(observed))
    return Document(blocks, title=f"The attention of {observed.reader.name} over {observed.text}")


def _inputs(observed: Observed) -> str:
    pieces, (layers, heads) = observed.pieces, observed.shape
    read = f"{counted(pieces.tokens, 'token')} in {_cut(pieces)}"
    return (
        f"{counted(layers, 'layer')} of {counted(heads, 'head')}, {read}, in "
        f"{observed.seconds:.3g} s. Layers, heads and positions are counted from 0."
    )


def _cut(pieces: Pieces) -> str:
    """How many pieces there are, and how long they are."""
    said = counted(pieces.count, "text" if pieces.texts else "piece")
    if pieces.count == 1:
        return said
    if pieces.uneven:
        least = pieces.groups[-1].shape[1]
        return f"{said} of {least:,} to {pieces.length:,}, each read whole"
    last = "" if len(pieces.groups) == 1 else f", the last of {pieces.groups[-1].shape[1]:,}"
    return f"{said} of {pieces.length:,}{last}, each read from its own beginning"


def _notes(observed: Observed) -> Iterator[Note]:
    pieces, token = observed.pieces, observed.reader.unknown
    unknown = 0 if token is None else pieces.of(token)
    if unknown:
        yield Note(
            f"The model does not know {counted(unknown, 'token')} of the text, "
            f"{number(100 * unknown / pieces.tokens, 3)} %, and takes all such for one and the "
            f"same."
        )
    if pieces.uneven:
        yield Note(
            "Texts of several lengths have no map in common: --length N cuts them to one length."
        )
    for sentence in left_out(pieces, observed.reader):
        yield Note(sentence)


def left_out(pieces: Pieces, reader: Reader) -> list[str]:
    """What was not read of the texts, a sentence each."""
    out, sentences = pieces.left_out, []
    if out.texts:
        of = f"{out.texts:,} of {counted(pieces.count, 'text')}"
        sentences.append(
            f"{of} {'was' if out.texts == 1 else 'were'} cut to the {reader.context:,} tokens that "
            f"the model reads at once: {counted(out.tokens, 'token')} "
            f"{'was' if out.tokens == 1 else 'were'} left out."
        )
    if out.empty:
        was = "was" if out.empty == 1 else "were"
        sentences.append(f"{counted(out.empty, 'text')} without a token {was} left out.")
    return sentences


def _heads(
    one: Asked, statistic: Statistic, value: Float[Tensor, "layers heads"]
) -> Iterator[Block]:
    """A number for each head of each layer, and which are the extremes."""
    of = "the largest of all pieces" if isinstance(statistic, MaxScore) else "mean over all tokens"
    yield HeadsTable(value.tolist(), f"{one.written}, {statistic.unit}: {of}")
    if value.numel() > 1:
        least, largest = (_place(value, int(at)) for at in (value.argmin(), value.argmax()))
        yield Paragraph(f"The least of {one.written} is {least}; the largest, {largest}.")


def _place(value: Float[Tensor, "layers heads"], at: int) -> str:
    layer, head = divmod(at, value.shape[1])
    return f"{number(value[layer, head])}, in layer {layer}, head {head}"


def _received(
    observed: Observed, one: Asked, value: Float[Tensor, "layers heads keys"]
) -> Iterator[Block]:
    """The mass by position, and the positions that receive most."""
    said, over = observed.choice.said(*observed.shape), _over(observed)
    yield HeatMap(
        observed.choice.rows(value),
        observed.choice.names(*observed.shape),
        _positions(observed),
        caption=f"{one.written}, weight: what each position receives "
        f"{observed.choice.said_of_rows()}{over}",
    )
    yield receiving_table(
        observed.choice.mean(value),
        observed.names,
        f"The positions that receive most, {said}{over}; 1 is all that a query gives",
    )


def _map(observed: Observed) -> WeightsMap:
    """The weights, pooled where they are many."""
    length = observed.pieces.length
    return drawn_map(
        observed.choice.mean(observed.gathered.values[MAP]),
        observed.mask,
        (length, length),
        observed.names,
        f"Weights, {observed.choice.said(*observed.shape)}{_over(observed)}: a row a query, a "
        f"column a key",
    )


def _positions(observed: Observed) -> Sequence[str]:
    return observed.names or [f"{place}" for place in range(observed.pieces.length)]


def _over(observed: Observed) -> str:
    """Over which pieces something is the mean, where there are several."""
    pieces = observed.pieces
    if pieces.uneven:
        return ", mean over the texts that are as long"
    if pieces.full > 1:
        noun = "texts" if pieces.texts else "pieces"
        return f", mean over {pieces.full:,} {noun} of {pieces.length:,}"
    return f", over the first {pieces.length:,} tokens" if pieces.count > 1 else ""

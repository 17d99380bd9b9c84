"""The view `atlas`: attention maps of long texts, cached by head."""

import copy
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import printable
from glasshead.message import _
from glasshead.studio.atlas import Atlas, NotYetError, TileCache
from glasshead.studio.background_jobs import Cache, NotYet, Refusal, Work
from glasshead.studio.panel import Panel
from glasshead.studio.parameters import TEXT_NAME, HeadPlace, Place
from glasshead.studio.stored_answers import ReportContent, StoredAnswers, report_note
from glasshead.studio.studio import Studio
from glasshead.studio.subject import ModelPass, check_place, stored_tokens
from glasshead.studio.views.heads import chosen_heads, reading_of
from glasshead.studio.views.reading import is_read, read

if TYPE_CHECKING:
    from glasshead.studio.routes import Routes


WORDS = {
    "atlas.title": _("Atlas"),
    "atlas.what": _("This page shows the attention map of one head, of any length, to zoom into."),
    "atlas.none": _(
        "The atlas shows the attention of a long text as a map. Start the studio with a "
        "model folder or a file of stored weights."
    ),
    "atlas.reading": _("Reading the text…"),
    "atlas.surveying": _("Computing the overview of all token pairs…"),
    "atlas.part": _("The model reads the beginning of the text: {length} of its {of} tokens."),
    "atlas.layer": _("Layer"),
    "atlas.matrix": _("Matrix"),
    "atlas.head": _("Head"),
    "atlas.whose": _("layer {layer}, head {head}"),
    "atlas.whose_stored": _("matrix {layer}, head {head}"),
    "atlas.top": _("Top of the color scale"),
    "atlas.legend": _("mean weight of one key"),
    "atlas.map": _(
        "Attention map: queries from top to bottom ({queries}), keys from left to right ({keys})"
    ),
    "atlas.keys": _(
        "Drag the map or use the arrow keys to move it. Zoom with the wheel or + and −. Home "
        "shows the full map. Shift and the arrow keys move the cross-hair by one cell."
    ),
    "atlas.query": _("Query {from}"),
    "atlas.key": _("Key {from}"),
    "atlas.queries": _("Queries {from} to {to}"),
    "atlas.keys_at": _("Keys {from} to {to}"),
    "atlas.single": _("the weight that query {query} gives to key {key}"),
    "atlas.mean": _(
        "the weight that a query gives to all of these keys together, on average (queries: "
        "{queries}, keys: {keys})"
    ),
}


def tops(keys: int) -> list[float]:
    """Return the upper ends of color scales: 1, 0.5, 0.2, 0.1 …, down to below 1 / keys.

    >>> tops(4)
    [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    """
    powers = range(1, max(2, len(str(keys * 2))) + 1)
    return [float(f"{digit}e-{power}") for power in powers for digit in (10, 5, 2)]


def floor(keys: int) -> float:
    """Return the lower end of logarithmic color scales, well below uniform weights, 1 / keys.

    >>> floor(1000)
    0.0001
    """
    return 10.0 ** -(math.ceil(math.log10(max(keys, 2))) + 1)


def most(atlas: Atlas) -> float:
    """Return the largest mean weight per key in a block of the coarsest level.

    Errors: as of `Atlas.tile`.
    """
    level = atlas.levels - 1
    return atlas.tile(level, 0, 0).max().item() / 2**level


# Maps that are cached; each takes 21 MiB at most with its overview.
MOST = 16


class KeptMaps:
    """A cache of atlases by source, layer and head.

    The source is a `ModelPass` or stored weights. Its atlases are dropped when it is garbage
    collected; beyond `MOST` the least recently used goes first.
    """

    def __init__(self) -> None:
        self._lock, self._tiles = threading.Lock(), TileCache()
        # Numbers of collected sources are never reused.
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._next = itertools.count()
        self._maps: Cache[Atlas] = Cache(MOST)

    def get(
        self, source: object, layer: int, head: int, weights: Callable[[], gh.Weights]
    ) -> Atlas:
        """Return the atlas of a head, creating it on a miss.

        Args:
            source: A `ModelPass` or stored weights; the atlas itself must not hold it.
            layer, head: Which head.
            weights: Returns the weights of the head; called on a miss.
        """
        with self._lock:
            if source not in self._numbers:
                self._numbers[source] = next(self._next)
            there, number = set(self._numbers.values()), self._numbers[source]
        self._maps.drop(lambda place: place[0] not in there)
        return self._maps.get((number, layer, head), lambda: Atlas(weights(), self._tiles))


# Units of the overview's progress.
_PARTS = 1000

TOKENS = 512
"""Tokens per request of the page; a request begins at a multiple of it."""


class Atlases:
    """The data of the view: atlases of the studio's texts, or of its stored weights.

    Args:
        studio: The studio that holds the model or the stored weights.
    """

    def __init__(self, studio: Studio) -> None:
        self._studio, self._maps = studio, KeptMaps()

    def opened(self, text: str | None, work: Work) -> dict[str, Any]:
        """Read a text and describe its layers, heads and length.

        Args:
            text: The name of a text that was sent; None for stored weights.
            work: Receives progress.

        Returns:
            `length`: number of known tokens, and `of`, of the whole text; None if none are.
            `layers`: their names, with the number of heads of each; `heads`: the available head
            indices, by layer. `glued`: whether tokens contain their own spaces. `trouble`: why the
            tokens beside stored weights could not be read.

        Errors: as of `read`.
        """
        source = self._source(text, work)
        if isinstance(source, gh.Weights):
            texts, heads = _texts_and_heads(source)
            names, counts = map(str, range(texts)), (heads,) * texts
        else:
            names, counts = map(printable, source.layers), source.heads
        words, trouble = self._words(source)
        return {
            "length": len(words) or None,
            "of": len(words) or None if isinstance(source, gh.Weights) else source.of,
            "glued": any(word != word.strip() for word in words),
            "layers": [
                {"name": name, "heads": heads} for name, heads in zip(names, counts, strict=True)
            ],
            "heads": {str(layer): [*range(heads)] for layer, heads in enumerate(counts)},
            "trouble": trouble,
        }

    def map(self, text: str | None, layer: int, head: int, work: Work) -> dict[str, Any]:
        """Describe a head's map: its size, levels and color scales.

        Returns:
            `queries`, `keys`; `levels`, of blocks of 2^level; `coarse`: the first level whose
            tiles come from the overview; `ready`: whether that has been computed; `finest`: the
            first level; `tops`, `floor`: upper ends and lower end of color scales; `most`: the
            largest mean weight per key in a block of the coarsest level, None before the overview.

        Errors: as of `read`, and a `Refusal` if there is no such layer or head.
        """
        atlas = self.atlas(text, layer, head, work)
        return {
            "queries": atlas.queries,
            "keys": atlas.keys,
            "levels": atlas.levels,
            "coarse": atlas.overview_level,
            "ready": atlas.ready,
            "finest": 0,
            "tops": tops(atlas.keys),
            "floor": floor(atlas.keys),
            "most": most(atlas) if atlas.ready else None,
        }

    def overview(self, text: str | None, layer: int, head: int, work: Work) -> dict[str, Any]:
        """Compute the overview of a head, from which the coarse tiles come.

        Returns:
            `most`, as in `map`.

        Errors: as of `map`.
        """
        atlas = self.atlas(text, layer, head, work)

        def report(fraction: float) -> None:
            work.report("atlas.surveying", round(fraction * _PARTS), _PARTS)

        atlas.overview(report, lambda: work.cancelled)
        return {"most": most(atlas)}

    def tile(
        self, text: str | None, layer: int, head: int, place: tuple[int, int, int], work: Work
    ) -> Float[Tensor, "row_blocks column_blocks"]:
        """Return the tile at (level, row, column), as `Atlas.tile` does.

        Errors: as of `map`; a ValueError if there is no such tile; `NotYet` if it needs the
        overview.
        """
        atlas = self.atlas(text, layer, head, work)
        try:
            return atlas.tile(*place, lambda: work.cancelled)
        except NotYetError as error:
            raise NotYet("this part of the map needs an overview. Compute it first.") from error

    def tokens(self, text: str | None, start: int, stop: int, work: Work) -> dict[str, Any]:
        """Return the text of the tokens in [start, stop), as far as they are known.

        Errors: as of `read`.
        """
        words, _ = self._words(self._source(text, work))
        return {"tokens": [_written(word) for word in words[start:stop]]}

    def atlas(self, text: str | None, layer: int, head: int, work: Work) -> Atlas:
        """Return the cached atlas of a head.

        Errors: as of `map`.
        """
        source = self._source(text, work)
        return self._maps.get(source, layer, head, lambda: _head(source, layer, head))

    def _words(self, source: "ModelPass | gh.Weights") -> tuple[tuple[str, ...], str | None]:
        """Return the keys' tokens, and why those beside stored weights could not be read."""
        if not isinstance(source, gh.Weights):
            return source.words, None
        folder = self._studio.subject.folder
        return ((), None) if folder is None else stored_tokens(folder, source.shape[-1])

    def _source(self, text: str | None, work: Work) -> "ModelPass | gh.Weights":
        if self._studio.subject.kind == "weights":
            return self._studio.subject.weights()
        if text is None:
            raise Refusal("an atlas needs the name of a text, got none. Send one.")
        return read(self._studio, text, work, self._studio.limits.atlas)


def stored_atlas(
    atlases: Atlases,
    text: str | None,
    heads: Sequence[tuple[int, int]],
    work: Work,
    *,
    tiles: int = 16,
    size: int = 2**18,
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Generate the answers that show some heads offline, at the levels that fit into `tiles`.

    Args:
        atlases: Computes the tiles.
        text: The name of the file's text.
        heads: Layer and head of each head to include.
        work: Receives progress.
        tiles: Maximum number of tiles per head; the coarsest is always included.
        size: Maximum bytes of token texts; further tokens are shown as numbers.

    Yields:
        The path, parameters and answer of each request of the page: plain data, or the tensor of a
        tile.

    Errors: as of `Atlases.overview`.
    """
    opened = atlases.opened(text, work)
    held = {str(layer): [head for each, head in heads if each == layer] for layer, _ in heads}
    of = {} if text is None else {"text": text}
    yield "atlas/read", of, {**opened, "heads": held}
    for layer, head in heads:
        atlases.overview(text, layer, head, work)
        which = {**of, "layer": layer, "head": head}
        atlas = atlases.atlas(text, layer, head, work)
        counts = [math.prod(atlas.size(level)) for level in range(atlas.levels)]
        fitting = [level for level in range(atlas.levels) if sum(counts[level:]) <= tiles]
        finest = min(fitting, default=atlas.levels - 1)
        yield "atlas/map", which, {**atlases.map(text, layer, head, work), "finest": finest}
        for level in range(finest, atlas.levels):
            rows, columns = atlas.size(level)
            for row, column in itertools.product(range(rows), range(columns)):
                tile = atlases.tile(text, layer, head, (level, row, column), work)
                yield "atlas/tile", {**which, "level": level, "row": row, "column": column}, tile
    for start in range(0, opened["length"] or 0, TOKENS):
        stop = min(start + TOKENS, opened["length"])
        tokens = atlases.tokens(text, start, stop, work)
        size -= sum(len(word.encode()) for word in tokens["tokens"])
        yield (
            "atlas/tokens",
            {**of, "start": start, "stop": stop},
            tokens if size >= 0 else {"tokens": []},
        )


def _head(source: "ModelPass | gh.Weights", layer: int, head: int) -> gh.Weights:
    if not isinstance(source, gh.Weights):
        return source.head(layer, head)
    texts, heads = _texts_and_heads(source)
    check_place("layer", layer, texts)
    check_place("head", head, heads)
    place = [] if len(source.shape) == 2 else [head]
    for length in reversed(source.shape[:-3]):
        layer, along = divmod(layer, length)
        place.insert(0, along)
    # The head of a matrix without heads is the matrix, which its atlas would keep alive: copy it.
    return copy.copy(source) if not place else source.head(*place)


def _texts_and_heads(weights: gh.Weights) -> tuple[int, int]:
    """Return the numbers of texts and heads of stored weights; each text is shown as a layer."""
    *leading, heads = weights.shape[:-2] or (1,)
    return math.prod(leading), heads


def _written(word: str) -> str:
    """Return a token with its spaces, and other invisible characters made visible."""
    return printable(word.replace("\n", "↵").replace("<0x0A>", "↵"))


# Weights or blocks of all maps together, and of each where there are few.
_NUMBERS = 500_000
_FEW_NUMBERS = 5 * 256**2
_TILES = 5
_SIDE = 256


def export_atlas(answers: StoredAnswers, content: ReportContent) -> list[str]:
    """Export the atlases of the heads that have a role, and of others as far as there is room.

    Errors: a `Refusal` if the text cannot be read, or its attention cannot be observed.
    """
    atlases = Atlases(content.studio)
    opened = atlases.opened(content.name, content.work)
    heads = _heads(content, opened["length"])
    # Two heads at one level are worth more than one head at two.
    tiles = _TILES if len(heads) * _FEW_NUMBERS <= _NUMBERS else 1
    answers.hold_all(
        stored_atlas(atlases, content.name, heads, content.work, tiles=tiles), content.work
    )
    of = sum(layer["heads"] for layer in opened["layers"])
    return [] if len(heads) == of else report_note(content, "heads", kept=len(heads), of=of)


def _heads(content: ReportContent, length: int) -> list[tuple[int, int]]:
    """Choose the heads whose coarsest tiles fit into the file."""
    blocks = length
    while blocks > _SIDE:
        blocks = -(-blocks // 2)
    reading = reading_of(content.studio, content.name, content.work)
    return chosen_heads(reading, max(_NUMBERS // blocks**2, 1) * 4 * reading.length**2)


@dataclass(frozen=True)
class _TilePlace(HeadPlace):
    """A tile of a head's map."""

    level: Annotated[int, {"ge": 0, "le": 31, "description": "Of blocks of 2^level tokens."}]
    row: Place
    column: Place


def _add_routes(routes: "Routes") -> None:
    studio = routes.studio
    atlases = Atlases(studio)
    # Stored weights are of no text that is named.
    name = TEXT_NAME | ({"default": None} if studio.subject.is_file else {})

    def has_read(text: str | None, **_of: object) -> bool:
        return text is None or is_read(studio, text, studio.limits.atlas)

    @routes.lines("/read")
    def read_text(work: Work, text: Annotated[str | None, name]) -> dict[str, Any]:
        """Read a text; stream progress, then its length, layers and heads."""
        return atlases.opened(text, work)

    @routes.json("/map", is_read=has_read)
    def size(work: Work, text: Annotated[str | None, name], of: HeadPlace) -> dict[str, Any]:
        """Return the size and the levels of a head's map.

        400 if there is no such layer or head, 413 if the text takes too much memory.
        """
        return atlases.map(text, of.layer, of.head, work)

    @routes.lines("/overview")
    def overview(work: Work, text: Annotated[str | None, name], of: HeadPlace) -> dict[str, Any]:
        """Compute the overview of a head; stream progress, then its largest mean weight."""
        return atlases.overview(text, of.layer, of.head, work)

    @routes.numbers("/tile", is_read=has_read)
    def tile(work: Work, text: Annotated[str | None, name], of: _TilePlace) -> Tensor:
        """Return up to 256 × 256 blocks: sums over a block's keys, means over its queries.

        400 if there is no such layer, head or tile, 409 if it needs the overview, 413 where
        the text takes too much memory.
        """
        return atlases.tile(text, of.layer, of.head, (of.level, of.row, of.column), work)

    @routes.json("/tokens", is_read=has_read)
    def tokens(
        work: Work, text: Annotated[str | None, name], start: Place, stop: Place
    ) -> dict[str, Any]:
        """Return the text of the tokens in [start, stop), at most 512; 413 as for the map."""
        return atlases.tokens(text, start, min(stop, start + TOKENS), work)


PANEL = Panel(words=WORDS, routes=_add_routes)

"""The view `atlas`: the map of a long text, and the maps that are kept."""

import copy
import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from jaxtyping import Float
from torch import Tensor

import glasshead as gh
from glasshead.drawing import printable
from glasshead.studio.atlas import Atlas
from glasshead.studio.atlas_tiles import Cancelled as Left
from glasshead.studio.atlas_tiles import NotYetError, TileCache
from glasshead.studio.views.names import stored_tokens
from glasshead.studio.views.reading import ModelPass, check_place, read
from glasshead.studio.work import Cancelled, NotYet, Refusal, Work

if TYPE_CHECKING:
    from glasshead.studio.studio import Studio


def tops(keys: int) -> list[float]:
    """Where scales may end: 1, 0.5, 0.2, 0.1 …, down to below the weight of one of so many keys.

    >>> tops(4)
    [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    """
    powers = range(1, max(2, len(str(keys * 2))) + 1)
    return [float(f"{digit}e-{power}") for power in powers for digit in (10, 5, 2)]


def floor(keys: int) -> float:
    """Where logarithmic scales begin: well below what each of so many keys has if all are alike.

    >>> floor(1000)
    0.0001
    """
    return 10.0 ** -(math.ceil(math.log10(max(keys, 2))) + 1)


def most(atlas: Atlas) -> float:
    """The largest mean weight of a key in a block of the coarsest level.

    Errors: as of `Atlas.tile`.
    """
    level = atlas.levels - 1
    return atlas.tile(level, 0, 0).max().item() / 2**level


# Each takes 21 MiB at most with its overview.
MOST = 16


class KeptMaps:
    """Maps of heads of whatever sources: a reading, or stored weights.

    A map goes with its source, and the one that was looked at longest ago goes first.
    """

    def __init__(self) -> None:
        self._lock, self._cache = threading.Lock(), TileCache()
        # The number of a source that has gone is never given again.
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._next = itertools.count()
        self._maps: OrderedDict[tuple[int, int, int], Atlas] = OrderedDict()

    def get(
        self, source: object, layer: int, head: int, weights: Callable[[], gh.Weights]
    ) -> Atlas:
        """The map of a head, the same for all who ask while it is kept.

        Args:
            source: What it is of; the map itself must not hold it.
            layer, head: Which head.
            weights: Gives those of the head, where there is no map of it yet.
        """
        with self._lock:
            if source not in self._numbers:
                self._numbers[source] = next(self._next)
            there = set(self._numbers.values())
            for gone in [place for place in self._maps if place[0] not in there]:
                del self._maps[gone]
            place = self._numbers[source], layer, head
            if place not in self._maps:
                self._maps[place] = Atlas(weights(), self._cache)
            self._maps.move_to_end(place)
            while len(self._maps) > MOST:
                self._maps.popitem(last=False)
            return self._maps[place]


# How finely progress is told.
_PARTS = 1000
_T = TypeVar("_T")

TOKENS = 512
"""How many tokens the page asks for at once; a request begins at a multiple of it."""


class Atlases:
    """The maps of a studio, one of each head of each text that is looked at.

    Args:
        studio: Whose model reads, or whose stored weights are shown.
    """

    def __init__(self, studio: "Studio") -> None:
        self._studio, self._maps = studio, KeptMaps()

    def opened(self, text: str | None, work: Work) -> dict[str, Any]:
        """Have a text read, and tell what there is to be seen of it.

        Args:
            text: The name of a text that was sent; of stored weights there is none.
            work: Is told how far it is.

        Returns:
            `length`: how many tokens are known, `of` how many; None where none are.
            `layers`: their names, with how many heads each has; `heads`: which of them can be
            looked at, by layer. `glued`: whether tokens bring their own spaces. `trouble`: what is
            wrong with the tokens beside stored weights.

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
        """The size of a head's map.

        Returns:
            `queries`, `keys`; `levels`, of blocks of 2^level; `coarse`: from which level on tiles
            come from the overview; `ready`: whether it is there; `finest`: the first level;
            `tops`, `floor`: where scales of colour may end, and begin; `most`: the largest mean
            weight of one key in a block of the coarsest level, None before the overview.

        Errors: as of `read`, and a `Refusal` where there is no such layer or head.
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
        """Go through the whole matrix once, so that the coarse tiles are there.

        Returns:
            `most`, as of `map`.

        Errors: as of `map`.
        """
        atlas = self.atlas(text, layer, head, work)

        def tell(share: float) -> None:
            work.tell("atlas.surveying", round(share * _PARTS), _PARTS)

        _until_left(lambda: atlas.overview(tell, lambda: work.cancelled))
        return {"most": most(atlas)}

    def tile(
        self, text: str | None, layer: int, head: int, place: tuple[int, int, int], work: Work
    ) -> Float[Tensor, "row_blocks column_blocks"]:
        """The tile at (level, row, column), as of `Atlas.tile`.

        Errors: as of `map`; a ValueError where there is no such tile; `NotYet` where it takes the
        overview.
        """
        atlas = self.atlas(text, layer, head, work)
        try:
            return _until_left(lambda: atlas.tile(*place, lambda: work.cancelled))
        except NotYetError as error:
            raise NotYet("this part of the map takes an overview: have it made first.") from error

    def tokens(self, text: str | None, start: int, stop: int, work: Work) -> dict[str, Any]:
        """How the tokens from `start` up to `stop` are written, as far as there are any.

        Errors: as of `read`.
        """
        words, _ = self._words(self._source(text, work))
        return {"tokens": [_written(word) for word in words[start:stop]]}

    def atlas(self, text: str | None, layer: int, head: int, work: Work) -> Atlas:
        """The map of a head, the same for all who ask while it is kept.

        Errors: as of `map`.
        """
        source = self._source(text, work)
        return self._maps.get(source, layer, head, lambda: _head(source, layer, head))

    def _words(self, source: "ModelPass | gh.Weights") -> tuple[tuple[str, ...], str | None]:
        """The tokens of the keys, as far as they are known; and what is wrong with stored ones."""
        if not isinstance(source, gh.Weights):
            return source.words, None
        folder = self._studio.subject.folder
        return ((), None) if folder is None else stored_tokens(folder, source.shape[-1])

    def _source(self, text: str | None, work: Work) -> "ModelPass | gh.Weights":
        if self._studio.subject.kind == "weights":
            return self._studio.subject.weights()
        if text is None:
            raise Refusal("an atlas takes the name of a text: send one.")
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
    """What a file needs to show some heads offline: the levels that so many tiles can hold.

    Args:
        atlases: What computes them.
        text: The name of the one text that the file shows.
        heads: Which of it, by layer and head.
        work: Is told how far it is.
        tiles: How many of each head at most; the coarsest one is always among them.
        size: Bytes that the tokens may take; further ones are numbers.

    Yields:
        The path, its parameters and what is answered, as the page asks: plain data, or the tensor
        of a tile.

    Errors: as of `Atlases.overview`.
    """
    told = atlases.opened(text, work)
    held = {str(layer): [head for each, head in heads if each == layer] for layer, _ in heads}
    yield "atlas/read", {}, {**told, "heads": held}
    for layer, head in heads:
        atlases.overview(text, layer, head, work)
        which = {"layer": layer, "head": head}
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
    for start in range(0, told["length"] or 0, TOKENS):
        stop = min(start + TOKENS, told["length"])
        tokens = atlases.tokens(text, start, stop, work)
        size -= sum(len(word.encode()) for word in tokens["tokens"])
        yield (
            "atlas/tokens",
            {"start": start, "stop": stop},
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
    # A head of a matrix without heads is the matrix, which its map would keep from going.
    return copy.copy(source) if not place else source.head(*place)


def _texts_and_heads(weights: gh.Weights) -> tuple[int, int]:
    """How many texts stored weights are of, and how many heads; each text stands for a layer."""
    *leading, heads = weights.shape[:-2] or (1,)
    return math.prod(leading), heads


def _until_left(work: Callable[[], _T]) -> _T:
    """What work gives; where it was left, the studio's own `Cancelled`."""
    try:
        return work()
    except Left:
        raise Cancelled from None


def _written(word: str) -> str:
    """A token with its spaces, all else of which is seen."""
    return printable(word.replace("\n", "↵").replace("<0x0A>", "↵"))

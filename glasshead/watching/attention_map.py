"""Attention maps: the weights of the patches of a picture, where they are in the picture."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glasshead.attention.joined_weights import JoinedWeights
from glasshead.attention.weights import Weights
from glasshead.drawing import Document, Drawn, Overlay, Paragraph
from glasshead.recipe.validation import whole_number

Place = int | tuple[int, int]
"""A query: its number, or the row and the column of its patch."""


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """The keys of an attention that are the patches of a picture.

    Attributes:
        places: The number of the key of each patch. Within windows the keys of a picture are
            counted window by window.
        others: The numbers of other keys, by what they are, such as "class" or "registers".
        rest: What all remaining keys are.
        windows: Into how many windows the picture is divided, each a row of the batch.
    """

    places: Int[Tensor, "rows columns"]
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rest: str = "other tokens"
    windows: int = 1

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = self.places.shape
        return rows, columns

    @classmethod
    def raster(
        cls,
        grid: tuple[int, int],
        first: int = 0,
        others: Mapping[str, Sequence[int]] | None = None,
    ) -> "ImageTokens":
        """Return patches that follow each other row by row.

        Args:
            grid: Rows and columns of patches.
            first: The number of the first patch.
            others: As of the class.
        """
        rows, columns = grid
        places = torch.arange(first, first + rows * columns).reshape(rows, columns)
        return cls(places, others or {})

    def named(self, keys: int) -> dict[str, list[int]]:
        """Return the numbers of all keys that are no patches, by what they are."""
        known = {*self.places.flatten().tolist(), *(k for ks in self.others.values() for k in ks)}
        rest = [key for key in range(keys) if key not in known]
        return {name: list(ks) for name, ks in self.others.items()} | {self.rest: rest}


Images = Sequence[Sequence[ImageTokens]]
"""The pictures of each row of a batch; of one row, where all have the same."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap(Drawn):
    """The weights of the patches of a picture: shown over it in a notebook, as PNG and as HTML.

    Attributes:
        weights: The weight of each patch.
        title: What was looked at.
        elsewhere: The weight of keys that are not patches, by kind.
        removed: The weight of the keys that were removed, before the others were scaled to sum to 1
            without them.
        picture: The picture to paint over; None: the weights alone.

    >>> import torch
    >>> import glasshead as gh
    >>> rule, x = gh.Attention(), torch.zeros(1, 2, 5, 3)       # a class token and 2 × 2 patches
    >>> with gh.watch(rule, keep="weights") as seen:
    ...     context = rule(x, x, x)
    >>> looks = seen[""].image(query=0, grid=(2, 2))
    >>> looks
    AttentionMap of 2 × 2 patches, sum 0.800: the model, query 0, mean of 2 heads
    >>> looks.weights
    tensor([[0.2000, 0.2000],
            [0.2000, 0.2000]])
    >>> print(seen[""].image(query=0, grid=(2, 2), without=[0]).removed)
    0.2...
    """

    weights: Float[Tensor, "rows columns"]
    title: str = "Attention map"
    elsewhere: Mapping[str, float] = field(default_factory=dict)
    removed: float = 0.0
    picture: Any = None

    @property
    def share(self) -> float:
        """The weight of all patches together."""
        return float(self.weights.sum())

    def on(self, picture: Any) -> "AttentionMap":
        """Return the map over a picture, as the model was given it.

        Args:
            picture: See `glasshead.drawing.Overlay`.

        Errors: a TypeError or ValueError if it is not a picture.
        """
        Overlay([[0.0]], picture)
        return replace(self, picture=picture)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write a picture, .png, or a page, .html.

        Errors: a ValueError for another ending, an OSError if it cannot be written; then an
        older file is left unchanged.
        """
        from glasshead.files import whole_file

        ending = Path(file).suffix.lower()
        if ending not in (".png", ".html"):
            raise ValueError(f"save needs a file named .png or .html, got {str(file)!r}.")
        content = self.overlay.png() if ending == ".png" else self.html().encode()
        with whole_file(Path(file)) as temporary:
            Path(temporary).write_bytes(content)

    @property
    def overlay(self) -> Overlay:
        """The map as a block of a document."""
        return Overlay(self.weights, self.picture)

    def document(self) -> Document:
        shares = {"patches": self.share} | dict(self.elsewhere)
        shown = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
        blocks = [self.overlay, Paragraph(f"Sums by kind of key: {shown}.")]
        if self.removed:
            blocks.append(
                Paragraph(f"Removed were keys of {self.removed:.3f}; the others sum to 1.")
            )
        return Document(blocks, title=self.title)

    def __repr__(self) -> str:
        rows, columns = self.weights.shape
        return f"AttentionMap of {rows} × {columns} patches, sum {self.share:.3f}: {self.title}"


def tokens_of(
    name: str,
    text: Sequence[Any],
    batch: int,
    image: int,
    grid: tuple[int, int] | None,
) -> ImageTokens:
    """Return which keys of a text are the patches of a picture.

    Args:
        name: Name of the attention, for errors.
        text: The calls of the text.
        batch, image: The numbers of the text, and of the picture within it.
        grid: Rows and columns of patches that are its last keys; None: what is known of it.

    Errors: a ValueError if they are not known.
    """
    if grid is not None:
        rows, columns = (whole_number(side, "grid", least=1) for side in grid)
        first = text[-1].keys - rows * columns
        if first < 0:
            raise ValueError(
                f"grid must have at most the {text[-1].keys} keys of {name!r}, but {rows} × "
                f"{columns} patches are {rows * columns}. Use its own."
            )
        return ImageTokens.raster((rows, columns), first)
    known = next((call.images for call in text if call.images is not None), None)
    if known is None or isinstance(known, str):
        why = known or "nothing says where a picture is"
        raise ValueError(
            f"image needs attention whose keys are the patches of a picture, but of {name!r} "
            f"{why}. Give grid=(rows, columns) if they are the last keys, or use another layer."
        )
    own = known[0] if len(known) == 1 else known[min(batch, len(known) - 1)]
    if whole_number(image, "image") >= len(own):
        raise ValueError(
            f"image must be a picture of the {len(own)} that text {batch} has, counted from 0, "
            f"got {image}. Use another."
        )
    return own[image]


@dataclass(frozen=True)
class MapChoice:
    """The weights that a map shows.

    Attributes:
        query: A query, several, whose rows are averaged, or None for all.
        heads: Heads to average; None: all.
        batch: The number of the text or picture in the batch.
        image: The number of the picture, where the text has several.
        without: Keys to remove, by number or by what they are.
        sinks: Also remove keys that receive more than this of the weight of the mean query.
    """

    query: Place | Sequence[Place] | None = None
    heads: Sequence[int] | None = None
    batch: int = 0
    image: int = 0
    without: str | Sequence[int | str] = ()
    sinks: float | None = None


@torch.no_grad()
def attention_map(
    name: str,
    W: Weights | JoinedWeights,
    tokens: ImageTokens,
    choice: MapChoice,
    real: Tensor | None = None,
    *,
    crossing: bool = False,
) -> AttentionMap:
    """Compute the weights of a query, or the mean one, on the patches of a picture.

    Args:
        name: Name of the attention, for the title and errors.
        W: Its lazy weights, of which rows and one product with a vector are computed.
        tokens: Which keys are patches.
        choice: Which weights.
        real: Which queries of that row of the batch are no padding.
        crossing: Whether its queries are no patches.
    """
    heads = _heads(choice.heads, W, name)
    rows = list(_rows(W, choice.batch, tokens.windows, name))
    keys = W.shape[-1]
    queries = _queries(choice.query, W, tokens, name, crossing=crossing)
    if queries is None:
        shares = _shares(tokens, W.shape[-2], real)
        values = _received(W, rows, heads, shares)
    else:
        values = _looked(W, rows, heads, queries)
    named = tokens.named(len(rows) * keys)
    gone = _removed_keys(choice.without, named, len(values), name)
    if choice.sinks is not None:
        received = values
        if queries is not None:
            received = _received(W, rows, heads, _shares(tokens, W.shape[-2], real))
        gone += (received > choice.sinks).nonzero()[:, 0].tolist()
    removed = 0.0
    if gone:
        places = torch.tensor(sorted({*gone}), device=values.device)
        removed = float(values[places].sum())
        values = values.index_fill(0, places, 0.0)
        values = values / values.sum().clamp(min=torch.finfo(values.dtype).tiny)
    shown = "mean of all queries" if choice.query is None else f"query {choice.query}"
    of_heads = f"mean of {len(heads)} heads" if len(heads) > 1 else f"head {heads[0]}"
    title = ", ".join([name or "the model", shown, *([of_heads] if _has_heads(W) else [])])
    return placed(values, tokens, title=title, removed=removed)


def placed(
    values: Float[Tensor, " keys"], tokens: ImageTokens, *, title: str, removed: float = 0.0
) -> AttentionMap:
    """Return a number for each key as a map."""
    named = tokens.named(len(values))
    elsewhere = {name: float(values[keys].sum()) for name, keys in named.items() if keys}
    weights = values[tokens.places.to(values.device)].cpu()
    return AttentionMap(weights, title, elsewhere, removed)


def _has_heads(W: Weights | JoinedWeights) -> bool:
    return len(W.shape) > 3


def _heads(heads: Sequence[int] | None, W: Weights | JoinedWeights, name: str) -> list[int]:
    count = W.shape[-3] if _has_heads(W) else 1
    if heads is None:
        return list(range(count))
    if not isinstance(heads, list | tuple | range) or not heads:
        raise TypeError(f"heads must be a list of heads such as [0, 3], got {heads!r}.")
    numbers = [whole_number(head, "heads") for head in heads]
    if max(numbers) >= count:
        raise ValueError(
            f"heads must be heads that are there, but {name!r} has {count}, counted from 0, and "
            f"not {max(numbers)}. Name others."
        )
    return numbers


def _rows(
    W: Weights | JoinedWeights, batch: int, windows: int, name: str
) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a picture's windows along the axes before the heads."""
    leading = W.shape[:-3] if _has_heads(W) else W.shape[:-2]
    count = leading.numel() // windows
    batch = whole_number(batch, "batch")
    if batch >= count:
        raise ValueError(
            f"batch must be a row of the {count} that {name!r} was given, got {batch}. Count them "
            "from 0."
        )
    places = torch.arange(count * windows).reshape(leading)
    for row in range(batch * windows, (batch + 1) * windows):
        yield tuple((places == row).nonzero()[0].tolist())


def _queries(
    query: Any,
    W: Weights | JoinedWeights,
    tokens: ImageTokens,
    name: str,
    *,
    crossing: bool,
) -> list[int] | None:
    """Return the numbers of the queries of a picture, counted window by window.

    Errors: a TypeError or ValueError if one is not there.
    """
    if query is None:
        return None
    several = query if isinstance(query, list | range) else [query]
    if not several:
        raise ValueError("query must name at least one query, or None for all, got none.")
    return [_query(one, W.shape[-2], tokens, name, crossing=crossing) for one in several]


def _query(one: Any, count: int, tokens: ImageTokens, name: str, *, crossing: bool) -> int:
    rows, columns = tokens.grid
    if isinstance(one, tuple):
        if len(one) != 2:
            raise TypeError(f"query must be a number or (row, column), got {one!r}.")
        if crossing:
            raise ValueError(
                f"query must be a number, and not (row, column), as the queries of {name!r} are "
                "not patches. Count them from 0."
            )
        row, column = (whole_number(place, "query") for place in one)
        if row >= rows or column >= columns:
            raise ValueError(
                f"query must be a patch of the {rows} × {columns} that there are, got {one}."
            )
        return int(tokens.places[row, column])
    place = whole_number(one, "query", least=None)
    if tokens.windows > 1:
        raise ValueError(
            f"query must be (row, column) if attention is by windows, as in {name!r}, got {one}. "
            f"Name a patch of the {rows} × {columns}."
        )
    if not -count <= place < count:
        raise ValueError(f"query must be one of the {count} of {name!r}, got {one}.")
    return place % count


def _shares(
    tokens: ImageTokens, queries: int, real: Tensor | None
) -> Float[Tensor, "windows queries"]:
    """Return the share of each query in the mean query: none of padding."""
    shares = torch.ones(tokens.windows * queries, dtype=torch.double)
    if tokens.windows > 1:
        # Windows at the edge hold patches that are none.
        shares.zero_()[tokens.places.flatten()] = 1.0
    elif real is not None:
        shares[~real.cpu()] = 0.0
    return (shares / shares.sum()).reshape(tokens.windows, queries)


def _received(
    W: Weights | JoinedWeights,
    rows: Sequence[tuple[int, ...]],
    heads: Sequence[int],
    shares: Float[Tensor, "windows queries"],
) -> Float[Tensor, " keys"]:
    """Return the mean over heads of the weight that each key receives, by `W.T @ shares`."""
    parts = []
    for row, own in zip(rows, shares, strict=True):
        left = own[:, None].to(W.device, W.dtype)
        sums = [(_head(W, row, head).T @ left)[:, 0] for head in heads]
        parts.append(torch.stack(sums).mean(0))
    return torch.cat(parts)


def _looked(
    W: Weights | JoinedWeights,
    rows: Sequence[tuple[int, ...]],
    heads: Sequence[int],
    queries: Sequence[int],
) -> Float[Tensor, " keys"]:
    """Return the mean of the rows of some queries, over heads."""
    count, keys = W.shape[-2:]
    values = torch.zeros(len(rows) * keys, dtype=W.dtype, device=W.device)
    for query in queries:
        window, place = divmod(query, count)
        tiles = [
            _head(W, rows[window], head).tile(range(place, place + 1), range(keys))[0]
            for head in heads
        ]
        values[window * keys : (window + 1) * keys] += torch.stack(tiles).mean(0)
    return values / len(queries)


def _head(W: Weights | JoinedWeights, row: tuple[int, ...], head: int) -> Weights | JoinedWeights:
    return W.head(*row, head) if _has_heads(W) else W.head(*row)


def _removed_keys(without: Any, named: Mapping[str, list[int]], keys: int, name: str) -> list[int]:
    """Return the numbers of the keys to remove.

    Errors: a TypeError or ValueError for one that is not there.
    """
    given = [without] if isinstance(without, str) else without
    if not isinstance(given, list | tuple | range):
        raise TypeError(
            "without must be keys by number or by what they are, such as ['class'], got "
            f"{without!r}."
        )
    gone: list[int] = []
    for one in given:
        if not isinstance(one, str):
            key = whole_number(one, "without")
            if key >= keys:
                raise ValueError(f"without must name keys of the {keys} of {name!r}, got {key}.")
            gone.append(key)
        elif named.get(one):
            gone += named[one]
        else:
            kinds = ", ".join(repr(kind) for kind, ks in named.items() if ks) or "none but patches"
            raise ValueError(f"without must name kinds of keys of {name!r} ({kinds}), got {one!r}.")
    return gone

"""Recognition of structured masks in dense ones, and the Python code that builds them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from glasshead.diagnosis.axes import Case, InferredAxes
from glasshead.diagnosis.mask_input import Meaning, RowSummary, most_frequent, stretches
from glasshead.recipe import masks
from glasshead.recipe.masks import Mask
from glasshead.recipe.tile import Tile


@dataclass(frozen=True, eq=False)
class Structure:
    """Structured mask, with the Python code that builds it.

    Attributes:
        mask: The rule.
        line: Python that makes it; empty if that would be too long.
        kinds: The kinds of its parts, such as {"causal", "padding"}.
    """

    mask: Mask
    line: str
    kinds: frozenset[str] = frozenset()

    def __and__(self, other: "Structure") -> "Structure":
        lines = [f"({line})" if " | " in line else line for line in (self.line, other.line)]
        line = " & ".join(lines) if all(lines) else ""
        return Structure(self.mask & other.mask, line, self.kinds | other.kinds)

    def __or__(self, other: "Structure") -> "Structure":
        lines = [self.line, other.line]
        line = " | ".join(lines) if all(lines) else ""
        return Structure(self.mask | other.mask, line, self.kinds | other.kinds)


def equals(mask: Mask, visible: Bool[Tensor, "*leading queries keys"], offset: int) -> bool:
    """Return whether a mask shows exactly these pairs, comparing some rows at a time."""
    keys = range(visible.shape[-1])
    for rows in stretches(visible):
        tile = Tile(rows, keys, offset, headed=visible.ndim != 3, device=visible.device)
        part = visible[..., rows.start : rows.stop, :]
        if not bool((fitted(mask.visible(tile), part.ndim) == part).all()):
            return False
    return True


def fitted(cells: Bool[Tensor, "..."], axes: int) -> Bool[Tensor, "..."]:
    """Remove leading axes of size 1 until cells have `axes` axes."""
    while cells.ndim > axes and cells.shape[0] == 1:
        cells = cells[0]
    if cells.ndim > axes and cells.shape[-3] == 1:
        cells = cells.squeeze(-3)
    return cells


def same_throughout(numbers: Tensor) -> bool:
    """Return whether all rows of `[*leading, n]` are alike."""
    flat = numbers.reshape(-1, numbers.shape[-1])
    return bool((flat == flat[:1]).all())


def of_each_row(numbers: Tensor, axes: int) -> Tensor | None:
    """Reduce one number per leading axis to one per batch row, or None if heads differ.

    Of a mask of three axes, nobody knows whether the first is the batch's or the heads'.
    """
    if bool((numbers == numbers.reshape(-1)[0]).all()):
        return numbers.reshape(-1)[0]
    if axes < 4:
        return numbers if axes == 2 else None
    if not bool((numbers == numbers[..., :1]).all()):
        return None
    return numbers[..., 0]


def band_without_padding(case: Case) -> Structure | None:
    """Propose the band that would be seen if no key were padding, not compared yet.

    None if all queries see the same keys, and where the ends follow no diagonal.
    """
    if case.uniform:
        return None
    union = case.visible.reshape(-1, case.queries, case.keys).any(0)
    rows = RowSummary.of(union)
    seen = union.any(0).nonzero()
    if not len(seen):
        return None
    lowest, highest = int(seen[0]), int(seen[-1])
    queries = torch.arange(case.queries, device=union.device)
    last, first = (
        most_frequent(lags)[0] if len(lags) else None
        for lags in (
            (rows.last - queries)[rows.alive & (rows.last < highest)],
            (rows.first - queries)[rows.alive & (rows.first > lowest)],
        )
    )
    if last is None and first is None:
        return None
    return named(
        before=None if first is None else case.layout.position - first,
        after=None if last is None else last - case.layout.position,
        position=case.layout.position,
    )


def named(before: int | None, after: int | None, position: int) -> Structure:
    """Build the band with these keys before and after each query's own, in the shortest code."""
    if after is None or (after >= 0 and before is not None and before >= 0):
        if before is not None and before < 0:
            return _window(0, after, position - before)
        return _window(before, after)
    # A band that is shifted as a whole has an offset of its own.
    offset = None if after == 0 else position + after
    if before is None:
        line = "gh.causal()" if offset is None else f"gh.causal(offset={offset})"
        return Structure(masks.causal(offset), line, frozenset({"causal"}))
    return _window(max(before + after, 0), 0, offset)


def _window(before: int | None, after: int | None, offset: int | None = None) -> Structure:
    arguments = [f"before={before}"]
    arguments += [] if after == 0 else [f"after={after}"]
    arguments += [] if offset is None else [f"offset={offset}"]
    kinds = {"causal", "window"} if after == 0 else {"window"}
    return Structure(
        masks.window(before, after, offset), f"gh.window({', '.join(arguments)})", frozenset(kinds)
    )


# With more documents, no line of code is written.
_MOST = 16


def packed(case: Case) -> Structure | None:
    """Propose the documents of a packed sequence whose queries are its keys, not compared yet.

    The first key that a query sees names its document. None if batch rows differ.
    """
    if case.queries != case.keys or case.layout.position != 0 or not bool(case.rows.alive.any()):
        return None
    firsts = case.rows.first
    if not same_throughout(firsts):
        return None
    ids = firsts.reshape(-1, case.keys)[0]
    _, numbered = ids.unique(return_inverse=True)
    line = _code_line(numbered)
    if line is None:
        return None
    return Structure(masks.documents(numbered.cpu()), line, frozenset({"documents"}))


def _code_line(ids: Tensor) -> str | None:
    if len(ids) <= _MOST:
        return f"gh.documents({ids.tolist()})"
    runs, lengths = ids.unique_consecutive(return_counts=True)
    if len(runs) > _MOST or not torch.equal(runs, torch.arange(len(runs), device=runs.device)):
        return None
    return (
        f"gh.documents(torch.arange({len(runs)}).repeat_interleave("
        f"torch.tensor({lengths.tolist()})))"
    )


# With more batch rows, no line of code is written.
_MOST_ROWS = 256


def padded(case: Case) -> Structure | None:
    """Propose a padding mask from the keys that no query sees, not compared yet.

    None if there is none, where keys in the middle are hidden, or heads differ.
    """
    axes = 2 if case.layout.by_key else len(case.layout.shape)
    starts, stops = ends(case.seen)
    first, last = of_each_row(starts, axes), of_each_row(stops, axes)
    if first is None or last is None or first.numel() > _MOST_ROWS or last.numel() > _MOST_ROWS:
        return None
    parts = []
    if bool((last < case.keys).any()):
        parts.append(Structure(masks.padding(last.cpu()), f"gh.padding({_written(last)})", _KINDS))
    if bool((first > 0).any()):
        parts.append(
            Structure(~masks.padding(first.cpu()), f"~gh.padding({_written(first)})", _KINDS)
        )
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] & parts[1]


def ends(seen: Bool[Tensor, "*leading keys"]) -> tuple[Tensor, Tensor]:
    """Return the first key that is seen, and the one after the last; 0 and 0 if none is."""
    keys = torch.arange(seen.shape[-1], device=seen.device)
    none = ~seen.any(-1)
    starts = keys.where(seen, seen.shape[-1]).amin(-1).masked_fill(none, 0)
    return starts, (keys + 1).where(seen, 0).amax(-1)


def _written(numbers: Tensor) -> str:
    return str(torch.atleast_1d(numbers).tolist() if numbers.ndim else int(numbers))


_KINDS = frozenset({"padding"})


def prefixed(case: Case) -> Structure | None:
    """Propose a causal mask joined with a prefix, not compared yet.

    Query 0 sees the prefix alone. None if heads differ.
    """
    if case.uniform or case.queries < 2:
        return None
    lengths = of_each_row(
        (case.rows.last[..., 0] + 1) * case.rows.alive[..., 0], len(case.layout.shape)
    )
    if lengths is None or lengths.numel() > _MOST_ROWS:
        return None
    base = named(None, 0, case.layout.position)
    line = f"gh.prefix({lengths.tolist()})"
    return base | Structure(masks.prefix(lengths.cpu()), line, frozenset({"prefix"}))


# Of a block, at the least.
_PICTURE = 3


def with_blocks(case: Case, base: Structure) -> Structure | None:
    """Propose a causal mask whose neighbors in a block see each other too, not compared yet.

    The last key that a query sees names its block. A few leaked cells look the same: so each part
    of a block has two tokens or more, and some block has three. None if heads differ.
    """
    if case.queries != case.keys or case.layout.position != 0:
        return None
    own = torch.arange(case.keys, device=case.visible.device)
    ids = torch.where(case.real, case.rows.last, own)
    if same_throughout(ids):
        ids = ids.reshape(-1, case.keys)[0]
    elif ids.ndim == 3 and bool((ids == ids[:, :1]).all()):
        ids = ids[:, 0]
    else:
        return None
    counts = torch.zeros_like(ids).scatter_add(-1, ids, torch.ones_like(ids))
    size, adjacent = counts.gather(-1, ids), ids[..., 1:] == ids[..., :-1]
    alone = ~(F.pad(adjacent, (1, 0)) | F.pad(adjacent, (0, 1)))
    if int(size.max()) < _PICTURE or bool((alone & (size > 1)).any()):
        return None
    numbered = ids.unique(return_inverse=True)[1].cpu()
    line = _code_line(numbered) if ids.ndim == 1 else None
    return base | Structure(masks.documents(numbered), line or "", frozenset({"blocks"}))


def recognize(case: Case) -> Structure | None:
    """Return the structured mask that shows exactly these pairs, or None."""
    for structure in _candidates(case):
        if equals(structure.mask, case.visible, case.layout.position):
            return structure
    return None


def reads_as_a_rule(inferred: InferredAxes, meaning: Meaning) -> bool:
    """Return whether a mask, in this reading, equals a structured mask that varies by query.

    Where all queries see the same keys, either reading is: padding on one side or the other.
    """
    if meaning.visible is None:
        return False
    case = Case(inferred, meaning, inferred.layout.pairs(meaning.visible))
    if case.uniform:
        return False
    structure = recognize(case)
    # Seeing all but the past is a causal mask inverted.
    return structure is not None and "after=None" not in structure.line


def _candidates(case: Case) -> Iterator[Structure]:
    """Yield candidate structures, simple ones first."""
    diagonal, cut = band_without_padding(case), padded(case)
    yield from (one for one in (diagonal, cut) if one is not None)
    if diagonal is not None and cut is not None:
        yield diagonal & cut
    if case.uniform:
        return
    for joined in (prefixed(case), None if diagonal is None else with_blocks(case, diagonal)):
        if joined is not None:
            yield from (joined,) if cut is None else (joined, joined & cut)
    apart = packed(case)
    if apart is None:
        return
    yield apart
    for other in (diagonal, cut):
        if other is not None:
            yield apart & other
    if case.edge is not None and case.edge.lag == case.layout.position:
        yield apart & named(None, 0, case.layout.position)


@dataclass(frozen=True, eq=False)
class Conversion:
    """Conversion of a mask to glasshead.

    Attributes:
        mask: The mask.
        bias: The finite numbers that are added to the scores, or None if all are 0.
        line: Python that makes it of `mask`.
        sdpa: Python that gives it to torch's `scaled_dot_product_attention`, where that takes it in
            another form than the input, or None.
    """

    mask: Mask
    bias: Float[Tensor, "..."] | None
    line: str
    sdpa: str | None = None


def conversion(case: Case, structure: Structure | None) -> Conversion:
    """Convert a mask of known meaning: to the structure that it equals, or cell by cell."""
    visible, bias = case.meaning.visible, _bias(case)
    if visible is None:
        raise ValueError("a mask must have a known meaning to be converted, got none.")
    sdpa = _sdpa(case, structure, bias)
    if bias is not None:
        line = f"mask, bias = gh.from_additive({_with_infinities(case)})"
        return Conversion(masks.dense(_axes(case, visible)), _axes(case, bias), line, sdpa)
    if structure is not None and structure.line:
        return Conversion(structure.mask, None, f"mask = {structure.line}", sdpa)
    if not case.layout.by_key:
        return Conversion(masks.dense(visible), None, _line(case), sdpa)
    rows = visible if visible.ndim > 1 else visible[None]
    mask, _ = masks.from_huggingface(rows.expand(-1, case.keys))
    if mask is None:
        raise ValueError("a mask by key has no conversion.")
    return Conversion(mask, None, _line_by_key(case), sdpa)


def _bias(case: Case) -> Tensor | None:
    """Return the finite numbers that are added, in the mask's own axes; None if all are 0."""
    hiding, values = case.meaning.hiding, case.inferred.given.values
    if hiding is None:
        return None
    values = values if values.is_floating_point() else values.float()
    bias = values.masked_fill(hiding.cells, 0.0)
    return bias if bool(bias.any()) else None


def _axes(case: Case, values: Tensor) -> Tensor:
    """Add axes to the values of a mask by key, so that they broadcast to the scores."""
    if not case.layout.by_key:
        return values
    return values[:, None, None, :] if values.ndim > 1 else values[None, :]


def _with_axes(case: Case, line: str) -> str:
    """Write Python code that adds the axes which `_axes` adds."""
    if not case.layout.by_key:
        return line
    line = f"({line})" if line[0] == "~" or line.endswith("== 0") else line
    return f"{line}[:, None, None, :]" if len(case.layout.shape) > 1 else f"{line}[None, :]"


def _line(case: Case) -> str:
    """Write Python code that converts a mask whose last two axes are queries and keys."""
    given, hiding = case.inferred.given, case.meaning.hiding
    if hiding is None:
        return f"mask = gh.dense({_shown(case)})"
    if given.values.ndim == 4 and hiding.large is None:
        return f"mask, _ = gh.from_huggingface({given.source})"
    return f"mask = gh.dense({given.source} == 0)"


def _line_by_key(case: Case) -> str:
    source, values = case.inferred.given.source, case.inferred.given.values
    rows = source if values.ndim > 1 else f"{source}[None]"
    if values.shape[-1] < case.keys:
        rows = f"{rows}.expand(-1, {case.keys})"
    if case.meaning.hiding is not None:
        return f"mask, _ = gh.from_huggingface({rows} == 0)"
    if case.meaning.shows:
        return f"mask, _ = gh.from_huggingface({rows})"
    hidden = rows if values.dtype == torch.bool else f"{rows}.bool()"
    return f"mask, _ = gh.from_torch_mha(key_padding_mask={hidden})"


def _shown(case: Case) -> str:
    """Write Python code for which cells are visible, of a mask of two values."""
    source, boolean = case.inferred.given.source, case.inferred.given.values.dtype == torch.bool
    if case.meaning.shows:
        return source if boolean else f"{source}.bool()"
    return f"~{source}" if boolean else f"{source} == 0"


def _with_infinities(case: Case) -> str:
    """Write Python code for an additive mask that hides by -inf alone."""
    source, hiding = case.inferred.given.source, case.meaning.hiding
    floats = source if case.inferred.given.values.is_floating_point() else f"{source}.float()"
    if hiding is None or not (hiding.lowest or hiding.large is not None):
        return _with_axes(case, floats)
    low = f"{source} == torch.finfo({source}.dtype).min"
    if hiding.large is not None:
        low = f"{source} <= {hiding.large!r}"
    return _with_axes(case, f"{floats}.masked_fill({low}, -torch.inf)")


def _sdpa(case: Case, structure: Structure | None, bias: Tensor | None) -> str | None:
    hiding = case.meaning.hiding
    if bias is None and _is_causal(case, structure):
        return _called("is_causal=True")
    if hiding is not None and hiding.large is None:
        # SDPA takes floats of the inputs' dtype, and a tensor's is likely that.
        as_it_is = case.inferred.given.source == "mask" and not case.layout.by_key
        given = _with_axes(case, case.inferred.given.source)
        return None if as_it_is else _called(f"attn_mask={given}.to(query.dtype)")
    if bias is not None:
        return _called(f"attn_mask={_with_infinities(case)}.to(query.dtype)")
    shown = _shown(case) if hiding is None else f"{case.inferred.given.source} == 0"
    shown = _with_axes(case, shown)
    return None if shown == "mask" else _called(f"attn_mask={shown}")


def _is_causal(case: Case, structure: Structure | None) -> bool:
    """Return whether the structure is what torch calls causal, which begins at the top left."""
    square = case.queries == case.keys and case.layout.position == 0
    return square and structure is not None and structure.line == "gh.causal()"


def _called(argument: str) -> str:
    return f"F.scaled_dot_product_attention(query, key, value, {argument})"

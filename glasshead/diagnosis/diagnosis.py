"""The diagnosis of a mask: find what it means and what is wrong with it, and report that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, overload

from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.diagnosis import findings as checks
from glasshead.diagnosis.axes import AxisHints, Case, InferredAxes, infer_axes
from glasshead.diagnosis.conventions import DESCRIBED, STATED, meaning
from glasshead.diagnosis.conversion import Conversion, conversion, recognize
from glasshead.diagnosis.mask_input import (
    MOST_PAIRS,
    SEVERITIES,
    Finding,
    Layout,
    MaskInput,
    Meaning,
    marks_of,
    read,
)
from glasshead.diagnosis.mask_map import MaskMap, Verdict, cells_of
from glasshead.diagnosis.number_findings import numbers
from glasshead.drawing import Block, Document, Drawn, Heading, Paragraph
from glasshead.drawing.code import Code
from glasshead.message import Message
from glasshead.recipe.masks import Mask
from glasshead.recipe.masks.base import picture
from glasshead.recipe.tile import Tile
from glasshead.recipe.validation import whole_number

if TYPE_CHECKING:
    import numpy as np
    from torch.nn.attention.flex_attention import BlockMask

# The width that fits the narrowest report, with its margin.
_WIDTH = 16


@dataclass(frozen=True)
class Preview:
    """Content of a report: what it says and draws of a mask.

    Attributes:
        subject: Its type and shape in words.
        picture: The picture, with its legend.
    """

    subject: str
    picture: MaskMap

    @property
    def drawing(self) -> str:
        """The picture as text."""
        return self.picture.drawing

    @property
    def legend(self) -> str:
        """The legend of the picture as text."""
        return self.picture.legend


def preview(
    inferred: InferredAxes,
    cells: Bool[Tensor, "..."],
    findings: tuple[Finding, ...],
    *,
    decided: bool,
) -> Preview:
    """Build the preview of the batch row and head with the first finding, else of the first.

    Args:
        inferred: The mask.
        cells: The cells to draw, in the mask's own axes: visible cells, or True ones.
        findings: The findings.
        decided: Whether the cells are the visible ones.
    """
    layout = inferred.layout
    shown, hidden = Message("other than 0"), "0"
    if decided:
        shown, hidden = Message("visible"), Message("hidden")
    values = inferred.given.values
    subject = f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
    if layout.by_key:
        shown_cells = cells.reshape(-1, cells.shape[-1])
        index, row = (), Message("batch row")
        axes = Message("one row per batch row, one column per key")
    else:
        row = Message("query")
        leading = len(layout.leading)
        place = next((finding.where[0] for finding in findings if finding.where), ())
        index = place[:leading] if len(place) >= leading else (0,) * leading
        shown_cells = cells[index]
        axes = Message("one row per query, one column per key")
        if index:
            axes = Message("{axes}, of {where}", axes=axes, where=layout.describe(index))
    found = [place[len(index) :] for one in findings for place in one.where]
    found = [(place[0], place[1]) for place in found if len(place) == 2 and not layout.by_key]
    return Preview(
        subject,
        MaskMap(
            _drawn(shown_cells),
            Message("■ {shown}, · {hidden}; {axes}", shown=shown, hidden=hidden, axes=axes),
            cells_of(shown_cells, tuple(dict.fromkeys(found))),
            row,
            Message("key"),
            shown,
            hidden,
            Message("a row that sees no key") if decided else "",
            Message("cells of a finding"),
        ),
    )


def _drawn(cells: Bool[Tensor, "rows columns"]) -> str:
    rows, columns = cells.shape
    tile = Tile(range(rows), range(columns), device=cells.device)
    return picture(lambda part: part.cut(cells), tile, 0, _WIDTH)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Drawn):
    """Diagnosis of a mask: its meaning, its faults, and its conversion.

    Print it for a short report; a notebook shows it by itself, and `html()` is a page of its own.

    Attributes:
        convention: "attend", "hidden", "additive", "tokenizer" or "multiplicative", or None if
            it could not be decided.
        findings: The findings, errors first.
        mask: The equivalent glasshead mask, or None if that could not be decided.
        bias: The finite numbers to add to the scores, or None if there are none.
        conversion: A line of Python that converts the input, called `mask`, to `mask`, and `bias`
            if any; None if there is no mask.
        sdpa: A line that calls torch's `scaled_dot_product_attention`, if that takes another form
            than the input.
        portrait: The preview: dtype, shape and drawing.

    >>> import torch
    >>> import glasshead as gh
    >>> hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    >>> diagnosis = gh.diagnose(hidden)
    >>> diagnosis.convention, diagnosis.healthy, diagnosis.conversion
    ('hidden', True, 'mask = gh.causal()')
    """

    convention: str | None
    findings: tuple[Finding, ...]
    mask: Mask | None
    bias: Float[Tensor, "..."] | None
    conversion: str | None
    sdpa: str | None
    portrait: Preview

    @property
    def healthy(self) -> bool:
        """Return whether there is neither an error nor a warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def document(self) -> Document:
        severities = [finding.severity for finding in self.findings]
        faults = [
            checks.counted(severities.count(severity), severity)
            for severity in ("error", "warning")
            if severity in severities
        ]
        title = Message("A healthy mask")
        if faults:
            title = Message("A mask with {faults}", faults=Message.joined(" + ", faults))
        return Document(list(self._blocks()), title=title)

    def _blocks(self) -> Iterator[Block]:
        name = self.convention
        named = (
            Message("undecided")
            if name is None
            else Message("{name} ({meaning})", name=name, meaning=Message(DESCRIBED[name]))
        )
        yield Paragraph(
            Message("{subject}. Convention: {named}.", subject=self.portrait.subject, named=named)
        )
        yield self.portrait.picture
        for finding in self.findings:
            word = Message(finding.severity.upper())
            yield Verdict(
                finding.severity,
                word,
                finding.kind,
                finding.sentence,
                Message(
                    "{upper} {kind}: {sentence}",
                    upper=word,
                    kind=finding.kind,
                    sentence=finding.sentence,
                ),
            )
        if self.conversion is not None:
            yield Heading(Message("How to convert it"))
            yield Code("\n".join(line for line in (self.conversion, self.sdpa) if line))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        kinds = ", ".join(finding.kind for finding in self.findings) or "none"
        return (
            f"Diagnosis(convention={self.convention!r}, healthy={self.healthy}, findings={kinds})"
        )


_EXAMINATIONS = (
    checks.empty_rows,
    checks.inverted,
    checks.future,
    checks.alignment,
    checks.padding,
)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnoses(Mapping[str, Diagnosis], Drawn):
    """The diagnoses of several masks, by name.

    Attributes:
        each: The diagnosis of each mask.

    >>> import torch
    >>> import glasshead as gh
    >>> full = torch.full((5, 5), -torch.inf)
    >>> found = gh.diagnose({"full_attention": full.triu(1), "sliding_attention": full.tril(-1)})
    >>> found
    Diagnoses(full_attention: healthy, sliding_attention: polarity)
    >>> found.healthy, found["full_attention"].conversion
    (False, 'mask = gh.causal()')
    """

    each: Mapping[str, Diagnosis]

    def __getitem__(self, name: str) -> Diagnosis:
        return self.each[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    @property
    def healthy(self) -> bool:
        """Return whether no mask has an error or a warning."""
        return all(one.healthy for one in self.each.values())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of all masks, errors first."""
        every = (finding for one in self.each.values() for finding in one.findings)
        return tuple(sorted(every, key=lambda finding: SEVERITIES.index(finding.severity)))

    def document(self) -> Document:
        blocks: list[Block] = []
        for name, one in self.each.items():
            document = one.document()
            blocks += [Heading(f"{name}: {document.title}"), *document.blocks]
        return Document(blocks, title=Message("Masks by name"))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        kinds = (
            f"{name}: {', '.join(finding.kind for finding in one.findings) or 'healthy'}"
            for name, one in self.each.items()
        )
        return f"Diagnoses({', '.join(kinds)})"


def _each(masks: Mapping[str, Any], *stated: Any) -> Diagnoses:
    """Diagnose the masks of a dict; those that are None hide nothing, and are left out."""
    queries, keys, convention, offset = stated
    found = {
        str(name): diagnose(mask, queries=queries, keys=keys, convention=convention, offset=offset)
        for name, mask in masks.items()
        if mask is not None
    }
    if not found:
        raise ValueError(
            Message(
                "diagnose(mask) must have a mask in its dict, got {names}, each None. Load a "
                "Hugging Face model with attn_implementation='eager', which makes its masks.",
                names=Message.joined(", ", [repr(name) for name in masks]) if masks else "{}",
            )
        )
    return Diagnoses(found)


@overload
def diagnose(
    mask: Mapping[str, Any],
    *,
    queries: int | None = None,
    keys: int | None = None,
    convention: str | None = None,
    offset: int | None = None,
) -> Diagnoses: ...
@overload
def diagnose(
    mask: "Tensor | np.ndarray | Sequence[Any] | Mask | BlockMask",
    *,
    queries: int | None = None,
    keys: int | None = None,
    convention: str | None = None,
    offset: int | None = None,
) -> Diagnosis: ...
def diagnose(
    mask: Any,
    *,
    queries: int | None = None,
    keys: int | None = None,
    convention: str | None = None,
    offset: int | None = None,
) -> Diagnosis | Diagnoses:
    """Diagnose an attention mask written for any library, and report what is wrong with it.

    Every cell is examined, in the memory of a few copies of the mask.

    Args:
        mask: A tensor, an array or nested lists: `[keys]`, `[batch, keys]`, `[queries, keys]`,
            `[batch * heads, queries, keys]` or `[batch, heads, queries, keys]`; FlexAttention's
            `BlockMask`; a glasshead mask, which needs `queries` and `keys`; or a dict of masks by
            name, as transformers makes one for each kind of layer.
        queries: The number of queries of the attention; the mask's if not given.
        keys: The number of keys of the attention; the mask's if not given.
        convention: The meaning of the numbers, if known, to be checked instead of guessed:
            "attend" (True = may attend: SDPA, ONNX, Keras, glasshead), "hidden" (True = hidden:
            torch.nn.MultiheadAttention), "additive" (floats to be added, -inf hides) or
            "tokenizer" (`[batch, keys]` of 1 = real and 0 = padding).
        offset: The position of query 0 among the keys; keys - queries if not given.

    Returns:
        Its meaning, the findings, and the equivalent glasshead mask; of a dict, the `Diagnoses` by
        name.

    Errors: a TypeError for anything but a mask, or numbers that are not integers; a ValueError for
    an unknown convention, ragged lists, a mask without cells, one that is spread over more than
    2^30 pairs, or a glasshead mask without its size.

    >>> import torch
    >>> import glasshead as gh
    >>> mask = torch.ones(5, 5, dtype=torch.bool).tril()
    >>> mask[1, 3] = True
    >>> print(gh.diagnose(mask).findings[0].sentence)
    The mask is causal except for 1 cell after the diagonal, where a query sees a later key:
    query 1, key 3. Hide them, or use gh.causal().
    """
    if isinstance(mask, Mapping):
        return _each(mask, queries, keys, convention, offset)
    hints = _hints(queries, keys, convention, offset)
    if isinstance(mask, Mask):
        inferred = _of_mask(mask, hints)
        reading = Meaning("attend", inferred.given.values)
    else:
        inferred = infer_axes(read(mask), hints)
        _check_size(inferred.layout)
        reading = meaning(inferred, hints.convention or inferred.given.convention)
    findings = [*checks.shapes(inferred), *reading.findings, *numbers(inferred, reading)]
    converted = None
    if reading.visible is not None:
        case = Case(inferred, reading, inferred.layout.pairs(reading.visible))
        structure = recognize(case)
        kinds = frozenset() if structure is None else structure.kinds
        for examine in _EXAMINATIONS:
            findings += examine(case, kinds)
        converted = conversion(case, structure) if inferred.fits else None
    if isinstance(mask, Mask) and converted is not None and "dense(" in converted.line:
        converted = Conversion(mask, None, "mask = mask")
    return _diagnosis(inferred, reading, findings, converted)


def _diagnosis(
    inferred: InferredAxes, reading: Meaning, findings: list[Finding], found: Conversion | None
) -> Diagnosis:
    ordered = tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
    cells = marks_of(inferred.given.values) if reading.visible is None else reading.visible
    seen = preview(inferred, cells, ordered, decided=reading.visible is not None)
    if found is None:
        return Diagnosis(reading.convention, ordered, None, None, None, None, seen)
    parts = found.mask, found.bias, found.line, found.sdpa
    return Diagnosis(reading.convention, ordered, *parts, seen)


def _check_size(layout: Layout) -> None:
    """Raise a ValueError if a mask has too many pairs to be examined."""
    spread = (*layout.leading, 1 if layout.by_key else layout.queries or 1, layout.keys)
    if prod(spread) > max(MOST_PAIRS, prod(layout.shape)):
        raise ValueError(
            Message(
                "diagnose(mask) must have at most {most:,} pairs if a mask is spread over more "
                "axes than it has, got {pairs:,} from a mask of shape {shape}. Use fewer queries= "
                "or keys=, or omit them.",
                most=MOST_PAIRS,
                shape=list(layout.shape),
                pairs=prod(spread),
            )
        )


def _hints(queries: Any, keys: Any, convention: Any, offset: Any) -> AxisHints:
    if convention is not None and convention not in STATED:
        raise ValueError(
            Message(
                "diagnose(convention=…) must be one of {choices}, got {convention}. Omit it to "
                "have it guessed.",
                choices=Message.joined(", ", STATED),
                convention=repr(convention),
            )
        )
    return AxisHints(
        queries=None if queries is None else whole_number(queries, "diagnose(queries=…)", least=1),
        keys=None if keys is None else whole_number(keys, "diagnose(keys=…)", least=1),
        convention=convention,
        offset=None if offset is None else whole_number(offset, "diagnose(offset=…)", least=None),
    )


def _of_mask(mask: Mask, hints: AxisHints) -> InferredAxes:
    """Evaluate a glasshead mask to a dense one."""
    if hints.queries is None or hints.keys is None:
        raise ValueError(
            Message(
                "diagnose(mask) needs queries= and keys= with a glasshead mask such as {mask}, "
                "got none.",
                mask=repr(mask),
            )
        )
    position = hints.keys - hints.queries if hints.offset is None else hints.offset
    tile = Tile(range(hints.queries), range(hints.keys), position)
    try:
        cells = mask.visible(tile)
        leading = cells.shape[:-2] or (1,)
        mask.check(tile, (*leading, *tile.shape))
        cells = cells.expand(*cells.shape[:-2], *tile.shape)
    except (RuntimeError, ValueError):
        raise ValueError(
            Message(
                "{mask} must be diagnosed with the size that it was made for, got {queries} "
                "queries and {keys} keys.",
                mask=repr(mask),
                queries=hints.queries,
                keys=hints.keys,
            )
        ) from None
    # Its axes are known: two are [queries, keys].
    shape = tuple(cells.shape)
    layout = Layout(shape, False, hints.queries, hints.keys, hints.offset)
    return InferredAxes(MaskInput(cells, "mask", typed=True), layout)

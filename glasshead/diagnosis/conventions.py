"""Mask conventions: boolean or additive, True shows or True hides."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.axes import InferredAxes
from glasshead.diagnosis.conversion import reads_as_a_rule
from glasshead.diagnosis.mask_input import LARGE, Finding, Layout, Meaning, hiding, marks_of, total
from glasshead.message import Message, _

# The least balance that decides for one reading.
_ENOUGH = 0.5


@dataclass(frozen=True)
class Evidence:
    """Evidence that True means "may attend" (above 0) or "hidden" (below 0).

    Attributes:
        balance: From about -3 to 3; 0 if undecided.
        reason: The evidence in words.
    """

    balance: float
    reason: str

    @property
    def decides(self) -> bool:
        """Return whether the evidence is strong enough to decide."""
        return abs(self.balance) >= _ENOUGH


def evidence(marks: Bool[Tensor, "*leading queries keys"], layout: Layout) -> Evidence:
    """Weigh whether the True cells are visible or hidden ones.

    In nearly every mask a query sees itself, unless its key is padding, and sees the past at least
    as much as the future. Where all queries see the same keys, a batch row that would see none
    decides instead.
    """
    if marks.shape[-2] == 1 or bool((marks == marks[..., :1, :]).all()):
        return _of_keys(marks[..., 0, :])
    offsets = {layout.position} if layout.offset is not None else {layout.position, 0}
    attend = max(_likeness(marks, offset) for offset in offsets)
    hidden = max(_likeness(~marks, offset) for offset in offsets)
    if attend >= hidden:
        reason = "most queries see themselves, and not more of the future than of the past"
    else:
        reason = "the cells that are False look like what queries see: themselves and the past"
    return Evidence(attend - hidden, reason)


def _of_keys(shown: Bool[Tensor, "*leading keys"]) -> Evidence:
    full, empty = bool(shown.all(-1).any()), bool((~shown).all(-1).any())
    if full == empty:
        return Evidence(0.0, Message("True and False could both be the padding"))
    if full:
        return Evidence(1.0, Message("the longest row is True throughout"))
    return Evidence(-1.0, Message("the longest row is False throughout"))


def _likeness(visible: Bool[Tensor, "*leading queries keys"], offset: int) -> float:
    """Score how many queries see themselves, and how much more of the past than the future."""
    own = visible.diagonal(offset, -2, -1)
    if not own.numel():
        return 0.0
    queries, keys = visible.shape[-2:]
    seen = visible.any(-2)[..., max(offset, 0) : max(offset, 0) + own.shape[-1]]
    sees_itself = float(own.sum() / seen.sum().clamp(min=1))
    outer = visible[..., 0, 0].numel()
    past_cells, future_cells = _triangles(queries, keys, offset)
    if not past_cells or not future_cells:
        return sees_itself
    past = total(visible.tril(offset - 1)) / (past_cells * outer)
    future = total(visible.triu(offset + 1)) / (future_cells * outer)
    return sees_itself + past - future


def _triangles(queries: int, keys: int, offset: int) -> tuple[int, int]:
    """Count the cells before and after the diagonal."""
    before = (torch.arange(queries) + offset).clamp(0, keys)
    after = keys - (torch.arange(queries) + offset + 1).clamp(0, keys)
    return int(before.sum()), int(after.sum())


STATED = ("attend", "hidden", "additive", "tokenizer")
DESCRIBED = {
    "attend": _("True = may attend, as in SDPA, ONNX, Keras and glasshead"),
    "hidden": _("True = hidden, as in torch.nn.MultiheadAttention"),
    "additive": _("numbers to add to the scores; very low ones hide"),
    "tokenizer": _("a tokenizer's [batch, keys], 1 = real token, 0 = padding"),
    "multiplicative": _("0.0 and 1.0, to multiply by, which would be added by mistake"),
}
_AMBIGUOUS = Message(
    'State convention="attend" (SDPA, ONNX, Keras, glasshead) or convention="hidden" '
    "(torch.nn.MultiheadAttention)."
)


def meaning(inferred: InferredAxes, stated: str | None) -> Meaning:
    """Interpret the mask in the stated convention, or else in the likeliest."""
    values = inferred.given.values
    marks = of_two_values(values, stated)
    if values.is_floating_point() and (stated == "additive" or (stated is None and not marks)):
        return _additive(values)
    if not marks and _lowers(values) and stated in (None, "additive"):
        return _additive_of_whole_numbers(values)
    if stated == "additive":
        return _no_floats(values)
    if not marks:
        return _neither(values, stated)
    if stated is not None:
        return _stated(inferred, stated)
    return _guessed(inferred)


def of_two_values(values: Tensor, stated: str | None) -> bool:
    """Return whether a mask has but 0 and 1, or False and True.

    Floats that are all 0 are additive where nothing else is stated.
    """
    if values.dtype == torch.bool:
        return True
    fits = bool(((values == 0) | (values == 1)).all())
    if stated in (None, "additive") and values.is_floating_point():
        return fits and bool(values.any())
    return fits


def _lowers(values: Tensor) -> bool:
    """Return whether no number is above 0 and one is very low, as in an additive mask."""
    return values.min().item() <= -LARGE and values.max().item() <= 0


def _additive(values: Tensor) -> Meaning:
    numbers = hiding(values)
    undecided = bool(values.isnan().any())
    return Meaning("additive", None if undecided else ~numbers.cells, numbers)


def _additive_of_whole_numbers(values: Tensor) -> Meaning:
    numbers = hiding(values.double())
    sentence = Message(
        "The mask has whole numbers down to {item}, but an additive mask must have floats: SDPA "
        "refuses integers, and their sums may wrap around. Write 0.0 and -inf, or True and False.",
        item=values.min().item(),
    )
    findings = (Finding("integers", "error", sentence),)
    return Meaning("additive", ~numbers.cells, numbers, findings=findings)


def _no_floats(values: Tensor) -> Meaning:
    sentence = Message(
        "An additive mask must have floats, got {dtype}: libraries refuse it, or read it as a "
        'mask of another kind. Omit convention="additive".',
        dtype=values.dtype,
    )
    return Meaning("additive", None, findings=(Finding("convention", "error", sentence),))


def _neither(values: Tensor, stated: str | None) -> Meaning:
    """Report numbers other than 0 and 1, where these are expected."""
    low, high = values.min().item(), values.max().item()
    if stated is not None:
        sentence = Message(
            'convention="{stated}" must have 0 and 1 or False and True, got numbers from {low:g} '
            "to {high:g}. State another, or omit it.",
            stated=stated,
            low=low,
            high=high,
        )
        return Meaning(stated, None, findings=(Finding("convention", "error", sentence),))
    sentence = Message(
        "A tokenizer's mask must have 1 and 0 only, got whole numbers from {low} to {high}. If "
        "they number the documents of a packed sequence, pass them to gh.documents(ids).",
        low=low,
        high=high,
    )
    return Meaning(None, None, findings=(Finding("values", "error", sentence),))


def _stated(inferred: InferredAxes, stated: str) -> Meaning:
    values = inferred.given.values
    if stated == "tokenizer" and not inferred.layout.by_key:
        sentence = Message(
            'convention="tokenizer" must have a mask [batch, keys], got the shape {shape}. State '
            "another, or omit it.",
            shape=list(values.shape),
        )
        return Meaning(stated, None, findings=(Finding("convention", "error", sentence),))
    shows = stated != "hidden"
    found = evidence(inferred.layout.pairs(marks_of(values)), inferred.layout)
    against = found.decides and (found.balance > 0) != shows
    findings = (_inverted(shows, found),) if against and found.balance else ()
    return Meaning(stated, marks_of(values) == shows, shows=shows, findings=findings)


def _inverted(shows: bool, found: Evidence) -> Finding:
    other = "hidden" if shows else "attend"
    return Finding(
        "polarity",
        "error",
        Message(
            "The mask looks inverted: {reason}. Read as stated, it shows most of what it should "
            'hide. Use convention="{other}" or ~mask; a square mask may also be transposed.',
            reason=found.reason,
            other=other,
        ),
    )


def _guessed(inferred: InferredAxes) -> Meaning:
    values = inferred.given.values
    marks = marks_of(values)
    if inferred.layout.by_key and values.dtype != torch.bool:
        return _tokenizer(inferred, marks)
    if bool(marks.all()):
        # The other reading would hide everything.
        return Meaning(_named(values, "attend"), marks)
    found = _of_rules(inferred, marks) or evidence(inferred.layout.pairs(marks), inferred.layout)
    if not bool(marks.any()) and values.dtype == torch.bool:
        sentence = Message(
            "The mask is False everywhere, which hides nothing in one convention and everything "
            "in the other. {ambiguous}",
            ambiguous=_AMBIGUOUS,
        )
        return Meaning(None, None, findings=(Finding("ambiguous", "warning", sentence),))
    same = marks.ndim > 3 and bool((marks == marks[..., :1, :]).all())
    if not found.decides and same:
        # Masks of four axes that vary by key alone are made for fused kernels.
        return Meaning(_named(values, "attend"), marks)
    if not found.decides:
        sentence = Message(
            "True may show or hide, since {why}. {ambiguous}", why=_why(found), ambiguous=_AMBIGUOUS
        )
        return Meaning(None, None, findings=(Finding("ambiguous", "warning", sentence),))
    shows = found.balance > 0
    findings = () if shows or values.ndim < 4 else (_of_no_library(found),)
    name = _named(values, "attend" if shows else "hidden")
    return Meaning(name, marks == shows, shows=shows, findings=findings)


def _of_rules(inferred: InferredAxes, marks: Bool[Tensor, "..."]) -> Evidence | None:
    """Return evidence where exactly one reading equals a structured mask, such as a window."""
    shown, hidden = (reads_as_a_rule(inferred, Meaning(None, cells)) for cells in (marks, ~marks))
    if shown == hidden:
        return None
    value = "True" if shown else "False"
    return Evidence(
        1.0 if shown else -1.0,
        Message("the cells that are {value} follow a rule of visibility", value=value),
    )


def _named(values: Tensor, name: str) -> str:
    return "multiplicative" if values.is_floating_point() else name


def _why(found: Evidence) -> str:
    if found.balance == 0 and "padding" in found.reason:
        return Message("no row has one value throughout, so either could be the padding")
    return Message("it looks much the same with True and False exchanged")


def _of_no_library(found: Evidence) -> Finding:
    return Finding(
        "polarity",
        "warning",
        Message(
            "The mask looks inverted: {reason}. A mask of four axes is True where a query may "
            "attend in every library. Use ~mask.",
            reason=found.reason,
        ),
    )


def _tokenizer(inferred: InferredAxes, marks: Bool[Tensor, "*batch keys"]) -> Meaning:
    """Interpret ones and zeros by key as a tokenizer's mask, 1 = real."""
    found = evidence(inferred.layout.pairs(marks), inferred.layout)
    findings: tuple[Finding, ...] = ()
    if found.decides and found.balance < 0 and bool(marks.any()):
        sentence = Message(
            "The mask looks inverted: {reason}, but a tokenizer's mask has 1 for real tokens and "
            "0 for padding. Use 1 - mask.",
            reason=found.reason,
        )
        findings = (Finding("polarity", "error", sentence),)
    return Meaning("tokenizer", marks, findings=findings)

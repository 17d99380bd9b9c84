"""Texts: the calls that belong together, as one text of its tokens that were kept."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from glasshead.watching.recorded_call import Call

_CUT = (
    "the last tokens of the call were rejected, and a sum over its queries follows from kept "
    "weights only. Watch with keep='weights'"
)


def texts_of(calls: Sequence[Call]) -> list[list[Call]]:
    """Group calls by the text that they belong to; the one that was read last is the last."""
    texts: dict[tuple[int, ...], list[Call]] = {}
    for call in calls:
        known = texts.pop(call.text, None)
        if known is None:
            # The beginning of a copied cache is that of the original so far.
            shared = texts.get(call.text[:-1], ())
            known = [one for one in shared if one.position < call.position]
        texts[call.text] = [*known, call]
    return [*texts.values()]


def whole(name: str, calls: Sequence[Call]) -> list[Call]:
    """Return the calls of a text without the tokens that were rejected.

    Args:
        name: Name of the attention.
        calls: The calls of the text.

    Errors: a ValueError if its rows changed places, it is not known what the calls continue, or
    some were not observed.
    """
    for call in calls:
        if call.apart is not None:
            raise ValueError(
                f"the calls of the last text of {name!r} cannot be joined: {call.apart}. Use one "
                f"call, seen[{name!r}][i]."
            )
    check_rows(name, calls)
    kept = [call for _, call in without_rejected(calls)]
    for before, after in pairwise(kept):
        if before.end < after.position and not (before.shards or after.shards):
            raise ValueError(
                f"the calls of the last text of {name!r} cannot be joined: tokens {before.end} to "
                f"{after.position - 1} were not observed. Use one call, seen[{name!r}][i]."
            )
    return kept


def check_rows(name: str, calls: Sequence[Call]) -> None:
    """Raise a ValueError if rows of a text changed places.

    Args:
        name: Name of the attention.
        calls: The calls of the text.
    """
    if any(call.rows is not None for call in calls):
        raise ValueError(
            f"rows of a text of {name!r} changed places, as rows of beams do. Use "
            "seen.follow(output.beam_indices) for the texts that generate returned, or "
            "seen.follow() for the texts that its last call has read."
        )


def without_rejected(calls: Sequence[Call]) -> list[tuple[Call, Call]]:
    """Return each call of a text that was not rejected whole, and what was kept of it.

    A call that begins before the end of an earlier one replaces its last tokens.
    """
    kept: list[tuple[Call, Call]] = []
    last = calls[-1]
    # Tokens may be rejected after the last call, too.
    stop = last.end if last.stop is None or last.stop <= calls[0].position else last.stop
    for call in reversed(calls):
        count = min(call.queries, stop - call.position)
        if count > 0 or not call.queries:
            part = call if count == call.queries else call.selected(None, count, _CUT)
            kept.append((call, part))
        stop = min(stop, call.position)
    return kept[::-1]


def followed(
    calls: Sequence[Call], indices: Sequence[Sequence[int]] | None, text: tuple[int, ...]
) -> list[Call]:
    """Return the calls of a text with the rows that belong to the same hypotheses.

    Args:
        calls: The calls of the text.
        indices: For each hypothesis the row of each call, -1 where it has ended; None: those of
            the rows of the last call.
        text: The text as which they belong together.

    Errors: a ValueError if the rows are not those of the calls.
    """
    if indices is None:
        return _of_last(calls, text)
    steps = max((len(one) for one in indices), default=0)
    rows = calls[0].shape[0]
    if max((row for one in indices for row in one), default=0) >= rows and len(calls) == 1:
        # A text that was not written, such as that of an encoder.
        return [call.selected(None, text=text) for call in calls]
    if steps > len(calls) or any(call.queries > 1 for call in calls[1:]):
        raise ValueError(
            f"beam_indices must have one number for each of {len(calls)} calls at most, of one "
            f"token each after the first, got {steps}."
        )
    if any(row >= rows for one in indices for row in one):
        raise ValueError(f"beam_indices must be below the number of rows, {rows}.")
    places = [[one[step] for one in indices] for step in range(steps)]
    return [call.selected(own, text=text) for call, own in zip(calls, places, strict=False)]


def _of_last(calls: Sequence[Call], text: tuple[int, ...]) -> list[Call]:
    moved = any(call.rows is not None for call in calls)
    rows = [*range(calls[-1].shape[0])] if moved else None
    found = []
    for call in reversed(calls):
        found.append(call.selected(rows, text=text))
        if rows is not None and call.rows is not None:
            rows = [call.rows[row] for row in rows]
    return found[::-1]


def rows_of_beams(beam_indices: Any) -> list[list[int]] | None:
    """Convert the `beam_indices` of transformers' `generate` to lists.

    Errors: a TypeError if they are no whole numbers in two axes.
    """
    if beam_indices is None:
        return None
    try:
        indices = torch.as_tensor(beam_indices)
    except (TypeError, ValueError, RuntimeError):
        indices = torch.zeros(())
    if indices.ndim != 2 or indices.is_floating_point() or not indices.numel():
        got = list(indices.shape) if isinstance(beam_indices, Tensor) else repr(beam_indices)
        raise TypeError(
            f"beam_indices must be whole numbers, [sequences, steps], as generate returns them by "
            f"return_dict_in_generate=True, got {got}."
        )
    return indices.tolist()

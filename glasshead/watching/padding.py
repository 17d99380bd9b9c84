"""Padding: find which queries of a call are real tokens, from the mask given to the model."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glasshead.recipe.masks import Mask, combined, dense
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span
from glasshead.statistics import Received, Statistic
from glasshead.statistics.reductions import Reduction, TimesQueries
from glasshead.watching.captured_call import AttentionCall, CapturedCall
from glasshead.watching.ends import EndFinder
from glasshead.watching.errors import UnseenError
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.sequences import CallPosition

# A module with one of these arguments reads a text or a signal, whose padding is in its own mask.
_TEXTS = {"input_ids", "inputs_embeds"}
_SIGNALS = {"pixel_values", "input_values", "input_features"}
_INPUTS = _TEXTS | _SIGNALS

# Mask elements that are held at once.
_PAIRS = 2**24


class PaddingFinder:
    """Finder of the real tokens among the queries of each attention call.

    They follow from the mask given to `watch`, else from the one given to the model:
    `attention_mask` of transformers, the `key_padding_mask`s of PyTorch's layers, and masks of keys
    such as our own `gh.padding`.

    Args:
        attention_mask: 1 or True for real tokens; None: not given.
        names: Names of all modules of the model.
        known: Whether the requested statistics handle padding themselves.
        ends: Finds the queries after the end of their text, which count as padding.

    Attributes:
        looks_padded: The first attention whose keys look padded although no mask is known; None:
            there is none.
        fitted: Whether the given mask fitted any call.
    """

    def __init__(
        self,
        attention_mask: Bool[Tensor, "batch tokens"] | Int[Tensor, "batch tokens"] | None,
        names: Iterable[str],
        *,
        ends: EndFinder,
        known: bool = False,
    ) -> None:
        self._known, self._ends = known, ends
        self._given = None if attention_mask is None else attention_mask.bool()
        self._fits: dict[str, bool] = {}
        self._has_encoder = any(_encodes(name) for name in names)
        self._checked: int | None = None
        # The tokens that the last mask shows, and of which call.
        self._mask: Mask | None = None
        self._call: tuple[Any, ...] = ()
        self._seen: Tensor | None = None
        self.looks_padded: str | None = None
        self.fitted = False

    def real(
        self, call: AttentionCall, place: CallPosition
    ) -> Bool[Tensor, "batch queries"] | None:
        """Return which queries are real tokens; None if all are, or the padding is unknown.

        Args:
            call: The call.
            place: Its place in its text.
        """
        (name, captured, calls, run), position = call, place.position
        real = self._by_argument(call, position)
        if real is None:
            real = captured.real
        if real is None:
            real = self._called_with(call, position)
        if real is None and any(isinstance(one.arguments.get("mask"), Mask) for one in calls):
            real = _by_masks(captured, position)
        # Keys are looked at once a pass.
        if real is None and self._checked != run.forward and self.looks_padded is None:
            self._checked = run.forward
            self.looks_padded = name if _looks_padded(captured) else None
        if not (self._has_encoder and _encodes(name)):
            alive = self._ends.real(call, place)
            if alive is not None:
                real = alive if real is None else real.to(alive.device) & alive
        if real is None or bool(real.all()):
            return None
        return real.to(captured.problem.query.device)

    def is_same(self, name: str, other: str) -> bool:
        """Return whether two attentions have the same padding, if their arguments are equal."""
        return (
            self._fits.get(name) == self._fits.get(other)
            and _encodes(name) == _encodes(other)
            and _decodes(name) == _decodes(other)
        )

    def check(self, seen: Sequence[str]) -> None:
        """Check whether padding may have been counted as tokens.

        Args:
            seen: Names of the attentions that were seen.

        Errors: an `UnseenError` if the given mask fitted no call; if no mask is known and a
        batch looks padded it is a warning.
        """
        if self._given is not None and seen and not self.fitted:
            raise UnseenError(
                "attention_mask must have the shape [batch, tokens] of the model's input, got "
                f"{list(self._given.shape)}, which fits no observed attention."
            )
        if self.looks_padded is not None and not self._known:
            warnings.warn(
                f"watch saw keys of {self.looks_padded!r} that no query sees, as of padding, and "
                "counted their queries as tokens. Give watch(…, attention_mask=), 1 where a token "
                "is real.",
                stacklevel=6,
            )

    def _by_argument(
        self, call: AttentionCall, position: int
    ) -> Bool[Tensor, "batch queries"] | None:
        """Return the real queries by the given mask, if it belongs to this text.

        For an encoder-decoder it is the mask of the encoder's text, and for a text with an image
        or audio that of the text.
        """
        if self._given is None or (self._has_encoder and _decodes(call.name)):
            return None
        if _next_to_a_text(call.calls):
            return None
        (name, captured, *_), batch = call, call.captured.rows
        rows, tokens = self._given.shape
        if position == 0:
            self._fits[name] = captured.queries == tokens and batch % rows == 0
        if not self._fits.get(name) or batch % rows:
            return None
        self.fitted = True
        # The beams of a text are adjacent rows; generated tokens are real.
        real = self._given.repeat_interleave(batch // rows, 0)[
            :, position : position + captured.queries
        ]
        missing = captured.queries - real.shape[1]
        return torch.cat([real, real.new_ones(batch, missing)], 1) if missing else real

    def _called_with(
        self, attention: AttentionCall, position: int
    ) -> Bool[Tensor, "batch queries"] | None:
        """Return the real queries by the arguments of the enclosing modules; None if unknown.

        The innermost mask that fits counts: further out the same argument may refer to other
        tokens, such as those of the encoder around a decoder.
        """
        name, captured, calls, run = attention
        side, batch = None, captured.rows
        for call in calls:
            given = call.arguments
            # The innermost layer with a mask of the source or the target reads that text.
            side = side or _side(name, given)
            for mask, hides in _token_masks(name, given, side, crossing=captured.crossing):
                real = _real_queries(mask, captured, position, hides=hides)
                if real is not None:
                    return real
            if "decoder_input_ids" in given:
                return None
            if "attention_mask" in given and not _INPUTS.isdisjoint(given):
                # It reads the text itself: without a mask, or with one that was expanded before.
                if given["attention_mask"] is None:
                    return torch.ones(batch, captured.queries, dtype=torch.bool)
                return self._by_columns(captured, run.forward)
            if _is_signal(call):
                return None
        return None

    def _by_columns(
        self, captured: CapturedCall, forward: int
    ) -> Bool[Tensor, "batch queries"] | None:
        """Return which tokens are keys that a query sees, once for layers that share a mask."""
        problem = captured.problem
        if problem.mask is None or not isinstance(problem.offset, int):
            return _by_columns(captured)
        call = (*problem.scores_shape, problem.offset, captured.crossing, forward)
        if problem.mask is not self._mask or call != self._call:
            self._mask, self._call = problem.mask, call
            self._seen = _by_columns(captured)
        return self._seen


def check_mask(attention_mask: Any) -> Tensor | None:
    """Check an attention mask and convert it to booleans.

    Errors: a TypeError or ValueError for an invalid mask.
    """
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.is_floating_point():
        raise TypeError(
            "attention_mask must be a tensor of whole numbers or booleans, got "
            f"{getattr(attention_mask, 'dtype', type(attention_mask).__name__)}. Use the "
            "tokenizer's mask."
        )
    if attention_mask.ndim != 2 or not ((attention_mask == 0) | (attention_mask == 1)).all():
        raise ValueError(
            "attention_mask must be 1 or 0 for each token, [batch, tokens], got "
            f"{list(attention_mask.shape)}. Use the tokenizer's mask."
        )
    return attention_mask.bool()


def without_padding(problem: Problem, real: Bool[Tensor, "batch queries"]) -> Problem:
    """Return the problem with empty rows for padded queries."""
    *batch, _, queries, _ = problem.scores_shape
    shown = dense(real.reshape(*batch, 1, queries, 1))
    return replace(problem, mask=combined([problem.mask, shown]))


def of_real(statistic: Statistic, real: Bool[Tensor, "batch queries"]) -> Statistic:
    """Return the statistic restricted to real queries, where empty rows alone do not suffice."""
    if type(statistic) is Received and statistic.last is not None:
        return _LastReceived(statistic.last, real=real)
    return statistic


@dataclass(frozen=True)
class _LastReceived(Received):
    """The mass that each key receives from the last real queries of each text."""

    real: Bool[Tensor, "batch queries"] = field(kw_only=True, compare=False)

    def reductions(self, problem: Problem) -> tuple[Reduction, ...]:
        *batch, _, queries, _ = problem.scores_shape
        counted = last_real(self.real, self.last or queries)
        return (TimesQueries(counted.reshape(*batch, 1, queries, 1).to(problem.dtype)),)


def last_real(real: Bool[Tensor, "batch queries"], count: int) -> Bool[Tensor, "batch queries"]:
    """Return which queries are the last `count` real ones of each text.

    >>> last_real(torch.tensor([[True, True, True, False]]), 2)
    tensor([[False,  True,  True, False]])
    """
    return real & (real.flip(-1).cumsum(-1).flip(-1) <= count)


def _token_masks(
    name: str, given: dict[str, Any], side: str | None, *, crossing: bool
) -> list[tuple[Any, bool]]:
    """Return the masks that a module was given for a text, and whether True hides a token."""
    masks = [(given.get(f"{side}_key_padding_mask"), True)]
    if "decoder_input_ids" in given and _decodes(name):
        # Of compiled code nothing tells what the decoder itself was given.
        masks.append((given.get("decoder_attention_mask"), False))
    elif "tgt_key_padding_mask" not in given:
        masks.append((given.get("attention_mask"), False))
        if not crossing:
            masks.append((given.get("key_padding_mask"), True))
    return masks


def _side(name: str, given: dict[str, Any]) -> str | None:
    """Return whether a module reads the source or the target, as PyTorch's layers name them."""
    sides = [side for side in ("tgt", "src") if f"{side}_key_padding_mask" in given]
    return "src" if len(sides) > 1 and _encodes(name) else next(iter(sides), None)


def _is_signal(call: ModuleCall) -> bool:
    """Return whether a module takes an image or audio and no text."""
    taken = call.parameters | call.arguments.keys()
    return _TEXTS.isdisjoint(taken) and not _SIGNALS.isdisjoint(taken)


def _next_to_a_text(calls: Sequence[ModuleCall]) -> bool:
    """Return whether a module reads an image or audio for a model that reads a text too."""
    signals = [place for place, call in enumerate(calls) if _is_signal(call)]
    return bool(signals) and any(
        not _TEXTS.isdisjoint(call.arguments) for call in calls[signals[0] :]
    )


def _by_columns(captured: CapturedCall) -> Bool[Tensor, "batch queries"] | None:
    """Return which tokens of a self-attention are visible as keys to any query.

    In models of transformers a token sees itself, so a key that no query sees is padding.
    """
    problem, batch = captured.problem, captured.rows
    queries, keys = problem.scores_shape[-2:]
    offset = problem.offset
    if captured.crossing or not isinstance(offset, int) or offset + queries > keys:
        return None
    if not queries or problem.mask is None or problem.mask.shows_own_key:
        return torch.ones(batch, queries, dtype=torch.bool)
    height, own = max(1, _PAIRS // (batch * queries)), Span(offset, offset + queries)
    seen = []
    for start in range(0, queries, height):
        rows = Span(start, min(start + height, queries))
        shown = problem.mask.visible(replace(problem.tile(), queries=rows, keys=own))
        shown = shown[(None,) * (4 - shown.ndim)].flatten(0, -4)
        seen.append(shown.any((-3, -2)).expand(batch, queries))
    return seen[0] if len(seen) == 1 else torch.stack(seen).any(0)


def _real_queries(
    mask: Any, captured: CapturedCall, position: int, *, hides: bool
) -> Bool[Tensor, "batch queries"] | None:
    """Return the columns of a token mask that belong to the queries; None if it does not fit."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[0] != captured.rows:
        return None
    end = position + captured.queries
    length = mask.shape[1]
    if length == captured.queries and not captured.crossing:
        # Keys before the text, such as a prefix, have no place in its mask.
        mask = mask.detach()
    elif length == end or (length > end and position):
        mask = mask.detach()[:, position:end]
    else:
        # Token masks grow with the text; the mask of another text has another length.
        return None
    if mask.is_floating_point():
        additive = bool((mask < 0).any())
        return mask == 0 if hides or additive else mask != 0
    return mask == 0 if hides else mask != 0


def _by_masks(captured: CapturedCall, position: int) -> Bool[Tensor, "batch queries"] | None:
    """Return the real queries of a self-attention by those of its masks that hide whole keys."""
    problem = captured.problem
    of_keys = [part for part in _operands(problem) if part.of_keys]
    end = position + captured.queries
    *leading, _, _, keys = problem.scores_shape
    if captured.crossing or not of_keys or end > keys:
        return None
    visible = combined(of_keys).visible(problem.tile())  # type: ignore[union-attr]
    return visible.expand(*leading, 1, 1, keys).reshape(captured.rows, keys)[:, position:end]


def _looks_padded(captured: CapturedCall) -> bool:
    """Return whether a self-attention has keys that are hidden from all of its queries."""
    queries, keys = captured.problem.scores_shape[-2:]
    if captured.crossing or queries != keys or queries < 2:
        return False
    # Masks by position show every token to itself.
    shown = (part for part in _operands(captured.problem) if part.is_dense)
    return any(part.hides_a_key(keys) for part in shown)


def _operands(problem: Problem) -> tuple[Mask, ...]:
    """Return the masks whose intersection is that of a problem."""
    return () if problem.mask is None else problem.mask.conjuncts or (problem.mask,)


@lru_cache(maxsize=2**12)
def _encodes(name: str) -> bool:
    return any("encoder" in part for part in name.split(".")) and not _decodes(name)


@lru_cache(maxsize=2**12)
def _decodes(name: str) -> bool:
    return any("decoder" in part for part in name.split("."))

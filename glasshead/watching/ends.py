"""Ends of texts: which tokens a model is fed after the text of their row has ended.

A batch is generated until its last text has ended, and the others are fed padding meanwhile.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from glasshead.recipe.validation import whole_number
from glasshead.watching.captured_call import AttentionCall
from glasshead.watching.foreign import attribute
from glasshead.watching.module_calls import ModuleCall
from glasshead.watching.sequences import CallPosition

_CONFIG = "generation_config"
_IDS = ("decoder_input_ids", "input_ids")
_EMBEDS = ("decoder_inputs_embeds", "inputs_embeds")
# Arguments of whole numbers that are no tokens.
_NO_IDS = re.compile("mask|position|type|label|length|index")
# Texts that are remembered: a loop may feed a few in turn.
_TEXTS = 8


@dataclass(frozen=True)
class Ends:
    """Ends of texts, as the user of a watch states them.

    Attributes:
        ids: Token ids that end a text; what follows is not text, whatever it is.
        lengths: Number of tokens of each row, padding before it included; None: ids count.
    """

    ids: tuple[int, ...] = ()
    lengths: Int[Tensor, " rows"] | None = None


def check_ends(ended: Any) -> Ends | None:
    """Check the argument `ended` of a watch.

    Errors: a TypeError or ValueError if it is invalid.
    """
    if ended is None:
        return None
    if isinstance(ended, Tensor):
        if ended.ndim != 1 or ended.is_floating_point() or ended.dtype == torch.bool:
            raise ValueError(
                "ended must be token ids, or an integer tensor [batch] with the length of each "
                f"row, got {list(ended.shape)} of {ended.dtype}."
            )
        return Ends(lengths=ended.detach().clone())
    ids = ended if isinstance(ended, list | tuple | set | frozenset | range) else [ended]
    return Ends(tuple(whole_number(one, "ended") for one in ids))


@dataclass
class _Text:
    """The rows of a batch whose texts are generated together.

    Attributes:
        prompt: Number of its first tokens, which end no text.
        ended: The position of the token that ended each row; -1 where none did.
        loop: The decoding loop that writes it, as of `_Decoding`; None: there is none.
    """

    prompt: int
    ended: list[int]
    loop: Any


class _Stops(NamedTuple):
    """Token ids that end a text, and how they count.

    Attributes:
        ids: The token ids that end one.
        padding: The token id that follows an end; None: whatever follows is no text.
        counts: Whether a token that ends a text counts as a query, as the text may go on.
    """

    ids: tuple[int, ...]
    padding: int | None
    counts: bool


class _Decoding:
    """A decoding loop of transformers in progress, found on the stack by its variables.

    Attributes:
        config: Its `GenerationConfig`, of which each loop has its own.
        length: Number of tokens of its texts so far; 0 if unknown.
        inputs: What the model is called with.
    """

    def __init__(self, config: Any, local: Mapping[str, Any]) -> None:
        self.config = config
        ids: Any = local.get("input_ids")
        inputs = local.get("model_inputs")
        self.length = ids.shape[1] if _are_ids(ids) else 0
        self.inputs: Mapping[str, Any] = inputs if isinstance(inputs, Mapping) else {}


class EndFinder:
    """Finder of the queries after the end of their text.

    A text ends with an `eos_token_id` among the generated tokens. Nothing is read from the query of
    that token, which is fed only as other rows go on, so that it does not count: a text has the
    same queries as if it had been generated alone. A token of the first forward pass ends no text,
    as prompts of a chat have such tokens in them. Outside of `generate` the text goes on where a
    token other than padding follows.

    Args:
        model: The model.
        given: What the user says; None: the model's own ids count.
    """

    def __init__(self, model: nn.Module, given: Ends | None) -> None:
        self._model, self._given = model, given
        # By texts of the ledger; by decoding loops, which may read theirs again each time.
        self._texts: dict[object, _Text] = {}
        self._pass: tuple[int, int] = (-1, 0)
        self._real: Tensor | None = None

    def real(
        self, call: AttentionCall, place: CallPosition
    ) -> Bool[Tensor, "batch queries"] | None:
        """Return which queries belong to a text that has not ended; None if all may.

        Args:
            call: The call.
            place: Its place in its text.
        """
        position, queries, batch = place.position, call.captured.queries, call.captured.rows
        if self._given is not None and self._given.lengths is not None:
            return _before(self._given.lengths, position, queries, batch)
        if self._given is not None and not self._given.ids:
            return None
        if self._pass != (call.run.forward, position):
            self._pass = call.run.forward, position
            self._real = self._of_pass(place, call.calls)
        real = self._real
        return real if real is not None and real.shape == (batch, queries) else None

    def _of_pass(self, place: CallPosition, calls: Sequence[ModuleCall]) -> Tensor | None:
        """Return which tokens of a forward pass belong to a text; None if all may."""
        decoding, position = _decoding(), place.position
        fed = _fed(calls, decoding, any_name=self._given is not None)
        if fed is None:
            return None
        text = self._text(place, fed, decoding)
        if fed.is_floating_point() or position + fed.shape[1] <= text.prompt:
            return None
        stops = self._stops(decoding)
        if stops is None:
            return None
        return _before_ends(text, fed.detach(), position, stops)

    def _text(self, place: CallPosition, fed: Tensor, decoding: _Decoding | None) -> _Text:
        """Return the text that a forward pass continues, or a new one."""
        (rows, count), position = fed.shape[:2], place.position
        loop = None if decoding is None else decoding.config
        key = place.text if loop is None else id(loop)
        text = self._texts.pop(key, None)
        if text is None or len(text.ended) != rows or (loop is None and not position):
            prompt = position + count
            if decoding is not None:
                prompt = max(prompt, decoding.length)
            elif position and count == 1:
                # Its prompt was read before the block.
                prompt = position
            text = _Text(prompt, [-1] * rows, loop)
        self._texts[key] = text
        while len(self._texts) > _TEXTS:
            del self._texts[next(iter(self._texts))]
        return text

    def _stops(self, decoding: _Decoding | None) -> _Stops | None:
        """Return what ends a text; None if nothing is known to."""
        if self._given is not None:
            return _Stops(self._given.ids, None, counts=False)
        config = attribute(self._model, "config")
        configs = [attribute(self._model, _CONFIG), config, attribute(config, "text_config")]
        if decoding is not None:
            configs = [decoding.config]
        for one in configs:
            if stops := _numbers(attribute(one, "eos_token_id")):
                padding = _numbers(attribute(one, "pad_token_id")) or stops
                return _Stops(tuple(stops), padding[0], counts=decoding is None)
        return None


def _before_ends(
    text: _Text, ids: Int[Tensor, "rows queries"], position: int, stops: _Stops
) -> Bool[Tensor, "rows queries"] | None:
    """Return which tokens of a pass come before the end of their text; None if all do."""
    # Of a few numbers Python takes a tenth of the time of the operators.
    rows, over = ids.tolist(), []
    for row, tokens in enumerate(rows):
        # The cache may have been cropped.
        ended = text.ended[row] if text.ended[row] < position else -1
        others = [place for place, token in enumerate(tokens) if token != stops.padding]
        # Of a token that ends a text those after it in the pass show whether the text goes on.
        least = -1 if stops.padding is None or not others else others[-1]
        for place in range(max(text.prompt - position, 0), len(tokens)):
            token = tokens[place]
            if ended >= 0 and stops.padding in (None, token):
                over.append((row, place))
                continue
            ended = position + place if token in stops.ids and place >= least else -1
            if ended >= 0 and not stops.counts:
                over.append((row, place))
        text.ended[row] = ended
    if not over:
        return None
    real = torch.ones_like(ids, dtype=torch.bool)
    real[tuple(torch.tensor(over, device=ids.device).T)] = False
    return real


def _before(
    lengths: Tensor, position: int, queries: int, batch: int
) -> Bool[Tensor, "batch queries"] | None:
    """Return which queries come before the end of their row."""
    if not len(lengths) or batch % len(lengths):
        return None
    places = torch.arange(position, position + queries, device=lengths.device)
    return places < lengths.repeat_interleave(batch // len(lengths))[:, None]


def _fed(
    calls: Sequence[ModuleCall], decoding: _Decoding | None, *, any_name: bool
) -> Tensor | None:
    """Return the token ids, or embeddings, that the outermost module was given; None for neither.

    Args:
        calls: The module calls in progress, innermost first.
        decoding: The decoding loop in progress.
        any_name: Whether token ids of any other name count, too.
    """
    givens = [] if decoding is None else [decoding.inputs]
    for given in (*givens, *(call.arguments for call in reversed(calls))):
        for name in _IDS:
            if _are_ids(given.get(name)):
                return given[name]
        for name in _EMBEDS:
            embeds = given.get(name)
            if isinstance(embeds, Tensor) and embeds.ndim == 3:
                return embeds
        others = (one for name, one in given.items() if any_name and not _NO_IDS.search(name))
        if (found := next(filter(_are_ids, others), None)) is not None:
            return found
    return None


def _are_ids(value: Any) -> bool:
    return (
        isinstance(value, Tensor) and value.ndim == 2 and value.dtype in (torch.int64, torch.int32)
    )


def _decoding() -> _Decoding | None:
    """Return the innermost decoding loop on the stack of this thread; None if there is none."""
    frame = sys._getframe(1)  # noqa: SLF001 - it has no other name
    while frame is not None:
        # Asking a frame for the names of its variables takes longer.
        of_transformers = str(frame.f_globals.get("__name__")).startswith("transformers")
        if of_transformers and {_CONFIG, "model_inputs"} <= {*frame.f_code.co_varnames}:
            local = frame.f_locals
            if attribute(local.get(_CONFIG), "eos_token_id", _CONFIG) is not _CONFIG:
                return _Decoding(local[_CONFIG], local)
        frame = frame.f_back
    return None


def _numbers(value: Any) -> list[int]:
    """Return token ids as a list, whether one, several or none are given."""
    if isinstance(value, Tensor):
        value = value.flatten().tolist()
    ones = value if isinstance(value, list | tuple) else [value]
    return [one for one in ones if isinstance(one, int) and not isinstance(one, bool)]

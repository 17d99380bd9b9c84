"""Longformer's band: each query weighs the keys around it, and global tokens weigh and are weighed.

Its weights, `[batch, queries, heads, band]`, are laid out again for the product with values, after
which nothing tells which key one belongs to. So the classes of transformers that compute them are
known by name, and a band is read by its place: of query i, place p is key i - width + p.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from inspect import signature
from operator import and_, or_
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glasshead.engines import REFERENCE
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks import Mask, dense, window
from glasshead.recipe.part import HeadIndex
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span, Tile
from glasshead.watching.captured_call import CapturedCall, agrees, problem_from_inputs
from glasshead.watching.errors import UnfollowedError
from glasshead.watching.interception.circumstances import in_backward
from glasshead.watching.interception.session import Patch, Session

_Function = Callable[..., Any]
_CLASSES = {
    "transformers.models.longformer.modeling_longformer": "LongformerSelfAttention",
    "transformers.models.led.modeling_led": "LEDEncoderSelfAttention",
}
_OTHERWISE = "lays its band out differently from what is known of transformers"
_BY_HEADS = "multiplies its weights by a head_mask"


def banded_attention() -> list[Patch]:
    """Return the patches of the classes that attend within a band, where these are imported."""
    known = [(sys.modules.get(module), name) for module, name in _CLASSES.items()]
    kinds = [getattr(module, name, None) for module, name in known]
    return [Patch(kind, "forward", _forward) for kind in kinds if kind is not None]


@dataclass
class RecordedBand:
    """Record of a run of a module that attends within a band.

    Attributes:
        scores: The inputs of its softmaxes, in their type: of the band, then of global queries.
        values: Its values, `[batch · heads, tokens, value_dim]`, and those for global queries.
    """

    scores: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def softmax(self, scores: Tensor, weights: Tensor) -> None:
        """Record the input of a softmax."""
        self.scores.append(scores.detach().to(weights.dtype))

    def follow(self, name: str, args: Sequence[Any]) -> None:
        """Record the values, which are padded for the band, and multiplied for global queries.

        Args:
            name, args: An operator that has run.
        """
        softmaxes, known = len(self.scores), len(self.values)
        if softmaxes == 1 and not known and name in ("aten::constant_pad_nd", "aten::pad"):
            padded = list(args[1])
            if len(padded) == 4 and padded[:2] == [0, 0]:
                self.values.append(args[0].detach())
        elif softmaxes == 2 and known == 1 and name == "aten::bmm":
            self.values.append(args[1].detach())


def _forward(
    session: Session, original: _Function, module: nn.Module, *inputs: Any, **named: Any
) -> Any:
    """Run a module that attends within a band, and let the watchers observe it."""
    if not session.watchers or in_backward():
        return original(module, *inputs, **named)
    session.check_unchanged(
        f"intervene changes attention whose weights are a matrix, but {type(module).__name__} has "
        "the weights of a band. Omit it."
    )
    run = RecordedBand()
    with session.in_band(run):
        output = original(module, *inputs, **named)

    def capture() -> CapturedCall:
        given = signature(original).bind(module, *inputs, **named).arguments
        return _capture(module, given, run, output[0])

    session.observe(module, capture, output[0])
    return output


class _Tokens(NamedTuple):
    """The tokens of a band.

    Attributes:
        real: Those that are no padding.
        on_all: Those that attend to all tokens, and all to them; None: there are none.
    """

    real: Bool[Tensor, "batch tokens"]
    on_all: Bool[Tensor, "batch tokens"] | None

    def mask(self, width: int) -> Mask:
        """Return which pairs are visible, with a band of some tokens before and after each."""
        parts: list[Mask] = [window(before=width, after=width)]
        if self.on_all is not None:
            parts += [dense(self.on_all[:, None, None, :]), dense(self.on_all[:, None, :, None])]
        near = reduce(or_, parts)
        if bool(self.real.all()):
            return near
        real = [dense(self.real[:, None, None, :]), dense(self.real[:, None, :, None])]
        return reduce(and_, [near, *real])


class BandBias(Bias):
    """Scores of a band, and of global tokens, as a bias of scores that are 0.

    What is hidden may hold any number.

    Args:
        band: Of each query its scores with the keys around it.
        columns: Of each query its scores with the global tokens.
        rows: Of each global token, as a query, its scores with all keys.
        numbers: Of each token its number among the global ones; -1 for others.

    Source: Beltagy et al. 2020 (Longformer), section 3.1.
    """

    hides = False

    def __init__(
        self,
        band: Float[Tensor, "*leading tokens band"],
        columns: Float[Tensor, "*leading tokens globals"] | None = None,
        rows: Float[Tensor, "*leading globals tokens"] | None = None,
        numbers: Int[Tensor, "*leading 1 tokens"] | None = None,
    ) -> None:
        super().__init__()
        self.band, self.columns, self.rows, self.numbers = band, columns, rows, numbers

    def forward(self, tile: Tile) -> Float[Tensor, "*leading queries keys"]:
        queries, keys = (slice(span.start, span.stop) for span in (tile.queries, tile.keys))
        band = self.band[..., queries, :]
        shape = *band.shape[:-1], keys.stop - keys.start
        width = band.shape[-1] // 2
        own = torch.arange(queries.start, queries.stop, device=tile.device)[:, None]
        place = (tile.columns() - own + width).clamp(0, 2 * width)
        scores = band.gather(-1, place.expand(shape))
        if self.columns is not None and self.rows is not None and self.numbers is not None:
            key, query = self.numbers[..., keys], self.numbers[..., queries].mT
            columns = self.columns[..., queries, :].gather(-1, key.clamp(min=0).expand(shape))
            rows = self.rows[..., keys].gather(-2, query.clamp(min=0).expand(shape))
            scores = torch.where(query >= 0, rows, torch.where(key >= 0, columns, scores))
        # Of what is hidden, which masks say.
        return scores.masked_fill(scores <= torch.finfo(scores.dtype).min / 1e6, 0.0)

    def select_head(self, place: HeadIndex) -> "BandBias":
        parts = self.band, self.columns, self.rows, self.numbers
        return BandBias(*(None if part is None else place.of_scores(part) for part in parts))  # type: ignore[arg-type] - the band is there


def _capture(
    module: Any,
    given: Mapping[str, Any],
    run: RecordedBand,
    output: Float[Tensor, "batch tokens dim"],
) -> CapturedCall:
    """Capture an attention within a band.

    Args:
        module: The module.
        given: Its arguments by name.
        run: What it computed on the way.
        output: Its output.

    Errors: an `UnfollowedError` if it is not laid out as known.
    """
    if given.get("layer_head_mask") is not None:
        raise UnfollowedError(_BY_HEADS)
    tokens = _tokens(given)
    heads, width = module.num_heads, module.one_sided_attn_window_size
    batch, length = tokens.real.shape
    count = 0 if tokens.on_all is None else int(tokens.on_all.sum(1).max())
    shapes = [(batch, length, heads, count + 2 * width + 1)]
    shapes += [(batch * heads, count, length)] if count else []
    sizes = [(batch * heads, length, output.shape[-1] // heads)] * len(shapes)
    if [*map(_shape, run.scores)] != shapes or [*map(_shape, run.values)] != sizes:
        raise UnfollowedError(_OTHERWISE)
    scores = run.scores[0].transpose(1, 2)
    bias = BandBias(scores[..., count:])
    if tokens.on_all is not None:
        number = torch.where(tokens.on_all, tokens.on_all.cumsum(1) - 1, -1)
        rows = run.scores[1].unflatten(0, (batch, heads))
        bias = BandBias(scores[..., count:], scores[..., :count], rows, number[:, None, None])
    query = scores.new_zeros(batch, heads, length, 1)
    mask = tokens.mask(width)
    problem = problem_from_inputs(query, query, query, scale=1.0, offset=0, mask=mask, bias=bias)
    made = output.detach().unflatten(-1, (heads, -1)).transpose(1, 2)
    values = [one.unflatten(0, (batch, heads)) for one in run.values]
    drops = module.training and module.dropout > 0
    words = [
        "queries · keys",
        f"a band of {2 * width + 1} keys" + (" next to global tokens" if count else ""),
        "softmax",
        *(["a dropout"] if drops else []),
        "· values",
    ]
    return CapturedCall(
        problem,
        real=tokens.real,
        context=lambda: made,
        follows=None if drops else partial(_follows, problem, values, made, tokens.on_all),
        by_hand=", ".join(words),
    )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _tokens(given: Mapping[str, Any]) -> _Tokens:
    """Return the tokens by the arguments of a module; it computes no global ones unless told."""
    masked, on_all = given["is_index_masked"], given.get("is_index_global_attn")
    return _Tokens(~masked, on_all if given.get("is_global_attn") else None)


def _follows(
    problem: Problem,
    values: list[Float[Tensor, "batch heads tokens value_dim"]],
    made: Float[Tensor, "batch heads tokens value_dim"],
    on_all: Bool[Tensor, "batch tokens"] | None,
) -> bool:
    """Return whether the output follows from the weights and values, at some of the queries.

    These are the first and the last, and the first that some text has as a global one, or not.
    """
    rows = {0, problem.scores_shape[-2] - 1}
    if on_all is not None:
        rows |= {int(kind.any(0).int().argmax()) for kind in (on_all, ~on_all)}
    for row in sorted(rows):
        tile = problem.tile()
        part = REFERENCE.part(problem, Tile(Span(row, row + 1), tile.keys, 0, device=tile.device))
        ours = part.weights @ values[0].to(part.weights)
        if on_all is not None:
            other = part.weights @ values[1].to(part.weights)
            ours = torch.where(on_all[:, row, None, None, None], other, ours)
        if not agrees(made[..., row, :], ours[..., 0, :]):
            return False
    return True

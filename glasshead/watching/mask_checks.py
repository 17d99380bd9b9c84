"""Checks of the masks by which a model ran: inverted ones, and other ones than were stated."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.diagnosis.mask_input import RowSummary, hiding, only_later
from glasshead.recipe.masks import Mask
from glasshead.recipe.problem import Problem
from glasshead.recipe.tile import Span, Tile
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.recorded_call import CallInfo

# Cells of a mask that are compared at once.
_CELLS = 2**22
# Layers that a warning names.
_NAMED = 4


class MaskChecks:
    """Checks of the masks of a model's attentions.

    Args:
        expected: The masks that are stated, by patterns of module names.
        names: Names of all modules of the model.

    Attributes:
        unexpected: How attentions ran otherwise than stated, a clause by name.
        settled: The attentions of which nothing more is to be checked.

    Errors: a TypeError for anything but masks by patterns, a ValueError for a pattern that names
    no module.
    """

    def __init__(self, expected: Any, names: Iterable[str]) -> None:
        self.unexpected: dict[str, str] = {}
        self.settled: set[str] = set()
        names = list(names)
        self._expected = {
            pattern: (Layers(pattern, names, argument="expect"), mask)
            for pattern, mask in _checked(expected).items()
        }
        self._met: set[str] = set()
        self._inverted: dict[str, None] = {}
        self._directed: set[str] = set()
        # The last mask of positions that is not inverted, and of which scores.
        self._upright: tuple[tuple[object, ...], tuple[Any, ...]] = (), ()
        self._padded: dict[str, Bool[Tensor, "batch keys"]] = {}

    @property
    def compares(self) -> bool:
        """Whether each call is compared with a stated mask."""
        return bool(self._expected)

    def check(self, name: str, problem: Problem, info: CallInfo) -> None:
        """Check the mask of a call.

        Args:
            name: Name of the attention.
            problem: The call, its keys numbered as in the text.
            info: Its place in the text.
        """
        if name not in self._directed and problem.scores_shape[-2] > 1:
            # Later calls of a layer have the mask of its first.
            self._directed.add(name)
            if not info.crossing and not self._is_upright(problem):
                self._inverted[name] = None
        stated = next((one for one in self._expected.items() if name in one[1][0]), None)
        if stated is not None:
            pattern, (_, mask) = stated
            self._met.add(pattern)
            if name not in self.unexpected:
                self._compare(name, mask, problem, info)
        if name in self._directed and (stated is None or name in self.unexpected):
            self.settled.add(name)

    def _is_upright(self, problem: Problem) -> bool:
        """Return whether a mask is not inverted, asked once of positions that layers share."""
        mask, scores = problem.mask, (problem.scores_shape, problem.offset)
        numbers = None if mask is None or problem.biases else mask.of_positions
        if numbers is None or isinstance(problem.offset, Tensor):
            return not _is_inverted(problem)
        if self._upright != (numbers, scores):
            if _is_inverted(problem):
                return False
            self._upright = numbers, scores
        return True

    def warn(self) -> None:
        """Warn of masks that are inverted, or other than stated, and of stated ones without use."""
        for name in self._inverted:
            _warn(
                f"The mask of {name or 'the model'!r} looks inverted: queries see only later "
                f"positions. In nn.MultiheadAttention True hides a pair, and in "
                f"scaled_dot_product_attention True shows it."
            )
        for name, why in [*self.unexpected.items()][:_NAMED]:
            _warn(f"{name or 'the model'!r} ran by another mask than expect= states: {why}.")
        more = len(self.unexpected) - _NAMED
        if more > 0:
            _warn(f"{more} more layers ran by another mask than expect= states: seen.unexpected.")
        for pattern in self._expected:
            if pattern not in self._met:
                _warn(f"expect= states a mask for {pattern!r}, where no attention was seen.")

    def _compare(self, name: str, mask: Mask | None, problem: Problem, info: CallInfo) -> None:
        """Compare the mask of a call with the one that is stated, some queries at a time."""
        queries, keys = problem.scores_shape[-2:]
        leading = problem.scores_shape[:-2]
        padded = self._padding(name, leading, info, keys)
        if info.crossing:
            # The padding of another text shows by its keys alone.
            padded = ~_visible(problem, Span(0, queries)).any(-2).any(-2)
        step = max(1, _CELLS // max(1, keys * torch.Size(leading).numel()))
        for start in range(0, queries, step):
            rows = Span(start, min(start + step, queries))
            tile = _tile(problem, rows)
            try:
                stated = _shown(tile, leading, mask)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                reason = f"{error}".partition("\n")[0].rstrip(".")
                self.unexpected[name] = f"{mask!r} does not fit {queries} × {keys}: {reason}"
                return
            differs = _visible(problem, rows) != stated
            if padded is not None:
                differs = differs & ~padded[..., None, None, :]
            if info.real is not None:
                real = info.real.reshape(*leading[:-1], 1, queries)[..., rows.start : rows.stop]
                differs = differs & real[..., None]
            if bool(differs.any()):
                self.unexpected[name] = _first_difference(differs, stated, start, info.position)
                return

    def _padding(
        self, name: str, leading: tuple[int, ...], info: CallInfo, keys: int
    ) -> Bool[Tensor, "*batch keys"] | None:
        """Return which keys are padding, as far as the queries at their positions were."""
        if info.crossing:
            return None
        known = None if info.position == 0 else self._padded.get(name)
        if info.real is not None and info.position + info.real.shape[-1] <= keys:
            padded = info.real.new_zeros(len(info.real), info.position + info.real.shape[-1])
            if known is not None and known.shape[0] == len(padded):
                padded[:, : known.shape[1]] = known[:, : padded.shape[1]]
            padded[:, info.position :] = ~info.real
            known = padded
        if known is None:
            self._padded.pop(name, None)
            return None
        self._padded[name] = known
        if len(known) != torch.Size(leading[:-1]).numel():
            return None
        whole = torch.nn.functional.pad(known, (0, max(0, keys - known.shape[1])))[:, :keys]
        return whole.reshape(*leading[:-1], keys)


def _checked(expected: Any) -> Mapping[str, Mask | None]:
    """Check the masks that are stated.

    Errors: a TypeError for anything but masks by patterns.
    """
    if expected is None:
        return {}
    if not isinstance(expected, Mapping) or not all(
        isinstance(pattern, str) and (mask is None or isinstance(mask, Mask))
        for pattern, mask in expected.items()
    ):
        raise TypeError(
            f'expect must be masks by patterns of module names, such as {{"model.layers.*": '
            f"gh.causal()}}, got {expected!r}."
        )
    return expected


def _warn(text: str) -> None:
    # At the end of the block of the caller.
    warnings.warn(text, stacklevel=6)


def _tile(problem: Problem, rows: Span) -> Tile:
    keys = problem.scores_shape[-1]
    device = problem.query.device
    return Tile(rows, Span(0, keys), problem.offset, problem.axes != 3, device, problem.dtype)


def _shown(
    tile: Tile, leading: tuple[int, ...], mask: Mask | None
) -> Bool[Tensor, "*leading queries keys"]:
    """Return the pairs that a stated mask shows."""
    shape = (*leading, *tile.shape)
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=tile.device)
    return mask.visible(tile).expand(shape)


def _visible(problem: Problem, rows: Span) -> Bool[Tensor, "*leading queries keys"]:
    """Return the pairs that a call shows; large negative biases hide, too."""
    tile = _tile(problem, rows)
    bias, visible = problem.bias_and_visible(problem.mask, tile)
    shape = (*problem.scores_shape[:-2], *tile.shape)
    shown = torch.ones(1, dtype=torch.bool, device=tile.device) if visible is None else visible
    if bias is not None:
        shown = shown & ~hiding(bias.detach()).cells
    return shown.expand(shape)


def _is_inverted(problem: Problem) -> bool:
    """Return whether queries see only later positions, in any batch row and head."""
    if (problem.mask is None and not problem.biases) or not isinstance(problem.offset, int):
        return False
    queries, keys = problem.scores_shape[-2:]
    earlier = range(keys)[: max(0, problem.offset + queries - 1)]
    last = _visible(problem, Span(queries - 1, queries))
    if bool(last[..., earlier.start : earlier.stop].any(-1).all()):
        # The last query sees an earlier key.
        return False
    visible = _visible(problem, Span(0, queries))
    return bool(only_later(visible, RowSummary.of(visible), problem.offset).any())


def _first_difference(
    differs: Bool[Tensor, "*leading queries keys"], stated: Tensor, start: int, position: int
) -> str:
    """Describe the first pair that is shown otherwise than stated, with its place in the text."""
    place = tuple(differs.nonzero()[0].tolist())
    verb = "does not see" if bool(stated[place]) else "sees"
    query = position + start + place[-2]
    where = f" (batch row {place[0]}, head {place[-3]})" if any(place[:-2]) else ""
    return f"position {query} {verb} key {place[-1]}{where}"

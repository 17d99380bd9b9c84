"""The mixers of one watch: each run is checked, placed, observed and recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.recipe.validation import UnfitError, without_autocast
from glasshead.statistics import MassOn, MeanDistance, Received, Statistic
from glasshead.watching.captured_call import (
    AttentionCall,
    CapturedCall,
    problem_from_inputs,
    tolerance_of,
    within,
)
from glasshead.watching.errors import BudgetError
from glasshead.watching.layer_patterns import Layers
from glasshead.watching.missed import MissedAttention
from glasshead.watching.mixers.kinds import Kind, Mix
from glasshead.watching.mixers.ledger import Ledger, MixerPlace
from glasshead.watching.mixers.weights import ImpliedWeights
from glasshead.watching.module_calls import ModuleCall, ModuleRun, calls_in_progress
from glasshead.watching.padding import PaddingFinder
from glasshead.watching.placing import Placer
from glasshead.watching.recorded_call import CallInfo
from glasshead.watching.recording import Recorder
from glasshead.watching.sequences import CallPosition

# How far rows times values may be from what a kernel gave, relative to its largest number.
TOLERANCE = 1e-5


class MixerObserver:
    """Observer of layers that mix tokens without attention.

    Args:
        names: The modules of the model, and their names.
        layers: The layers that were selected.
        heads: Head indices; None: all.
        statistics: Statistics by name.
        missed: What ran and was not observed.
        placer, padding, recorder: The stages of an attention call that mixers share.
    """

    def __init__(
        self,
        names: dict[nn.Module, str],
        layers: Layers,
        heads: tuple[int, ...] | None,
        statistics: Mapping[str, Statistic],
        missed: MissedAttention,
        placer: Placer,
        padding: PaddingFinder,
        recorder: Recorder,
    ) -> None:
        self._names, self._layers, self._heads, self._missed = names, layers, heads, missed
        self._placer, self._padding, self._recorder = placer, padding, recorder
        known = {n: one for n, one in statistics.items() if type(one) in _VALUES}
        self._statistics = known
        self._refused = {n: one for n, one in statistics.items() if n not in known}
        self._ledger = Ledger()

    def observe(self, kind: Kind, mix: Mix, dtype: torch.dtype) -> None:
        """Observe a run of a mixer, if its layer is selected.

        Args:
            kind: The kind of the mixer.
            mix: The run.
            dtype: The type of the output of its kernel.

        Errors: an `UnfitError` for a head out of range.
        """
        calls = calls_in_progress(self._names)
        if len(calls) <= kind.outer:
            return
        self._missed.ran = True
        own = calls[kind.outer]
        name = self._names[own.module]
        run = self._placer.forward_pass.run(name, calls, own)
        if self._placer.forward_pass.repeated:
            run = self._placer.forward_pass.another(name)
        if name not in self._layers:
            return
        with torch.no_grad(), without_autocast(mix.values.device):
            self._observe(name, kind, mix, calls, run, dtype)

    def _observe(
        self,
        name: str,
        kind: Kind,
        mix: Mix,
        calls: Sequence[ModuleCall],
        run: ModuleRun,
        dtype: torch.dtype,
    ) -> None:
        made = mix.rebuilt()
        if (why := _difference(mix, made, dtype)) is not None:
            self._missed.record_named(
                name,
                f"watch cannot rebuild the output of {name!r} from the implied weights of "
                f"{kind.name}: it differs by {why}. Exclude it with layers=.",
            )
            return
        place = self._ledger.place(f"{name}#{run.repeat}", mix, mix.operator.owned())
        if place is None:
            self._missed.record_named(
                name,
                f"watch cannot place a run of {name!r}, which begins with the state of a text that "
                "this watch has not seen. Run the text from its beginning within the block.",
            )
            return
        heads = self._requested(name, mix.operator.shape[1])
        weights = _weights(place, kind)
        position = CallPosition(place.position, text=place.text, rows=place.rows)
        call = AttentionCall(name, _as_attention(weights), calls, run)
        real = self._padding.real(call, position)
        values = {n: _VALUES[type(one)](one, weights, real) for n, one in self._statistics.items()}
        batch, many, queries, keys = weights.shape
        if heads is not None:
            values = {n: x[:, [*heads]] for n, x in values.items()}
            many = len(heads)
        info = CallInfo(
            position=place.position,
            keys=keys,
            heads=heads,
            real=real,
            forward=run.forward,
            run=run.repeat,
            interleaved=run.interleaved,
            beside=run.beside,
            text=place.text,
            rows=place.rows,
            kind=kind.name,
            channels=kind.channels,
            refused=self._refused,
        )
        kept = self._kept(name, mix, made, weights)
        shape = batch, many, queries
        self._recorder.add(
            name, self._recorder.made(shape, values, info, statistics=self._statistics, **kept)
        )

    def _requested(self, name: str, own: int) -> tuple[int, ...] | None:
        """Return the requested heads; None: all.

        Errors: an `UnfitError` for a head out of range.
        """
        if self._heads is not None and max(self._heads) >= own:
            raise UnfitError(
                f"heads must be in 0..{own - 1} for {name!r}, got {max(self._heads)}. Choose "
                "other heads, or exclude this layer with layers=."
            )
        return self._heads

    def _kept(self, name: str, mix: Mix, made: Tensor, weights: ImpliedWeights) -> dict[str, Any]:
        """Return what a run keeps, by the names of `Call`; beyond the budget, why it does not."""
        keeper = self._recorder.keeper
        if keeper is None:
            return {}
        context = keeper.keep == "context"
        needed = made.numel() * made.itemsize if context else mix.operator.bytes
        try:
            if keeper.spent is None:
                keeper.charge_or_stop(name, needed)
        except BudgetError:
            pass
        if keeper.spent is not None:
            return {"missing": keeper.spent}
        return {"context": made} if context else {"weights": weights}


def _difference(mix: Mix, made: Tensor, dtype: torch.dtype) -> str | None:
    """Return how far what was rebuilt is from what the kernel gave; None: within the tolerance."""
    ours = made if mix.gate is None else made * mix.gate
    largest = float(mix.output.abs().amax()) if mix.output.numel() else 0.0
    precise = dtype in (torch.float32, torch.float64)
    tolerance = TOLERANCE if precise else tolerance_of(dtype)
    if within(mix.output, ours, tolerance * max(largest, 1e-30)):
        return None
    difference = float((ours - mix.output).abs().amax())
    return f"{difference:.2g}, and {largest:.2g} is its largest number"


def _weights(place: MixerPlace, kind: Kind) -> ImpliedWeights:
    tokens = place.tokens
    batch, heads, _ = tokens.own.shape
    return ImpliedWeights(
        tokens.operator,
        kind.name,
        shape=(batch, heads, tokens.count),
        first=place.position,
        device=tokens.own.device,
    )


def _as_attention(weights: ImpliedWeights) -> CapturedCall:
    """Return an attention of the same texts, by which padding is found."""
    batch, _, queries, keys = weights.shape
    nothing = torch.zeros((), device=weights.device)
    query, key = (nothing.expand(batch, 1, tokens, 1) for tokens in (queries, keys))
    return CapturedCall(problem_from_inputs(query, key, key, scale=1.0, offset=weights.offset))


def _received(statistic: Any, weights: ImpliedWeights, real: Tensor | None) -> Tensor:
    """Compute Σ_t W_ts, of the last queries, without padding."""
    batch, _, queries, _ = weights.shape
    counted = torch.ones(batch, 1, queries, 1, device=weights.device)
    if statistic.last is not None:
        if statistic.last > queries:
            raise UnfitError(
                f"{statistic!r} needs at least {statistic.last} queries, got {queries}. Use a "
                "smaller last."
            )
        counted[:, :, : queries - statistic.last] = 0
    if real is not None:
        counted *= real.reshape(batch, 1, queries, 1)
    return (weights.T @ counted)[..., 0]


def _mean_distance(statistic: Any, weights: ImpliedWeights, real: Tensor | None) -> Tensor:
    """Compute Σ_s |W_ts| (t - s) / Σ_s |W_ts|."""
    del statistic, real
    queries, keys = (torch.arange(count, device=weights.device) for count in weights.shape[-2:])
    parts = []
    for rows, shares in weights.shares().blocks():
        distance = (queries[rows, None] + weights.offset - keys).abs()
        parts.append((shares * distance).sum(-1))
    return torch.cat(parts, -1)


def _mass_on(statistic: Any, weights: ImpliedWeights, real: Tensor | None) -> Tensor:
    """Compute Σ_{s in keys} W_ts."""
    del real
    keys = weights.shape[-1]
    counted = torch.zeros(keys, 1, device=weights.device)
    counted[[key for key in statistic.keys if key < keys]] = 1.0
    return (weights @ counted)[..., 0]


_VALUES = {Received: _received, MeanDistance: _mean_distance, MassOn: _mass_on}

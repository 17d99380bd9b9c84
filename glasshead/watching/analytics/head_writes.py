"""Head writes: what each head adds to the output of its attention, by the output projection."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glasshead.recipe.validation import without_autocast
from glasshead.watching.captured_call import tolerance_of, within
from glasshead.watching.errors import UnseenError
from glasshead.watching.interception.patches import check_compiled_code_is_seen
from glasshead.watching.layer_record import Watched, check_whole
from glasshead.watching.module_calls import compiled_parts
from glasshead.watching.recorded_call import Call
from glasshead.watching.watch_and_intervene import observing
from glasshead.watching.watcher import WatchChoices, Watcher

# Their parts are not called as modules, and hooks on these would turn off their fast paths.
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
# What a projection mostly is: subclasses may do something else.
_LINEAR = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)
# What hands its input on is no projection.
_PASSED_ON = (nn.Identity, nn.Dropout)


@dataclass(frozen=True, eq=False)
class HeadWrites:
    """Norms and shares of what heads write in one call of an attention: w_h = context_h W_hᵀ.

    The attention's output is o = Σ_h w_h + b. What a block does to o before it adds it to the
    residual stream, such as a norm or a LayerScale, comes after.

    Attributes:
        norm: ‖w_h‖ of each head and query.
        share: w_h·o / ‖o‖², the head's share of the output in its direction; below 0 if a head
            works against the others, and 0 if o is 0. Over heads and bias they sum to 1.
        bias_share: b·o / ‖o‖², the share of the projection's bias.
        output_norm: ‖o‖.
        projection: The name of the output projection's module.
    """

    norm: Float[Tensor, "*batch heads queries"]
    share: Float[Tensor, "*batch heads queries"]
    bias_share: Float[Tensor, "*batch queries"]
    output_norm: Float[Tensor, "*batch queries"]
    projection: str


@contextmanager
def head_writes(
    model: nn.Module, *, layers: str | Sequence[str] | None = None
) -> Iterator[Mapping[str, list[HeadWrites]]]:
    """Measure what each head adds to the output of its attention while the block lasts.

    w_h = softmax(q_h·k_h/√d) v_h W_hᵀ, where W_h are the columns of the output projection that read
    head h. The projection is found by what runs: it is the module whose input is the output of the
    heads side by side, and its result is checked to be Σ_h w_h + b. The model runs unchanged, on
    its own kernels. Memory grows with heads · queries.

    Args:
        model: The model to run inside the block.
        layers: Patterns of module names, as of `watch`; None: all.

    Yields: the writes of each call, by the dotted name of the attention's module, as in `watch`.

    Errors: a TypeError or ValueError if an argument is invalid, or the model is compiled. At the
    end of the block an `UnseenError` as of `watch`, and if the output of the heads goes to no
    linear projection alone: through a norm or a gate before it, or to a function without a module.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits), section
    "Attention heads are independent and additive".

    >>> import torch
    >>> import glasshead as gh
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> with gh.head_writes(model) as writes:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> (call,) = writes["blocks.1.attention"]
    >>> call.norm.shape
    torch.Size([1, 3, 5])
    >>> torch.allclose(call.share.sum(-2) + call.bias_share, torch.ones(1, 5), atol=1e-5)
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"head_writes needs a model, got {type(model).__name__}. Pass a module.")
    if compiled_parts(model):
        raise ValueError(
            "head_writes needs an uncompiled model, because it finds the projections by the "
            "modules that run. Pass the model from before torch.compile."
        )
    watcher = _WritesWatcher(model, layers)
    with ExitStack() as hooks, observing(watcher):
        for module in _callable_parts(model):
            hooks.callback(module.register_forward_hook(watcher.project).remove)
        yield watcher.writes
    check_compiled_code_is_seen()
    watcher.settle()
    watcher.check_seen()
    if watcher.lost is not None:
        name, why = watcher.lost
        raise UnseenError(
            "head_writes needs attention whose heads feed only a linear projection, but the heads "
            f"of {name!r} {why}. Exclude it with layers=."
        )


def _callable_parts(model: nn.Module) -> Iterator[nn.Module]:
    """Generate the modules that may be called as a projection."""
    within = {part for one in model.modules() if isinstance(one, _FUSED) for part in one.modules()}
    for module in model.modules():
        if module not in within and not isinstance(module, _PASSED_ON):
            yield module


@dataclass
class _Waiting:
    """A call whose projection is to run yet, or has run.

    Attributes:
        name: Name of the attention.
        attention: Its module.
        context: The output of its heads, `[*batch, heads, queries, value_dim]`.
        by: The module that projected it.
        writes: What it made of it; None if it is not linear.
    """

    name: str
    attention: nn.Module
    context: Tensor
    by: nn.Module | None = None
    writes: HeadWrites | None = None

    @property
    def joined(self) -> Float[Tensor, "*batch queries width"]:
        """The output of the heads side by side."""
        return self.context.transpose(-3, -2).flatten(-2)


@dataclass(frozen=True)
class _Projection:
    """The map x ↦ x W + b of a module.

    Attributes:
        name: Name of the module.
        weight: W, `[width, outputs]`.
        bias: b; 0 if there is none.
    """

    name: str
    weight: Float[Tensor, "width outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def of(cls, name: str, module: nn.Module, like: Float[Tensor, "*batch width"]) -> "_Projection":
        """Return the map of a module, whose weights may be packed: by what it makes of units."""
        width = like.shape[-1]
        if isinstance(module, nn.Linear) and type(module) in _LINEAR:
            weight, bias = module.weight.T, module.bias
            return cls(name, weight, weight.new_zeros(weight.shape[-1]) if bias is None else bias)
        bias = module(like.new_zeros(1, 1, width))[0, 0]
        units = torch.eye(width, dtype=like.dtype, device=like.device)
        return cls(name, module(units[None])[0] - bias, bias)

    def writes(
        self, context: Float[Tensor, "*batch heads queries dim"], output: Tensor | None
    ) -> HeadWrites | None:
        """Return what the heads write; None if their sum is not what the module returned."""
        exact = torch.promote_types(context.dtype, torch.float32)
        heads, dim = context.shape[-3], context.shape[-1]
        weight, bias = self.weight.to(exact).unflatten(0, (heads, dim)), self.bias.to(exact)
        parts = context.to(exact)
        total = bias + torch.einsum("...hqd,hde->...qe", parts, weight)
        if output is not None:
            returned = output.reshape(total.shape).to(exact) if _fits(output, total) else None
            largest = total.abs().amax().clamp(min=torch.finfo(exact).tiny)
            limit = tolerance_of(output.dtype) * largest
            if returned is None or not within(returned, total, limit):
                return None
        norms, shares, square = [], [], (total * total).sum(-1)
        for head in range(heads):
            written = parts[..., head, :, :] @ weight[head]
            norms.append(torch.linalg.vector_norm(written, dim=-1))
            shares.append(_ratio((written * total).sum(-1), square))
        return HeadWrites(
            norm=torch.stack(norms, -2),
            share=torch.stack(shares, -2),
            bias_share=_ratio((bias * total).sum(-1), square),
            output_norm=square.sqrt(),
            projection=self.name,
        )


def _fits(output: Tensor, total: Tensor) -> bool:
    return output.numel() == total.numel() and output.shape[-1] == total.shape[-1]


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / whole, 0.0)


class _WritesWatcher(Watcher):
    """Watcher that waits after each call for the module that projects the output of its heads.

    Attributes:
        writes: What was written so far.
        lost: The name of an attention whose heads went elsewhere, and a clause that says so; None
            where none did.
    """

    def __init__(self, model: nn.Module, layers: str | Sequence[str] | None) -> None:
        # A context is let go of once it is projected.
        super().__init__(model, layers, WatchChoices({}, keep="context", budget=2**62))
        self.writes: dict[str, list[HeadWrites]] = {}
        self.lost: tuple[str, str] | None = None
        self._pending: _Waiting | None = None
        self._thread, self._probing = threading.get_ident(), False

    def record(self, name: str, make: Callable[[], Call]) -> None:
        made = make()
        check_whole(name, [made], "head_writes")
        self.settle()
        context = made.context
        if context is not None:
            # Attention without an axis of heads is of one head.
            context = context.unsqueeze(-3) if len(made.shape) < 3 else context
            module = self.model.get_submodule(name)
            self._pending = _Waiting(name, module, context)
            if isinstance(module, nn.MultiheadAttention):
                self._project(self._pending, module.out_proj, None)
        self.watched[name] = Watched(name)

    def project(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        """Take what a module made of its input, where that is the output of the heads."""
        waiting = self._pending
        # Another thread may be running the same model.
        if waiting is None or self._probing or threading.get_ident() != self._thread:
            return
        parts = set(module.modules())
        # What holds the attention began before it; what holds the projection has the last word.
        if waiting.attention in parts or not parts >= {waiting.by} - {None}:
            return
        if len(given) != 1 or not isinstance(given[0], Tensor) or not isinstance(output, Tensor):
            return
        (taken,), joined = given, waiting.joined
        if taken.numel() != joined.numel() or taken.shape[-1] != joined.shape[-1]:
            return
        with torch.no_grad(), without_autocast(taken.device):
            if not _is_same(taken.reshape(joined.shape), joined):
                return
            self._project(waiting, module, output)

    def _project(self, waiting: _Waiting, module: nn.Module, output: Tensor | None) -> None:
        self._probing = True
        try:
            with torch.no_grad():
                projection = _Projection.of(self.names[module], module, waiting.joined)
                waiting.by, waiting.writes = module, projection.writes(waiting.context, output)
        finally:
            self._probing = False

    def settle(self) -> None:
        """Keep what the heads of the last call wrote."""
        waiting, self._pending = self._pending, None
        if waiting is None:
            return
        if waiting.writes is None:
            finite = bool(waiting.context.isfinite().all())
            why = "go elsewhere" if finite else "hold NaN or infinity, which identify no projection"
            self.lost = self.lost or (waiting.name, why)
        else:
            self.writes.setdefault(waiting.name, []).append(waiting.writes)


def _is_same(taken: Tensor, joined: Tensor) -> bool:
    """Return whether a module was given the output of the heads, to the rounding of its dtype."""
    if torch.equal(taken, joined):
        return True
    limit = 8 * torch.finfo(taken.dtype).eps * joined.abs().amax()
    return within(taken, joined, limit)

"""The fused engine: PyTorch's scaled dot product attention, and statistics beside its context."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from glasshead.engines.direct import (
    ByLengths,
    Direct,
    by_spans,
    is_softmax_of_products,
    pays_by_row,
)
from glasshead.engines.reducing import of_rows, reduce_by_fastest
from glasshead.engines.reference import (
    IN_FULL,
    SOFTMAX,
    Cost,
    Observed,
    Price,
    bytes_by_rows,
)
from glasshead.engines.streaming import STREAMING
from glasshead.engines.triton import TRITON
from glasshead.private_names import private
from glasshead.recipe.masks.base import Mask
from glasshead.recipe.masks.kinds import LengthMask
from glasshead.recipe.problem import Problem, clear_hidden, sees_and_seen, visible_pairs
from glasshead.recipe.tile import Span, Tile, four_axes
from glasshead.recipe.validation import is_traced, is_transformed
from glasshead.statistics.reductions import Reduction

# Rows whose largest bias is further from 0 go to the kernel that keeps its weights.
_LARGE = 256.0


class Fused:
    """Engine on `F.scaled_dot_product_attention`, without a mask tensor where none is needed.

    A row that a finite constant such as -1e9 masks as a whole goes to the kernel that keeps its
    weights, as the gradients of the others are wrong there. While torch.compile traces, the numbers
    of a bias cannot be read, and the fast kernel is taken: hide such rows by a boolean mask or by
    -inf, or take `engine="reference"`.
    """

    name = "fused"
    about = "PyTorch's scaled_dot_product_attention"

    def refusal(self, problem: Problem) -> str | None:
        """Return why SDPA cannot compute it: it has inner products, bias, mask and softmax only."""
        if not problem.score.is_inner_product:
            return f"the score {type(problem.score).__name__} is not an inner product"
        if problem.softcap is not None:
            return "SDPA has no softcap"
        if not problem.normalizer.is_softmax:
            return f"SDPA normalizes by softmax, not by {type(problem.normalizer).__name__}"
        if 0 in problem.query.shape or 0 in problem.value.shape:
            return "an axis is empty"
        return None

    def cost(self, problem: Problem) -> Cost:
        """Estimate the cost: a causal mask halves a square's work; mask and dropout cost bytes."""
        mask, is_causal = _mask(problem)
        batch_and_heads = math.prod(problem.scores_shape[:-2])
        queries, keys = problem.scores_shape[-2:]
        width = max(problem.query.shape[-1], problem.value.shape[-1])
        seen, size = queries * keys, problem.query.element_size()
        if is_causal:
            short = min(queries, keys)
            seen = short * (short + 1) // 2 + (queries - short) * keys
        extra = batch_and_heads * queries * width * size
        if not is_causal and mask is not None:
            # On the meta device a mask has a shape and takes no memory. The kernel converts
            # booleans to floats, and holds two of them while they are combined.
            pairs = mask.visible(replace(problem.tile(), device=torch.device("meta"))).numel()
            extra += pairs * (2 + problem.dtype.itemsize)
        if problem.biases:
            extra += 2 * batch_and_heads * queries * keys * problem.dtype.itemsize
        if problem.dropout:
            extra += 3 * batch_and_heads * queries * keys * size
        return Cost(4 * batch_and_heads * seen * width, extra)

    def price(self, problem: Problem, cost: Cost, reductions: Sequence[Reduction]) -> Price:
        """Estimate what reductions cost: a pass of their own over the scores."""
        del cost
        bare, width = problem.without_dropout(), problem.query.shape[-1]
        if problem.query.device.type == "cuda" and TRITON.refusal(bare) is None:
            return TRITON.price(bare, reductions)
        if STREAMING.refusal(bare) is not None:
            whole = math.prod(problem.scores_shape)
            sums = IN_FULL * (2 + len(reductions)) * whole
            return Price(SOFTMAX * whole, 2 * whole * width, sums, bytes_by_rows(bare), 2)
        cost = STREAMING.cost(bare)
        plain, flops, sums, extra, passes = STREAMING.price(bare, cost, reductions)
        pairs = plain // SOFTMAX
        return Price(plain, flops + 2 * pairs * width, sums + plain, extra + cost.bytes, passes + 1)

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """Compute the context, differentiably."""
        direct = self.direct(problem)
        if direct is not None:
            inputs = problem.query, problem.key, problem.value
            context = direct(*inputs, problem.simplified_mask())
            if context is not None:
                return context
        mask, is_causal = _mask(problem)
        bias, visible = None, None
        if problem.biases or (mask is not None and not is_causal):
            bias, visible = problem.bias_and_visible(mask, problem.tile())
        spans = _spans_of_rows(problem, bias, visible)
        if spans is not None:
            # Nothing is hidden within the spans, and nothing beyond them is read.
            visible = None
        query, key, value = _inputs(problem, visible, is_causal=is_causal)
        # With is_causal, SDPA's kernel multiplies its -inf by the scale.
        query, key, scale = problem.scaled_features(query, key, positive=True)
        value = value if value.dtype == query.dtype else value.to(query.dtype)
        width, value_width = query.shape[-1], value.shape[-1]
        if width != value_width:
            # SDPA's fast kernels take one width; zeros change neither a score nor a sum.
            query, key, value = (
                F.pad(x, (0, max(width, value_width) - x.shape[-1])) for x in (query, key, value)
            )
        if query.ndim != 4:
            query, key, value = (four_axes(x, x.shape[:-3]) for x in (query, key, value))
        keeps_weights = (
            bias is not None
            and torch.is_grad_enabled()
            and any(x.requires_grad for x in (query, key, value))
            and _has_large_rows(bias)
        )
        attend = partial(sdpa, scale=scale, dropout_p=problem.dropout, is_causal=is_causal)
        if spans is not None:
            context = cast("Tensor", by_spans(attend, query, key, value, spans))
        else:
            with sdpa_kernel(SDPBackend.MATH) if keeps_weights else nullcontext():
                context = attend(query, key, value, attn_mask=_attn_mask(problem, bias, visible))
        if problem.query.ndim != 4:
            context = context.reshape(*problem.query.shape[:-1], context.shape[-1])
        if width > value_width:
            context = context[..., :value_width]
        return context.to(problem.query.dtype)

    def direct(self, problem: Problem) -> Direct | None:  # noqa: PLR0911 - a reason each
        """Return what computes the problem by SDPA alone, from its inputs as they are.

        It computes all inputs of the same shapes, dtype and device, with a mask that is the same or
        has other lengths. None if inputs have to be converted, cut or cleared.
        """
        mask, is_causal = _mask(problem)
        by_length = type(mask) is LengthMask
        if not (mask is None or is_causal or by_length or mask.of_positions):
            return None
        query = problem.query
        if problem.biases or not is_softmax_of_products(problem):
            return None
        if query.shape[-1] != problem.value.shape[-1]:
            return None
        scale = cast("float", problem.scale)
        if scale <= 0:
            return None
        queries, keys = problem.scores_shape[-2:]
        call = _SDPACall(float(scale), problem.group > 1, is_causal)
        if mask is None or is_causal:
            return call if keys <= queries or not is_causal else None
        if query.device.type != "cpu":
            return None
        if by_length:
            return ByLengths.of(cast("LengthMask", mask), call)
        if queries * keys > AddedMask.most_pairs or not _pairs_each_with_its_own(problem):
            return None
        return call._replace(added=AddedMask(mask, problem.tile(), query.dtype))

    def observe(
        self, problem: Problem, reductions: Sequence[Reduction], *, gradient: bool = True
    ) -> Observed:
        """Compute the context with SDPA, and the reductions in a separate pass."""
        with nullcontext() if gradient else torch.no_grad():
            recorder = _Recorder() if reductions and _is_worth_recording(problem) else None
        with nullcontext() if recorder is None else recorder:
            context = self.run(problem)
        known = None if recorder is None else of_rows(recorder.logsumexps, problem)
        with nullcontext() if gradient else torch.no_grad():
            return Observed(context, reduce_by_fastest(problem, reductions, known))


class _SDPACall(NamedTuple):
    """Attention by SDPA alone, on inputs as they are. It holds no tensor.

    Attributes:
        scale: The number that multiplies the products.
        grouped: Whether query heads share key heads.
        is_causal: Whether SDPA's own mask is the mask.
        added: The mask as a tensor, where it takes one.
    """

    scale: float
    grouped: bool
    is_causal: bool = False
    added: "AddedMask | None" = None

    def __call__(
        self,
        query: Float[Tensor, "batch heads queries dim"],
        key: Float[Tensor, "batch kv_heads keys dim"],
        value: Float[Tensor, "batch kv_heads keys dim"],
        mask: object = None,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Compute the context."""
        scale, grouped, is_causal, added = self
        # Looked up in its module at each call, where others may have put a stand-in.
        attend = sdpa if grouped else F.scaled_dot_product_attention
        pairs = None if added is None else added.tensor()
        return attend(query, key, value, attn_mask=pairs, is_causal=is_causal, scale=scale)


def sdpa(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch kv_heads keys dim"],
    value: Float[Tensor, "batch kv_heads keys dim"],
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    **options: Any,
) -> Float[Tensor, "batch heads queries dim"]:
    """Call SDPA, whose heads may be grouped."""
    grouped = query.shape[-3] > key.shape[-3]
    if grouped and attn_mask is None and not is_causal and query.shape[-2] == 1:
        # Queries that share a key head form one block, so that no key is copied.
        block = query.reshape(*key.shape[:-2], -1, query.shape[-1])
        context = F.scaled_dot_product_attention(block, key, value, **options)
        return context.reshape(*query.shape[:-1], -1)
    if grouped:
        options["enable_gqa"] = True
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, **options
    )


class AddedMask:
    """Mask of positions in the numbers that SDPA adds, kept ready for the next calls.

    SDPA would convert booleans to these numbers in each call.
    """

    # Most pairs of a mask, and most bytes of all that are kept.
    most_pairs: ClassVar = 2**20
    _most_bytes: ClassVar = 2**23
    _kept: ClassVar[dict[tuple[object, ...], Tensor]] = {}
    _lock: ClassVar = Lock()

    def __init__(self, mask: Mask, tile: Tile, dtype: torch.dtype) -> None:
        self._mask, self._tile, self._dtype = mask, tile, dtype
        self._name = repr(mask), tile.offset, tile.shape, dtype

    def tensor(self) -> Float[Tensor, "queries keys"]:
        """Return the mask as a tensor, 0 where visible and -inf where hidden."""
        tensor = self._kept.get(self._name)
        return self._made() if tensor is None else tensor

    def _made(self) -> Tensor:
        """Make the tensor, and keep it in place of those that were made first."""
        # Autograd refuses tensors that were made in inference mode.
        with torch.inference_mode(mode=False):
            visible = visible_pairs(self._mask, self._tile)
            tensor = torch.zeros(visible.shape, dtype=self._dtype, device=self._tile.device)
            tensor.masked_fill_(~visible, -torch.inf)
        # While another mode traces, it is one of its own.
        if type(tensor) is Tensor:
            with self._lock:
                self._kept[self._name] = tensor
                while sum(kept.nbytes for kept in self._kept.values()) > self._most_bytes:
                    del self._kept[next(iter(self._kept))]
        return tensor


# Operators by name, so that none of them has to be there: they return the logsumexp of their rows
# after the context.
LOGSUMEXP_KERNELS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
}
# A class of PyTorch, or none.
_Mode: Any = private("torch.utils._python_dispatch.TorchDispatchMode") or object


class _Recorder(_Mode):
    """A mode that records the logsumexps which kernels return beside the context."""

    def __init__(self) -> None:
        super().__init__()
        self.logsumexps: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.name() in LOGSUMEXP_KERNELS:
            self.logsumexps.append(output[1])
        return output


def _is_worth_recording(problem: Problem) -> bool:
    """Return whether what reduces the weights is faster if it knows the logsumexps."""
    bare = problem.without_dropout()
    if _Mode is object:
        return False
    if STREAMING.refusal(bare) is not None:
        return TRITON.refusal(bare) is None
    return bare is problem and not problem.biases and not is_traced()


def _mask(problem: Problem) -> tuple[Mask | None, bool]:
    """Simplify the mask, and return whether SDPA's own `is_causal` expresses it."""
    mask = problem.simplified_mask()
    if mask is None or problem.biases:
        return mask, False
    # A branch, as under torch.compile the result may be a symbol, which SDPA rejects.
    return (mask, True) if mask.is_top_left_causal(problem.tile()) else (mask, False)


def _spans_of_rows(
    problem: Problem, bias: Tensor | None, visible: Tensor | None
) -> list[Span] | None:
    """Return the keys that all queries of a batch row see, without a gap, one span for all or each.

    SDPA then needs no mask tensor, no copy without what it hides, and no scores of that, as in a
    batch of padded texts, or in a cache longer than its text. None if the rows are others, or
    too small.
    """
    *batch, _, _, keys = problem.scores_shape
    if (
        bias is not None
        or visible is None
        or visible.shape[-3:] != (1, 1, keys)
        or type(visible) is not Tensor
        or visible.device.type != "cpu"
        or is_traced()
        or is_transformed()
    ):
        return None
    rows = four_axes(visible, tuple(batch)).flatten(0, -2).numpy()
    counts, starts = rows.sum(-1), rows.argmax(-1)
    stops = keys - rows[:, ::-1].argmax(-1)
    if not counts.all() or (counts != stops - starts).any():
        return None
    spans = [Span(*ends) for ends in zip(starts.tolist(), stops.tolist(), strict=True)]
    if len(set(spans)) == 1:
        return spans[:1]
    return spans if pays_by_row(problem.query, problem.key) else None


def _inputs(
    problem: Problem, visible: Tensor | None, *, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value, with 0 (or nothing) where no visible pair reads them."""
    query, key, value = problem.query, problem.key, problem.value
    # A length that is traced may be unknown, and is not to be fixed by a comparison.
    if is_causal and (torch.compiler.is_compiling() or key.shape[-2] > query.shape[-2]):
        # From the last query's position on, no query sees a key.
        key, value = (x[..., : query.shape[-2], :] for x in (key, value))
    if visible is None or _pairs_each_with_its_own(problem):
        return query, key, value
    return clear_hidden(query, key, value, *sees_and_seen(visible))


def _pairs_each_with_its_own(problem: Problem) -> bool:
    """Return whether each query sees the key at its position, and each key is seen by its query."""
    mask, (queries, keys) = problem.simplified_mask(), problem.scores_shape[-2:]
    return (
        not torch.compiler.is_compiling()
        and mask is not None
        and mask.shows_own_key
        and mask.by_distance
        and not problem.biases
        and isinstance(problem.offset, int)
        and (problem.offset, queries) == (0, keys)
    )


def _attn_mask(problem: Problem, bias: Tensor | None, visible: Tensor | None) -> Tensor | None:
    """Combine bias and mask to SDPA's `attn_mask`: booleans, or floats with -inf, on four axes.

    It takes float32 numbers beside queries of half precision, which would round them.
    """
    mask = visible if bias is None else bias
    if bias is not None and visible is not None:
        mask = torch.where(visible, bias, -torch.inf)
    return None if mask is None else four_axes(mask, problem.scores_shape[:-3])


def _has_large_rows(bias: Tensor) -> bool:
    """Return whether a whole row of a bias is known to be far from 0, as one that −1e9 masks.

    The fast kernels take the weights of the backward pass from exp(score − logsumexp), which loses
    a digit for each of the logsumexp.
    """
    if torch.compiler.is_compiling() or bias.device.type == "meta" or is_transformed():
        return False
    largest = bias.detach().amax(-1)
    return bool(((largest.abs() > _LARGE) & largest.isfinite()).any())

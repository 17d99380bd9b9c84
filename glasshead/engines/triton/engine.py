"""The engine of statistics on a CUDA device: what it takes, and when it is not taken."""

import math
import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from glasshead.engines.reference import Price, by_rows, bytes_by_rows
from glasshead.engines.streaming.engine import is_differentiated_otherwise, seen_pairs
from glasshead.recipe.biases import Bias
from glasshead.recipe.problem import Problem
from glasshead.recipe.validation import without_autocast
from glasshead.statistics.reductions import (
    BlockSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    Reduction,
    ScoreSum,
    TimesKeys,
    TimesQueries,
)

_KNOWN = (
    BlockSum,
    DistanceSum,
    EntropySum,
    Largest,
    LargestWeights,
    LogSum,
    ScoreSum,
    TimesKeys,
    TimesQueries,
)
# The list of a row's largest weights stays in registers.
_MOST, WIDEST = 64, 256


class Triton:
    """Exact statistics beside another engine's context, from one pass over q·kᵀ.

    The context and its gradient stay with PyTorch's fused kernel. Where that gave the logsumexp
    of its rows, P_ij = exp(s_ij - lse_i) is there at once, and sums along rows and columns are made
    in the same pass; otherwise columns take a second one. Weights are computed in float32 from
    products that are as exact, and sums over queries are added in float64.

    Source: Dao et al. 2022 (FlashAttention), section 3.1; Tillet et al. 2019 (Triton).
    """

    name = "triton"
    about = "one kernel in addition to the context's, over blocks of q·kᵀ on the GPU"

    def __init__(self) -> None:
        self._failure: str | None = None

    def refusal(self, problem: Problem) -> str | None:  # noqa: PLR0911 - a reason each
        """Return why the kernel cannot reduce its weights, or None if it can."""
        device = problem.query.device
        if not problem.score.is_inner_product:
            return f"the score {type(problem.score).__name__} is not an inner product"
        if not problem.normalizer.exponential:
            return f"the weights of {type(problem.normalizer).__name__} are not exponentials"
        unavailable = self.unavailable(device)
        if unavailable is not None:
            return unavailable
        if problem.dtype == torch.float64:
            return "it computes in float32, and the inputs are of float64"
        if problem.query.shape[-1] > WIDEST:
            return f"queries are at most {WIDEST} wide, and these {problem.query.shape[-1]}"
        if 0 in problem.query.shape or 0 in problem.key.shape:
            return "an axis is empty"
        if torch.compiler.is_compiling():
            return "it is not traced by torch.compile"
        if is_differentiated_otherwise(problem) or _requires_gradient(problem):
            return "its statistics have no gradient"
        return None

    def unavailable(self, device: torch.device) -> str | None:
        """Return why the kernel cannot run on this device, or None if it can."""
        if device.type != "cuda" and not (device.type == "cpu" and _is_interpreted()):
            return f"it runs on CUDA devices, and the inputs are on {device.type}"
        if find_spec("triton") is None:
            return "Triton is not installed; run pip install 'glasshead[gpu]'"
        if device.type == "cuda" and torch.version.hip is not None:
            return "it is for NVIDIA's GPUs"
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
            return "the GPU is older than compute capability 8.0"
        return self._failure

    def knows(self, reduction: Reduction) -> bool:
        """Return whether the kernel computes this reduction."""
        many = isinstance(reduction, LargestWeights) and reduction.k > _MOST
        return type(reduction) in _KNOWN and not many

    def price(self, problem: Problem, reductions: Sequence[Reduction]) -> Price:
        """Estimate one pass over q·kᵀ, and blocks of rows for reductions that the kernel lacks."""
        whole, width = math.prod(problem.scores_shape), problem.query.shape[-1]
        pairs = seen_pairs(problem)
        flops = 2 * (whole if pairs is None else pairs) * width
        others = not all(map(self.knows, reductions))
        flops += 2 * whole * width if others else 0
        return Price(0, flops, 0, bytes_by_rows(problem) if others else 0, 2 + others)

    def reduce(
        self, problem: Problem, reductions: Sequence[Reduction], logsumexp: Tensor | None = None
    ) -> list[tuple[Tensor, ...]]:
        """Compute reductions of the weights, `[*batch, heads, …]` each, without a gradient.

        Those that the kernel does not know take blocks of rows in plain torch.

        Args:
            problem: One that is not refused.
            reductions: What is asked of its weights.
            logsumexp: Of each row, `[*batch, heads, queries]`, as a fused kernel gave it; it is
                checked, and not used where the weights that it makes do not sum to 1.
        """
        taken = [reduction for reduction in reductions if self.knows(reduction)]
        others = [reduction for reduction in reductions if not self.knows(reduction)]
        with torch.no_grad(), without_autocast(problem.query.device):
            found = dict(zip(map(id, taken), self._taken(problem, taken, logsumexp), strict=True))
            found |= zip(map(id, others), by_rows(problem, others), strict=True)
        return [found[id(reduction)] for reduction in reductions]

    def _taken(
        self, problem: Problem, reductions: Sequence[Reduction], logsumexp: Tensor | None
    ) -> list[tuple[Tensor, ...]]:
        """Run the kernel; where it cannot be compiled or launched, say so and take rows."""
        if not reductions:
            return []
        if not problem.normalizer.is_softmax:
            # A fused kernel knows of no sink.
            logsumexp = None
        try:
            # Triton compiles, and is slow to import.
            from glasshead.engines.triton.passes import reduce

            return reduce(problem, reductions, logsumexp)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if not _may_fail(problem):
                raise
            self._failure = f"it failed ({type(error).__name__}: {error})".splitlines()[0]
            warnings.warn(
                f"The Triton kernel {self._failure[3:]}. Statistics are computed by blocks of "
                "rows in plain torch.",
                stacklevel=2,
            )
            return by_rows(problem, reductions)


TRITON = Triton()


@cache
def _is_interpreted() -> bool:
    """Return whether Triton runs its kernels in Python, on the CPU, as for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _may_fail(problem: Problem) -> bool:
    """Return whether a failure is the device's or its compiler's, not that of a test."""
    return problem.query.device.type == "cuda"


def _requires_gradient(problem: Problem) -> bool:
    """Return whether autograd would record what is computed from the problem."""
    if not torch.is_grad_enabled():
        return False
    parts = [problem.query, problem.key]
    for part in (problem.score, problem.normalizer, *problem.biases):
        if isinstance(part, Tensor):
            parts.append(part)
        elif isinstance(part, Bias | torch.nn.Module):
            parts += part.parameters()
            # A tensor computed from a parameter held elsewhere is an ordinary attribute.
            parts += [value for value in vars(part).values() if isinstance(value, Tensor)]
    return any(part.requires_grad for part in parts)

"""The streaming engine: one pass over blocks of scores, which are never all there."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from glasshead.engines.autocast import without_autocast
from glasshead.engines.by_rows import by_rows
from glasshead.engines.engine import Cost, Observed
from glasshead.engines.streaming.lowering import lowered, seen_pairs
from glasshead.engines.streaming.operator import run
from glasshead.engines.streaming.reducing import found, known, wanted
from glasshead.recipe.biases import Bias
from glasshead.recipe.masks.kinds import Band
from glasshead.recipe.normalizers import exponential
from glasshead.recipe.problem import Problem
from glasshead.recipe.scores import InnerProduct
from glasshead.statistics.reductions import Reduction


class Streaming:
    """Goes through the scores a block of queries at a time, each with the keys that it sees.

    The products, the softmax and every sum over the weights happen while a block is near the core.
    What the mask hides at either end of a row is not computed.

    Source: Dao et al. 2022 (FlashAttention), section 3.1: blocks, and weights that are made anew
    from each row's normalizer on the way back.
    """

    name = "streaming"
    about = "compiled blocks of queries on every core, only the keys that they see"

    def refusal(self, problem: Problem) -> str | None:  # noqa: PLR0911 - a reason each
        """The kernels know inner products, exponentials, and the processor."""
        if type(problem.score).forward is not InnerProduct.forward:
            return f"the score {type(problem.score).__name__} is not an inner product"
        if not exponential(problem.normalizer):
            return f"the weights of {type(problem.normalizer).__name__} are no exponentials"
        if problem.dropout:
            return "it keeps no weights that could be dropped"
        if problem.query.device.type not in ("cpu", "meta"):
            return f"it runs on the CPU, and the inputs are on {problem.query.device.type}"
        if _transformed():
            return "it has no derivative forwards, nor under the transforms of torch.func"
        if 0 in problem.query.shape or 0 in problem.key.shape or 0 in problem.value.shape:
            return "an axis is empty"
        return None

    def cost(self, problem: Problem) -> Cost:
        """The pairs between what each query sees first and last; some blocks of them in memory."""
        pairs = seen_pairs(problem)
        pairs = math.prod(problem.scores_shape) if pairs is None else pairs
        keys = problem.scores_shape[-1]
        width, value_width = problem.query.shape[-1], problem.value.shape[-1]
        size = problem.dtype.itemsize
        rows = math.prod(problem.query.shape[:-1])
        # Each thread holds the packed keys of a head, and a block of scores.
        block = min(2**21, 64 * (keys + 64))
        threads = torch.get_num_threads()
        extra = rows * (value_width + 8) * size + threads * (keys * width + block) * size
        return Cost(2 * pairs * (width + value_width), extra + _made(problem))

    def run(self, problem: Problem) -> Float[Tensor, "*batch heads queries value_dim"]:
        """The context, with a gradient."""
        return self.observe(problem, ()).context

    def observe(
        self, problem: Problem, reductions: Sequence[Reduction], *, context: bool = True
    ) -> Observed:
        """The context and the reductions of one pass; those of one's own take another."""
        with without_autocast(problem.query.device):
            taken = [reduction for reduction in reductions if known(reduction)]
            query, key, value, structure = lowered(problem)
            sums = run(query, key, value if context else None, structure, wanted(problem, taken))
            results = dict(zip(map(id, taken), found(problem, taken, sums), strict=True))
            others = [reduction for reduction in reductions if not known(reduction)]
            results |= dict(zip(map(id, others), by_rows(problem, others), strict=True))
        shape = (*problem.query.shape[:-1], sums.context.shape[-1])
        made = sums.context.reshape(shape).to(problem.query.dtype)
        return Observed(made, [results[id(reduction)] for reduction in reductions])

    def knows(self, reduction: Reduction) -> bool:
        """Whether the kernels take it on their way; one of one's own takes rows of weights."""
        return known(reduction)

    def skips(self, problem: Problem) -> bool:
        """Whether the mask hides so much at either end of the rows that this is the fastest.

        Of a tensor's numbers nothing is known while a call is compiled.
        """
        if problem.mask is None or torch.compiler.is_compiling():
            return False
        tile = problem.tile()
        mask = problem.mask.simplified(tile)
        half = isinstance(mask, Band) and mask.is_top_left_causal(tile)
        # SDPA skips what is above the diagonal by itself, but nothing by a mask tensor.
        if mask is None or (half and not problem.biases) or self.refusal(problem) is not None:
            return False
        pairs = seen_pairs(problem)
        return pairs is not None and pairs < 0.45 * math.prod(problem.scores_shape)


STREAMING = Streaming()


def _transformed() -> bool:
    """Whether PyTorch follows the call in a way that an operator of our own does not know."""
    if torch.compiler.is_compiling():
        return False
    forwards = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001 - it has no other name
    return forwards or torch._C._functorch.peek_interpreter_stack() is not None  # type: ignore[reportAttributeAccessIssue]  # noqa: SLF001


def _made(problem: Problem) -> int:
    """The bytes of what is made of the recipe pair by pair: biases by rules of one's own."""
    total = 0
    for bias in problem.biases:
        if isinstance(bias, Bias) and not bias.by_distance:
            tile = replace(problem.tile(), device=torch.device("meta"))
            total += bias(tile).numel() * problem.dtype.itemsize
    return total

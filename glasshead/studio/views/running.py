"""Running: the model reads, is seen while it does, and stops at the next layer if nobody waits."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor, nn

import glasshead as gh
from glasshead.statistics import Statistic
from glasshead.studio.refusals import Refusal, TooMuch
from glasshead.studio.work import Work
from glasshead.watching import BudgetError, UnseenError, Watched

if TYPE_CHECKING:
    from glasshead.tasks.readers.base import Reader

# Hooks would turn off what these run as one operator.
_FUSED = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
# Before the number of a further call of the same module.
_AGAIN = "#"


def run(
    reader: "Reader",
    tokens: Int[Tensor, " length"],
    statistics: Sequence[Statistic],
    *,
    budget: int,
    like: gh.Seen | None = None,
    work: Work | None = None,
) -> gh.Seen:
    """What each layer of a model does while it reads; each has one call.

    Args:
        reader: What reads.
        tokens: What is read.
        statistics: What is to be known of each layer, beside its weights.
        budget: Bytes that queries, keys and masks may take.
        like: What was seen of a shorter text: which layers there are to be told of.
        work: Is told of each layer, and asked whether somebody waits.

    Errors: `TooMuch` beyond the budget; a ValueError where the attention cannot be seen;
    `Cancelled`.
    """
    told = None if like is None or work is None else _Told(work, len(like))
    with (
        torch.inference_mode(),
        _in_a_sentence(),
        _before_each(reader.model, like or (), told),
        gh.watch(reader.model, list(statistics), keep="weights", budget=budget) as seen,
    ):
        reader.read(tokens[None])
    return _one_call_each(seen, len(tokens))


def held_by(seen: gh.Seen) -> int:
    """Bytes that queries, keys and logsumexp take; masks, which layers share, are not counted."""
    problems = [one.weights._problem for one in seen.values()]  # type: ignore[union-attr] - of one call  # noqa: SLF001
    return sum(
        problem.query.numel() * problem.query.itemsize
        + problem.key.numel() * problem.key.itemsize
        + problem.query[..., 0].numel() * problem.dtype.itemsize
        for problem in problems
    )


class _Told:
    """Tells of each layer before it runs.

    Args:
        work: Is told.
        count: How many layers there are.
    """

    def __init__(self, work: Work, count: int) -> None:
        self._work, self._count, self._done = work, count, 0
        self._thread = threading.get_ident()

    def __call__(self, *of_the_module: object) -> None:
        del of_the_module
        # The same model may read another text in another thread.
        if threading.get_ident() == self._thread:
            self._work.tell("heads.reading", self._done, self._count)
            self._done += 1


@contextmanager
def _before_each(model: nn.Module, layers: Iterable[str], told: _Told | None) -> Iterator[None]:
    """Call what is told before each of these attentions, while the block lasts."""
    modules = {model.get_submodule(name.split(_AGAIN)[0]) for name in layers} if told else ()
    hooks = [
        one.register_forward_pre_hook(told)
        for one in modules
        if told and not isinstance(one, _FUSED)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _one_call_each(seen: gh.Seen, length: int) -> gh.Seen:
    """Each call as a layer of its own, as some models run one attention in every layer.

    Errors: a `Refusal` where none of them is of the text to itself.
    """
    layers = {
        f"{name}{_AGAIN}{number}" if number else name: Watched(name, [call])
        for name, watched in seen.items()
        for number, call in enumerate(watched)
        if (call.queries, call.keys) == (length, length)
    }
    if not layers:
        raise Refusal("the model has no attention of a text to itself: name another.")
    return gh.Seen(layers)


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """What a watch says of a model, as what is refused.

    Errors: `TooMuch` where the budget did not suffice; a `Refusal` of an attention that cannot be
    seen.
    """
    try:
        yield
    except BudgetError as error:
        raise TooMuch(
            "queries, keys and masks of this text would take more memory than is allowed: take a "
            "shorter text."
        ) from error
    except UnseenError as error:
        raise Refusal(str(error)) from error

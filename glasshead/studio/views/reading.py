"""A text read by the model, with the attention of each layer, cancelled between layers."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import glasshead as gh
from glasshead.statistics import Statistic
from glasshead.studio.work import Refusal, TooMuch, Work
from glasshead.watching import BudgetError, UnseenError, Watched
from glasshead.watching.layer_record import Call

if TYPE_CHECKING:
    from glasshead.studio.studio import Studio
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


_T = TypeVar("_T")
# How many tokens show what each of a text takes.
_FEW = 3


@dataclass(frozen=True, eq=False)
class ModelPass:
    """What a model did with a text.

    Attributes:
        tokens: What it read, as numbers.
        words: The same as they are written.
        of: How many tokens the whole text has; more than were read where it was cut.
        seen: Each layer by its name, in the order in which they ran, of one call each; its
            `weights`, and the statistics that were asked, are `[1, heads, …]`.
        size: Bytes that it takes.
    """

    tokens: Int[Tensor, " length"]
    words: tuple[str, ...]
    of: int
    seen: gh.Seen
    size: int
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """What follows from it, computed when first asked for; small, as `size` is without it."""
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return len(self.words)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.seen)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """How many heads each layer has."""
        return tuple(self.call(layer).shape[-2] for layer in range(len(self.layers)))

    def call(self, layer: int) -> Call:
        """What was seen of a layer, counted from 0.

        Errors: a `Refusal` where there is no such layer.
        """
        check_place("layer", layer, len(self.layers))
        return self.seen[self.layers[layer]][0]

    def weights(self, layer: int) -> gh.Weights:
        """The lazy weights of all heads of a layer, `[1, heads, length, length]`.

        Errors: a `Refusal` where there is no such layer.
        """
        return self.call(layer).weights  # type: ignore[return-value] - they are always kept

    def head(self, layer: int, head: int) -> gh.Weights:
        """The lazy weights of one head, `[length, length]`.

        Errors: a `Refusal` where there is no such layer or head.
        """
        return self.weights(layer).head(*self._place(layer, head))

    def statistic(self, layer: int, head: int, name: str) -> Float[Tensor, "..."]:
        """One that was asked of one head, such as "entropy".

        Errors: a `Refusal` where there is no such layer or head.
        """
        return self.call(layer)[name][self._place(layer, head)]

    def _place(self, layer: int, head: int) -> tuple[int, ...]:
        *texts, heads = self.call(layer).shape[:-1]
        check_place("head", head, heads)
        return (*(0 for _ in texts), head)


def read(
    studio: "Studio",
    text: str,
    work: Work,
    most_tokens: int,
    statistics: Sequence[Statistic] = (),
) -> ModelPass:
    """Let the model read a text; what was read lately is kept, and read once for all who ask.

    Args:
        studio: Whose model reads.
        text: The name of a text that was sent.
        work: Is told how far it is; where it is cancelled, reading ends at the next layer.
        most_tokens: How many tokens are read at most, beside the limit of the model: the first
            ones, or those that the model reads of a longer text.
        statistics: What is to be known of each layer.

    Errors: `Refusal` and its kinds where there is no such text, it has no token, or takes more
    memory than is allowed; a ValueError where the attention cannot be seen; `Cancelled`.
    """
    key = _key(studio, text, most_tokens, statistics)
    return studio.readings.get(
        key, work, lambda: _read(studio, text, work, most_tokens, statistics)
    )


def is_read(
    studio: "Studio", text: str, most_tokens: int, statistics: Sequence[Statistic] = ()
) -> bool:
    """Whether a reading is there already."""
    return _key(studio, text, most_tokens, statistics) in studio.readings


def _key(
    studio: "Studio", text: str, most_tokens: int, statistics: Sequence[Statistic]
) -> tuple[Any, ...]:
    """What a reading is kept by; another, as soon as the model was written anew."""
    return studio.subject.version, text, most_tokens, tuple(statistics)


def _read(
    studio: "Studio", text: str, work: Work, most_tokens: int, statistics: Sequence[Statistic]
) -> ModelPass:
    content = studio.texts[text]
    work.tell("heads.opening", 0, 1)
    reader = studio.subject.reader()
    work.tell("heads.encoding", 0, 1)
    numbers, of = tokens_of(reader, content, most_tokens)
    tokens, words = torch.tensor(numbers), _words(reader, numbers)
    work.tell("heads.reading", 0, 1)
    few = run(reader, tokens[:_FEW], (), budget=studio.limits.memory)
    size = held_by(few) * len(tokens) // len(tokens[:_FEW])
    with studio.readings.reserved(size):
        seen = run(reader, tokens, statistics, budget=studio.limits.memory, like=few, work=work)
    return ModelPass(tokens, words, of, seen, held_by(seen))


def tokens_of(reader: "Reader", text: str, most_tokens: int) -> tuple[list[int], int]:
    """The tokens of a text that are read, and how many it has in all.

    Errors: a `Refusal` where it has none.
    """
    # Half a pair of surrogates is no character, and tokenizers refuse it.
    (own,) = reader.encode([text.encode(errors="surrogatepass").decode(errors="replace")])
    before, after = reader.around
    around = len(before) + len(after)
    room = min(most_tokens, reader.context or most_tokens) - around
    if not own or room < 1:
        raise Refusal("the model finds no token in this text that it reads: take another text.")
    kept = own if len(own) <= room or reader.shorten is None else reader.shorten(own)
    return [*before, *kept[:room], *after], len(own) + around


def _words(reader: "Reader", tokens: Sequence[int]) -> tuple[str, ...]:
    """How tokens are written; a long text has each of them many times."""
    written = {token: reader.token(token) for token in set(tokens)}
    return tuple(written[token] for token in tokens)


def check_place(what: str, number: int, count: int) -> None:
    """Raise a `Refusal` where there is no such layer or head, counted from 0."""
    if not 0 <= number < count:
        raise Refusal(f"{what} takes one from 0 to {count - 1}, and got {number}: take another.")

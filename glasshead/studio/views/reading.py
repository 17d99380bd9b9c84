"""Reading: a text that the model has read, with the attention of each of its layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

import glasshead as gh
from glasshead.statistics import Statistic
from glasshead.studio.refusals import Refusal
from glasshead.studio.views.running import held_by, run
from glasshead.studio.work import Work
from glasshead.watching.layer_record import Call

if TYPE_CHECKING:
    from glasshead.studio.studio import Studio
    from glasshead.tasks.readers.base import Reader

_T = TypeVar("_T")
# How many tokens show what each of a text takes.
_FEW = 3


@dataclass(frozen=True, eq=False)
class Reading:
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
) -> Reading:
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
) -> Reading:
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
    return Reading(tokens, words, of, seen, held_by(seen))


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

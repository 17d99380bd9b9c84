"""A model's reading of one text: its tokens, and the attention of each layer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

import glasshead as gh
from glasshead.studio.background_jobs import Refusal
from glasshead.watching.layer_record import Call

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class ModelPass:
    """One forward pass over a text, with the attention of each layer.

    Attributes:
        tokens: The token ids that were read.
        words: Their text.
        of: Tokens of the whole text; more than were read where it was truncated.
        seen: Layers by name, in execution order, with one call each; `weights` and the
            requested statistics are `[1, heads, …]`.
        size: Bytes of memory.
    """

    tokens: Int[Tensor, " length"]
    words: tuple[str, ...]
    of: int
    seen: gh.Seen
    size: int
    _derived: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """Return a derived result, computed on first use; small, as `size` excludes it."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]

    @property
    def length(self) -> int:
        """Number of tokens that were read."""
        return len(self.words)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers."""
        return tuple(self.seen)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Number of heads of each layer."""
        return tuple(self.call(layer).shape[-2] for layer in range(len(self.layers)))

    def call(self, layer: int) -> Call:
        """Return the captured call of a layer, counted from 0.

        Errors: a `Refusal` where there is no such layer.
        """
        check_place("layer", layer, len(self.layers))
        return self.seen[self.layers[layer]][0]

    def weights(self, layer: int) -> gh.Weights:
        """Return the lazy weights of all heads of a layer, `[1, heads, length, length]`.

        Errors: a `Refusal` where there is no such layer.
        """
        return self.call(layer).weights  # type: ignore[return-value] - they are always kept

    def head(self, layer: int, head: int) -> gh.Weights:
        """Return the lazy weights of one head, `[length, length]`.

        Errors: a `Refusal` where there is no such layer or head.
        """
        return self.weights(layer).head(*self._index(layer, head))

    def statistic(self, layer: int, head: int, name: str) -> Float[Tensor, "..."]:
        """Return a requested statistic of one head, such as "entropy".

        Errors: a `Refusal` where there is no such layer or head.
        """
        return self.call(layer)[name][self._index(layer, head)]

    def _index(self, layer: int, head: int) -> tuple[int, ...]:
        *texts, heads = self.call(layer).shape[:-1]
        check_place("head", head, heads)
        return (*(0 for _ in texts), head)


def check_place(what: str, number: int, count: int) -> None:
    """Check a layer or head index, counted from 0, against the number of them.

    Errors: a `Refusal` where it is out of range.
    """
    if not 0 <= number < count:
        raise Refusal(f"{what} takes one from 0 to {count - 1}, and got {number}: take another.")

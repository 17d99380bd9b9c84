"""Watched: what was seen of one attention of a model, call by call."""

from collections.abc import Iterator, Sequence
from typing import Any

from glasshead.attention.values import Values
from glasshead.attention.weights import Weights
from glasshead.statistics import Statistic
from glasshead.watching.joined_weights import JoinedWeights


class Call(Values):
    """One call of an attention: its statistics, `[batch, heads, …]`, each had by its name.

    Attributes:
        position: Where its first query stands in the text; above 0 with a cache.
        first_key: Which key of the text its weights begin with; above 0 where a cache with a
            window has let the first ones go. Statistics count keys from the beginning of the text.
        keys: How many keys the text has by then.
        crossing: Whether its keys belong to another text than its queries, where the model tells.
        heads: Which heads they are, where not all were asked for.
        weights: The lazy matrix, `[batch, heads, queries, keys]`, of all heads; None where it was
            not kept.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
        *,
        position: int = 0,
        first_key: int = 0,
        keys: int = 0,
        crossing: bool = False,
        heads: tuple[int, ...] | None = None,
        weights: Weights | None = None,
    ) -> None:
        super().__init__(shape, statistics, values)
        self.position, self.first_key, self.keys = position, first_key, keys
        self.crossing, self.heads, self.weights = crossing, heads, weights

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes before those of heads and queries."""
        return self.shape[:-2]

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return self.shape[-1]

    @property
    def end(self) -> int:
        """The position after its last query."""
        return self.position + self.queries

    def alone(self, name: str) -> "Call":
        """The same with one of its statistics."""
        return Call(
            self.shape,
            {name: self.statistics[name]},
            {name: self.values[name]},
            position=self.position,
            first_key=self.first_key,
            keys=self.keys,
            crossing=self.crossing,
            heads=self.heads,
        )

    def __add__(self, other: "Call") -> "Call":
        """Of the queries of both; the weights stay apart.

        Errors: a ValueError where a statistic of the whole does not follow from its parts.
        """
        if not isinstance(other, Call):
            return NotImplemented
        return Call(
            (*self.shape[:-1], self.queries + other.queries),
            self.statistics,
            self._joined(other),
            position=self.position,
            first_key=min(self.first_key, other.first_key),
            keys=max(self.keys, other.keys),
            crossing=self.crossing or other.crossing,
            heads=self.heads,
        )

    def __repr__(self) -> str:
        stands = f" at {self.position}" if self.position else ""
        queries = "1 query" if self.queries == 1 else f"{self.queries} queries"
        about = f"Call of {queries}{stands} on {self.keys} keys"
        kept = [] if self.weights is None else [repr(self.weights)]
        return "\n".join([about, *self._lines(), *kept])


class Watched(Sequence[Call]):
    """The calls of one attention, in order, and what they say together.

    `seen["layer"].entropy` is that of the last text: of one call, or, where a cache let the text
    grow call by call, of all these calls together, the prefill first. `seen["layer"][i]` is one
    call, and `texts` has all the texts.

    Attributes:
        name: Of the module.

    >>> import torch
    >>> import glasshead as gh
    >>> model = gh.LanguageModel(gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3))
    >>> cache = model.new_cache()
    >>> with gh.watch(model, [gh.Entropy()]) as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1]]), cache=cache)
    ...     logits = model(torch.tensor([[5]]), cache=cache)
    >>> watched = seen["blocks.0.attention"]
    >>> watched.entropy.shape, watched[1].entropy.shape, watched[1].position
    (torch.Size([1, 3, 5]), torch.Size([1, 3, 1]), 4)
    >>> len(watched.texts), watched.prefill.queries, len(watched.steps)
    (1, 4, 1)
    """

    def __init__(self, name: str, calls: Sequence[Call] = ()) -> None:
        self.name = name
        self._calls = list(calls)
        self._together: dict[str, Any] = {}

    def add(self, call: Call) -> None:
        """Add one more call."""
        self._calls.append(call)
        self._together = {}

    @property
    def texts(self) -> list[list[Call]]:
        """The calls of each text: a call that begins where the last one ended goes on with it."""
        texts: list[list[Call]] = []
        for call in self._calls:
            last = texts[-1][-1] if texts else None
            if last and call.position and call.position == last.end and call.batch == last.batch:
                texts[-1].append(call)
            else:
                texts.append([call])
        return texts

    @property
    def prefill(self) -> Call:
        """The first call of the last text."""
        return self.texts[-1][0]

    @property
    def steps(self) -> list[Call]:
        """The other calls of the last text, such as a step for each token that was written."""
        return self.texts[-1][1:]

    @property
    def joined(self) -> Call:
        """All calls of the last text as one.

        Errors: a ValueError where a statistic of the whole does not follow from its parts.
        """
        return _sum(self.texts[-1])

    @property
    def weights(self) -> Weights | JoinedWeights:
        """The lazy matrix of the last text: that of its only call, or those of all, as one map.

        Errors: a ValueError where they were not kept.
        """
        calls = self.texts[-1]
        kept = [call.weights for call in calls if call.weights is not None]
        if len(kept) < len(calls):
            raise ValueError(
                f"the weights of {self.name!r} were not kept: watch with keep='weights'."
            )
        if len(calls) == 1:
            return kept[0]
        return JoinedWeights(kept, [call.first_key for call in calls])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self.__dict__.get("_calls"):
            raise AttributeError(name)
        return self[name] if name in self._calls[-1].values else getattr(self.joined, name)

    def __getitem__(self, asked: Any) -> Any:
        if isinstance(asked, int | slice):
            return self._calls[asked]
        # By itself, as others may be of a kind that cannot be joined.
        name = self._calls[-1].name_of(asked)
        if name not in self._together:
            self._together[name] = _sum([call.alone(name) for call in self.texts[-1]])[name]
        return self._together[name]

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *(dir(self._calls[0]) if self._calls else ())])


def _sum(calls: Sequence[Call]) -> Call:
    """All of them as one; by halves, so that no tensor is copied as often as there are calls."""
    if len(calls) == 1:
        return calls[0]
    middle = len(calls) // 2
    return _sum(calls[:middle]) + _sum(calls[middle:])

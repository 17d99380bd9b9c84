"""What was seen of one attention of a model, call by call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from torch import Tensor

from glasshead.attention.observe import StatisticResults
from glasshead.attention.weights import Weights
from glasshead.statistics import Statistic
from glasshead.watching.joined_weights import JoinedWeights

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class CallInfo:
    """Where a call stands in its text and in the run of the model.

    Attributes:
        position: Where its first query stands in the text; above 0 with a cache.
        first_key: Which key of the text its weights begin with; above 0 where a cache with a
            window has let the first ones go. Statistics count keys from the beginning of the text.
        keys: How many keys the text has by then.
        crossing: Whether its keys belong to another text than its queries, where the model tells.
        heads: Which heads they are, where not all were asked for.
        real: Which queries are tokens, `[batch, queries]`, and not padding, which statistics that
            sum over queries leave out; None where all are, or nothing tells.
        forward: The number of the forward pass of the model.
        run: Which run of its module it is, where a forward pass runs that several times.
        interleaved: Whether other attention ran between the last run of its module and this one.
    """

    position: int = 0
    first_key: int = 0
    keys: int = 0
    crossing: bool = False
    heads: tuple[int, ...] | None = None
    real: Bool[Tensor, "batch queries"] | None = None
    forward: int = 0
    run: int = 0
    interleaved: bool = False


class Call(StatisticResults):
    """One call of an attention: its statistics, `[batch, heads, …]`, each had by its name.

    Attributes:
        position, first_key, keys, crossing, heads, real, forward, run, interleaved: As of
            `CallInfo`.
        weights: The lazy matrix, `[batch, heads, queries, keys]`, of all heads; None where it was
            not kept.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
        info: CallInfo,
        weights: Weights | None = None,
    ) -> None:
        super().__init__(shape, statistics, values)
        self._info, self.weights = info, weights
        self.position, self.first_key, self.keys = info.position, info.first_key, info.keys
        self.crossing, self.heads, self.real = info.crossing, info.heads, info.real
        self.forward, self.run, self.interleaved = info.forward, info.run, info.interleaved

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
        return self._with(self.shape, {name: self.statistics[name]}, {name: self.values[name]})

    def __add__(self, other: "Call") -> "Call":
        """Of the queries of both; the weights stay apart.

        Errors: a ValueError where a statistic of the whole does not follow from its parts.
        """
        if not isinstance(other, Call):
            return NotImplemented
        real = None
        if self.real is not None or other.real is not None:
            real = torch.cat([self._real_like(other), other._real_like(self)], -1)
        return self._with(
            (*self.shape[:-1], self.queries + other.queries),
            self.statistics,
            self._joined(other),
            first_key=min(self.first_key, other.first_key),
            keys=max(self.keys, other.keys),
            crossing=self.crossing or other.crossing,
            real=real,
        )

    def to_frame(self, *names: "str | Statistic") -> "pd.DataFrame":
        """The statistics as a pandas table, without rows of queries that are padding.

        Args:
            names: As of `Observation.to_frame`.

        Errors: as of `Observation.to_frame`.
        """
        table = super().to_frame(*names)
        if self.real is None or "query" not in table.index.names:
            return table
        index = table.index.to_frame(index=False)
        batch = [name for name in table.index.names if str(name).startswith("batch")]
        places = tuple(index[name].to_numpy() for name in (*batch, "query"))
        real = self.real.cpu().reshape(*self.shape[: len(batch)], self.queries).numpy()
        return table.loc[real[places]]

    def _real_like(self, other: "Call") -> Bool[Tensor, "batch queries"]:
        """Return which queries are real, where another call of the text has padding."""
        if self.real is not None or other.real is None:
            return self.real  # type: ignore[return-value] - one of both has some
        return other.real.new_ones(other.real.shape[0], self.queries)

    def _with(
        self,
        shape: tuple[int, ...],
        statistics: dict[str, Statistic],
        values: dict[str, Any],
        **changed: Any,
    ) -> "Call":
        """Return a call like this one of other statistics, without weights."""
        return Call(shape, statistics, values, replace(self._info, **changed))

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

    A module that runs several times in one forward pass, as where layers share their weights, is a
    layer in each run: `runs` has these one by one.

    Attributes:
        name: Of the module; of a run `name#run`.

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
    def runs(self) -> list["Watched"]:
        """Each run of the module in a forward pass as a layer of its own; itself if it is one.

        >>> import torch
        >>> import glasshead as gh
        >>> class Shared(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = gh.MultiHeadAttention(6, 2)
        ...     def forward(self, x):
        ...         return self.layer(self.layer(x))
        >>> model = Shared()
        >>> with gh.watch(model, [gh.Entropy()]) as seen:
        ...     output = model(torch.randn(1, 5, 6))
        >>> [run.name for run in seen["layer"].runs]
        ['layer#0', 'layer#1']
        """
        numbers = sorted({call.run for call in self._calls})
        if len(numbers) < 2:
            return [self]
        return [
            Watched(f"{self.name}#{run}", [call for call in self._calls if call.run == run])
            for run in numbers
        ]

    @property
    def texts(self) -> list[list[Call]]:
        """The calls of each text: a call that begins where the last one ended goes on with it.

        Those of a module that runs several times in a forward pass are run by run.
        """
        runs = self.runs
        if len(runs) > 1:
            return [text for run in runs for text in run.texts]
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
        """The first call of the last text.

        Errors: a ValueError where the module runs several times in a forward pass.
        """
        return self._last_text()[0]

    @property
    def steps(self) -> list[Call]:
        """The other calls of the last text, such as a step for each token that was written.

        Errors: a ValueError where the module runs several times in a forward pass.
        """
        return self._last_text()[1:]

    @property
    def joined(self) -> Call:
        """All calls of the last text as one.

        Errors: a ValueError where a statistic of the whole does not follow from its parts, or the
        module runs several times in a forward pass.
        """
        return _sum(self._last_text())

    @property
    def weights(self) -> Weights | JoinedWeights:
        """The lazy matrix of the last text: that of its only call, or those of all, as one map.

        Errors: a ValueError where they were not kept, or the module runs several times in a
        forward pass.
        """
        calls = self._last_text()
        kept = [call.weights for call in calls if call.weights is not None]
        if len(kept) < len(calls):
            raise ValueError(
                f"the weights of {self.name!r} were not kept: watch with keep='weights'."
            )
        if len(calls) == 1:
            return kept[0]
        return JoinedWeights(kept, [call.first_key for call in calls])

    @property
    def real(self) -> Bool[Tensor, "batch tokens"] | None:
        """Which tokens of the last text are no padding; None where all are, or nothing tells.

        Errors: a ValueError where the module runs several times in a forward pass.
        """
        calls = self._last_text()
        known = next((call.real for call in calls if call.real is not None), None)
        if known is None:
            return None
        ones = (known.new_ones(len(known), call.queries) for call in calls)
        told = [call.real for call in calls]
        return torch.cat([o if t is None else t for t, o in zip(told, ones, strict=True)], -1)

    def _last_text(self) -> list[Call]:
        """Return the calls of the last text.

        Errors: a ValueError where the module runs several times in a forward pass, and each run is
        a layer.
        """
        runs = self.runs
        if len(runs) > 1:
            raise ValueError(
                f"{self.name!r} runs {len(runs)} times in a forward pass, and each run is a layer "
                f"of its own: take seen[{self.name!r}].runs[-1] for the last of them, or one call "
                f"by its number."
            )
        return self.texts[-1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not self.__dict__.get("_calls"):
            raise AttributeError(name)
        known = vars(self._calls[-1])["values"]
        return self[name] if name in known else getattr(self.joined, name)

    def __getitem__(self, asked: Any) -> Any:
        if isinstance(asked, int | slice):
            return self._calls[asked]
        # By itself, as others may be of a kind that cannot be joined.
        name = self._calls[-1].name_of(asked)
        if name not in self._together:
            self._together[name] = _sum([call.alone(name) for call in self._last_text()])[name]
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

"""Trace back: from a prediction to the heads that wrote it, and to why they looked there.

A tree of two kinds of steps, each an exact sum:

    what was written     a logit, or the output of a head at a token, is a sum over components
    where a head looked  the score of a query and a key is a sum over components of either side
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from torch import Tensor

from glasshead.drawing import Block, Circuit, CircuitEdge, CircuitNode, Document, Drawn, Formula
from glasshead.recipe.validation import whole_number
from glasshead.watching.analytics.components import Component
from glasshead.watching.analytics.logit_parts import logit_parts
from glasshead.watching.analytics.score_parts import score_parts
from glasshead.watching.seen import Seen


@dataclass(frozen=True, eq=False)
class Cause:
    """A node of the tree: a component at a token, or a head that looks from a token to another.

    Attributes:
        side: What it is a part of: "logit", "key" or "query" of the parent, or "source", a token
            that a head looked at.
        component: The component.
        token: Where it was written; of a source, the token that was looked at.
        value: Its part in the parent's number.
        share: value / Σ |values| of its parent's parts on this side.
        number: The number that its own children split, None without any: of a head what it wrote,
            of a source the score of its query and key minus the mean of the other keys.
        children: Its causes, the largest first.
        rest: number - Σ children's values, of each side of these: what was pruned.
    """

    side: str
    component: Component
    token: int
    value: float
    share: float
    number: float | None = None
    children: tuple["Cause", ...] = ()
    rest: dict[str, float] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class TraceBack(Drawn):
    """The tree of what a prediction, or a look of a head, comes from.

    Attributes:
        what: What is traced back, in words.
        query: Its place in the text.
        number: The logit, or the contrast of the score.
        causes: The causes, the largest first.
        rest: number - Σ causes' values, by side.
        tokens: The words of the text.
        layers: The names of the layers in order of execution.
    """

    what: str
    query: int
    number: float
    causes: tuple[Cause, ...]
    rest: dict[str, float]
    tokens: tuple[str, ...]
    layers: tuple[str, ...]

    def walk(self) -> Iterator[tuple[int, Cause]]:
        """Yield each cause with its depth, before its own causes."""
        waiting = [(0, one) for one in reversed(self.causes)]
        while waiting:
            depth, one = waiting.pop()
            yield depth, one
            waiting += [(depth + 1, child) for child in reversed(one.children)]

    def document(self) -> Document:
        tree: list[Block] = [Formula("\n".join(self._lines()))] if self.causes else []
        return Document([self.figure, *tree], title=self._title)

    def __str__(self) -> str:
        return "\n".join([self._title, *self._lines()])

    __repr__ = __str__

    @property
    def _title(self) -> str:
        return f"{self.what} from {self._word(self.query)}: {self.number:+.4g}"

    def _lines(self) -> list[str]:
        return [
            f"{'  ' * depth}{one.share:+5.0%}  {self._named(one)}" for depth, one in self.walk()
        ]

    def _word(self, token: int) -> str:
        word = self.tokens[token]
        return word if word == str(token) else f"{word!r} ({token})"

    def _named(self, one: Cause) -> str:
        word = self._word(one.token)
        if one.side == "source":
            return f"looking at {word}"
        return f"{one.side}: {one.component} at {word}"

    @property
    def figure(self) -> Circuit:
        """The tree as a picture: words from left to right, layers from the bottom to the top."""
        levels = {name: place + 1 for place, name in enumerate(self.layers)}
        top = len(self.layers) + 1
        nodes: dict[CircuitNode, int] = {}
        edges: dict[tuple[int, int], CircuitEdge] = {}

        def node(token: int, level: int, label: str) -> int:
            return nodes.setdefault(CircuitNode(token, level, label), len(nodes))

        def draw(parent: int, cause: Cause) -> None:
            own = cause.component
            if cause.side == "source":
                for child in cause.children:
                    draw(parent, child)
                return
            if own.head is not None:
                start = node(cause.token, levels[own.name], f"head {own.head}")
            else:
                # A bias of the layer itself stands below it.
                level = min(self._level(own), [*nodes][parent].layer - 1)
                start = node(cause.token, level, _short(own))
            edge = CircuitEdge(start, parent, cause.share, f"of the {cause.side}")
            known = edges.get((start, parent))
            if known is None or abs(known.share) < abs(edge.share):
                edges[start, parent] = edge
            for source in cause.children:
                if not source.children:
                    word = node(source.token, 0, "token")
                    edge = CircuitEdge(word, start, source.share, "of what it wrote")
                    edges.setdefault((word, start), edge)
                draw(start, source)

        goal = node(self.query, top, self.what.partition(" of ")[0])
        for cause in self.causes:
            draw(goal, cause)
        layers = ["words", *self.layers, "output"]
        last = max(one.word for one in nodes)
        return Circuit(self.tokens[: last + 1], layers, [*nodes], [*edges.values()])

    def _level(self, one: Component) -> int:
        """Return the level of a module: of the layer whose name begins as its own does."""
        if one.kind in ("embedding", "input"):
            return 0
        common = [_shared(one.name, layer) for layer in self.layers]
        return max(range(len(common)), key=lambda place: (common[place], place)) + 1


def _shared(one: str, other: str) -> int:
    """Return how many modules around them two names share."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _short(one: Component) -> str:
    return one.name.rpartition(".")[2] or one.kind


def trace_back(
    seen: Seen,
    query: int = -1,
    *,
    depth: int = 2,
    head: tuple[str, int] | None = None,
    key: int | None = None,
    logit: int | tuple[int, int] | None = None,
    share: float = 0.1,
    batch: int = 0,
    tokens: Sequence[str] | None = None,
) -> TraceBack:
    """Trace a prediction, or a look of a head, back to its causes.

    "This token is predicted as that head wrote it; the head looked there as another head wrote this
    to its key, …". Each step splits a number exactly: a logit into components (`logit_parts`), what
    a head wrote into the tokens that it looked at, Σ_j P_ij (v_j·g), and a contrast of scores into
    the components of the key, and again of the query (`score_parts`). The contrast is the score of
    a query and a key minus the mean score of the other keys, on which the weight depends. Parts
    below `share` are pruned, and `rest` holds their sum.

    Args:
        seen: What `gh.watch(model, keep="parts")` has seen; its last text, read in one call.
        query: The place in the text; negative ones count from the end.
        depth: The number of heads in a row that are followed.
        head: The name of an attention and the number of its head, to trace why it looked from
            `query` to `key`; None: trace a logit.
        key: The key; None: the one with the largest weight.
        logit: The token, or two for the difference of their logits; None: the most likely token.
        share: The least part of the absolute sum that is followed, 0 to 1.
        batch: The row of the batch.
        tokens: The words of the text; None: their places.

    Errors: a TypeError or ValueError if an argument is invalid; otherwise as of `logit_parts` and
    `score_parts`.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits); Kamath et al.
    2025 (Tracing attention computation through feature interactions).

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> with torch.no_grad(), gh.watch(model, keep="parts") as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> tree = gh.trace_back(seen, head=("blocks.1.attention", 0), key=2)
    >>> tree.what
    "head 0 of 'blocks.1.attention' looks at 2"
    >>> parts = gh.score_parts(seen, "blocks.1.attention", head=0, query=4).contrast(2)
    >>> abs(sum(one.value for one in tree.causes if one.side == "key") + tree.rest["key"]
    ...     - float(parts.sum())) < 1e-6
    True
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in 0..1, got {share!r}.")
    whole_number(depth, "depth")
    tracer = _Tracer(seen, share, batch)
    if head is None:
        token, against = logit if isinstance(logit, tuple) else (logit, None)
        parts = logit_parts(seen, token, against, query=query, batch=batch)
        query = parts.query
        values = list(zip(parts.components, parts.parts.tolist(), strict=True))
        causes, left = tracer.parts("logit", values, query, parts.sources, depth)
        minus = "" if against is None else f" - {against}"
        what, number, rest = f"logit {parts.token}{minus}", float(parts.logit), {"logit": left}
    else:
        look = tracer.look(*head, query, key, depth)
        query, causes, number, rest = look.query, look.causes, look.number, look.rest
        what = f"head {head[1]} of {head[0]!r} looks at {look.key}"
    length = max(watched[-1].queries for watched in seen.values())
    words = tuple(map(str, range(length))) if tokens is None else tuple(tokens)
    if len(words) != length:
        raise ValueError(f"tokens must be {length} words, got {len(words)}.")
    return TraceBack(what, query, number, causes, rest, words, tuple(seen))


class _Look(NamedTuple):
    """Why a head looked from a query to a key.

    Attributes:
        query, key: Their places.
        causes, number, rest: As of `TraceBack`.
    """

    query: int
    key: int
    causes: tuple[Cause, ...]
    number: float
    rest: dict[str, float]


@dataclass(frozen=True)
class _Tracer:
    """The maker of the nodes of a tree.

    Attributes:
        seen: What a watch has seen.
        share: The least share that is followed.
        batch: The row of the batch.
    """

    seen: Seen
    share: float
    batch: int

    def parts(
        self,
        side: str,
        values: Sequence[tuple[Component, float]],
        token: int,
        sources: Callable[[Component], Tensor],
        depth: int,
    ) -> tuple[tuple[Cause, ...], float]:
        """Return the causes among components at a token, and the sum of the pruned ones.

        Args:
            side: What they are parts of.
            values: The components, and their parts.
            token: The token.
            sources: Splits what a head wrote by the tokens that it looked at.
            depth: The number of heads in a row that are still followed.
        """
        followed, left = self._followed([value for _, value in values])
        causes = []
        for place, share in followed:
            one, value = values[place]
            cause = Cause(side, one, token, value, share)
            if one.head is not None and depth > 0:
                cause = self._wrote(cause, sources(one).tolist(), depth)
            causes.append(cause)
        return tuple(causes), left

    def _wrote(self, cause: Cause, written: list[float], depth: int) -> Cause:
        """Return a cause with the tokens that its head looked at, and the share of each."""
        one, children = cause.component, []
        followed, left = self._followed(written)
        for token, share in followed:
            source = Cause("source", one, token, written[token], share)
            if depth > 1:
                look = self.look(one.name, one.head or 0, cause.token, token, depth - 1)
                source = replace(source, number=look.number, children=look.causes, rest=look.rest)
            children.append(source)
        rest = {"source": left}
        return replace(cause, number=sum(written), children=tuple(children), rest=rest)

    def _followed(self, values: Sequence[float]) -> tuple[list[tuple[int, float]], float]:
        """Return the places and shares of what is followed, and the sum of the others."""
        whole = sum(map(abs, values)) or 1.0
        order = sorted(range(len(values)), key=lambda place: -abs(values[place]))
        followed = [(place, values[place] / whole) for place in order]
        followed = [(place, part) for place, part in followed if part and abs(part) >= self.share]
        return followed, sum(values) - sum(values[place] for place, _ in followed)

    def look(self, name: str, head: int, query: int, key: int | None, depth: int) -> _Look:
        """Split the contrast of a score, by the components of the key and of the query."""
        scores = score_parts(self.seen, name, head=head, query=query, batch=self.batch)
        (query,) = scores.queries
        if key is None:
            weights = self.seen[name].weights
            place = (self.batch, head) if weights.shape[:-3] else (head,)
            key = int(weights[(*place, query)].argmax())
        one = score_parts(self.seen, name, head=head, query=query, key=key, batch=self.batch)
        (key,) = one.keys
        causes: list[Cause] = []
        rest, number = {}, 0.0
        for side, token in (("key", key), ("query", query)):
            parts = scores.contrast(key, side=side)
            values = list(zip(scores.components, parts.tolist(), strict=True))
            sources = partial(one.sources, side=side)
            own, rest[side] = self.parts(side, values, token, sources, depth - 1)
            causes, number = [*causes, *own], float(parts.sum())
        return _Look(query, key, tuple(causes), number, rest)

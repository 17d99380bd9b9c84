"""Score parts: the score of a query and a key as a sum over pairs of components."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glasshead.attention.observe import import_pandas
from glasshead.watching.analytics.components import (
    Component,
    Split,
    check_split,
    component_of,
    expert_shares,
    listed,
    parts_of_call,
    place_in,
    source_shares,
    split,
)
from glasshead.watching.residual.call_parts import CallParts, Side
from glasshead.watching.residual.nodes import Rows
from glasshead.watching.seen import Seen

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class _Tokens:
    """The queries or keys of a head at some tokens.

    Attributes:
        name: Name of the attention.
        side: Its queries or keys.
        head: The head.
        tokens, batch: The tokens, and their row of the batch.
        why: Why nothing is followed; None: it is.
    """

    name: str
    side: Side
    head: int
    tokens: tuple[int, ...]
    batch: int
    why: str | None

    @cached_property
    def vectors(self) -> Float[Tensor, "tokens dim"]:
        """Return the queries or keys, in float32 at least."""
        found = self.side.vectors(self._rows(self.tokens), self.head)
        return found.to(torch.promote_types(found.dtype, torch.float32))

    @cached_property
    def by_unit(self) -> Split:
        """Return each number of each vector, split into components."""
        width, count = self.vectors.shape[-1], len(self.tokens)
        units = torch.eye(width, dtype=self.vectors.dtype, device=self.vectors.device)
        each = [token for token in self.tokens for _ in range(width)]
        return self._split(each, units.repeat(count, 1))

    def split_vectors(
        self, components: Sequence[Component]
    ) -> Float[Tensor, "tokens components dim"]:
        """Return what each component adds to the vectors."""
        return self.by_unit.on(components).unflatten(0, (len(self.tokens), -1)).mT

    def times(self, others: Float[Tensor, "others dim"]) -> Split:
        """Return the products with other vectors, split; the rows are others · tokens."""
        count = len(self.tokens)
        return self._split(self.tokens * len(others), others.repeat_interleave(count, 0))

    def _split(self, tokens: Sequence[int], g: Float[Tensor, "rows dim"]) -> Split:
        rows, side = self._rows(tokens), self.side
        return split(
            self.name, side.node, side.axes, rows, side.pulling(rows, self.head, g), self.why
        )

    def _rows(self, tokens: Sequence[int]) -> Rows:
        return Rows(torch.full((len(tokens),), self.batch), torch.tensor([*tokens]))


@dataclass(frozen=True, eq=False, repr=False)
class ScoreParts:
    """The scores of queries and keys, split into components of the residual stream.

    A query or a key that was given by one number has no axis.

    Attributes:
        name, head: The attention and its head.
        queries, keys: The places of the queries and of the keys.
        components: The components, in the order in which the model wrote them.
        score: β q·k, as the model computed it, `[*queries, *keys]`.
        of_key: β q·k_c for each component c of the keys, `[*queries, *keys, components]`.
        of_query: β q_c·k for each component c of the queries, `[*queries, *keys, components]`.
    """

    name: str
    head: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    components: tuple[Component, ...]
    score: Float[Tensor, "*queries_keys"]
    of_key: Float[Tensor, "*queries_keys components"]
    of_query: Float[Tensor, "*queries_keys components"]
    _sides: "_BothSides"

    @property
    def names(self) -> list[str]:
        """The names of the components."""
        return [str(one) for one in self.components]

    @cached_property
    def pairs(self) -> Float[Tensor, "*queries_keys components components"]:
        """β q_a·k_b for each component a of the query and b of the key.

        It is computed when it is read first, and takes components² numbers for a query and a key.
        """
        return self._sides.pairs(self.components)

    @property
    def visible(self) -> Bool[Tensor, "queries keys"]:
        """Which keys of the text each query sees."""
        return self._sides.visible

    def sum(self) -> Float[Tensor, "*queries_keys"]:
        """Return the sums over all components, which equal `score`."""
        return self.of_key.sum(-1)

    def contrast(self, key: int, *, side: str = "key") -> Float[Tensor, "*queries components"]:
        """Return the parts of s_ij - mean_k s_ik, over the other keys k that the query sees.

        A softmax depends on differences alone: what adds the same to the scores of all keys changes
        no weight.

        Args:
            key: j, one of the keys.
            side: "key" or "query": whose components.

        Errors: a ValueError if the key is not one of several, or the side is another word.
        """
        parts = self.of_key if _checked(side) == "key" else self.of_query
        if len(self.keys) < 2:
            raise ValueError("contrast needs the scores of all keys; omit key= of score_parts.")
        key = place_in(key, len(self.keys), "key")
        parts = parts.reshape(len(self.queries), *parts.shape[-2:])
        others = self._sides.visible.to(parts).clone()
        others[:, key] = 0
        mean = others[:, None] @ parts / others.sum(-1).clamp(min=1)[:, None, None]
        return (parts[:, key] - mean[:, 0]).reshape(*self.of_key.shape[:-2], -1)

    def sources(
        self, component: "Component | str", *, side: str = "key"
    ) -> Float[Tensor, " sources"]:
        """Split the part of a head by the tokens that it attended to.

        A head wrote Σ_s P_ts v_s W_o at token t, of which a score takes Σ_s P_ts (v_s·g).

        Args:
            component: The head, as `components` or `names` gives it.
            side: "key" or "query": whose part.

        Errors: a ValueError if it is not a head, queries or keys are several, or the side is
        another word.
        """
        if len(self.queries) > 1 or len(self.keys) > 1:
            raise ValueError("sources needs one query and one key.")
        return self._sides.sources(component_of(self.components, component), _checked(side))

    def experts(
        self, component: "Component | str", *, side: str = "key"
    ) -> Float[Tensor, " experts"]:
        """Split the part of a mixture of experts by the expert; those not chosen have 0.

        Args:
            component: The component that experts wrote.
            side: "key" or "query": whose part.

        Errors: a ValueError if it is not of experts, the model was deleted, queries or keys are
        several, or the side is another word.
        """
        if len(self.queries) > 1 or len(self.keys) > 1:
            raise ValueError("experts needs one query and one key.")
        return self._sides.experts(component_of(self.components, component), _checked(side))

    def top(self, count: int = 8) -> list[tuple[Component, Component, float]]:
        """Return the largest pairs: the components of the query and of the key, and their part.

        Args:
            count: How many.

        Errors: a ValueError if queries or keys are several.
        """
        if len(self.queries) > 1 or len(self.keys) > 1:
            raise ValueError("top needs one query and one key.")
        known, parts = self.components, self.pairs.flatten()
        places = parts.abs().argsort(descending=True)[:count].tolist()
        return [
            (known[at // len(known)], known[at % len(known)], float(parts[at])) for at in places
        ]

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas table: a row for each pair of components, of one query and one key.

        Of several, a row for each query, key and component.

        Errors: a MissingLibraryError without pandas.
        """
        pandas = import_pandas()
        if len(self.queries) == len(self.keys) == 1:
            index = pandas.MultiIndex.from_product([self.names] * 2, names=["query", "key"])
            return pandas.DataFrame({"score": self.pairs.flatten().tolist()}, index=index)
        axes = [self.queries, self.keys, self.names]
        index = pandas.MultiIndex.from_product(axes, names=["query", "key", "component"])
        columns = {"of_key": self.of_key, "of_query": self.of_query}
        return pandas.DataFrame({n: x.flatten().tolist() for n, x in columns.items()}, index=index)

    def __repr__(self) -> str:
        title = f"ScoreParts of {self.name!r}, head {self.head}"
        if len(self.queries) > 1 or len(self.keys) > 1:
            several = f"{len(self.queries)} × {len(self.keys)} scores"
            return f"{title}: {several}, {len(self.components)} components"
        query, key, score = max(self.queries), max(self.keys), float(self.score.sum())
        title += f", query {query}, key {key}: {score:.4g}"
        return "\n".join([title, *listed([(f"{a} × {b}", part) for a, b, part in self.top()])])


def _checked(side: str) -> str:
    if side not in ("key", "query"):
        raise ValueError(f"side must be 'key' or 'query', got {side!r}.")
    return side


@dataclass(frozen=True, eq=False)
class _BothSides:
    """The queries and keys of a result, and the passes back from their scores.

    Attributes:
        seen: What a watch has seen.
        query, key: The queries and keys.
        scale: β.
        shape: The axes of the result before components.
        from_scores: The scores, split by the components of the keys.
    """

    seen: Seen
    query: _Tokens
    key: _Tokens
    scale: float
    shape: tuple[int, ...]
    from_scores: Split

    @classmethod
    def of(
        cls, seen: Seen, query: _Tokens, key: _Tokens, scale: float, shape: tuple[int, ...]
    ) -> "_BothSides":
        return cls(seen, query, key, scale, shape, key.times(query.vectors * scale))

    def result(self, name: str, head: int) -> ScoreParts:
        """Split the scores, and check the sums."""
        query, key = self.query, self.key
        ways = query.by_unit, self.from_scores
        found = dict.fromkeys(one for way in ways for one in way.components)
        components = tuple(sorted(found, key=lambda one: (one.place, one.head or 0)))
        grid = len(query.tokens), len(key.tokens)
        of_key = self.from_scores.on(components).unflatten(0, grid)
        of_query = self.scale * (query.split_vectors(components) @ key.vectors.mT).mT
        score = self.scale * query.vectors @ key.vectors.mT
        lengths = query.vectors.norm(dim=-1)[:, None] * key.vectors.norm(dim=-1)
        for parts, way, side in zip((of_query, of_key), ways, (query, key), strict=True):
            eps = side.side.node.eps if side.side.node is not None else 0.0
            check_split(name, way, parts, score, eps, abs(self.scale) * lengths)
        score = score.reshape(self.shape)
        of_key, of_query = (x.reshape(*self.shape, -1) for x in (of_key, of_query))
        return ScoreParts(
            name, head, query.tokens, key.tokens, components, score, of_key, of_query, self
        )

    @property
    def visible(self) -> Bool[Tensor, "queries keys"]:
        """Return which keys of the text each query sees."""
        weights, query = self.seen[self.query.name].weights, self.query
        place = (query.batch, query.head) if weights.shape[:-3] else (query.head,)
        one = weights.head(*place)
        return torch.cat([one.visible(range(row, row + 1)) for row in query.tokens])

    def pairs(self, components: Sequence[Component]) -> Tensor:
        """Return the products of all parts of queries with all parts of keys."""
        q, k = (side.split_vectors(components) for side in (self.query, self.key))
        made = self.scale * torch.einsum("qad,kbd->qkab", q, k)
        return made.reshape(*self.shape, *made.shape[-2:])

    def sources(self, one: Component, side: str) -> Tensor:
        """Split the part of a head in the only score by the tokens that it attended to."""
        if side == "key":
            pulled, token = self.from_scores.pulled(one)[0], self.key.tokens[0]
        else:
            # Of each number of the query, times the key's.
            pulled = self.scale * self.key.vectors[0] @ self.query.by_unit.pulled(one)
            token = self.query.tokens[0]
        return source_shares(self.seen, one, pulled, token, self.query.batch)

    def experts(self, one: Component, side: str) -> Tensor:
        """Split the part of experts in the only score by the expert."""
        own = self.key if side == "key" else self.query
        if side == "key":
            leaf, routed, pulled = self.from_scores.routed(one)
            pulled = pulled[0]
        else:
            leaf, routed, of_units = self.query.by_unit.routed(one)
            pulled = self.scale * self.key.vectors[0] @ of_units
        row = own.batch * (leaf.shape[0] // own.side.batch) + own.tokens[0]
        return expert_shares(leaf, routed, pulled, row)


def score_parts(
    seen: Seen,
    name: str,
    *,
    head: int,
    query: int | Sequence[int],
    key: int | None = None,
    batch: int = 0,
) -> ScoreParts:
    """Split the score of a query and a key into pairs of components of the residual stream.

    s_ij = β q_i·k_j = β Σ_a Σ_b q_i^a·k_j^b. Each component a of the residual stream at token i, an
    embedding, a head, an MLP or a bias, adds a vector q_i^a to the query, and each component b at
    token j adds k_j^b to the key: norms are linear once their scale is fixed at its value in this
    run, and rotary positions are rotations. Biases, masks and a softcap come after the score.

    The parts are checked to sum to what the model computed. One pass back through the projections
    gives the parts of all components, so that a query's parts with all keys cost
    keys · components.

    Args:
        seen: What `gh.watch(model, keep="parts")` has seen; its last text, read in one call.
        name: Name of the attention, as `watch` gives it.
        head: The query head.
        query: The place of the query, or a list; negative ones count from the end.
        key: The place of the key; None: all keys.
        batch: The row of the batch.

    Errors: a TypeError or ValueError if an argument is invalid, or the parts were not kept; an
    `UnseenError` if an operator between the residual stream and the score is not linear, or a
    module adds something unknown.

    Source: Elhage et al. 2021 (A mathematical framework for transformer circuits), section "Three
    kinds of composition"; Kamath et al. 2025 (Tracing attention computation through feature
    interactions).

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model = gh.LanguageModel(config).eval()
    >>> with torch.no_grad(), gh.watch(model, keep="parts") as seen:
    ...     logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    >>> parts = gh.score_parts(seen, "blocks.1.attention", head=2, query=-1, key=1)
    >>> parts.names[1:4]
    ['embedding.positions.table', 'blocks.0.attention head 0', 'blocks.0.attention head 1']
    >>> parts.pairs.shape, torch.allclose(parts.pairs.sum(), parts.score)
    (torch.Size([9, 9]), True)
    >>> gh.score_parts(seen, "blocks.1.attention", head=2, query=[3, 4]).of_key.shape
    torch.Size([2, 5, 9])
    """
    parts, asking, answering = parts_of_call(seen, name, "score_parts")
    given = [query] if isinstance(query, int) else query
    if not isinstance(given, list | tuple | range) or not given:
        raise TypeError(f"query must be a place or a list of places, got {query!r}.")
    head = place_in(head, asking.heads, "head")
    batch = place_in(batch, asking.batch, "batch")
    queries = tuple(place_in(one, asking.length, "query") for one in given)
    keys = (
        tuple(range(answering.length)) if key is None else (place_in(key, answering.length, "key"),)
    )
    group = max(1, asking.heads // answering.heads)
    sides = (
        _Tokens(name, asking, head, queries, batch, parts.why),
        _Tokens(name, answering, head // group, keys, batch, parts.why),
    )
    scale = _scale(parts, head)
    shape = (*(() if isinstance(query, int) else (len(queries),)), *((len(keys),) * (key is None)))
    return _BothSides.of(seen, *sides, scale, shape).result(name, head)


def _scale(parts: CallParts, head: int) -> float:
    """Return the scale of the scores of a head."""
    scale = parts.scale
    if isinstance(scale, Tensor):
        scale = scale.reshape(-1)[head % scale.numel()]
    return float(scale)


# Rows of keys that are computed at once.
_AT_ONCE = 1024


def contrasts(
    seen: Seen, name: str, looks: Sequence[tuple[int, int, int]], what: str
) -> dict[str, tuple[tuple[Component, ...], Float[Tensor, "looks components"]]]:
    """Split the contrasts of several scores of an attention, as `ScoreParts.contrast` does of one.

    Args:
        seen: What a watch has seen of one text.
        name: Name of the attention.
        looks: The head, the query and the key of each.
        what: Name of the calling function, for errors.

    Returns: for "key" and "query", the components of that side, and their parts.

    Errors: as of `score_parts`.
    """
    parts, asking, answering = parts_of_call(seen, name, what)
    group = max(1, asking.heads // answering.heads)
    weights, every = seen[name].weights, _rows(range(answering.length))
    of_key, of_query = _Rows(name, answering, parts.why), _Rows(name, asking, parts.why)
    for head, query, key in looks:
        scale, own = _scale(parts, head), head // group
        others = weights[(*(0,) * len(weights.shape[:-3]), head, query)] > 0
        others[key] = False
        share = -others.double() / others.sum().clamp(min=1)
        share[key] = 1
        tokens = share.nonzero().flatten()
        keys = answering.vectors(every, own).to(share)
        asked = asking.vectors(_rows([query]), head).to(share)
        of_key.add(own, tokens.tolist(), scale * share[tokens, None] * asked)
        of_query.add(head, [query], scale * share[None] @ keys)
    return {"key": of_key.split(), "query": of_query.split()}


def _rows(tokens: Sequence[int]) -> Rows:
    return Rows(torch.zeros(len(tokens), dtype=torch.long), torch.tensor([*tokens]))


class _Rows:
    """Vectors that queries or keys of heads are multiplied by, at tokens of the first text.

    Args:
        name: Name of the attention.
        side: Its queries or keys.
        why: Why nothing is followed; None: it is.
    """

    def __init__(self, name: str, side: Side, why: str | None) -> None:
        self._name, self._side, self._why = name, side, why
        self._given: list[tuple[int, list[int], Tensor]] = []

    def add(self, head: int, tokens: list[int], g: Float[Tensor, "tokens dim"]) -> None:
        self._given.append((head, tokens, g))

    def split(self) -> tuple[tuple[Component, ...], Float[Tensor, "looks components"]]:
        """Return the components, and the sum of the parts of each that was added."""
        made: list[tuple[tuple[Component, ...], Tensor]] = []
        waiting, count = [], 0
        for one in self._given:
            if waiting and count + len(one[1]) > _AT_ONCE:
                made.append(self._split(waiting))
                waiting, count = [], 0
            waiting.append(one)
            count += len(one[1])
        made.append(self._split(waiting))
        return made[0][0], torch.cat([parts for _, parts in made])

    def _split(
        self, given: list[tuple[int, list[int], Tensor]]
    ) -> tuple[tuple[Component, ...], Tensor]:
        side, counts = self._side, torch.tensor([len(tokens) for _, tokens, _ in given])
        rows = _rows([token for _, tokens, _ in given for token in tokens])
        heads = torch.tensor([head for head, _, _ in given]).repeat_interleave(counts)
        vectors = side.vectors(rows, heads)
        vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        g = torch.cat([one for _, _, one in given]).to(vectors)
        pulling = side.pulling(rows, heads, g)
        found = split(self._name, side.node, side.axes, rows, pulling, self._why)
        eps = 0.0 if side.node is None else side.node.eps
        size = vectors.norm(dim=-1) * g.norm(dim=-1)
        check_split(self._name, found, found.parts, (vectors * g).sum(-1), eps, size)
        sums = found.parts.new_zeros(len(given), found.parts.shape[1]).double()
        look = torch.arange(len(given)).repeat_interleave(counts)
        return found.components, sums.index_add(0, look, found.parts.double())

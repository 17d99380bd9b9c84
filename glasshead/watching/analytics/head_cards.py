"""Head cards: what is known of each head of a model, summed over texts."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glasshead.attention.weights import Weights
from glasshead.drawing import Document, Drawn
from glasshead.recipe.validation import whole_number
from glasshead.watching.analytics.components import Component
from glasshead.watching.analytics.head_card import ALIGNMENT, MATCH, HeadCard, document_of
from glasshead.watching.analytics.logit_parts import head_logits
from glasshead.watching.analytics.role_scores import PRECEDENCE, THRESHOLDS
from glasshead.watching.analytics.roles import NEAR, Masses, masses_of_layers, roles_of
from glasshead.watching.analytics.score_parts import contrasts
from glasshead.watching.errors import UnseenError
from glasshead.watching.seen import Seen

# Weights that are held at once.
_AT_ONCE = 2**22
# Tokens that a look is counted to write; what a card shows of tokens, and of components.
_WRITTEN, _SHOWN, _FED = 10, 5, 3
# More than the tokens, or the components, of any model.
_ROOM = 2**20
_SIDES = ("key", "query")
_TALLIES = ("keys", "looks", "writes", *_SIDES)
# The sums of each head.
_SUMS = ("entropy", "distance", "sink", "alignment", "match", "queries", "others", "aligned")


class Tally:
    """Sums of numbers by key, of which most keys have none.

    Attributes:
        keys: The keys, in ascending order.
        sums: Their sums.
    """

    def __init__(self, keys: Int[Tensor, " n"], numbers: Float[Tensor, " n"]) -> None:
        self.keys, places = keys.unique(return_inverse=True)
        sums = torch.zeros(len(self.keys), dtype=torch.float64)
        self.sums = sums.index_add(0, places, numbers.double())

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(torch.cat([self.keys, other.keys]), torch.cat([self.sums, other.sums]))

    def largest(self, owner: int, size: int, count: int) -> list[tuple[int, float]]:
        """Return the keys from owner · size with the largest absolute sums, from 0, and these."""
        ends = torch.tensor([owner * size, (owner + 1) * size])
        first, last = torch.searchsorted(self.keys, ends).tolist()
        order = self.sums[first:last].abs().argsort(descending=True, stable=True)[:count]
        keys, sums = self.keys[first:last][order] - ends[0], self.sums[first:last][order]
        return [one for one in zip(keys.tolist(), sums.tolist(), strict=True) if one[1]]


@dataclass(frozen=True, eq=False, repr=False)
class HeadCards(Drawn):
    """Cards of every head of every layer, over some texts; those of further texts add up.

    Attributes:
        layers: The names of the layers, in order of execution.
        heads: The number of heads of each.
        texts: The number of texts.
        unknown: Why it is not known what feeds some heads; None: it is.
        word: Returns the text of a token.
    """

    layers: tuple[str, ...]
    heads: tuple[int, ...]
    texts: int
    unknown: str | None
    word: Callable[[int], str]
    _masses: Mapping[str, Masses]
    _sums: Mapping[str, Tensor]
    _tallies: Mapping[str, Tally]
    _components: tuple[str, ...]

    def __add__(self, other: "HeadCards") -> "HeadCards":
        if self._of != other._of:
            raise ValueError("cards add up if they are of one model, got those of two.")
        return replace(
            self,
            texts=self.texts + other.texts,
            unknown=self.unknown or other.unknown,
            **{name: _added(getattr(self, name), getattr(other, name)) for name in _ADDED},
        )

    @property
    def _of(self) -> tuple[Any, ...]:
        return self.layers, self.heads, self._components

    @cached_property
    def cards(self) -> tuple[HeadCard, ...]:
        """A card for each head, layer by layer."""
        roles = roles_of(self._masses, THRESHOLDS)
        sums, aligned = self._sums, self._sums["alignment"] / self._sums["aligned"]
        places = [(layer, head) for layer, count in enumerate(self.heads) for head in range(count)]
        found = []
        for own, (layer, head) in enumerate(places):
            scores = {role: float(roles.scores[role][layer, head]) for role in PRECEDENCE}
            role = roles.roles[layer][head]
            scores[ALIGNMENT] = float(aligned[own])
            if float(sums["aligned"][own]):
                scores[MATCH] = float(sums["match"][own] / sums["aligned"][own])
            if scores[ALIGNMENT] >= 0.5:
                role = ALIGNMENT
            others = float(sums["others"][own])
            found.append(
                HeadCard(
                    layer=self.layers[layer],
                    head=head,
                    role=role,
                    scores=scores,
                    entropy=float(sums["entropy"][own] / sums["queries"][own]),
                    distance=float(sums["distance"][own] / sums["queries"][own]),
                    sink=float(sums["sink"][own]) / others,
                    keys=tuple((self.word(key), x / others) for key, x in self._top("keys", own)),
                    looks=tuple(
                        (self.word(pair // _ROOM), self.word(pair % _ROOM), x / others)
                        for pair, x in self._top("looks", own, _ROOM**2)
                    ),
                    writes=tuple(self.word(token) for token, _ in self._top("writes", own)),
                    fed_by=tuple(self._fed_by(own)),
                    feeds=self._feeds.get(f"{self.layers[layer]} head {head}", ()),
                )
            )
        return tuple(found)

    @cached_property
    def _feeds(self) -> dict[str, tuple[tuple[str, str, float], ...]]:
        """The heads that each component feeds most, with the side and the share."""
        found: dict[str, list[tuple[str, str, float]]] = {}
        names = [
            f"{layer} head {head}"
            for layer, count in zip(self.layers, self.heads, strict=True)
            for head in range(count)
        ]
        for own, name in enumerate(names):
            for side, component, share in self._fed_by(own):
                found.setdefault(component, []).append((side, name, share))
        return {
            name: tuple(sorted(fed, key=lambda one: -abs(one[2]))[:_FED])
            for name, fed in found.items()
        }

    def _fed_by(self, own: int) -> Iterator[tuple[str, str, float]]:
        for side in _SIDES:
            for component, share in self._top(side, own, count=_FED):
                yield side, self._components[component], share / self.texts

    def _top(
        self, name: str, own: int, size: int = _ROOM, count: int = _SHOWN
    ) -> list[tuple[int, float]]:
        return self._tallies[name].largest(own, size, count)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what the cards are made of, in JSON and as tensors, to go on with later."""
        tensors = {f"sums {name}": one for name, one in self._sums.items()}
        for name, tally in self._tallies.items():
            tensors |= {f"keys {name}": tally.keys, f"numbers {name}": tally.sums}
        for place, name in enumerate(self.layers):
            one = self._masses[name]
            tensors[f"masses {place}"] = torch.stack([one.sums, one.even, one.counts])
        described = {name: getattr(self, name) for name in _DESCRIBED}
        return described, tensors

    @classmethod
    def of_state(
        cls,
        described: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        word: Callable[[int], str],
    ) -> "HeadCards":
        """Return the cards of a `state`."""
        given = {name: described[name] for name in _DESCRIBED}
        given |= {name: tuple(given[name]) for name in ("layers", "heads", "_components")}
        layers = given["layers"]
        return cls(
            **given,
            word=word,
            _masses={
                name: Masses(*tensors[f"masses {place}"]) for place, name in enumerate(layers)
            },
            _sums={name: tensors[f"sums {name}"] for name in _SUMS},
            _tallies={
                name: Tally(tensors[f"keys {name}"], tensors[f"numbers {name}"])
                for name in _TALLIES
            },
        )

    def document(self) -> Document:
        return document_of(self.cards, self.layers, self.texts, self.unknown)

    def __repr__(self) -> str:
        count = sum(self.heads)
        return f"HeadCards: {count} heads of {len(self.layers)} layers, {self.texts} texts"


_ADDED = ("_masses", "_sums", "_tallies")
_DESCRIBED = ("layers", "heads", "texts", "unknown", "_components")


def _added(one: Mapping, other: Mapping) -> dict:
    return {name: each + other[name] for name, each in one.items()}


def head_cards(
    seen: Seen,
    tokens: Int[Tensor, " length"],
    *,
    separator: int | None = None,
    special: Collection[int] = (),
    word: Callable[[int], str] = str,
    near: int = NEAR,
    progress: Callable[[int, int], object] | None = None,
) -> HeadCards:
    """Describe each head of a model on a text: what it does, where it looks, what feeds it.

    A card holds, with sinks the first token and the special ones:

        scores      as of `head_roles`, "alignment", and with two parts "match"
        entropy     mean entropy of a query's weights, in nats
        distance    mean Σ_j P_ij |i - j|
        sink        mean weight on the sinks, of the other queries
        keys        tokens with the largest share of the attention of the other queries
        looks       pairs of a query's token and of its largest key that is no sink
        writes      tokens whose logits the head raises or lowers most, at its strongest look
        fed_by      components with the largest share in the contrast of this look's score
        feeds       heads that have this one among the components that feed them

    The strongest look is the largest P_ij - 1/n_i, where query i sees n_i keys and neither token is
    a sink. Its contrast is as of `ScoreParts.contrast`.

    Alignment is a match across a separator, such as a second sentence with the first, or a product
    with what it is made from. With A the weights of the queries after the separator on the keys
    before it, both without sinks:

        alignment = mean_i Σ_j A_ij/Σ_k A_ik · A_ij/Σ_k A_kj · [t_i = t_j]

    over the queries whose token is also before the separator. It is 1 if each looks at one equal
    token, at which no other looks. From 0.5 on, it is the head's role. The score "match" is the
    share of these queries whose largest weight of all is on an equal token before the separator.

    Cards of several texts are added with `+`.

    Args:
        seen: What `gh.watch(model, keep="parts")` has seen; its last text, read in one call.
        tokens: The token ids of this text.
        separator: A token between two parts of the text; None: there are no two parts.
        special: Tokens that are sinks wherever they are, such as [CLS] and [SEP].
        word: Returns the text of a token.
        near: As of `head_roles`.
        progress: Called with the number of layers done, and the total.

    Errors: a TypeError or ValueError if an argument is invalid, the parts were not kept, or a layer
    attends to another text than the tokens.

    Source: those of `head_roles` and `score_parts`; Schwaller et al. 2021 (Extraction of organic
    chemistry grammar from unsupervised learning of chemical reactions), for alignment.

    >>> import torch
    >>> import glasshead as gh
    >>> _ = torch.manual_seed(0)
    >>> config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    >>> model, tokens = gh.LanguageModel(config).eval(), torch.tensor([3, 1, 4, 1, 5])
    >>> with torch.no_grad(), gh.watch(model, keep="parts") as seen:
    ...     logits = model(tokens[None])
    >>> cards = gh.head_cards(seen, tokens)
    >>> cards
    HeadCards: 6 heads of 2 layers, 1 texts
    >>> card = cards.cards[3]
    >>> card.layer, card.head, card.role, len(card.writes)
    ('blocks.1.attention', 0, 'broad', 5)
    """
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or len(tokens) < 3:
        shape = list(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be one text of three tokens or more, [length], got {shape}.")
    near, tokens = whole_number(near, "near"), tokens.cpu()
    if int(tokens.max()) >= _ROOM:
        raise ValueError(f"tokens must be below {_ROOM}, got {int(tokens.max())}.")
    masses = masses_of_layers(seen, tokens[None], near)
    text = _Text.of(tokens, separator, special)
    cards = _Maker(seen, text)
    for done, name in enumerate(masses):
        if progress is not None:
            progress(done, len(masses))
        cards.add(name)
    return HeadCards(
        layers=tuple(masses),
        heads=tuple(cards.heads),
        texts=1,
        unknown=cards.unknown,
        word=word,
        _masses=masses,
        _sums={name: torch.cat(found) for name, found in cards.sums.items()},
        _tallies={
            name: Tally(*map(torch.cat, zip(*found, strict=True)))
            for name, found in cards.tallies.items()
        },
        _components=tuple(cards.components),
    )


@dataclass(frozen=True)
class _Text:
    """A text.

    Attributes:
        tokens: Its tokens.
        sinks: Which of them are sinks.
        before, after: Which are on the sides of the separator; None of both without one.
    """

    tokens: Int[Tensor, " length"]
    sinks: Bool[Tensor, " length"]
    before: Bool[Tensor, " length"]
    after: Bool[Tensor, " length"]

    @classmethod
    def of(cls, tokens: Tensor, separator: int | None, special: Collection[int]) -> "_Text":
        place = torch.arange(len(tokens))
        sinks = (place == 0) | torch.isin(tokens, torch.tensor([*special], dtype=torch.long))
        if (~sinks).sum() < 2:
            raise ValueError("head_cards needs two tokens that are no sinks. Use a longer text.")
        none = torch.zeros_like(sinks)
        between = (none if separator is None else tokens == separator).nonzero().flatten()
        if not len(between):
            return cls(tokens, sinks, none, none)
        return cls(tokens, sinks, ~sinks & (place < between[0]), ~sinks & (place > between[-1]))


class _Maker:
    """The maker of the sums of one text.

    Args:
        seen: What a watch has seen.
        text: The text.

    Attributes:
        heads: The numbers of heads so far.
        sums: By name, a tensor for each layer, `[heads]`.
        tallies: By name, pairs of keys and numbers.
        components: The names of the components so far, and their places.
        unknown: Why it is not known what feeds some heads; None: it is.
    """

    def __init__(self, seen: Seen, text: _Text) -> None:
        self._seen, self._text = seen, text
        self.heads: list[int] = []
        self.sums: dict[str, list[Tensor]] = {}
        empty = torch.empty(0, dtype=torch.long), torch.empty(0)
        self.tallies = {name: [empty] for name in _TALLIES}
        self.components: dict[str, int] = {}
        self.unknown: str | None = None
        # A module that runs several times is one layer for each run.
        self._runs = {
            call.parts.context.order: name
            for name, watched in seen.layers.items()
            for call in watched.last_text
            if call.parts is not None
        }

    def add(self, name: str) -> None:
        """Add a layer."""
        text, (call,) = self._text, self._seen[name].last_text
        weights = call.weights
        if weights is None:
            raise ValueError(f"the weights of {name!r} were not kept. Watch with keep='parts'.")
        found = _measured(weights, text)
        count = len(found["queries"])
        owners = sum(self.heads) + torch.arange(count)[:, None]
        self.heads.append(count)
        for each in _SUMS:
            self.sums.setdefault(each, []).append(found[each])
        tokens, asking = text.tokens, text.tokens[~text.sinks]
        self._tally("keys", owners * _ROOM + tokens, found["received"])
        pairs = asking * _ROOM + tokens[found["best"]]
        self._tally("looks", owners * _ROOM**2 + pairs, found["weight"])
        looks = list(zip(range(count), *found["look"].T.tolist(), strict=True))
        self._why(name, looks, owners)

    def _tally(self, name: str, keys: Tensor, numbers: Tensor) -> None:
        self.tallies[name].append((keys.flatten(), numbers.flatten()))

    def _why(self, name: str, looks: list[tuple[int, int, int]], owners: Tensor) -> None:
        """Add what the looks of heads are fed by, and what they write."""
        try:
            found = contrasts(self._seen, name, looks, "head_cards")
            written = head_logits(self._seen, name, [look[:2] for look in looks])
        except UnseenError as error:
            self.unknown = self.unknown or str(error)
            return
        for side, (components, parts) in found.items():
            shares = parts / parts.abs().sum(-1, keepdim=True).clamp(min=1e-30)
            places = torch.tensor([self._place(one) for one in components])
            self._tally(side, owners * _ROOM + places, shares)
        if written is not None:
            written = (written - written.mean(-1, keepdim=True)).cpu()
            raised = written.topk(min(_WRITTEN, written.shape[-1]))
            self._tally("writes", owners * _ROOM + raised.indices, raised.values)

    def _place(self, one: Component) -> int:
        name = str(one)
        if one.head is not None:
            name = f"{self._runs.get(one.place, one.name)} head {one.head}"
        return self.components.setdefault(name, len(self.components))


def _measured(weights: Weights, text: _Text) -> dict[str, Tensor]:
    """Return the sums over the queries of a text, `[heads]` or `[heads, …]` each.

    Besides sums by name: the mass that each key "received", the "best" key of each query that is no
    sink and its "weight", and the query and the key of the strongest "look".
    """
    heads, length = weights._problem.scores_shape[-3], len(text.tokens)  # noqa: SLF001 - `shape` may lack the heads
    place = torch.arange(length)
    sums = {name: torch.zeros(heads, dtype=torch.float64) for name in _SUMS}
    received, crossed, matched = torch.zeros(3, heads, length, dtype=torch.float64)
    top: list[tuple[Tensor, Tensor, Tensor]] = []
    size = max(1, _AT_ONCE // (heads * length))
    for begin in range(0, length, size):
        rows = range(begin, min(begin + size, length))
        P = weights.tile(rows, range(length)).reshape(heads, len(rows), length).cpu().double()
        asking, after = ~text.sinks[begin : rows.stop], text.after[begin : rows.stop]
        sums["entropy"] -= torch.xlogy(P, P).sum((1, 2))
        sums["distance"] += (P * (place[begin : rows.stop, None] - place).abs()).sum((1, 2))
        A, same = (
            P * (after[:, None] & text.before),
            text.tokens[begin : rows.stop, None] == text.tokens,
        )
        crossed += A.sum(1)
        matched += (A * A / A.sum(-1, keepdim=True).clamp(min=1e-30) * same).sum(1)
        equal = same & text.before & after[:, None]
        sums["aligned"] += equal.any(-1).sum()
        weight, best = P.max(-1)
        sums["match"] += (equal[torch.arange(len(rows)), best] & (weight > 0)).sum(-1)
        P, seen = P[:, asking], weights.visible(rows).reshape(P.shape)[:, asking].cpu()
        received += P.sum(1)
        weight, best = P.masked_fill(text.sinks, -1).max(-1)
        top.append((weight, best, weight - 1 / seen.sum(-1)))
    weight, best, above = (torch.cat(one, 1) for one in zip(*top, strict=True))
    strongest = above.argmax(-1, keepdim=True)
    look = (~text.sinks).nonzero().flatten()[strongest], best.gather(1, strongest)
    sums["queries"] += length
    sums["others"] += (~text.sinks).sum()
    sums["sink"] = received[:, text.sinks].sum(-1)
    sums["alignment"] = (matched / crossed.clamp(min=1e-30)).sum(-1)
    found = {"received": received, "best": best, "weight": weight, "look": torch.cat(look, 1)}
    return sums | found

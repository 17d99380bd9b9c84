"""The card of a head: what it does, and its drawing."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glasshead.drawing import Block, Card, Cards, Document, Heading, Note, Paragraph, visible
from glasshead.message import Message, _
from glasshead.watching.analytics.role_scores import Strips
from glasshead.watching.seen import short

# A head whose queries match equal tokens across a separator.
ALIGNMENT = "alignment"
# The share of its queries whose largest weight is on one of these.
MATCH = "match"
_NAMES = _("alignment"), _("match")


@dataclass(frozen=True)
class HeadCard:
    """Card of a head: its role, where it looks, what it writes and what feeds it.

    Attributes:
        layer, head: Its layer and number.
        role: Its role; None: it has none.
        scores: Its score for each role, from 0 to 1; NaN if no query counts.
        entropy: Mean entropy of a query's weights, in nats.
        distance: Mean distance of a key, in tokens.
        sink: Mean weight on sinks.
        keys: Tokens that it looks at, each with its share of the attention.
        looks: Tokens of a query and of its largest key, each pair with its share.
        writes: Tokens whose logits it raises most; empty without logits.
        fed_by: Components that its looks depend on: "key" or "query", the name and the share.
        feeds: Heads that depend on it: "key" or "query" of these, the name and the share.
    """

    layer: str
    head: int
    role: str | None
    scores: dict[str, float]
    entropy: float
    distance: float
    sink: float
    keys: tuple[tuple[str, float], ...]
    looks: tuple[tuple[str, str, float], ...]
    writes: tuple[str, ...]
    fed_by: tuple[tuple[str, str, float], ...]
    feeds: tuple[tuple[str, str, float], ...]

    def drawn(self, named: Mapping[str, str]) -> Card:
        """Return the card to draw.

        Args:
            named: Short names of heads.
        """
        known = [(role, score) for role, score in self.scores.items() if not math.isnan(score)]
        best = sorted(known, key=lambda one: -one[1])[:_BARS]
        rows = [
            (
                Message("attention"),
                Message(
                    "entropy {entropy:.2f} nats, distance {distance:.1f}, sinks {sink:.0%}",
                    entropy=self.entropy,
                    distance=self.distance,
                    sink=self.sink,
                ),
            ),
            (Message("looks at"), _shares((visible(key), share) for key, share in self.keys)),
            (
                Message("typical looks"),
                _shares((f"{visible(one)} → {visible(key)}", x) for one, key, x in self.looks),
            ),
            (Message("raises the logits of"), ", ".join(map(visible, self.writes))),
        ]
        sides = {"key": Message("its keys read"), "query": Message("its queries read")}
        for side, title in sides.items():
            fed = [(named.get(one, one), x) for own, one, x in self.fed_by if own == side]
            rows.append((title, _shares(fed)))
        feeds = ((Message(_FEEDS[side], head=named[one]), x) for side, one, x in self.feeds)
        rows.append((Message("feeds"), _shares(feeds)))
        title = Message("head {head}", head=self.head)
        mark = None if self.role is None else Message(self.role)
        return Card(title, mark, [(Message(x), y) for x, y in best], [x for x in rows if x[1]])


_BARS = 3
_FEEDS = {"key": _("the keys of {head}"), "query": _("the queries of {head}")}


def _shares(pairs: Iterable[tuple[str, float]]) -> str:
    said = [Message("{name} {share:.0%}", name=name, share=share) for name, share in pairs]
    return Message.joined(", ", said) if said else ""


def document_of(
    cards: Sequence[HeadCard], layers: Sequence[str], texts: int, unknown: str | None
) -> Document:
    """Return the roles of all heads, and the cards, layer by layer."""
    names, pattern = short(layers)
    names = [name or Message("the model") for name in names]
    by_layer = [[card for card in cards if card.layer == layer] for layer in layers]
    most = max(map(len, by_layer))
    cells = [
        [Message(card.role) if card.role else "·" for card in own] + [""] * (most - len(own))
        for own in by_layer
    ]
    caption = Message("role of each head; · none")
    if pattern:
        caption = Message("role of each head of {layers}; · none", layers=pattern)
    named = {
        f"{card.layer} head {card.head}": Message(
            "layer {layer} head {head}", layer=names[place], head=card.head
        )
        for place, own in enumerate(by_layer)
        for card in own
    }
    blocks: list[Block] = [Paragraph(Message("Texts read: {texts}.", texts=texts))]
    if unknown is not None:
        blocks.append(Note(Message("What feeds some heads is not known: {why}", why=unknown)))
    blocks += map(Paragraph, _aligned(cards, named))
    blocks.append(Strips(names, cells, caption))
    for name, own in zip(names, by_layer, strict=True):
        blocks.append(Heading(Message("Layer {layer}", layer=name)))
        blocks.append(Cards([card.drawn(named) for card in own]))
    return Document(blocks, title=Message("Head cards: {heads} heads", heads=len(cards)))


def _aligned(cards: Sequence[HeadCard], named: Mapping[str, str]) -> Iterator[str]:
    """Yield which heads align the two parts of a text; nothing if there are no two parts."""
    known = [card for card in cards if MATCH in card.scores]
    best = sorted(known, key=lambda card: -card.scores[MATCH])
    found = [card for card in best if card.role == ALIGNMENT]
    others = [card.scores[MATCH] for card in best if card.role != ALIGNMENT]
    heads = [
        Message(
            "{name} {share:.0%}",
            name=named[f"{card.layer} head {card.head}"],
            share=card.scores[MATCH],
        )
        for card in found
    ]
    if heads:
        yield Message(
            "Heads that align the two parts of a text, and the share of the second part's tokens "
            "whose largest weight is on an equal token of the first part: {heads}.",
            heads=Message.joined(", ", heads),
        )
    elif known:
        yield Message("No head aligns the two parts of a text.")
    if heads and others:
        yield Message("For any other head, the share is at most {share:.0%}.", share=others[0])


def entry(card: HeadCard) -> dict[str, Any]:
    """Return a card for JSON, its numbers to four decimals; NaN is null."""
    return {name: _rounded(value) for name, value in vars(card).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 4) + 0.0
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, tuple) else value

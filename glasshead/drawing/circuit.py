"""A circuit: what wrote what at which word and layer, from the last layer back to the words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from markupsafe import Markup
from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, line, texts
from glasshead.drawing.page import rendered
from glasshead.drawing.printable import shorten, visible, wrap

_NAME = 14
# In pixels: a letter, between columns, between nodes, a layer, a node, the margins.
_LETTER, _GAP, _BESIDE, _LAYER, _HIGH, _MARGIN = 8.4, 22, 10, 88, 26, 16
# The strongest edge, and the narrowest column.
_STRONGEST, _LEAST = 9, 40
# Of a file alone, in a light and in a dark page.
_STYLE = """
.circuit { --ink: #20262c; --quiet: #5b6570; --rule: #dedad0; --accent: #15588a; --paper: #fbfaf7;
  --alarm: #b3401c; fill: var(--ink); font: 14px system-ui, sans-serif; text-anchor: middle;
  background: var(--paper) }
@media (prefers-color-scheme: dark) { .circuit { --ink: #e6e3dc; --quiet: #a3acb5; --rule: #363c42;
  --accent: #7db3dd; --paper: #14171a; --alarm: #ef8a68 } }
.circuit path { fill: none; stroke: var(--accent); stroke-linecap: round }
.circuit .against { stroke: var(--alarm) }
.circuit .stream { stroke: var(--rule); stroke-width: 1.5 }
.circuit rect { fill: var(--paper); stroke: var(--accent); stroke-width: 1.5 }
.circuit .layer { fill: var(--quiet); text-anchor: end }
.circuit .word { font-size: 16px }
.circuit .share { font-size: 12px; paint-order: stroke; stroke: var(--paper); stroke-width: 4px }
"""


class CircuitNode(NamedTuple):
    """A node of a circuit.

    Attributes:
        word: The place of its word.
        layer: Its layer, from 0 at the bottom.
        label: What it is, in a word or two.
    """

    word: int
    layer: int
    label: str


class CircuitEdge(NamedTuple):
    """An edge of a circuit.

    Attributes:
        start, end: The places of its nodes; it ends at the later layer.
        share: Its strength, -1 to 1; below 0 it works against the node.
        label: What it says.
    """

    start: int
    end: int
    share: float
    label: str


@dataclass(frozen=True)
class Circuit(Block):
    """A circuit over words: nodes at words and layers, and edges as strong as their shares.

    In a terminal each edge is a line.

    Args:
        words: The words, from left to right.
        layers: The names of the layers, from the bottom to the top.
        nodes: The nodes.
        edges: The edges.
        caption: The caption.

    Raises:
        TypeError: words, layers or the caption are not strings.

    Example:
        >>> nodes = [CircuitNode(0, 0, "token"), CircuitNode(1, 1, "head 2")]
        >>> edges = [CircuitEdge(0, 1, 0.83, "key")]
        >>> print(Circuit(["the", "cat"], ["words", "layer 0"], nodes, edges).as_text())
        head 2 at cat, layer 0 ← token at the, words: +0.83 key
    """

    words: Sequence[str]
    layers: Sequence[str]
    nodes: Sequence[CircuitNode]
    edges: Sequence[CircuitEdge]
    _: KW_ONLY
    caption: str | None = None

    def __post_init__(self) -> None:
        for name in ("words", "layers"):
            object.__setattr__(self, name, texts(getattr(self, name), f"Circuit {name}"))

    def lines(self, canvas: Canvas) -> Iterator[Text]:
        """Draw a line for each edge."""
        if self.caption:
            yield from (line(part, "italic") for part in wrap(self.caption, canvas.width))
        for edge in self.edges:
            start, end = (self._named(self.nodes[one]) for one in (edge.start, edge.end))
            drawn = f"{end} ← {start}: {edge.share:+.2f} {edge.label}"
            yield from map(line, wrap(drawn, canvas.width, hang=2))

    def _named(self, node: CircuitNode) -> str:
        return f"{node.label} at {visible(self.words[node.word])}, {self.layers[node.layer]}"

    def html(self, words: Words = ENGLISH) -> str:
        """Draw the circuit as SVG, whose words can be read and selected."""
        label = self.caption or words.heat_map
        return rendered(
            "circuit.html", caption=self.caption, label=label, **self._drawn(), style=""
        )

    def svg(self) -> str:
        """Draw the circuit as a file of SVG, which needs nothing from outside."""
        return rendered("circuit.svg", **self._drawn(), style=Markup(_STYLE))  # noqa: S704 - ours

    def _drawn(self) -> dict[str, Any]:
        """Place the words, layers, nodes and edges, in pixels."""
        names = [shorten(visible(word), _NAME) for word in self.words]
        labels = [shorten(visible(name), _NAME + 8) for name in self.layers]
        side = _MARGIN + _LETTER * max(map(cell_len, labels), default=0)
        wide = [max(_LEAST, _LETTER * cell_len(name)) for name in names]
        together: dict[tuple[int, int], list[int]] = {}
        for place, node in enumerate(self.nodes):
            together.setdefault((node.word, node.layer), []).append(place)
        for (word, _), group in together.items():
            wide[word] = max(wide[word], sum(map(self._width, group)) + _BESIDE * (len(group) - 1))
        middles, begin = [], side + _GAP
        for width in wide:
            middles.append(begin + width / 2)
            begin += width + _GAP
        height = _LAYER * len(labels) + _MARGIN
        levels = [height - _LAYER * (at + 0.5) for at in range(len(labels))]
        places: dict[int, tuple[float, float]] = {}
        for (word, layer), group in together.items():
            x = middles[word] - (sum(map(self._width, group)) + _BESIDE * (len(group) - 1)) / 2
            for place in group:
                places[place] = x + self._width(place) / 2, levels[layer]
                x += self._width(place) + _BESIDE
        strongest = sorted(self.edges, key=lambda one: abs(one.share))
        return {
            "as_text": self.as_text(),
            "width": f"{begin:.0f}",
            "height": f"{height + 34:.0f}",
            "streams": [
                {"x": f"{x:.1f}", "top": _MARGIN, "bottom": f"{height:.0f}"} for x in middles
            ],
            "names": [
                {"x": f"{x:.1f}", "y": f"{height + 20:.0f}", "name": name}
                for x, name in zip(middles, names, strict=True)
            ],
            "layers": [
                {"x": f"{side:.1f}", "y": f"{y + 5:.1f}", "name": name}
                for y, name in zip(levels, labels, strict=True)
            ],
            "edges": [_edge(one, places) for one in strongest],
            "nodes": [
                _node(node, places[place], self._width(place))
                for place, node in enumerate(self.nodes)
            ],
        }

    def _width(self, place: int) -> float:
        return _LETTER * (cell_len(self.nodes[place].label) + 1)


def _node(node: CircuitNode, place: tuple[float, float], width: float) -> dict[str, Any]:
    return {
        "x": f"{place[0] - width / 2:.1f}",
        "y": f"{place[1] - _HIGH / 2:.1f}",
        "width": f"{width:.1f}",
        "height": _HIGH,
        "middle": f"{place[0]:.1f}",
        "line": f"{place[1] + 5:.1f}",
        "name": node.label,
    }


def _edge(edge: CircuitEdge, places: Mapping[int, tuple[float, float]]) -> dict[str, str]:
    """Draw an edge as a curve that leaves its node upwards and arrives from below."""
    (x, y), (to_x, to_y) = places[edge.start], places[edge.end]
    y, to_y = y - _HIGH / 2, to_y + _HIGH / 2
    middle = (y + to_y) / 2
    bend = f"{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f}"
    strong = min(1.0, abs(edge.share))
    return {
        "path": f"M{x:.1f} {y:.1f}C{bend} {to_x:.1f} {to_y:.1f}",
        "width": f"{max(1.2, _STRONGEST * strong):.1f}",
        "opacity": f"{0.3 + 0.6 * strong:.2f}",
        "kind": "against" if edge.share < 0 else "for",
        "label": f"{edge.share:+.0%} {edge.label}",
        "share": f"{edge.share:.0%}",
        "x": f"{(x + to_x) / 2:.1f}",
        "y": f"{middle + 4:.1f}",
    }

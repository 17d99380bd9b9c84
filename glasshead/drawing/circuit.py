"""A circuit: what wrote what at which word and layer, from the last layer back to the words."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from glasshead.drawing.block import ENGLISH, Block, Canvas, Words, line, texts
from glasshead.drawing.page import rendered
from glasshead.drawing.printable import shorten, visible, wrap

_NAME = 14
# In pixels: a letter, between columns, a layer, a node, the margins, the strongest edge.
_LETTER, _GAP, _LAYER, _HIGH, _MARGIN, _STRONGEST = 8.4, 26, 84, 26, 16, 9
_LEAST = 64


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
        names = [shorten(visible(word), _NAME) for word in self.words]
        labels = [shorten(visible(name), _NAME + 8) for name in self.layers]
        side = _MARGIN + _LETTER * max(map(cell_len, labels), default=0)
        wide = {at: cell_len(name) for at, name in enumerate(names)}
        for node in self.nodes:
            wide[node.word] = max(wide[node.word], cell_len(node.label) + 1)
        middles, begin = [], side + _GAP
        for at in range(len(names)):
            width = max(_LEAST, _LETTER * wide[at])
            middles.append(begin + width / 2)
            begin += width + _GAP
        height = _LAYER * len(labels) + _MARGIN
        levels = [height - _LAYER * (at + 0.5) for at in range(len(labels))]
        places = [(middles[node.word], levels[node.layer]) for node in self.nodes]
        return rendered(
            "circuit.html",
            caption=self.caption,
            label=self.caption or words.heat_map,
            as_text=self.as_text(),
            width=f"{begin:.0f}",
            height=f"{height + 34:.0f}",
            streams=[{"x": f"{x:.1f}", "top": _MARGIN, "bottom": f"{height:.0f}"} for x in middles],
            names=[
                {"x": f"{x:.1f}", "y": f"{height + 20:.0f}", "name": name}
                for x, name in zip(middles, names, strict=True)
            ],
            layers=[
                {"x": f"{side:.1f}", "y": f"{y + 5:.1f}", "name": name}
                for y, name in zip(levels, labels, strict=True)
            ],
            edges=[
                _edge(one, places) for one in sorted(self.edges, key=lambda one: abs(one.share))
            ],
            nodes=[_node(node, place) for node, place in zip(self.nodes, places, strict=True)],
        )


def _node(node: CircuitNode, place: tuple[float, float]) -> dict[str, Any]:
    width = _LETTER * (cell_len(node.label) + 1)
    return {
        "x": f"{place[0] - width / 2:.1f}",
        "y": f"{place[1] - _HIGH / 2:.1f}",
        "width": f"{width:.1f}",
        "height": _HIGH,
        "middle": f"{place[0]:.1f}",
        "line": f"{place[1] + 5:.1f}",
        "name": node.label,
    }


def _edge(edge: CircuitEdge, places: Sequence[tuple[float, float]]) -> dict[str, str]:
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
    }

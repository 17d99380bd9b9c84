"""Circuits: nodes at words and layers, drawn as SVG and as lines."""

import re

import pytest

from glasshead.drawing import Circuit, CircuitEdge, CircuitNode, Document

NODES = [CircuitNode(0, 0, "token"), CircuitNode(2, 1, "head 3"), CircuitNode(2, 2, "logit")]
EDGES = [CircuitEdge(0, 1, 0.83, "of the key"), CircuitEdge(1, 2, -0.4, "of the logit")]


def circuit():
    return Circuit(["a<b", "c", "d"], ["words", "layer 0", "output"], NODES, EDGES, caption="Why")


def test_each_edge_is_a_line():
    assert circuit().as_text().splitlines() == [
        "Why",
        "head 3 at d, layer 0 ← token at a<b, words: +0.83 of the key",
        "logit at d, output ← head 3 at d, layer 0: -0.40 of the logit",
    ]


def test_nodes_stand_at_their_words_and_layers():
    page = Document([circuit()], title="Why").html()
    assert "a&lt;b</text>" in page
    assert "a<b</text>" not in page
    boxes = [
        tuple(map(float, found))
        for found in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', page)
    ]
    middles = [x + width / 2 for x, _, width in boxes]
    assert middles[0] < middles[1] == pytest.approx(middles[2])
    # Later layers stand above.
    assert boxes[0][1] > boxes[1][1] > boxes[2][1]


def test_an_edge_is_as_wide_as_its_share():
    page = Document([circuit()], title="Why").html()
    drawn = dict(re.findall(r'<path class="(for|against)" [^>]* stroke-width="([\d.]+)"', page))
    assert drawn == {"for": "7.5", "against": "3.6"}


def test_words_must_be_strings():
    with pytest.raises(TypeError, match="Circuit words"):
        Circuit([1], ["words"], [], [])

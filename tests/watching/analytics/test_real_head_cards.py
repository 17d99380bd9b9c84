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


def committed(name):
    return (Path(__file__).parents[3] / "docs" / "cards" / f"{name}.json").read_bytes()


def cards_of(example, wheels, name, folder):
    model = example.unpacked(wheels, name, folder / "models")
    assert example.described(model, name, folder) == 0
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["cards"]


def test_the_head_that_maps_atoms_of_products_is_found(example, wheels, tmp_path):
    # Neither the separator nor the head is given.
    cards = cards_of(example, wheels, "rxnmapper", tmp_path)
    assert len(cards) == 96
    aligned = [
        (card["layer"].rpartition("#")[2], card["head"])
        for card in cards
        if card["role"] == "alignment"
    ]
    assert ("10", 5) in aligned
    assert {head for _, head in aligned} == {5}
    matches = sorted(cards, key=lambda card: -card["scores"]["match"])[:2]
    assert [(card["layer"].rpartition("#")[2], card["head"]) for card in matches] == [
        ("8", 5),
        ("10", 5),
    ]
    others = [card["scores"]["alignment"] for card in cards if card["head"] != 5]
    assert max(others) < 0.1
    assert (tmp_path / "rxnmapper.json").read_bytes() == committed("rxnmapper")


@pytest.mark.parametrize("name", ["minilm", "antiberty", "stories260K"])
def test_the_committed_cards_are_made_again(example, wheels, data_folder, tmp_path, name):
    if name == "stories260K":
        model = data_folder / "stories260K" / "stories260K.bin"
        assert example.described(model, name, tmp_path) == 0
    else:
        cards_of(example, wheels, name, tmp_path)
    assert (tmp_path / f"{name}.json").read_bytes() == committed(name)

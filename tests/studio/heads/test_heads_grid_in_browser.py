"""The grid of all heads in a browser: their maps, their roles, and which of them opens first."""

import pytest
import torch

from glasshead.models.saving import write_weights
from glasshead.studio.strings import words
from glasshead.studio.views import heads
from glasshead.tasks.write import Writer
from studio.conftest import address
from studio.heads.heads_seen import COLORS, HEADS, LAYERS, TEXT, close, colors, small
from written import written


def test_the_grid_shows_what_heads_do(looking, place, reading):
    url, view = place
    page = looking(url).open(view)
    told, maps = heads.summary(reading), heads.small_maps(reading)
    length = reading.length
    assert f"Tokens: {length}. Layers: 2. Heads: 6." in page.locator(".said").inner_text()
    for layer in range(LAYERS):
        for head in range(HEADS):
            button = small(page, layer, head)
            assert float(button.get_attribute("data-entropy")) == told["entropy"][layer][head]
            role = told["roles"][layer][head]
            said = words("en")[f"heads.role.{role or 'none'}"]
            assert button.get_attribute("aria-label") == (
                f"Layer {layer}, head {head}: {said}, mean entropy "
                f"{told['entropy'][layer][head]:.2f} nats"
            )
            canvas = button.locator("canvas")
            side = canvas.evaluate("(canvas) => canvas.clientWidth") / length
            middles = [
                ((at % length + 0.5) * side, (at // length + 0.5) * side) for at in range(length**2)
            ]
            pixels = canvas.evaluate(COLORS, middles)
            expected = colors(maps[layer * HEADS + head, :, :-1])
            assert all(map(close, pixels, [cell for row in expected for cell in row]))
    for role in told["scores"]:
        count = sum(row.count(role) for row in told["roles"])
        assert page.locator(f'.roles [data-role="{role}"]').inner_text() == str(count)


@pytest.mark.parametrize("asked", ["", "&layer=7&head=2", "&layer=0&head=3"])
def test_the_most_telling_head_is_opened_where_none_is_asked_that_is_there(
    looking, place, reading, asked
):
    url, view = place
    page = looking(url).open(view + asked)
    layer, head = heads.summary(reading)["first"]
    assert page.locator(".one .head h2").inner_text().startswith(f"Layer {layer}, head {head}")
    assert f"layer={layer}&head={head}" in address(page)
    assert small(page, layer, head).get_attribute("aria-current") == "true"


def test_the_maps_and_the_open_head_are_seen_at_once(looking, place):
    url, view = place
    page = looking(url, width=1440).open(view)
    grid, map_ = page.locator(".all table").bounding_box(), page.locator(".map").bounding_box()
    assert grid["y"] < 250
    assert grid["x"] + grid["width"] <= map_["x"]
    assert map_["y"] + map_["height"] <= 900


def test_roles_are_tagged_where_a_head_has_one(tmp_path, serving, looking):
    run = written(tmp_path / "run", "context_length=47")
    model = Writer.load(run.path).model
    # Without queries a head looks at all keys alike.
    with torch.no_grad():
        for parameter in model.blocks[0].attention.parameters():
            parameter.zero_()
    write_weights(model, run.weights)
    served = serving(run.path)
    page = looking(served.url).open(f"#heads?text={served.studio.texts.add(TEXT)}&layer=0&head=1")
    for head in range(HEADS):
        assert small(page, 0, head).get_attribute("data-role") == "broad"
        assert small(page, 0, head).locator(".role").inner_text() == "broad"
        assert small(page, 1, head).get_attribute("data-role") != "broad"
    assert page.locator('.roles [data-role="broad"]').inner_text() == str(HEADS)
    assert page.locator(".one .head .tag").inner_text() == "broad"
    assert "broad" in page.locator(".roles .here").inner_text()

"""Compiled models, whose attention is code that nobody calls, are refused in a sentence."""

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.torch.explicit import nothing_is_open

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")


def model():
    layer = nn.TransformerEncoderLayer(12, 3, 29, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def compiled_submodule():
    whole = model()
    whole.layers[1].self_attn = torch.compile(whole.layers[1].self_attn)
    return whole


def compiled_in_place():
    whole = model()
    whole.compile()
    return whole


def submodule_compiled_in_place():
    whole = model()
    whole.layers[0].compile()
    return whole


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: torch.compile(model()), "the model"),
        (compiled_in_place, "the model"),
        (compiled_submodule, "layers.1.self_attn"),
        (submodule_compiled_in_place, "layers.0"),
    ],
)
def test_what_is_compiled_is_refused_before_anything_runs(build, name):
    sentence = (
        f"^watch takes a model that is not compiled, and '{name}' is: "
        f"watch the model that was given to torch.compile.$"
    )
    with pytest.raises(ValueError, match=sentence), gh.watch(build(), [gh.Entropy()]):
        pytest.fail("the block has run")
    assert nothing_is_open()


def test_the_model_that_was_compiled_can_be_watched_itself():
    whole, x = model(), torch.randn(2, 5, 12)
    torch.compile(whole)
    with gh.watch(whole, [gh.Entropy()]) as seen:
        whole(x)
    assert len(seen) == 2

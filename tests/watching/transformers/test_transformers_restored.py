"""Nothing of transformers or PyTorch stays replaced after the block."""

import pytest
import torch
from torch.nn import functional as F

import glasshead as gh
import watched_models as models

pytest.importorskip("transformers")


def looked_up():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    return (
        AttentionInterface.get_interface,
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", None),
        dict(ALL_ATTENTION_FUNCTIONS),
    )


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_everything_is_as_it_was(mode):
    before = looked_up()
    model = models.llama(mode)
    modules = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
        assert looked_up()[0] is not before[0]
        model(models.tokens(2, 7))
    assert looked_up() == before
    assert modules == {name: set(vars(module)) for name, module in model.named_modules()}


def test_everything_is_as_it_was_after_an_error_in_the_block():
    before = looked_up()
    model = models.llama("sdpa")

    def fails():
        model(models.tokens(2, 7))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), gh.watch(model, [gh.Entropy()]):
        fails()
    assert looked_up() == before


def test_everything_is_as_it_was_after_an_error_in_the_model():
    before = looked_up()
    model = models.llama("sdpa")
    with pytest.raises(IndexError), gh.watch(model, [gh.Entropy()]):
        model(models.tokens(2, 7) + models.VOCABULARY)
    assert looked_up() == before
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(models.tokens(2, 7))
    assert len(seen) == 2


def test_everything_is_as_it_was_after_an_error_in_an_attention():
    before = looked_up()
    model = models.llama("eager")
    given = models.inputs(models.llama) | {"attention_mask": torch.zeros(3, 1, 7, 5)}
    with pytest.raises(RuntimeError, match="size of tensor"), gh.watch(model, [gh.Entropy()]):
        model(**given)
    assert looked_up() == before
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(models.tokens(2, 7))
    assert len(seen) == 2

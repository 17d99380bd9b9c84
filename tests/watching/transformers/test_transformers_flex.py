"""A model that runs on FlexAttention, which is compiled, is seen as it runs."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")


# One test alone, as compiling takes longer than all others together.
@pytest.mark.filterwarnings("ignore")
def test_flex_attention_is_seen_and_stays_compiled():
    from torch._dynamo.utils import counters

    given = models.inputs(models.mistral, "left")
    model = models.mistral("flex_attention", num_attention_heads=4)
    with torch.no_grad():
        with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
            watched = model(**given).logits
        compiled = counters["stats"]["unique_graphs"]
        alone = model(**given).logits
    assert torch.equal(watched, alone)
    assert counters["stats"]["unique_graphs"] == compiled > 0
    for name, weights in eager.weights_of(models.mistral, given, num_attention_heads=4).items():
        real = eager.real_queries(models.mistral, given, name)
        eager.check(seen[name], weights, real=real)

"""What is seen of a model of transformers is what it returns itself, in eager mode."""

import pytest
import torch

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize(("build", "mode"), models.MODES)
def test_statistics_are_those_of_the_eager_weights(build, mode, side):
    given = models.inputs(build, side)
    model = build(mode)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        model(**given)
    weights = eager.weights_of(build, given)
    assert set(seen) == set(weights)
    for name in eager.compared(weights, mode, side):
        eager.check(seen[name], weights[name], real=eager.real_queries(build, given, name))


@pytest.mark.parametrize("build", [models.llama, models.bert, models.gpt2])
def test_the_logsumexp_is_that_of_the_scores(build):
    given = models.inputs(build, "left")
    model = build("sdpa")
    with torch.no_grad(), gh.watch(model, [gh.LogSumExp(), gh.MaxScore()], keep="weights") as seen:
        model(**given)
    for name, weights in eager.weights_of(build, given).items():
        told = seen[name].log_sum_exp
        assert torch.equal(told.isneginf(), (weights == 0).all(-1))
        # The largest weight of a head's best row is exp(its score - that row's logsumexp).
        scores = told + weights.amax(-1).log()
        real = eager.real_queries(build, given, name)
        if real is not None:
            scores = scores.masked_fill(~real[:, None], -torch.inf)
        largest = scores.nan_to_num(-torch.inf, neginf=-torch.inf).amax(-1)
        torch.testing.assert_close(seen[name].max_score, largest, rtol=1e-5, atol=1e-5)

"""A rule of ours as the model: whatever its recipe, what its trace says is seen."""

import pytest
import torch

import glasshead as gh
from watching.torch.explicit import check, undisturbed

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 11

RECIPES = {
    "plain": {},
    "causal": {"mask": gh.causal()},
    "causal from the top left": {"mask": gh.causal(0)},
    "window and padding": {"mask": gh.window(2) & gh.padding([7, 3])},
    "softcap": {"softcap": 1.5},
    "alibi": {"bias": gh.ALiBi(HEADS), "mask": gh.causal()},
    "additive": {"score": gh.Additive(DIM, DIM, 13)},
    "cosine": {"score": gh.Cosine(beta=3.0)},
    "hard": {"normalizer": gh.HardMax()},
    "sparse": {"normalizer": gh.Sparsemax()},
    "entmax": {"normalizer": gh.Entmax15()},
    "sigmoid": {"normalizer": gh.Sigmoid()},
    "sink": {"normalizer": gh.SoftmaxOne()},
    "dropout": {"dropout": 0.4, "mask": gh.causal()},
}


def inputs(kv_heads=HEADS, dtype=torch.float32):
    shapes = (HEADS, QUERIES), (kv_heads, KEYS), (kv_heads, KEYS)
    return [torch.randn(BATCH, *shape, DIM, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("kv_heads", [HEADS, 1])
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_its_trace_says_is_seen(recipe, kv_heads):
    rule, given = gh.Attention(**RECIPES[recipe]), inputs(kv_heads)
    seen = undisturbed(rule, *given, gradient=True)[""]
    weights = rule.trace(*given).weights.detach().double()
    # Without a mask that compares positions, the keys are of another text.
    growing = any(name in recipe for name in ("causal", "window", "alibi", "dropout"))
    check(seen, weights, offset=KEYS - QUERIES if growing else 0)
    assert seen[0].position == (KEYS - QUERIES if growing else 0)


@pytest.mark.parametrize("heads", [(), (BATCH,), (BATCH, HEADS), (BATCH, 5, HEADS)])
def test_every_layout_stays_as_it_is(heads):
    rule = gh.Attention(mask=gh.causal())
    x = torch.randn(*heads, KEYS, DIM)
    seen = undisturbed(rule, x, x, x)[""]
    trace = rule.trace(x, x, x)
    check(seen, trace.weights.double())
    assert seen.shape == trace.weights.shape[:-1]
    assert repr(seen[0]).startswith("Call of 7 queries on 7 keys")


def test_what_a_call_gives_with_its_inputs_counts():
    rule, given = gh.Attention(mask=gh.causal()), inputs(dtype=torch.float64)
    asked = {
        "mask": torch.rand(BATCH, 1, QUERIES, KEYS) < 0.7,
        "bias": torch.randn(HEADS, QUERIES, KEYS, dtype=torch.float64),
        "offset": 1,
    }
    seen = undisturbed(rule, *given, **asked)[""]
    check(seen, rule.trace(*given, **asked).weights.detach(), offset=1, tolerance=1e-10)
    assert seen[0].position == 1


def test_rows_that_stand_at_places_of_their_own():
    rule, given = gh.Attention(mask=gh.causal()), inputs()
    offset = torch.tensor([2, 0])
    statistics = [gh.Entropy(), gh.MeanDistance()]
    seen = undisturbed(rule, *given, statistics=statistics, offset=offset)[""]
    found = rule.observe(*given, statistics, offset=offset)
    torch.testing.assert_close(seen.entropy, found.entropy)
    torch.testing.assert_close(seen.mean_distance, found.mean_distance)
    assert seen[0].position == 0

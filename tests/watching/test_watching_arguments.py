"""What `watch` does not take is refused in a sentence, before anything runs.

A rule of ours as the model: whatever its recipe, what its trace says is seen.
"""

import re

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.small import Model, text, watched
from watching.torch.explicit import check, undisturbed


@pytest.mark.parametrize(
    ("model", "statistics", "asked", "error", "sentence"),
    [
        ("gpt2", [gh.Entropy()], {}, TypeError, "watch needs a model, got str. Pass a module."),
        (nn.Linear, [gh.Entropy()], {}, TypeError, "watch needs a model, got type. Pass a module."),
        (
            Model(),
            (),
            {},
            ValueError,
            "watch needs statistics such as [gh.Entropy()], or keep='weights', got neither.",
        ),
        (
            Model(),
            [],
            {},
            ValueError,
            "watch needs statistics such as [gh.Entropy()], or keep='weights', got neither.",
        ),
        (Model(), [gh.Entropy], {}, TypeError, "got the class Entropy. Write Entropy"),
        (Model(), [gh.TopK(1), gh.TopK(2)], {}, ValueError, "Name each in a dict"),
        (Model(), gh.Entropy(), {}, TypeError, "statistics"),
        (Model(), ["entropy"], {}, TypeError, "statistics"),
        (
            Model(),
            [gh.Entropy()],
            {"keep": "all"},
            ValueError,
            (
                "keep must be 'weights', 'gradients', 'context', 'trace', 'parts' or nothing, "
                "got 'all'."
            ),
        ),
        (
            Model(),
            [gh.Entropy()],
            {"keep": True},
            ValueError,
            (
                "keep must be 'weights', 'gradients', 'context', 'trace', 'parts' or nothing, "
                "got True."
            ),
        ),
        (Model(), [gh.Entropy()], {"budget": -1}, ValueError, "budget"),
        (Model(), [gh.Entropy()], {"budget": 0.5}, TypeError, "budget"),
    ],
)
def test_before_anything_runs(model, statistics, asked, error, sentence):
    with (
        pytest.raises(error, match=re.escape(sentence)),
        gh.watch(model, statistics, **asked),
    ):
        pytest.fail("the block has run")


def test_statistics_may_be_a_list_a_tuple_or_a_dict():
    for given in ([gh.Entropy()], (gh.Entropy(),), {"entropy": gh.Entropy()}):
        seen, _ = watched(given)
        assert seen["layers.0"].entropy.shape == (2, 3, 7)


def test_a_block_without_a_run_says_what_to_do():
    sentence = (
        "^watch observed no attention of Linear. Run the model inside the block and in the thread "
        "that opened it.$"
    )
    with pytest.raises(RuntimeError, match=sentence), gh.watch(nn.Linear(2, 2), [gh.Entropy()]):
        pass


def test_what_is_asked_of_what_was_not_seen():
    seen, _ = watched()
    with pytest.raises(
        KeyError, match=r"'layers.7' was not observed\. Use one of 'layers.0', 'layers.1'"
    ):
        seen["layers.7"]
    with pytest.raises(AttributeError, match=r"'received' was not observed\. Use one of ent"):
        _ = seen["layers.0"].received
    with pytest.raises(KeyError, match=r"was not observed\. Use one of entropy"):
        seen["layers.0"][gh.Received()]
    assert seen["layers.0"][gh.Entropy()] is seen["layers.0"]["entropy"]
    assert "entropy" in dir(seen["layers.0"])
    assert not hasattr(seen["layers.0"], "received")


def test_a_statistic_of_ones_own():
    class Sharpest(gh.Statistic):
        """The largest weight of all queries on each key."""

        unit = "weight"
        axes = ("key",)

        def of(self, trace):
            return trace.weights.amax(-2)

        def reductions(self, problem):
            return gh.Received().reductions(problem)

        def finish(self, problem, *reduced):
            return reduced[0][0][..., 0]

    model, x = Model(), text()
    with gh.watch(model, {"own": Sharpest(), "theirs": gh.Received()}) as seen:
        model(x)
        model(x)
    assert torch.equal(seen["layers.1"].own, seen["layers.1"].theirs)
    assert seen.summary()


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

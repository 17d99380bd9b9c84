"""What `watch` does not take is refused in a sentence, before anything runs."""

import re

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.small import Model, text, watched


@pytest.mark.parametrize(
    ("model", "statistics", "asked", "error", "sentence"),
    [
        ("gpt2", [gh.Entropy()], {}, TypeError, "watch takes a model, and got str: build one."),
        (nn.Linear, [gh.Entropy()], {}, TypeError, "watch takes a model, and got type: build one."),
        (
            Model(),
            (),
            {},
            ValueError,
            "watch takes statistics such as [gh.Entropy()], or keep='weights', and got neither.",
        ),
        (
            Model(),
            [],
            {},
            ValueError,
            "watch takes statistics such as [gh.Entropy()], or keep='weights', and got neither.",
        ),
        (Model(), [gh.Entropy], {}, TypeError, "and got the class Entropy: write Entropy"),
        (Model(), [gh.TopK(1), gh.TopK(2)], {}, ValueError, "name each in a dict"),
        (Model(), gh.Entropy(), {}, TypeError, "statistics"),
        (Model(), ["entropy"], {}, TypeError, "statistics"),
        (
            Model(),
            [gh.Entropy()],
            {"keep": "all"},
            ValueError,
            "keep takes 'weights' or nothing, and got 'all'.",
        ),
        (
            Model(),
            [gh.Entropy()],
            {"keep": True},
            ValueError,
            "keep takes 'weights' or nothing, and got True.",
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
        "^watch saw no attention of Linear: run the model inside the block and in the thread that "
        "opened it, and not compiled.$"
    )
    with pytest.raises(RuntimeError, match=sentence), gh.watch(nn.Linear(2, 2), [gh.Entropy()]):
        pass


def test_what_is_asked_of_what_was_not_seen():
    seen, _ = watched()
    with pytest.raises(KeyError, match="'layers.7' was not seen; there is 'layers.0', 'layers.1'"):
        seen["layers.7"]
    with pytest.raises(AttributeError, match="nothing named 'received' was observed; there is ent"):
        _ = seen["layers.0"].received
    with pytest.raises(KeyError, match="was not observed; there is entropy"):
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

"""`layers=` and `heads=`: what is asked for is seen, and what is missing is told."""

import warnings

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.small import BATCH, HEADS, LENGTH, Model, text, watched


class Stack(nn.Module):
    """Layers of two kinds."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Model(layers=3), Model(layers=2)
        self.head = nn.Linear(1, 1)

    def forward(self, x, layers=3):
        for layer in self.encoder.layers[:layers]:
            x = layer(x)
        return self.decoder(x)


ENCODER = ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2"]
DECODER = ["decoder.layers.0", "decoder.layers.1"]


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        (None, ENCODER + DECODER),
        ("*", ENCODER + DECODER),
        ("encoder.layers.1", ENCODER[1:2]),
        ("decoder", DECODER),
        ("*.layers.0", [ENCODER[0], DECODER[0]]),
        ("encoder.layers.[02]", [ENCODER[0], ENCODER[2]]),
        (["encoder.layers.?", "decoder.layers.1"], [*ENCODER, DECODER[1]]),
        (("encoder", "encoder.layers.0"), ENCODER),
    ],
)
def test_patterns_name_modules_with_all_that_is_in_them(layers, names):
    model = Stack()
    with warnings.catch_warnings(), gh.watch(model, [gh.Entropy()], layers=layers) as seen:
        model(text())
    assert list(seen) == names


@pytest.mark.parametrize("layers", ["encoder.layer.*", ["decoder", "Encoder"]])
def test_a_pattern_that_names_nothing_is_refused_before_anything_runs(layers):
    pattern = layers if isinstance(layers, str) else layers[1]
    sentence = (
        f"^layers must be names of the model's modules, such as 'encoder', 'encoder.layers', "
        f"'encoder.layers.0' …, got '{pattern.replace('*', '.')}', which names none.$"
    )
    with (
        pytest.raises(ValueError, match=sentence),
        gh.watch(Stack(), [gh.Entropy()], layers=layers),
    ):
        pytest.fail("the block has run")


@pytest.mark.parametrize("layers", [3, [3], {"encoder"}, b"encoder"])
def test_what_is_no_pattern_is_refused(layers):
    sentence = "^layers must be a pattern such as 'model.layers.\\*', or a list of them, got "
    with pytest.raises(TypeError, match=sentence), gh.watch(Stack(), [gh.Entropy()], layers=layers):
        pytest.fail("the block has run")


def test_a_pattern_whose_layer_did_not_attend_is_an_error_at_the_end():
    model = Stack()
    sentence = (
        r"^watch observed no attention in the modules that layers='head' matches \('head'\); "
        "it observed 'decoder.layers.0', 'decoder.layers.1'. Correct the pattern, or run the "
        "matched layers.$"
    )
    with (
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(model, [gh.Entropy()], layers=["decoder", "head"]),
    ):
        model(text())


def test_where_nothing_ran_the_error_says_that_nothing_was_seen():
    sentence = r"in the modules that layers='decoder' matches \('decoder'\); it observed nothing\. "
    with (
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(Stack(), [gh.Entropy()], layers="decoder"),
    ):
        pass


def test_one_layer_of_several_that_did_not_run_is_a_warning_at_the_block():
    model = Stack()
    sentence = (
        r"^watch observed no attention in 'encoder.layers.2', which layers='enc\*layers.\?' matches"
    )
    with (
        pytest.warns(UserWarning, match=sentence) as told,
        gh.watch(model, [gh.Entropy()], layers="enc*layers.?") as seen,
    ):
        model(text(), layers=2)
    assert list(seen) == ["encoder.layers.0", "encoder.layers.1"]
    assert told[0].filename == __file__


STATISTICS = {
    "entropy": gh.Entropy(),
    "received": gh.Received(),
    "top": gh.TopK(2),
    "score": gh.MaxScore(),
    "map": gh.PooledMap(2, 3),
}


@pytest.mark.parametrize("heads", [[2], [0, 2], (1, 0), range(1, 3), [1, 1]])
def test_some_heads_in_the_order_that_is_asked_for(heads):
    model, x = Model(), text()
    with gh.watch(model, STATISTICS) as every:
        model(x)
    with gh.watch(model, STATISTICS, heads=heads) as some:
        model(x)
    for name in every:
        assert some[name].shape == (BATCH, len(heads), LENGTH)
        for statistic in STATISTICS:
            values = some[name][statistic], every[name][statistic]
            pairs = zip(*values, strict=True) if statistic == "top" else [values]
            for ours, theirs in pairs:
                assert torch.equal(ours, theirs[:, list(heads)])


@pytest.mark.parametrize("heads", [[], (), 3, "0", {0}])
def test_what_is_no_list_of_heads_is_refused(heads):
    sentence = r"^heads must be a list of heads such as \[0, 3\], got "
    with pytest.raises(TypeError, match=sentence):
        watched(heads=heads)


@pytest.mark.parametrize("head", [-1, 0.5, True, "0"])
def test_a_head_is_a_number_from_0_on(head):
    with pytest.raises(
        (TypeError, ValueError), match="^heads must be a whole number of at least 0, got "
    ):
        watched(heads=[0, head])


def test_a_head_that_is_not_there_is_refused_by_the_first_layer():
    sentence = (
        f"^heads must be in 0..{HEADS - 1} for 'layers.0', got "
        "99. Choose other heads, or exclude this layer with layers=.$"
    )
    with pytest.raises(ValueError, match=sentence):
        watched(heads=[0, 99])

"""Rollout: equal to the product of whole matrices, whatever model and whatever rows.

Flow: equal to the least cut of the graph, which every set of nodes is tried for.
"""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models
import watched_weights as eager
from watching.analytics.direct import explicit, least_cut, mixed, rolled_out
from watching.small import BATCH, LENGTH, watched

NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


PADDED = (torch.arange(LENGTH) < torch.tensor([LENGTH, 4])[:, None])[:, None, None]


ROLLOUT_EMPTY = torch.ones(LENGTH, LENGTH, dtype=torch.bool)


ROLLOUT_EMPTY[[0, 3]] = False


def kept(**asked):
    return watched([], keep="weights", **asked)


@pytest.mark.filterwarnings("ignore:watch saw keys of .* as of padding")
@pytest.mark.parametrize("mask", [None, PADDED, ROLLOUT_EMPTY, PADDED & ROLLOUT_EMPTY])
@pytest.mark.parametrize("residual", [0.5, 0.0, 0.3])
def test_rows_are_those_of_the_product_of_whole_matrices(mask, residual):
    seen, model = kept(mask=mask)
    rows = [LENGTH - 1, 0, -3]
    found = gh.rollout(seen, rows, residual=residual)
    assert found.shape == (BATCH, 3, LENGTH)
    torch.testing.assert_close(found, rolled_out(explicit(model), residual)[:, rows], **NEAR)


def test_the_last_row_is_asked_unless_others_are_and_all_may_be():
    seen, model = kept()
    whole = rolled_out(explicit(model))
    torch.testing.assert_close(gh.rollout(seen), whole[:, -1:], **NEAR)
    torch.testing.assert_close(gh.rollout(seen, range(LENGTH)), whole, **NEAR)
    torch.testing.assert_close(whole.sum(-1), torch.ones(BATCH, LENGTH).double())


def test_a_query_that_sees_nothing_passes_on_the_residual_alone():
    seen, _ = kept(mask=ROLLOUT_EMPTY)
    expected = torch.zeros(BATCH, 1, LENGTH)
    expected[..., 0] = 0.25  # ½ of ½: nothing else reaches token 0
    torch.testing.assert_close(gh.rollout(seen, [0]), expected)


def test_of_some_layers():
    seen, model = kept()
    expected = mixed(explicit(model)[1])[:, -1:]
    torch.testing.assert_close(gh.rollout(seen, layers="layers.1"), expected, **NEAR)
    both = gh.rollout(seen, layers=["layers.1", "layers.0"])
    torch.testing.assert_close(both, gh.rollout(seen))


def test_of_a_text_that_has_grown():
    seen, model = kept(lengths=(4, 1, 2), cached=True)
    whole = [torch.zeros(BATCH, 3, 7, 7, dtype=torch.double) for _ in range(2)]
    for call, (first, keys) in enumerate(((0, 4), (4, 5), (5, 7))):
        for matrix, part in zip(whole, explicit(model, call=call), strict=True):
            matrix[..., first:keys, :keys] = part
    rows = [-1, 4, 2]
    torch.testing.assert_close(gh.rollout(seen, rows), rolled_out(whole)[:, rows], **NEAR)


def test_no_part_of_the_matrix_is_made(monkeypatch):
    seen, model = kept()
    expected = rolled_out(explicit(model))[:, -1:]

    def refuse(*given):
        raise AssertionError(given)

    monkeypatch.setattr(gh.Weights, "tile", refuse)
    torch.testing.assert_close(gh.rollout(seen), expected, **NEAR)


# Models of transformers


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("build", [models.llama, models.bert, models.gpt_oss])
def test_of_a_model_of_transformers_from_its_eager_weights(build, side):
    pytest.importorskip("transformers")
    given = models.inputs(build, side)
    mode = "eager" if build in models.EAGER_ONLY else "sdpa"
    model = build(mode)
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(**given)
    whole = rolled_out(list(eager.weights_of(build, given).values()))
    torch.testing.assert_close(gh.rollout(seen, range(7)), whole, **NEAR)


def test_of_a_generated_text():
    pytest.importorskip("transformers")
    model = models.llama("sdpa")
    with gh.watch(model, keep="weights") as seen:
        text = model.generate(models.tokens(2, 5), max_new_tokens=4, do_sample=False)
    with torch.no_grad():
        whole = models.llama("eager")(text[:, :-1], output_attentions=True).attentions
    torch.testing.assert_close(gh.rollout(seen, range(8)), rolled_out(whole), **NEAR)


def test_of_one_stack_of_several():
    pytest.importorskip("transformers")
    given, model = models.inputs(models.t5), models.t5("sdpa")
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(**given)
    weights = eager.weights_of(models.t5, given)
    for stack, length in (("encoder", 11), ("decoder.block.*.SelfAttention", 7)):
        named = [one for name, one in weights.items() if name.startswith(stack[:7])]
        whole = rolled_out([one for one in named if one.shape[-1] == one.shape[-2]])
        found = gh.rollout(seen, range(length), layers=stack)
        torch.testing.assert_close(found, whole, **NEAR)
    with pytest.raises(
        ValueError, match=r"SelfAttention' and 'decoder.* look like two\. Choose with"
    ):
        gh.rollout(seen)
    with pytest.raises(ValueError, match=r"EncDecAttention' has 7 queries on 11 keys\. Choose"):
        gh.rollout(seen, layers="decoder")


# Layers without heads, and without a batch


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Once(), Once()

    def forward(self, x):
        return self.second(self.first(x))


class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = gh.Attention(mask=gh.causal())

    def forward(self, x):
        return self.rule(x, 2 * x, x)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 5, 3)])
def test_of_any_number_of_axes(leading):
    x, model = torch.randn(*leading, 7, 5), Twice()
    with gh.watch(model, keep="weights") as seen:
        model(x)
    matrices = [seen[name].weights.dense() for name in ("first", "second")]
    if len(leading) < 2:
        matrices = [matrix.unsqueeze(-3) for matrix in matrices]
    expected = rolled_out(matrices)[..., [6, 2], :]
    found = gh.rollout(seen, [-1, 2], layers="*")
    assert found.shape == (*(leading if len(leading) < 2 else leading[:-1]), 2, 7)
    torch.testing.assert_close(found, expected, **NEAR)


# What it does not take


def crossing(queries, keys):
    class Crossing(nn.Module):
        def forward(self, x, y):
            return F.scaled_dot_product_attention(x, y, y)

    model = Crossing()
    with gh.watch(model, keep="weights") as seen:
        model(torch.randn(2, 3, queries, 5), torch.randn(2, 3, keys, 5))
    return seen


def crossing_to_a_text_as_long():
    model = gh.MultiHeadAttention(6, 2)
    with gh.watch(model, keep="weights") as seen:
        model(torch.randn(2, 7, 6), torch.randn(2, 7, 6))
    return seen


def of_two_batches_without_heads():
    model = nn.ModuleList([Once(), Once()])
    with gh.watch(model, keep="weights") as seen:
        for layer, batch in zip(model, (3, 1), strict=True):
            layer(torch.randn(batch, 7, 5))
    return seen


def of_two_texts():
    model = nn.ModuleList([Once(), Once()])
    with gh.watch(model, keep="weights") as seen:
        for layer, length in zip(model, (5, 7), strict=True):
            layer(torch.randn(2, 3, length, 5))
    return seen


def of_two_kinds():
    model = Twice()
    with gh.watch(model, keep="weights") as seen:
        model(torch.randn(2, 3, 7, 5))
    return seen


@pytest.mark.parametrize("function", [gh.rollout, gh.flow])
@pytest.mark.parametrize(
    ("seen", "asked", "error", "sentence"),
    [
        (lambda: kept()[0], {"rows": -1}, TypeError, "^rows must be a list of queries such as"),
        (lambda: kept()[0], {"rows": [0.5]}, TypeError, "^rows must be a whole number"),
        (lambda: kept()[0], {"rows": []}, ValueError, "^rows must have at least one query"),
        (
            lambda: kept()[0],
            {"rows": [7]},
            ValueError,
            "^rows must name queries of the 7 that there",
        ),
        (lambda: kept()[0], {"rows": [-8]}, ValueError, "^rows .* of the 7 .*, got -8.$"),
        (
            lambda: kept()[0],
            {"residual": 1.0},
            ValueError,
            "^residual must be a probability from 0",
        ),
        (
            lambda: kept()[0],
            {"layers": "decoder"},
            ValueError,
            "^layers must be names .* 'decoder'",
        ),
        (lambda: [1], {}, TypeError, "needs what a watch has seen, got list. Give it the seen"),
        (lambda: gh.Seen({}), {}, ValueError, "needs what a watch has seen, but nothing was"),
        (lambda: watched()[0], {}, ValueError, "^the weights of 'layers.0' were not kept"),
        (
            lambda: crossing(5, 7),
            {},
            ValueError,
            "needs the attention of a whole text to itself, but '' has 5 queries on 7 keys. Choose",
        ),
        (
            crossing_to_a_text_as_long,
            {},
            ValueError,
            "needs the attention of a text to itself, but '' crosses to another. Choose others",
        ),
        (
            of_two_batches_without_heads,
            {},
            ValueError,
            "needs layers of one text, but '0' and '1' have 7 tokens in 3 rows and 7 tokens in 1",
        ),
        (
            of_two_texts,
            {},
            ValueError,
            "needs layers of one text, but '0' and '1' have 5 tokens in 2 rows and 7 tokens in 2",
        ),
        (
            of_two_kinds,
            {},
            ValueError,
            "needs the layers of one stack, but 'first' and 'second' look like two. Choose with",
        ),
    ],
)
def test_what_it_does_not_take(function, seen, asked, error, sentence):
    with pytest.raises(error, match=sentence):
        function(seen(), **asked)


def test_more_rows_than_the_budget_has_room_for_are_refused():
    seen, _ = kept()
    # Twice, 2 texts of 3 heads and 7 keys for each of 5 rows, in 4 bytes.
    needed = 2 * 2 * 3 * 7 * 5 * 4
    gh.rollout(seen, range(5), budget=needed)
    sentence = rf"^rollout may use at most budget={needed - 1} bytes, but 5 rows need {needed}\."
    with pytest.raises(ValueError, match=sentence):
        gh.rollout(seen, range(5), budget=needed - 1)


def cuts(matrices, rows, residual=0.5):
    """The least cut from each input token to each of the rows, `[batch, rows, tokens]`."""
    graphs = [mixed(matrix, residual) for matrix in matrices]
    batch, tokens, _ = graphs[0].shape
    return torch.tensor(
        [
            [[least_cut([g[text] for g in graphs], j, row) for j in range(tokens)] for row in rows]
            for text in range(batch)
        ]
    )


@pytest.mark.parametrize("residual", [0.5, 0.2])
@pytest.mark.parametrize("sees", [lambda i, j: i >= j, lambda i, j: (i >= j) & (i != 2) & (j != 1)])
def test_values_are_the_least_cuts(sees, residual):
    places = torch.arange(7)
    seen, model = watched([], keep="weights", mask=sees(places[:, None], places))
    rows = [6, 3]
    found = gh.flow(seen, rows, residual=residual)
    assert found.shape == (BATCH, 2, 7)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, cuts(explicit(model), rows, residual).float(), **NEAR)


def test_of_three_layers_of_a_model_of_transformers():
    pytest.importorskip("transformers")
    model, text = models.llama("sdpa", num_hidden_layers=3), models.tokens(1, 4)
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(text)
        said = models.llama("eager", num_hidden_layers=3)(text, output_attentions=True).attentions
    torch.testing.assert_close(gh.flow(seen), cuts(said, [3]).float(), **NEAR)


def test_of_one_layer_it_is_the_rollout_and_of_two_it_is_no_less():
    seen, _ = watched([], keep="weights")
    rows = range(7)
    of_one = gh.flow(seen, rows, layers="layers.0")
    torch.testing.assert_close(of_one, gh.rollout(seen, rows, layers="layers.0"))
    # What a path carries is the product of its weights in a rollout, and the least in a flow.
    assert bool((gh.flow(seen, rows) >= gh.rollout(seen, rows) - 1e-6).all())


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rule = gh.Attention()

    def forward(self, x):
        return self.rule(x, x, x)


def test_by_hand():
    # Two tokens that see each other alike: every pipe to a token's own place holds ¾, the others ¼.
    model, x = torch.nn.Sequential(Layer(), Layer()), torch.zeros(1, 3, 2, 5)
    with gh.watch(model, keep="weights") as seen:
        model(x)
    # From the other token, ¼ crosses in either layer; from its own, ¾ stays and ¼ goes round.
    torch.testing.assert_close(gh.flow(seen), torch.tensor([[[0.5, 1.0]]]))


def test_a_text_of_too_many_pipes_is_refused():
    seen, _ = watched([], keep="weights")
    gh.flow(seen, most_pairs=2 * 7 * 7)
    sentence = (
        "^flow may use at most most_pairs=97 of layers · tokens², but 2 layers of 7 tokens have "
        "98\\. Use a shorter text, or rollout.$"
    )
    with pytest.raises(ValueError, match=sentence):
        gh.flow(seen, most_pairs=97)


def test_without_networkx_it_says_how_to_get_it(monkeypatch):
    seen, _ = watched([], keep="weights")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(
        ImportError, match=r"^flow needs networkx, .*Run pip install 'glasshead\[flow\]'.$"
    ):
        gh.flow(seen)

"""`keep="weights"`: the lazy matrix of each call, and of a text that has grown call by call."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.attention.joined_weights import JoinedWeights
from glasshead.watching import BudgetError
from watching.small import BATCH, HEADS, LENGTH, WIDTH, Model, text, watched
from watching.torch.explicit import lower, weights

NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


def explicit(model, layer=0, call=-1):
    query, key, mask = model.layers[layer].last[call]
    return weights(query, key, visible=mask)


def logsumexp(model, layer=0, call=-1):
    query, key, mask = (x.double() for x in model.layers[layer].last[call])
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.masked_fill(mask == 0, -math.inf).logsumexp(-1)


# Of a batch, the second text is padded at the right; the first query of both sees nothing.
PADDED = (torch.arange(LENGTH) < torch.tensor([LENGTH, 4])[:, None])[:, None, None]
EMPTY = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
EMPTY[[0, 3]] = False


@pytest.mark.filterwarnings("ignore:watch saw keys of .* as of padding")
@pytest.mark.parametrize("mask", [None, PADDED, EMPTY, PADDED & EMPTY])
def test_dense_and_logsumexp_are_what_an_explicit_softmax_says(mask):
    seen, model = watched([], keep="weights", mask=mask)
    for layer in range(2):
        W = seen[f"layers.{layer}"].weights
        assert isinstance(W, gh.Weights)
        torch.testing.assert_close(W.dense(), explicit(model, layer), **NEAR)
        torch.testing.assert_close(W.logsumexp, logsumexp(model, layer), **NEAR)
        assert seen[f"layers.{layer}"][0].weights is W


class Causal(nn.Module):
    """The kernel tells the logsumexp, unless there is dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True, dropout_p=self.dropout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_logsumexp_that_a_kernel_tells_and_the_one_that_is_computed(dropout, dtype):
    x = torch.randn(BATCH, HEADS, LENGTH, 5, dtype=dtype)
    model = Causal(dropout)
    with gh.watch(model, [gh.LogSumExp()], keep="weights") as seen:
        model(x)
    assert seen[""].weights.logsumexp.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(seen[""].weights.logsumexp, seen[""].log_sum_exp)
    expected = weights(x, x, visible=lower(LENGTH))
    torch.testing.assert_close(seen[""].weights.dense(), expected, **NEAR)


def test_kept_weights_are_of_all_heads_whatever_heads_are_asked_for():
    seen, model = watched(heads=[1], keep="weights")
    assert seen["layers.0"].entropy.shape == (BATCH, 1, LENGTH)
    torch.testing.assert_close(seen["layers.0"].weights.dense(), explicit(model), **NEAR)


def test_they_stay_as_they_were_when_the_model_goes_on():
    seen, model = watched([], lengths=(LENGTH, 5), keep="weights")
    first, second = (call.weights for call in seen["layers.1"])
    for place, W in enumerate((first, second)):
        torch.testing.assert_close(W.dense(), explicit(model, 1, place), **NEAR)


def test_without_keep_there_are_none():
    seen, _ = watched()
    assert seen["layers.0"][0].weights is None
    with pytest.raises(ValueError, match="weights of 'layers.0' were not kept. Watch with keep='w"):
        _ = seen["layers.0"].weights


def test_what_does_not_fit_the_budget_is_refused_with_what_it_would_need():
    # Queries and keys of 2·3·7·5 numbers each, a logsumexp of 2·3·7, and a mask of 7·7 booleans,
    # of which there is one for both layers, although each makes it again.
    layer = 4 * (2 * 210 + 42)
    needed = 2 * layer + 49
    watched([], keep="weights", budget=needed)
    sentence = (
        rf"keep='weights' may use at most budget={needed - 1} bytes, but needs "
        rf"{needed} with 'layers.1'\. Raise budget=, or narrow layers=.$"
    )
    with pytest.warns(UserWarning, match=f"^watch stopped keeping on the way: {sentence}"):
        seen, model = watched([], keep="weights", budget=needed - 1)
    torch.testing.assert_close(seen["layers.0"].weights.dense(), explicit(model), **NEAR)
    for ask in (lambda: seen["layers.1"].weights, lambda: seen["layers.1"][0].weights):
        with pytest.raises(BudgetError, match=f"^{sentence}"):
            ask()
    assert re.match(sentence, seen.missing)
    assert not seen["layers.1"][0].has_weights
    assert watched([], keep="weights", budget=layer + 49, layers="layers.1")[0].missing is None


def test_a_budget_that_is_spent_stops_keeping_and_not_the_model():
    model, x = Model(), text(11)
    parts = x.split((5, 1, 1, 1, 3), 1)
    with torch.no_grad():
        expected = [model(part, cached=True) for part in parts]
        for layer in model.layers:
            layer.cached = None
        with pytest.warns(UserWarning, match="stopped keeping") as warned:  # noqa: PT031, SIM117
            with gh.watch(model, [gh.Entropy()], keep="weights", budget=3000) as seen:
                for part, one in zip(parts, expected, strict=True):
                    assert torch.equal(model(part, cached=True), one)
    assert [one.filename for one in warned] == [__file__]
    watched = seen["layers.1"]
    assert watched[0].has_weights
    assert not watched[-1].has_weights
    assert watched.entropy.shape == (BATCH, HEADS, 11)
    for ask in (
        lambda: watched.weights,
        lambda: watched[-1].weights,
        lambda: gh.rollout(seen),
        lambda: gh.eviction_scores(seen, "tova"),
    ):
        with pytest.raises(BudgetError, match="may use at most budget=3000 bytes, but needs"):
            ask()
    assert "1 call" not in repr(seen)
    assert "Call of 3 queries" in repr(watched[-1])
    assert watched._repr_html_()


def test_keys_of_a_text_that_grows_are_kept_once():
    lengths = (7, *(1,) * 60)
    seen, _ = watched([], lengths=lengths, cached=True, keep="weights")
    problems = [call.weights._problem for call in seen["layers.0"]]
    keys = {one.key.untyped_storage().data_ptr(): one.key.untyped_storage() for one in problems}
    assert sum(one.nbytes() for one in keys.values()) <= 1.2 * BATCH * WIDTH * sum(lengths) * 4


def test_a_rule_without_a_logsumexp_has_none_to_keep():
    rule, x = gh.Attention(normalizer=gh.HardMax()), torch.randn(2, 3, 5, 7)
    sentence = r"^keep='weights' needs attention with a softmax, but .* has HardMax\. Omit it with"
    with pytest.raises(ValueError, match=sentence), gh.watch(rule, keep="weights"):
        rule(x, x, x)


# A text that has grown call by call


@pytest.fixture
def grown():
    """The joined weights of a text in three parts, and the matrix that they are."""
    seen, model = watched([], lengths=(4, 1, 2), cached=True, keep="weights")
    whole = torch.zeros(BATCH, HEADS, 7, 7, dtype=torch.float64)
    for call, (first, keys) in enumerate(((0, 4), (4, 5), (5, 7))):
        part = explicit(model, 0, call)
        whole[..., first : first + part.shape[-2], :keys] = part
    return seen["layers.0"].weights, whole


def test_joined_weights_are_one_matrix(grown):
    W, whole = grown
    assert W.shape == whole.shape
    assert repr(W) == "JoinedWeights [2, 3, 7, 7] of 3 calls"
    torch.testing.assert_close(W.dense(), whole, **NEAR)
    torch.testing.assert_close(W.dense().sum(-1), torch.ones(BATCH, HEADS, 7), **NEAR)
    assert W.logsumexp.shape == (BATCH, HEADS, 7)


@pytest.mark.parametrize("rows", [range(7), range(3, 6), range(4, 5), range(5, 7), range(2, 2)])
@pytest.mark.parametrize("columns", [range(7), range(5, 7), range(1, 4), range(7, 7)])
def test_a_tile_of_joined_weights(grown, rows, columns):
    W, whole = grown
    expected = whole[..., rows.start : rows.stop, columns.start : columns.stop]
    torch.testing.assert_close(W.tile(rows, columns), expected, **NEAR)


@pytest.mark.parametrize(
    "index",
    [..., (0,), (..., 4, slice(None)), (1, 2), (..., -1), (slice(1), ..., slice(2, 6, 2), 3)],
)
def test_joined_weights_are_indexed_as_a_tensor(grown, index):
    W, whole = grown
    torch.testing.assert_close(W[index], whole[index], **NEAR)


def test_a_part_that_begins_with_a_later_key_has_zeros_before_it():
    def part(queries, keys):
        made = torch.randn(1, 1, queries, 3), torch.randn(1, 1, keys, 3)
        return gh.Attention(mask=gh.causal()).weights(*made)

    first, second = part(3, 3), part(2, 4)
    W = JoinedWeights([first, second], [0, 1])
    whole = torch.zeros(1, 1, 5, 5)
    whole[..., :3, :3], whole[..., 3:, 1:] = first.dense(), second.dense()
    torch.testing.assert_close(W.dense(), whole)
    for columns in (range(5), range(1), range(2, 4), range(4, 5)):
        tile = W.tile(range(2, 5), columns)
        torch.testing.assert_close(tile, whole[..., 2:, columns.start : columns.stop])
    right = torch.randn(5, 2)
    torch.testing.assert_close(W @ right, whole @ right)


@pytest.mark.parametrize("leading", [(), (BATCH, HEADS), (1, HEADS)])
def test_a_product_with_joined_weights(grown, leading):
    W, whole = grown
    right = torch.randn(*leading, 7, 5)
    torch.testing.assert_close(W @ right, whole @ right.double(), **NEAR)


@pytest.mark.parametrize("leading", [(), (BATCH, HEADS), (1, HEADS), (BATCH, 1)])
@pytest.mark.parametrize("columns", [1, 11])
def test_a_product_with_the_transposed(grown, leading, columns):
    W, _ = grown
    left = torch.randn(*leading, 7, columns)
    torch.testing.assert_close(W.T @ left, W.dense().mT @ left, **NEAR)
    assert W.T.shape == (BATCH, HEADS, 7, 7)
    assert W.T.T is W
    assert repr(W.T) == "JoinedWeights [2, 3, 7, 7] of 3 calls, transposed"


@pytest.mark.parametrize("leading", [(1, 2), (3,), ()])
def test_a_part_that_begins_with_a_later_key_gives_nothing_to_those_before(leading):
    def part(queries, keys):
        made = torch.randn(*leading, queries, 3), torch.randn(*leading, keys, 3)
        return gh.Attention(mask=gh.causal()).weights(*made)

    W = JoinedWeights([part(3, 3), part(2, 4)], [0, 2])
    assert W.T.shape == (*leading, 6, 5)
    left = torch.randn(5, 2)
    torch.testing.assert_close(W.T @ left, W.dense().mT @ left, **NEAR)


@pytest.mark.parametrize(
    ("left", "error"),
    [
        (torch.ones(6, 1), ValueError),
        (torch.ones(7), ValueError),
        (torch.ones(5, 3, 7, 1), ValueError),
        (torch.ones(7, 1).long(), TypeError),
        ([1.0], TypeError),
    ],
)
def test_what_the_transposed_is_not_multiplied_with(grown, left, error):
    with pytest.raises(error, match=r"^W\.T @ L must be "):
        _ = grown[0].T @ left


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (7, 7), (5, 2)])
def test_a_map_of_joined_weights(grown, rows, columns):
    W, whole = grown
    sums = [whole[..., 7 * c // columns : 7 * (c + 1) // columns].sum(-1) for c in range(columns)]
    summed = torch.stack(sums, -1)
    means = [summed[..., 7 * r // rows : 7 * (r + 1) // rows, :].mean(-2) for r in range(rows)]
    torch.testing.assert_close(W.pooled(rows, columns), torch.stack(means, -2), **NEAR)


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (lambda W: W.tile(3, range(2)), TypeError, r"^tile\(rows\) must be a range such as range"),
        (
            lambda W: W.tile(range(2), range(8)),
            ValueError,
            r"^tile\(columns\) must be a range of st",
        ),
        (
            lambda W: W.tile(range(0, 4, 2), range(2)),
            ValueError,
            r"^tile\(rows\) must be a range of",
        ),
        (
            lambda W: W[..., 7, :],
            IndexError,
            r"^W\[…\] must have an index within its 7 queries, counted from 0, got",
        ),
        (
            lambda W: W[2],
            IndexError,
            "^W.* within its 2 entries along a leading axis, counted from 0",
        ),
        (lambda W: W[..., "a"], TypeError, "^W.* must have whole numbers, slices or an ellipsis"),
        (lambda W: W[0, 0, 0, 0, 0], IndexError, "must have an index of at most 4 axes, got 5"),
        (lambda W: W.dense(budget=100), ValueError, r"at most 100 bytes, but needs \d+\."),
        (lambda W: W.dense(budget="1"), TypeError, "budget"),
        (lambda W: W @ torch.ones(5, 1), ValueError, r"^W @ R must be "),
        (lambda W: W @ torch.ones(7), ValueError, r"^W @ R must be "),
        (lambda W: W @ torch.ones(8, 1), ValueError, r"^W @ R must be "),
        (lambda W: W @ [1.0], TypeError, r"^W @ R must be "),
        (lambda W: W @ torch.ones(5, 3, 7, 1), ValueError, r"^W @ R must be "),
        (lambda W: W.pooled(8, 2), ValueError, r"^pooled\(rows\) must be at most 7, got 8"),
        (lambda W: W.pooled(2, 9), ValueError, r"^pooled\(columns\) must be at most 7, got 9"),
        (lambda W: W.pooled(0, 2), ValueError, r"^pooled\(rows\) must be a whole number"),
        (lambda W: W.pooled(2, 0.5), TypeError, r"^pooled\(columns\) must be a whole number"),
    ],
)
def test_what_joined_weights_do_not_take(grown, ask, error, sentence):
    with pytest.raises(error, match=sentence):
        ask(grown[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [gh.ScaledDot(), gh.Additive(3, hidden=7), gh.Gaussian()])
def test_joined_weights_need_as_much_memory_as_those_of_one_call(score, dtype):
    x = torch.randn(2, 5, 3, dtype=dtype)
    whole = gh.Attention(score=score.to(dtype)).weights(x, x)
    joined = JoinedWeights([whole], [0])
    needed = []
    for W in (whole, joined):
        with pytest.raises(ValueError, match="at most 1 bytes, but needs") as refused:
            W.dense(budget=1)
        needed.append(int(str(refused.value).split(" needs ")[1].split(".")[0]))
    assert needed[0] == needed[1]
    assert joined.dense(budget=needed[0]).shape == (2, 5, 5)


def test_masks_of_the_steps_of_a_text_are_kept_once():
    lengths = (7, *(1,) * 60)
    seen, model = watched([], lengths=lengths, cached=True, keep="weights")
    masks = [call.weights._problem.mask.tensor for call in seen["layers.0"][1:]]
    memory = {one.data_ptr(): one for mask in masks for one in [mask.untyped_storage()]}
    assert sum(one.nbytes() for one in memory.values()) <= 4 * sum(lengths)
    for place in (0, 1, 37, 60):
        W = seen["layers.1"][place].weights
        torch.testing.assert_close(W.dense(), explicit(model, 1, place), **NEAR)

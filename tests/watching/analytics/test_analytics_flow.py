"""Flow: equal to the least cut of the graph, which every set of nodes is tried for."""

import sys

import pytest
import torch

import glasshead as gh
import watched_models as models
from watching.analytics.direct import explicit, least_cut, mixed
from watching.small import BATCH, watched

NEAR = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


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
        "^flow takes at most most_pairs=97 of layers · tokens², and 2 layers of 7 tokens have 98: "
        "take a shorter text, or rollout.$"
    )
    with pytest.raises(ValueError, match=sentence):
        gh.flow(seen, most_pairs=97)


def test_without_networkx_it_says_how_to_get_it(monkeypatch):
    seen, _ = watched([], keep="weights")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match="^flow takes networkx: pip install networkx.$"):
        gh.flow(seen)

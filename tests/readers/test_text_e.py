"""Text E, in Simplified Chinese: every intermediate number of scaled dot-product attention."""

import pytest
import torch

import glasshead as gh
from glasshead import ladder
from readers.journey import NUMBERS, WORDS, four, inputs, printed, traced

PRINTED = NUMBERS["scaled_dot_product_article"]
SHARPNESS = PRINTED["softmax_sharpness"]


class ScaledDotProductAttention(torch.nn.Module):
    def __init__(self, d_in, d_out, qkv_bias=False):
        super().__init__()
        self.W_query = torch.nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = torch.nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = torch.nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x):
        queries = self.W_query(x)
        keys = self.W_key(x)
        values = self.W_value(x)
        attn_scores = queries @ keys.transpose(-1, -2)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return attn_weights @ values


@pytest.fixture
def article():
    """The tensors and layers of the text, in its order after its one seed."""
    torch.manual_seed(123)
    W_q = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    W_k = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    W_v = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    W_query = torch.nn.Linear(3, 2, bias=False)
    W_key = torch.nn.Linear(3, 2, bias=False)
    W_value = torch.nn.Linear(3, 2, bias=False)
    module = ScaledDotProductAttention(3, 2)
    return (W_q, W_k, W_v), (W_query, W_key, W_value), module


def test_random_matrices(article):
    (W_q, W_k, W_v), _, _ = article
    assert str(inputs()[1] @ W_q) == "tensor([0.4306, 1.4551])"
    assert four(inputs()[1] @ W_q) == printed(PRINTED["rand_query_2"])
    assert four(inputs() @ W_k) == printed(PRINTED["rand_keys"])
    assert four(inputs() @ W_v) == printed(PRINTED["rand_values"])


def test_every_step_of_linear_layers_step_by_step(article):
    _, (W_query, W_key, W_value), _ = article
    query_2 = W_query(inputs()[1]).detach()
    keys, values = W_key(inputs()).detach(), W_value(inputs()).detach()
    attn_scores_2 = query_2 @ keys.T
    attn_weights_2 = torch.softmax(attn_scores_2 / keys.shape[-1] ** 0.5, dim=-1)
    context_vec_2 = attn_weights_2 @ values
    assert str(query_2) == "tensor([0.3558, 0.5643])"
    assert four(keys) == printed(PRINTED["linear_keys"])
    assert four(values) == printed(PRINTED["linear_values"])
    assert str(attn_scores_2) == "tensor([-0.2396,  0.1015,  0.1057,  0.0902,  0.1501,  0.0518])"
    assert str(attn_weights_2) == "tensor([0.1359, 0.1730, 0.1735, 0.1716, 0.1790, 0.1670])"
    assert str(context_vec_2) == "tensor([0.5084, 0.3508])"


def test_the_class_prints_its_output(article):
    _, _, module = article
    assert four(module(inputs())) == printed(PRINTED["module_output"])
    told = traced(gh.explain(module, inputs(), tokens=WORDS, query="journey"))
    assert four(told["context"]["context"]) == printed(PRINTED["module_output"])
    layer = gh.MultiHeadAttention.from_module(module)
    assert four(layer(inputs()[None])[0]) == printed(PRINTED["module_output"])


def test_the_class_with_the_layers_of_the_text_is_explained_with_every_printed_number(article):
    _, layers, module = article
    module.W_query, module.W_key, module.W_value = layers
    told = traced(gh.explain(module, inputs(), tokens=WORDS, query="journey"))
    assert four(told["inputs"]["queries"][1]) == printed(PRINTED["linear_query_2"])
    assert four(told["inputs"]["keys"]) == printed(PRINTED["linear_keys"])
    assert four(told["inputs"]["values"]) == printed(PRINTED["linear_values"])
    assert four(told["scores"]["scores"][1]) == printed(PRINTED["scores_2"])
    assert four(told["weights"]["weights"][1]) == printed(PRINTED["weights_2"])
    assert four(told["context"]["context"][1]) == printed(PRINTED["context_2"])


def test_the_rung_by_the_name_of_the_text(article):
    _, _, module = article
    rung = ladder.ScaledDotProductAttention(3, 2)
    rung.load_state_dict(module.state_dict())
    assert torch.equal(rung(inputs()), module(inputs()))


@pytest.mark.parametrize("times", [1, 10, 100])
def test_softmax_saturates(times):
    x = torch.tensor(SHARPNESS["x"])
    found = torch.softmax(times * x, dim=-1).tolist()
    places = ".4g" if times == 1 else ".5g"
    assert [f"{one:{places}}" for one in found] == [
        f"{one:{places}}" for one in SHARPNESS[f"times_{times}"]
    ]
    trace = gh.Attention(score=gh.Dot(float(times))).trace(torch.ones(1, 1), x[:, None], x[:, None])
    assert [f"{one:{places}}" for one in trace.weights[0].tolist()] == [
        f"{one:{places}}" for one in SHARPNESS[f"times_{times}"]
    ]


def test_the_derivative_of_softmax_is_that_of_the_text():
    """∂p_i/∂s_j = p_i (δ_ij − p_j), written out, beside autograd and the last step told."""
    x = torch.tensor(SHARPNESS["x"], dtype=torch.float64)
    p = torch.softmax(x, dim=-1)
    written = torch.diag(p) - torch.outer(p, p)
    torch.testing.assert_close(
        written, torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=-1), x)
    )
    trace = gh.Attention(score=gh.Dot()).trace(
        torch.ones(1, 1, dtype=torch.float64), x[:, None], x[:, None]
    )
    told = traced(gh.explain(trace, keys=list("abcde")))["sharpness"]
    torch.testing.assert_close(told["jacobian"], written)

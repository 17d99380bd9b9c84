"""Text C, in Traditional Chinese: queries, keys and values by random matrices of seed 123."""

import torch

import glasshead as gh
from glasshead import ladder
from readers.journey import NUMBERS, WORDS, four, inputs, printed, traced

# The same draws open text E's code, which prints them.
PRINTED = NUMBERS["scaled_dot_product_article"]


class SelfAttention_v1(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.W_query = torch.nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = torch.nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = torch.nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x):
        keys = x @ self.W_key
        queries = x @ self.W_query
        values = x @ self.W_value
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return attn_weights @ values


def test_matrices_by_hand_have_the_printed_query_keys_and_values():
    x_2 = inputs()[1]
    torch.manual_seed(123)
    W_query = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    W_key = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    W_value = torch.nn.Parameter(torch.rand(3, 2), requires_grad=False)
    assert str(x_2 @ W_query) == "tensor([0.4306, 1.4551])"
    assert four(x_2 @ W_query) == printed(PRINTED["rand_query_2"])
    assert four(inputs() @ W_key) == printed(PRINTED["rand_keys"])
    assert four(inputs() @ W_value) == printed(PRINTED["rand_values"])


def test_the_class_is_explained_with_the_printed_query_keys_and_values():
    torch.manual_seed(123)
    sa_v1 = SelfAttention_v1(3, 2)
    told = traced(gh.explain(sa_v1, inputs(), tokens=WORDS, query="journey"))
    assert four(told["inputs"]["queries"][1]) == printed(PRINTED["rand_query_2"])
    assert four(told["inputs"]["keys"]) == printed(PRINTED["rand_keys"])
    assert four(told["inputs"]["values"]) == printed(PRINTED["rand_values"])
    assert four(told["context"]["context"]) == four(sa_v1(inputs()))
    assert "projection" in told


def test_the_rung_is_the_class():
    outputs = []
    for kind in (SelfAttention_v1, ladder.SelfAttention_v1):
        torch.manual_seed(123)
        outputs.append(kind(3, 2)(inputs()))
    assert torch.equal(*outputs)


def test_the_weights_are_multiplied_with_the_values_and_not_the_scores():
    """What the text says of scores holds of weights: a mixture of scores is another vector."""
    torch.manual_seed(123)
    trace_of = ladder.SelfAttention_v1(3, 2)
    told = traced(gh.explain(trace_of, inputs(), tokens=WORDS, query="journey"))
    context = told["context"]["context"][1]
    values = told["inputs"]["values"]
    torch.testing.assert_close(told["weights"]["weights"][1] @ values, context)
    assert not torch.allclose(told["scores"]["scores"][1] @ values, context, atol=0.1)

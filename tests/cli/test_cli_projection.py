"""Projection: hand-computed queries, keys and values, and what is refused."""

import re

import pytest
import torch

from glasshead.explanation.embeddings import Projection

X = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
W_QUERY = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
W_KEY = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
W_VALUE = torch.tensor([[1.0], [10.0], [100.0]])


def projection(**others):
    return Projection(
        **({"inputs": X, "W_query": W_QUERY, "W_key": W_KEY, "W_value": W_VALUE} | others)
    )


def test_each_is_the_inputs_times_its_matrix():
    made = projection()
    assert made.queries.tolist() == [[4.0, 7.0], [1.0, -1.0]]
    assert made.keys.tolist() == [[2.0, 1.0], [-1.0, 0.0]]
    assert made.values.tolist() == [[321.0], [90.0]]


def test_a_bias_is_added_to_every_row_of_its_own():
    made = projection(b_key=torch.tensor([0.5, -0.5]), b_value=torch.tensor([1.0]))
    assert made.queries.tolist() == [[4.0, 7.0], [1.0, -1.0]]
    assert made.keys.tolist() == [[2.5, 0.5], [-0.5, -0.5]]
    assert made.values.tolist() == [[322.0], [91.0]]


@pytest.mark.parametrize(
    ("others", "error", "sentence"),
    [
        (
            {"inputs": [[1.0]]},
            TypeError,
            "inputs takes a tensor of floating-point numbers, and got list: convert it with .float",
        ),
        ({"inputs": X[0]}, ValueError, "inputs takes the shape [tokens, d_in], and got [3]"),
        (
            {"W_key": W_KEY.long()},
            TypeError,
            "W_key takes a tensor of floating-point numbers, and got",
        ),
        ({"W_key": W_KEY.double()}, TypeError, "W_key takes the type of the inputs, torch.float32"),
        ({"W_key": W_KEY[0]}, ValueError, "W_key takes the shape [d_in, d_out], and got [2]"),
        ({"W_query": W_QUERY.T}, ValueError, "of 3 numbers, and got [2, 3]: transpose it."),
        ({"W_value": W_VALUE[:2]}, ValueError, "W_value takes [3, d_out] for vectors of 3 numbers"),
        ({"W_key": torch.ones(3, 4)}, ValueError, "and got [3, 2] and [3, 4]."),
        (
            {"b_query": torch.ones(3)},
            ValueError,
            "b_query takes 2 numbers, one a column of W_query, and",
        ),
        (
            {"b_query": torch.ones(1, 2)},
            ValueError,
            "b_query takes the shape [d_out], and got [1, 2]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(others, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        projection(**others)

"""The largest of each row: those of a stable sort, however many tie."""

import pytest
import torch

from glasshead.models.decoding.strategies import largest


@pytest.mark.parametrize("count", [1, 2, 7, 28, 29, 31])
@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_the_largest_are_those_of_a_stable_sort(count, levels):
    values = torch.randint(levels, (13, 29)).float()
    values[3, ::2] = -torch.inf
    found, places = largest(values, count)
    expected = values.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(found, expected.values[:, :count])
    assert torch.equal(places, expected.indices[:, :count])

"""Equal calls have equal bits, whichever thread ends first, and the gradients of the reference."""

import pytest
import torch

import glasshead as gh

CALLS = 17
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-11}


class ByDistance(gh.Bias):
    by_distance = True

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, 1201).sin())

    def forward(self, tile):
        return self.table[tile.distance() + 600]


class EveryThird(gh.Mask):
    def visible(self, tile):
        return tile.distance() % 3 == 0


RECIPES = {
    "plain": {"mask": gh.causal()},
    "a bias table": {"mask": gh.causal(), "bias": gh.ALiBi(2)},
    "a bias table and a softcap": {"bias": gh.ALiBi(2), "softcap": 30.0},
    "a table that learns": {"bias": ByDistance()},
    "a sink that learns": {"normalizer": gh.SoftmaxOne(torch.nn.Parameter(torch.tensor(0.3)))},
    "a row without keys": {"mask": gh.causal(offset=-3)},
    "a rule": {"mask": gh.causal() & EveryThird()},
}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("recipe", RECIPES)
def test_equal_calls_have_equal_gradients(recipe, dtype):
    """Several threads share the queries of one key head, and each adds to its gradient."""
    generator = torch.Generator().manual_seed(5)
    shapes = [(1, 2, 601, 29), (1, 1, 601, 29), (1, 1, 601, 29), (1, 2, 601, 29)]
    *given, weight = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)

    def gradients(engine):
        attention = gh.Attention(**RECIPES[recipe], engine=engine)
        inputs = [x.clone().requires_grad_() for x in given]
        learned = [*inputs, *attention.parameters()]
        return torch.autograd.grad(attention(*inputs), learned, weight)

    first = gradients("streaming")
    for one, expected in zip(first, gradients("reference"), strict=True):
        tolerance = TOLERANCE[expected.dtype] * expected.abs().max().item()
        torch.testing.assert_close(one, expected, rtol=0, atol=tolerance)
    for _ in range(CALLS):
        assert all(map(torch.equal, gradients("streaming"), first))

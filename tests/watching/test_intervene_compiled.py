"""An intervention on a compiled model is that on the model which was given to torch.compile."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import glasshead as gh
from watching.torch.explicit import nothing_is_open

HEADS, DIM, TOKENS = 3, 5, 7


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(HEADS * DIM, 3 * HEADS * DIM)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).chunk(3, -1)
        query, key, value = (one.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for one in parts)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + context.transpose(1, 2).flatten(2)


class Backend:
    """The compiler's `eager` backend, which counts the graphs and their runs."""

    def __init__(self) -> None:
        self.graphs, self.runs = 0, 0

    def __call__(self, module, inputs):
        self.graphs += 1

        def run(*given):
            self.runs += 1
            return module.forward(*given)

        return run


@pytest.fixture(autouse=True)
def _afresh():
    torch.compiler.reset()


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Layer(), Layer()).eval()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, TOKENS, HEADS * DIM)


def whole(model: nn.Sequential, backend: Backend):
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model: nn.Sequential, backend: Backend):
    model.compile(backend=backend)
    return model


def one_layer(model: nn.Sequential, backend: Backend):
    model[1].compile(backend=backend)
    return model


def one_wrapped_layer(model: nn.Sequential, backend: Backend):
    model[1] = torch.compile(model[1], backend=backend)
    return model


WAYS = [whole, in_place, one_layer, one_wrapped_layer]
CHANGES = {
    "zero": lambda run: gh.ZeroAblation(heads=[1]),
    "mean": lambda run: gh.MeanAblation(run, heads=[0, 2]),
    "patch": lambda run: gh.ActivationPatch(run, heads=[2]),
    "beta": lambda run: gh.ScaleBeta(0.3, heads=[0]),
    "forbid": lambda run: gh.ForbidKeys([0, 2], queries=[4, 6]),
    "force": lambda run: gh.ForceKeys([3], queries=[5]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_it_is_that_on_the_eager_model(model, x, way, change) -> None:
    with torch.no_grad(), gh.watch(model, keep="context") as run:
        model(x.flip(0))
    changes = {"0": gh.ZeroAblation(heads=[0]), "1": CHANGES[change](run)}
    with gh.intervene(model, changes):
        expected = model(x)
    expected.square().sum().backward()
    gradients = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    backend = Backend()
    compiled = way(model, backend)
    with torch.no_grad():
        clean = compiled(x)
    before = backend.graphs, backend.runs
    assert before[0] > 0
    with gh.intervene(compiled, changes):
        changed = compiled(x)
    changed.square().sum().backward()
    assert torch.equal(changed, expected)
    assert not torch.equal(changed, clean)
    for one, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(one.grad, gradient)
    assert (backend.graphs, backend.runs) == before
    with torch.no_grad():
        assert torch.equal(compiled(x), clean)
    assert backend.graphs == before[0]
    assert backend.runs > before[1]
    assert nothing_is_open()


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "ignore_compile_internals"),
    reason=f"PyTorch {torch.__version__} compiles nothing while a mode is open",
)
@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("around", [True, False])
def test_a_watch_sees_what_is_changed(model, x, way, around) -> None:
    statistics = [gh.Entropy(), gh.Received()]
    with gh.intervene(model, {"1": gh.ForbidKeys([2])}), gh.watch(model, statistics) as expected:
        model(x)
    compiled = way(model, Backend())
    if around:
        with (
            gh.watch(compiled, statistics) as seen,
            gh.intervene(compiled, {"1": gh.ForbidKeys([2])}),
        ):
            compiled(x)
    else:
        with (
            gh.intervene(compiled, {"1": gh.ForbidKeys([2])}),
            gh.watch(compiled, statistics) as seen,
        ):
            compiled(x)
    assert list(seen) == ["0", "1"]
    assert seen["1"].received[..., 2].abs().max() == 0
    for name, watched in expected.items():
        assert torch.equal(seen[name].entropy, watched.entropy)
        assert torch.equal(seen[name].received, watched.received)


@torch.no_grad()
def test_ablating_heads_of_a_compiled_model(model, x) -> None:
    with gh.ablate(model, {"0": [1]}):
        expected = model(x)
    compiled = whole(model, Backend())
    with gh.ablate(compiled, {"0": [1]}):
        assert torch.equal(compiled(x), expected)


@torch.no_grad()
def test_the_stance_is_restored_where_the_block_fails(model, x) -> None:
    backend = Backend()
    compiled = whole(model, backend)
    compiled(x)
    runs = backend.runs
    with pytest.raises(ValueError, match="heads must be in 0..2 for '1', got 3"):
        _run(compiled, x, {"1": gh.ZeroAblation(heads=[3])})
    with pytest.raises(RuntimeError, match="intervene met no attention"):
        _run(compiled, x, {"1.project": gh.ZeroAblation()})
    assert backend.runs == runs
    compiled(x)
    assert backend.runs == runs + 1


def _run(model, x, changes) -> None:
    with gh.intervene(model, changes):
        model(x)

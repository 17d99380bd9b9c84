"""From the second pass on the mode steps aside, and nothing is missed that it would have seen."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, is_in_torch_dispatch_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes_in_use
from torch.utils.flop_counter import FlopCounterMode

import glasshead as gh
from glasshead.watching.errors import UnseenError
from glasshead.watching.interception import operator_mode, selected_operators

HEADS, DIM, TOKENS = 3, 5, 7

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
CLASSES = nn.Parameter(torch.ones(DIM, DIM))


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value)


def by_another_name(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch._C._nn.scaled_dot_product_attention(query, key, value)


def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / DIM**0.5, -1) @ value


def by_exponentials(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    powers = (query @ key.mT / DIM**0.5).exp()
    return (powers / powers.sum(-1, keepdim=True)) @ value


def gated(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return value * torch.softmax(query.sum(-1), -1)[..., None] * key.exp()


def with_classes(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A softmax over classes after attention, whose weights meet a parameter alone."""
    return fused(query, key, value) + 0.0 * torch.softmax(query, -1) @ CLASSES


def in_a_branch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    def branch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value).clone()

    return torch.cond(query.sum() > torch.inf, branch, branch, (query, key, value))


class Angles(nn.Module):
    """A product of two tensors of which none is a parameter, as of rotary positions."""

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[-2], dtype=x.dtype)[:, None]
        return x + 0.1 * (places @ torch.ones(1, x.shape[-1])).cos()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.angles, self.project = Angles(), nn.Linear(HEADS * DIM, 3 * HEADS * DIM)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        parts = self.project(self.angles(x)).chunk(3, -1)
        query, key, value = (one.unflatten(-1, (HEADS, DIM)).transpose(-3, -2) for one in parts)
        return x + attend(query, key, value).transpose(-3, -2).flatten(-2)


class Model(nn.Module):
    """Two layers, each of which attends as it is told in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor, *attend: Attend) -> Tensor:
        for layer, one in zip(self.layers, attend, strict=True):
            x = layer(x, one)
        return x


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, TOKENS, HEADS * DIM)


@contextmanager
def counted(model: nn.Module) -> Iterator[list[int]]:
    """Count the modes that are in use where the last layer ends."""
    counts: list[int] = []
    hook = model.layers[1].register_forward_hook(lambda *_: counts.append(len(modes_in_use())))  # type: ignore[reportIndexIssue]
    try:
        yield counts
    finally:
        hook.remove()


def entropy(query: Tensor, key: Tensor) -> Tensor:
    weights = torch.softmax(query @ key.mT / DIM**0.5, -1)
    return torch.special.entr(weights).sum(-1)


@pytest.mark.skipif(not selected_operators.can_select(), reason="this PyTorch lacks the names")
def test_mode_steps_aside_after_the_first_pass(model: Model, x: Tensor) -> None:
    expected = model(x, fused, fused)
    with counted(model) as counts, gh.watch(model, [gh.Entropy()]) as seen:
        outputs = [model(x, fused, fused) for _ in range(3)]
    assert counts == [1, 0, 0]
    assert all(torch.equal(one, expected) for one in outputs)
    first, *others = [call.entropy for call in seen["layers.1"]]
    assert len(others) == 2
    assert all(torch.equal(one, first) for one in others)
    assert modes_in_use() == []


def test_operators_are_selected_by_what_they_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, bool] = {}
    select = lambda func, *, gives_logsumexp: chosen.update({func.name(): gives_logsumexp})  # noqa: E731
    monkeypatch.setattr(operator_mode, "select", select)
    operator_mode._select.__wrapped__()
    names = {"exp", "exp_", "exp.out", "exp2", "_softmax", "_safe_softmax", "_masked_softmax"}
    kernel = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert {f"aten::{name}" for name in names} | {kernel} <= {*chosen}
    assert [chosen[name] for name in (kernel, "aten::exp", "aten::_softmax")] == [
        True,
        False,
        False,
    ]
    # They compute something else, consist of operators that are selected, or run backward.
    others = {"expand", "expm1", "exponential_", "log_softmax.int", "_log_softmax", "softmax.int"}
    assert not {f"aten::{name}" for name in {*others, "_softmax_backward_data"}} & {*chosen}
    assert not any("backward" in name for name in chosen)


def test_statistics_of_later_passes_are_those_of_their_own_weights(model: Model, x: Tensor) -> None:
    inputs = [x, 2 * x, x.flip(0)]
    with gh.watch(model, [gh.Entropy()]) as seen:
        for one in inputs:
            model(one, fused, fused)
    for one, call in zip(inputs, seen["layers.0"], strict=True):
        layer = model.layers[0]
        query, key, _ = layer.project(layer.angles(one)).chunk(3, -1)
        query, key = (y.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for y in (query, key))
        torch.testing.assert_close(call.entropy, entropy(query, key).detach())


@pytest.mark.parametrize("later", [by_another_name, in_a_branch])
def test_attention_by_other_ways_of_a_later_pass_is_seen(
    model: Model, x: Tensor, later: Attend
) -> None:
    with torch.no_grad():
        expected = model(x, fused, later)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            model(x, fused, fused)
        output = model(x, fused, later)
    assert torch.equal(output, expected)
    assert [len(one) for one in seen.values()] == [3, 3]
    torch.testing.assert_close(seen["layers.1"][2].entropy, seen["layers.1"][0].entropy)


@pytest.mark.parametrize("later", [by_hand, by_exponentials])
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_attention_by_hand_of_a_later_pass_is_seen_or_refused(
    model: Model, x: Tensor, later: Attend, passes: int
) -> None:
    expected = model(x, fused, later)
    outputs: list[Tensor] = []

    def run() -> dict[str, list[Tensor]]:
        with gh.watch(model, [gh.Entropy()]) as seen:
            for _ in range(passes):
                model(x, fused, fused)
            outputs.append(model(x, fused, later))
        return {name: [call.entropy for call in calls] for name, calls in seen.items()}

    if selected_operators.can_select():
        with pytest.raises(UnseenError, match=r"'layers\.1'.*began within a pass"):
            run()
    else:
        found = run()["layers.1"]
        torch.testing.assert_close(found[-1], found[0])
    assert torch.equal(outputs[0], expected)


@pytest.mark.parametrize("later", [gated, with_classes])
def test_a_softmax_of_a_later_pass_that_is_no_attention_is_left_alone(
    model: Model, x: Tensor, later: Attend
) -> None:
    # A parameter that the model knows.
    model.classes = CLASSES
    expected = model(x, fused, later)
    with gh.watch(model, [gh.Entropy()]) as seen:
        for attend in (fused, fused, later, fused):
            output = model(x, fused, attend)
            if attend is later:
                assert torch.equal(output, expected)
    assert len(seen["layers.0"]) == 4
    assert len(seen["layers.1"]) == (3 if later is gated else 4)


def test_attention_by_hand_after_a_pass_that_was_called_back_is_seen(
    model: Model, x: Tensor
) -> None:
    with gh.watch(model, [gh.Entropy()]) as seen:
        for attend in (fused, fused, gated, by_hand):
            model(x, fused, attend)
    torch.testing.assert_close(seen["layers.1"][2].entropy, seen["layers.1"][0].entropy)


def test_attention_by_hand_from_the_first_layer_of_the_second_pass_is_seen(
    model: Model, x: Tensor
) -> None:
    with gh.watch(model, [gh.Entropy()]) as seen:
        for attend in (fused, by_hand, fused, by_hand):
            model(x, attend, attend)
    for calls in seen.values():
        for call in calls:
            torch.testing.assert_close(call.entropy, calls[0].entropy)


@torch.no_grad()
def test_what_is_compiled_in_a_later_pass_is_seen(model: Model, x: Tensor) -> None:
    torch.compiler.reset()

    uncompiled = torch.compiler.disable(by_another_name)

    def partly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return uncompiled(2 * query, key, value) + uncompiled(query, key, value)

    compiled = torch.compile(partly, backend="eager")
    expected = model(x, fused, compiled)
    outputs = []
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            model(x, fused, fused)
        outputs = [model(x, fused, compiled) for _ in range(2)]
    assert all(torch.equal(one, expected) for one in outputs)
    assert [len(one) for one in seen.values()] == [4, 6]
    first, _, *others = (call.entropy for call in seen["layers.1"])
    for place, one in enumerate(others):
        assert torch.allclose(one, first) == bool(place % 2)


@pytest.mark.skipif(
    not hasattr(TorchDispatchMode, "supports_higher_order_operators"),
    reason=f"PyTorch {torch.__version__} has no rule of such a counter for `cond`",
)
def test_modes_that_are_entered_meanwhile_stay_in_order(model: Model, x: Tensor) -> None:
    before = is_in_torch_dispatch_mode()
    with FlopCounterMode(display=False) as expected:
        model(x, fused, fused)
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            model(x, fused, fused)
        with FlopCounterMode(display=False) as counter:
            model(x, fused, fused)
            # The mode is called back, below the counter.
            with torch.no_grad():
                torch.cond(x.sum() > torch.inf, torch.sin, torch.cos, (x,))
            assert len(modes_in_use()) == 2
            assert modes_in_use()[1] is counter.mode
        model(x, fused, fused)
    assert is_in_torch_dispatch_mode() == before
    # PyTorch itself fails to compile `cond` again, once it has done so below such a counter.
    torch.compiler.reset()
    assert counter.get_total_flops() == expected.get_total_flops()
    assert len(seen["layers.0"]) == 4
    assert modes_in_use() == []


def test_a_watch_that_is_opened_later_sees_a_pass_of_its_own(model: Model, x: Tensor) -> None:
    with counted(model) as counts, gh.watch(model, [gh.Entropy()]) as outer:
        for _ in range(2):
            model(x, fused, fused)
        with gh.watch(model, [gh.Entropy()]) as inner:
            model(x, by_hand, by_hand)
        model(x, fused, fused)
    assert [len(one) for one in outer.values()] == [4, 4]
    assert [len(one) for one in inner.values()] == [1, 1]
    # The softmaxes of the third pass keep it.
    assert counts[2:] == [1, 1]


def test_interventions_on_later_passes_are_made(model: Model, x: Tensor) -> None:
    ablations = {"layers.1": [0, 2]}
    with gh.ablate(model, ablations):
        expected = model(x, fused, by_another_name)
    with gh.watch(model, [gh.Entropy()]):
        for _ in range(2):
            model(x, fused, fused)
        with gh.ablate(model, ablations):
            assert torch.equal(model(x, fused, by_another_name), expected)
        assert torch.equal(model(x, fused, fused), model(x, fused, fused))


def check_gradients(model: Model, run: Callable[..., Tensor], x: Tensor) -> None:
    """Check that three watched passes have the gradients of one that is not watched."""
    run(x, fused, fused).square().sum().backward()
    expected = [one.grad.clone() for one in model.parameters()]  # type: ignore[union-attr]
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(3):
            model.zero_grad()
            run(x, fused, fused).square().sum().backward()
    for one, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(one.grad, gradient)  # type: ignore[arg-type]
    assert len(seen["layers.0"]) == 3


def test_gradients_of_later_passes_are_those_of_unwatched_ones(model: Model, x: Tensor) -> None:
    check_gradients(model, model, x)


def test_a_failing_pass_leaves_nothing_behind(model: Model, x: Tensor) -> None:
    def fails(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        raise KeyError("no such key")

    def run() -> None:
        with gh.watch(model, [gh.Entropy()]):
            for attend in (fused, fused, fused, fails):
                model(x, fused, attend)

    with pytest.raises(KeyError, match="no such key"):
        run()
    assert modes_in_use() == []
    expected = model(x, fused, by_hand)
    assert torch.equal(model(x, fused, by_hand), expected)


@pytest.mark.skipif(not selected_operators.can_select(), reason="this PyTorch lacks the names")
@pytest.mark.parametrize("before", [0, 2])
def test_an_inference_mode_within_a_watch_restores_no_mode_that_has_left(
    model: Model, x: Tensor, before: int
) -> None:
    with torch.no_grad():
        expected = model(x, fused, fused)
        with counted(model) as counts, gh.watch(model, [gh.Entropy()]) as seen:
            for _ in range(before):
                model(x, fused, fused)
            with torch.inference_mode():
                inner = [model(x, fused, fused) for _ in range(3)]
            # NumPy asks for the keys that the inference mode has restored.
            assert all((one.numpy() == expected.numpy()).all() for one in inner)
            outer = [model(x, fused, fused), model(x, by_another_name, fused)]
            assert (outer[0].numpy() == expected.numpy()).all()
    assert torch.equal(outer[1], expected)
    assert set(counts) == {0, 1}
    assert len(seen["layers.1"]) == before + 5
    assert all(torch.equal(one.entropy, seen["layers.1"][0].entropy) for one in seen["layers.1"])
    assert modes_in_use() == []


Run = Callable[..., Tensor]


def wrapped(model: Model) -> Run:
    return torch.compile(model, backend="eager", fullgraph=True)


def in_place(model: Model) -> Run:
    model.compile(backend="eager", fullgraph=True)
    return model


def its_call(model: Model) -> Run:
    return torch.compile(model.__call__, backend="eager", fullgraph=True)


def layer_by_layer(model: Model) -> Run:
    for layer in model.layers:
        layer.compile(backend="eager", fullgraph=True)
    return model


@pytest.fixture
def _compiling_anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


compiling = pytest.mark.usefixtures("_compiling_anew")
selecting = pytest.mark.skipif(
    not selected_operators.can_select(), reason="this PyTorch lacks the names"
)


@compiling
@selecting
@pytest.mark.parametrize(
    ("way", "between"),
    [
        (wrapped, [1, 0, 0, 0]),
        (in_place, [1, 0, 0, 0]),
        (its_call, [1, 0, 0, 0]),
        # The rest of a pass is followed.
        (layer_by_layer, [1, 1, 1, 1]),
    ],
)
def test_mode_steps_aside_between_passes_of_compiled_code(
    model: Model, x: Tensor, way: Callable[[Model], Run], between: list[int]
) -> None:
    inputs = [x, 2 * x, x.flip(0), x]
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as eager:
        expected = [model(one, fused, fused) for one in inputs]
    run, counts = way(model), []
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        for one, output in zip(inputs, expected, strict=True):
            assert torch.equal(run(one, fused, fused), output)
            counts.append(len(modes_in_use()))
    assert counts == between
    assert sys.getprofile() is None
    assert modes_in_use() == []
    for name, calls in seen.items():
        for call, other in zip(calls, eager[name], strict=True):
            torch.testing.assert_close(call.entropy, other.entropy)


@compiling
@torch.no_grad()
def test_passes_that_are_not_compiled_may_follow_compiled_ones(model: Model, x: Tensor) -> None:
    run = its_call(model)
    expected = model(x, fused, by_another_name)
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(3):
            run(x, fused, fused)
        for later in (fused, by_another_name):
            assert torch.equal(model(x, fused, later), expected)
        run(x, fused, fused)
    for calls in seen.values():
        assert [call.forward for call in calls] == [1, 2, 3, 4, 5, 6]
        for call in calls:
            torch.testing.assert_close(call.entropy, calls[0].entropy)


@compiling
@torch.no_grad()
def test_attention_by_hand_after_compiled_passes_is_seen_or_refused(
    model: Model, x: Tensor
) -> None:
    run = its_call(model)
    outputs: list[Tensor] = []

    def watched() -> dict[str, list[Tensor]]:
        with gh.watch(model, [gh.Entropy()]) as seen:
            for _ in range(2):
                run(x, fused, fused)
            outputs.append(model(x, fused, by_hand))
        return {name: [call.entropy for call in calls] for name, calls in seen.items()}

    if selected_operators.can_select():
        with pytest.raises(UnseenError, match=r"'layers\.1'.*began within a pass"):
            watched()
    else:
        found = watched()["layers.1"]
        torch.testing.assert_close(found[-1], found[0])
    assert torch.equal(outputs[0], model(x, fused, by_hand))


@compiling
@torch.no_grad()
def test_attention_by_hand_around_compiled_layers_is_seen_in_each_pass(
    model: Model, x: Tensor
) -> None:
    model.layers[0].compile(backend="eager", fullgraph=True)
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(4):
            model(x, fused, by_hand)
    assert [len(calls) for calls in seen.values()] == [4, 4]
    for call in seen["layers.1"]:
        torch.testing.assert_close(call.entropy, seen["layers.1"][0].entropy)


@compiling
@torch.no_grad()
def test_a_profiler_of_the_user_is_left_alone(model: Model, x: Tensor) -> None:
    run, calls = its_call(model), []

    def profile(*event: object) -> None:
        calls.append(event)

    with gh.watch(model, [gh.Entropy()]) as seen:
        run(x, fused, fused)
        sys.setprofile(profile)
        try:
            run(x, fused, fused)
            assert sys.getprofile() is profile
        finally:
            sys.setprofile(None)
        assert len(modes_in_use()) == 1
    assert calls
    assert len(seen["layers.1"]) == 2


@compiling
def test_a_compiled_pass_that_fails_leaves_nothing_behind(model: Model, x: Tensor) -> None:
    def fails(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        raise KeyError("no such key")

    run = torch.compile(model, backend="eager")

    def watched() -> None:
        with gh.watch(model, [gh.Entropy()]):
            for attend in (fused, fused, fails):
                run(x, fused, attend)

    with torch.no_grad(), pytest.raises(KeyError, match="no such key"):
        watched()
    assert sys.getprofile() is None
    assert modes_in_use() == []


@compiling
def test_compiled_passes_within_an_inference_mode_are_seen(model: Model, x: Tensor) -> None:
    run = its_call(model)
    with torch.inference_mode():
        expected = run(x, fused, fused)
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            with torch.inference_mode():
                inner = [run(x, fused, fused) for _ in range(3)]
            # NumPy asks for the keys that the inference mode has restored.
            assert all((one.numpy() == expected.numpy()).all() for one in inner)
    assert [len(calls) for calls in seen.values()] == [6, 6]
    assert modes_in_use() == []


@compiling
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_of_compiled_passes_are_those_of_unwatched_ones(
    model: Model, x: Tensor, backend: str
) -> None:
    check_gradients(model, torch.compile(model, backend=backend, fullgraph=True), x)


@compiling
@torch.no_grad()
def test_modes_that_are_entered_between_compiled_passes_stay_in_order(
    model: Model, x: Tensor
) -> None:
    run = its_call(model)
    expected = x @ x.mT
    with gh.watch(model, [gh.Entropy()]) as seen:
        for _ in range(2):
            run(x, fused, fused)
        with FlopCounterMode(display=False) as counter:
            assert torch.equal(x @ x.mT, expected)
            assert modes_in_use()[-1] is counter.mode
            model(x, fused, fused)
        run(x, fused, fused)
    assert counter.get_total_flops() > 0
    assert len(seen["layers.0"]) == 4
    assert modes_in_use() == []


@compiling
@torch.no_grad()
def test_interventions_after_compiled_passes_are_made(model: Model, x: Tensor) -> None:
    run = its_call(model)
    with gh.ablate(model, {"layers.1": [0, 2]}):
        expected = model(x, fused, by_another_name)
    with gh.watch(model, [gh.Entropy()]):
        for _ in range(2):
            run(x, fused, fused)
        with gh.ablate(model, {"layers.1": [0, 2]}):
            assert torch.equal(model(x, fused, by_another_name), expected)


@compiling
@torch.no_grad()
def test_compiled_code_around_many_passes_is_not_waited_for(model: Model, x: Tensor) -> None:
    expected = model(x, fused, fused)
    profilers = []

    def program() -> list[Tensor]:
        outputs = []
        for _ in range(3):
            torch._dynamo.graph_break()
            outputs.append(model(x, fused, fused))
            for _ in range(3000):
                len(outputs)
            profilers.append(sys.getprofile())
        return outputs

    with gh.watch(model, [gh.Entropy()]) as seen:
        outputs = torch.compile(program, backend="eager")()
    assert profilers == [None] * 3
    assert all(torch.equal(one, expected) for one in outputs)
    assert [len(calls) for calls in seen.values()] == [3, 3]

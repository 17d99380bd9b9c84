"""What a watch asks of a model never ends its run: what raises is reported as not observed."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh
from glasshead.watching.interception import patches, session
from watching.torch.explicit import check, nothing_is_open, undisturbed, weights

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 7, 5
ASKED = [gh.Entropy(), gh.Received(), gh.TopK(1)]


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Both(nn.Module):
    """A part that may be compiled by TorchScript, and attention that is not."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def text() -> Tensor:
    return torch.randn(BATCH, HEADS, LENGTH, WIDTH)


COMPILED = {
    "trace": lambda model: torch.jit.trace(model, text(), check_trace=False),
    "script": torch.jit.script,
    "freeze": lambda model: torch.jit.freeze(torch.jit.script(model.eval())),
}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_module_of_torchscript_runs_as_unwatched_and_is_seen(way, mode):
    x = text()
    model = COMPILED[way](Attention())
    both = Both(COMPILED[way](nn.Linear(WIDTH, WIDTH)))
    with mode():
        for _ in range(3):
            model(x)
        check(undisturbed(model, x)[""], weights(x, x))
        check(undisturbed(both, x)["second"], weights(both.first(x), both.first(x)))


@pytest.mark.parametrize("way", ["trace", "script"])
def test_a_model_may_be_compiled_by_torchscript_within_the_block(way):
    # TorchScript keeps what it has compiled of a class.
    model, x = nn.Sequential(type("Attention", (Attention,), {})()), text()
    with gh.watch(model, ASKED) as seen:
        compiled = COMPILED[way](model)
        model(x)
    assert [len(one) for one in seen.values()] == [1]
    assert torch.equal(compiled(x), model(x))
    assert "scaled_dot_product_attention" in str(compiled.inlined_graph)
    assert nothing_is_open()


def test_a_layer_of_pytorch_may_be_compiled_by_torchscript_within_the_block():
    model, x = nn.Sequential(nn.TransformerEncoderLayer(12, HEADS).eval()), torch.randn(7, 2, 12)
    with gh.watch(model, ASKED) as seen:
        compiled = torch.jit.script(model)
        output = model(x)
    assert [len(one) for one in seen.values()] == [1]
    torch.testing.assert_close(compiled(x), output)
    assert nothing_is_open()


def test_a_trace_alone_is_no_run():
    model = Attention()
    sentence = (
        "cannot observe Attention at 'the model', which ran only while torch.jit.trace recorded"
    )
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, ASKED):
        torch.jit.trace(model, text(), check_trace=False)
    assert nothing_is_open()


class OnInstances:
    """A descriptor that only instances have."""

    def __get__(self, one, kind):
        if one is None:
            raise AttributeError("only on instances")
        return lambda x: F.scaled_dot_product_attention(x, x, x)


class Described(nn.Module):
    forward = OnInstances()


class Unbuilt(Attention):
    """A module that raises for attributes that other modules have."""

    @property
    def patch_embed(self):
        raise RuntimeError("not built yet")

    @property
    def config(self):
        raise KeyError("config")

    @property
    def _tp_size(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", [Described, Unbuilt])
def test_a_module_that_raises_for_what_it_is_asked_is_seen(kind):
    x = text()
    check(undisturbed(kind(), x)[""], weights(x, x))


class Cut(nn.Module):
    """Attention to a part of its input that may be empty."""

    def __init__(self, cut) -> None:
        super().__init__()
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.cut(x))


EMPTY = {
    "values of no width": (lambda x: (x, x, x[..., :0]), (BATCH, HEADS, LENGTH)),
    "no heads": (lambda x: [x[:, :0]] * 3, (BATCH, 0, LENGTH)),
    "no batch": (lambda x: [x[:0]] * 3, (0, HEADS, LENGTH)),
    "no queries": (lambda x: (x[:, :, :0], x, x), (BATCH, HEADS, 0)),
    "no width": (lambda x: (x[..., :0], x[..., :0], x), (BATCH, HEADS, LENGTH)),
}


@pytest.mark.parametrize("case", EMPTY)
def test_what_is_empty_is_seen(case):
    cut, shape = EMPTY[case]
    seen = undisturbed(Cut(cut), text(), statistics=ASKED)
    assert seen[""].entropy.shape == shape


def fails(*given, **named):
    raise LookupError("a part of ours")


# Before the function runs, while it is captured, and once it has run.
@pytest.mark.parametrize(
    ("home", "name"),
    [(patches, "has_ranks"), (patches, "capture_sdpa"), (session, "unsupported_reason")],
)
def test_an_error_of_our_own_is_a_reason_why_it_was_not_observed(home, name, monkeypatch):
    model, x = Attention(), text()
    alone = model(x)
    monkeypatch.setattr(home, name, fails)
    sentence = r"could not observe .* \(LookupError: a part of ours\); the model itself ran"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, ASKED):
        watched = model(x)
    assert torch.equal(alone, watched)
    assert nothing_is_open()


def test_a_wrong_call_raises_what_it_raises_unwatched_and_once():
    calls = []

    class Wrong(nn.Module):
        def forward(self, x):
            calls.append(x)
            return F.scaled_dot_product_attention(key=x, value=x)

    model = Wrong()
    with pytest.raises(TypeError) as alone:
        model(text())
    with pytest.raises(TypeError) as watched, gh.watch(model, ASKED):
        model(text())
    assert str(alone.value) == str(watched.value)
    assert len(calls) == 2


def test_an_argument_that_does_not_fit_is_still_an_error_of_the_run():
    with (
        pytest.raises(ValueError, match="heads must be in 0..2 for .*, got 3"),
        gh.watch(model := Attention(), ASKED, heads=[HEADS]),
    ):
        model(text())

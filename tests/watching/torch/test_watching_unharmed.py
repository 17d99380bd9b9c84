"""A watch never breaks a model: what it cannot observe runs on, and is refused at the end."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import glasshead as gh
from watching.torch.explicit import check, nothing_is_open, undisturbed, weights

BATCH, LENGTH, WIDTH = 2, 7, 5

# As a model has it that imports it by name.
imported = F.scaled_dot_product_attention


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class Then(nn.Module):
    """A module that is run in a way of its own."""

    def __init__(self, way, inner=None):
        super().__init__()
        self.way, self.inner = way, Attention() if inner is None else inner

    def forward(self, x):
        return self.way(self.inner, x)


def text():
    return torch.randn(BATCH, 3, LENGTH, WIDTH)


def under_vmap(inner, x):
    return torch.vmap(inner)(x)


def on_meta(inner, x):
    inner(x.to("meta"))
    return x


def on_fake(inner, x):
    with FakeTensorMode() as mode:
        inner(mode.from_tensor(x))
    return x


class Numbered(torch.Tensor):
    """A tensor of another library, that knows only what its model does."""

    @staticmethod
    def __new__(cls, x):
        made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
        made.x = x
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if "scaled_dot_product" not in func.name():
            raise NotImplementedError(f"{func} of {types}")
        args = [arg.x if isinstance(arg, Numbered) else arg for arg in args]
        return func(*args, **(kwargs or {}))


def with_a_subclass(inner, x):
    with torch.no_grad():
        return inner(Numbered(x))


UNSEEN = {
    "vmap": (under_vmap, r"Attention at '1.inner' under torch\.vmap\. Call.* exclude Attention at"),
    "meta": (on_meta, "Attention at '1.inner' ran on tensors of the meta device"),
    "fake": (on_fake, "Attention at '1.inner' ran on tensors of the meta device"),
    "subclass": (with_a_subclass, "could not observe the attention of Attention at '1.inner'"),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("way", UNSEEN)
def test_what_cannot_be_observed_runs_on_and_is_refused_where_it_is_asked_for(way):
    run, sentence = UNSEEN[way]
    model, x = nn.Sequential(Attention(), Then(run)), text()
    alone = model(x)
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        watched = model(x)
    assert torch.equal(alone, watched)
    assert nothing_is_open()
    assert list(undisturbed(model, x, asked={"layers": "0"})) == ["0"]


def traced_first(inner, x):
    make_fx(inner, tracing_mode="fake")(x)
    return inner(x)


def test_a_trace_of_a_model_is_no_run_of_it():
    model, x = Then(traced_first), text()
    (watched,) = undisturbed(model, x).values()
    assert len(watched) == 1
    check(watched, weights(x, x))


BACKENDS = [
    *((SDPBackend.MATH, axes) for axes in (3, 4, 5)),
    (SDPBackend.FLASH_ATTENTION, 4),
]


class ScoresAxes(TorchDispatchMode):
    """The number of axes of the last scores."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._safe_softmax.default:
            self.axes = args[0].ndim
        return func(*args, **(kwargs or {}))


def three_become_four():
    """Whether PyTorch adds an axis before three, as 2.15 does: kernels then get a batch of one."""
    x = torch.randn(2, 3, 5)
    with ScoresAxes() as scores, sdpa_kernel(SDPBackend.MATH):
        imported(x, x, x)
    return scores.axes == 4


@pytest.mark.parametrize("asked", [{}, {"is_causal": True}, {"attn_mask": True}, {"scale": 0.3}])
@pytest.mark.parametrize(("backend", "axes"), BACKENDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_every_backend_is_seen_by_any_name(backend, asked, axes, mode):
    mask = torch.rand(LENGTH, LENGTH) > 0.4
    mask |= torch.eye(LENGTH, dtype=torch.bool)
    asked = asked | ({"attn_mask": mask} if "attn_mask" in asked else {})

    class Part(nn.Module):
        def forward(self, x):
            with sdpa_kernel(backend):
                return imported(x, x, x, **asked)

    x = torch.randn(*(2, 3, 2)[: axes - 2], LENGTH, WIDTH)
    with mode():
        seen = undisturbed(nn.Sequential(Part()), x)
    hides = {"is_causal": torch.ones_like(mask).tril(), "attn_mask": mask}
    visible = next((hides[name] for name in asked if name in hides), None)
    if axes == 3:
        whole = mode is torch.inference_mode or not three_become_four()
        x = x.unsqueeze(1 if whole else 0)
    expected = weights(x, x, visible=visible, scale=asked.get("scale"))
    check(seen["0"], expected)


def test_weights_of_the_long_way_are_kept_whole():
    x = text()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        with gh.watch(model := Then(lambda _, x: imported(x, x, x)), keep="weights") as seen:
            model(x)
        torch.testing.assert_close(seen[""].weights.dense(), weights(x, x).float())


class LostError(KeyError):
    """An error of a model."""


@pytest.mark.parametrize("error", [LostError("here"), NotImplementedError(), StopIteration(3)])
def test_an_error_of_the_model_is_the_one_that_is_raised(error):
    def fail(inner, x):
        inner(x)
        raise error

    with pytest.raises(type(error)) as raised, gh.watch(model := Then(fail), [gh.Entropy()]):
        model(text())
    assert raised.value is error
    assert nothing_is_open()


def test_a_model_may_be_copied_within_the_block():
    model, x = Attention(), text()
    with gh.watch(model, [gh.Entropy()]) as seen:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        outputs = [one(x) for one in (model, *copies)]
    assert all(torch.equal(outputs[0], output) for output in outputs)
    assert len(seen[""]) == 1

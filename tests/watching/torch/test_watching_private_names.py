"""A private name that PyTorch lacks costs its own feature, in a sentence, and nothing else."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import forked
import glasshead as gh
from glasshead.models import fast_decode
from glasshead.private_names import lacking, private, runs_code_of
from glasshead.recipe import validation
from glasshead.watching import module_calls
from glasshead.watching.interception import circumstances, higher_order, operator_mode, patches
from watching.torch.explicit import check, lower, nothing_is_open, undisturbed, weights

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 7, 3, 5
WIDTH = HEADS * HEAD_DIM
HOOKS = "torch.nn.modules.module._has_any_global_hook"
COMPILER = "torch._inductor.compile_fx"
SOFTMAX = "torch.ops.aten._safe_softmax"
NAMES = [
    *(
        value
        for module in (circumstances, higher_order, operator_mode, patches)
        for value in vars(module).values()
    ),
    HOOKS,
    SOFTMAX,
    "torch.nn.Module._wrapped_call_impl",
]
NAMES = sorted({name for name in NAMES if isinstance(name, str) and name.startswith("torch.")})
NAMES.remove(operator_mode._MODE)
by_another_name = F.scaled_dot_product_attention


@pytest.fixture
def take_away(monkeypatch):
    """Let PyTorch lack a name, wherever it is looked up."""

    there = private

    def take(gone):
        for name, module in [*sys.modules.items()]:
            if name.startswith("glasshead.") and vars(module).get("private") is there:
                monkeypatch.setattr(
                    module, "private", lambda name: None if name == gone else there(name)
                )

    return take


class Attention(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = nn.Linear(WIDTH, 3 * WIDTH), attend

    def heads(self, x):
        return tuple(
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )

    def forward(self, x):
        return self.attend(*self.heads(x)).transpose(1, 2).flatten(2)


def causal(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def unnamed(query, key, value):
    return by_another_name(query, key, value, is_causal=True)


def long_way(query, key, value):
    with sdpa_kernel(SDPBackend.MATH):
        return by_another_name(query, key, value)


def refused(model, x, sentence):
    """The model runs, and the end of the block says why it was not seen, and where."""
    version = torch.__version__.replace("+", r"\+")
    with (
        pytest.raises(RuntimeError, match=f"{sentence}.*PyTorch {version}.*[.] "),
        gh.watch(model, [gh.Entropy()]),
    ):
        output = model(x)
    assert output.shape == x.shape
    assert nothing_is_open()


@pytest.mark.slow
def test_whatever_is_lacking_the_library_is_imported():
    code = """
import importlib, pkgutil
import glasshead.private_names
glasshead.private_names.private = lambda name: None
import glasshead, torch
for folder in ("watching", "engines", "models"):
    package = importlib.import_module(f"glasshead.{folder}")
    for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        # A kernel of Triton is imported where Triton is there.
        if ".with_" not in one.name and ".triton." not in one.name:
            importlib.import_module(one.name)
model, x = glasshead.MultiHeadAttention(15, 3), torch.ones(2, 7, 15)
with glasshead.ablate(model, {"": [1]}):
    model(x)
"""
    done = forked.Process("-c", code, fresh=True).ended()
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_is_found_wherever_it_is():
    assert private("torch.nn.functional.softmax") is F.softmax
    assert callable(private("torch._higher_order_ops.flex_attention._math_attention_inner"))
    assert private("torch._nothing.at_all") is private("torch.ops.aten._nothing") is None
    assert (
        lacking("x", "torch.y", "z")
        == f"x on PyTorch {torch.__version__}, which has no torch.y. z."
    )
    assert runs_code_of(__file__)
    assert not runs_code_of(F.__file__)


@pytest.mark.parametrize("attend", [causal, unnamed])
@pytest.mark.parametrize("name", NAMES)
def test_other_features_stay_as_they_are(name, attend, take_away, monkeypatch):
    take_away(name)
    # As if nothing had been compiled.
    monkeypatch.delitem(sys.modules, COMPILER, raising=False)
    model, x = Attention(attend), torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    (watched,) = undisturbed(model, x, gradient=True).values()
    check(watched, weights(*model.heads(x)[:2], visible=lower(LENGTH)))
    with torch.no_grad(), gh.ablate(model, {"": [1]}):
        assert model(x).unflatten(-1, (HEADS, -1))[..., 1, :].eq(0).all()


def test_without_modes_a_watch_is_refused_and_ablation_is_not(monkeypatch):
    model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
    monkeypatch.setattr(operator_mode, "_Mode", object)
    with pytest.raises(RuntimeError, match="cannot see operators.*TorchDispatchMode"):
        gh.watch(model, [gh.Entropy()]).__enter__()
    with gh.ablate(model, {"": [1]}):
        model(x)
    assert nothing_is_open()


@pytest.mark.parametrize(
    "name", ["torch._C._functorch.get_interpreter_stack", "torch._C._functorch.TransformType.Vmap"]
)
def test_transforms_that_may_be_vmap_are_refused(name, take_away):
    take_away(name)
    model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
    sentence = "cannot distinguish torch.vmap from other transforms"
    for transform in (torch.vmap, lambda run: torch.func.vjp(run, x)[1]):
        with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
            transform(model)(x)


def test_transforms_are_known_by_their_code(monkeypatch):
    monkeypatch.setattr(validation, "_innermost_transform", None)
    x, attention = torch.randn(1, 2, LENGTH, 3), gh.Attention(engine="streaming")
    context = attention(x, x, x)
    for transform in (torch.func.grad(lambda x: attention(x, x, x).sum()), torch.vmap(attention)):
        with pytest.raises(ValueError, match=r"transforms of torch\.func"):
            transform(*([x] if transform.__name__ == "<lambda>" else [x, x, x]))
    assert torch.equal(context, attention(x, x, x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_derivative_forwards_is_known_by_its_tangent(monkeypatch):
    x, attention = torch.randn(1, 2, LENGTH, 3), gh.Attention(engine="streaming")
    with forward_ad.dual_level() as level:
        dual = forward_ad.make_dual(x, x)
        with monkeypatch.context() as lacks:
            lacks.setattr(forward_ad, "unpack_dual", partial(forward_ad.unpack_dual, level=0))
            lacks.delattr(forward_ad, "_current_level")
            attention(x, x, x)
            with pytest.raises(ValueError, match="no derivative forwards"):
                attention(x, dual, x)
        del level


def test_subclasses_that_may_have_no_numbers_are_refused(take_away):
    take_away("torch._subclasses.fake_tensor.is_fake")
    with FakeTensorMode():
        model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
        sentence = "cannot determine which subclasses of Tensor have numbers on PyTorch"
        with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
            model(x)


def test_other_modes_that_would_count_what_is_computed_are_refused(take_away):
    take_away("torch.utils._python_dispatch._disable_current_modes")
    model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
    with FlopCounterMode(display=False) as alone:
        model(x)
    with (
        FlopCounterMode(display=False) as counted,
        pytest.raises(RuntimeError, match="cannot hide what it computes from other modes"),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(x)
    assert counted.get_total_flops() == alone.get_total_flops()


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_forward_pass_that_may_be_run_anew_is_refused(reentrant, take_away):
    take_away("torch._C._current_graph_task_id")
    inner, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    model = nn.Sequential(inner)
    model.forward = partial(checkpoint, inner, use_reentrant=reentrant)
    sentence = "cannot distinguish a forward pass from one that gradient checkpointing runs again"
    with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
        model(x).sum().backward()


def test_heads_are_not_left_in_a_backward_pass_of_another_thread(take_away):
    take_away("torch._C._current_graph_task_id")
    model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
    with (
        pytest.raises(RuntimeError, match="cannot determine whether what ran in another thread"),
        gh.ablate(model, {"": [1]}),
        ThreadPoolExecutor(1) as pool,
    ):
        list(pool.map(model, [x]))


def test_what_the_compiler_may_have_run_is_refused(take_away, monkeypatch):
    take_away("torch._inductor.output_code.CompiledFxGraph")
    model, x = Attention(causal), torch.randn(BATCH, LENGTH, WIDTH)
    monkeypatch.setitem(sys.modules, COMPILER, ModuleType(COMPILER))
    refused(model, x, "cannot see whether compiled code attends")
    monkeypatch.delitem(sys.modules, COMPILER)
    undisturbed(model, x)


def test_a_stand_in_of_another_library_hides_what_is_to_be_ablated(take_away, monkeypatch):
    take_away("torch._C._nn.scaled_dot_product_attention")
    model = Attention(causal)

    def stand_in(query, key, value):
        return by_another_name(query, key, value)

    monkeypatch.setattr(F, "scaled_dot_product_attention", stand_in)
    with pytest.raises(RuntimeError, match=f"behind the stand-in of {__name__} on PyTorch"):
        gh.ablate(model, {"": [1]}).__enter__()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_eager_flex_attention_is_refused(take_away):
    take_away("torch._higher_order_ops.flex_attention._math_attention_inner")
    with torch.no_grad():
        refused(Attention(flex_attention), torch.randn(BATCH, LENGTH, WIDTH), "eager FlexAttention")


def branch(query, key, value):
    # Some versions refuse inputs that are views of one tensor.
    inputs = query.clone(), key.clone(), value.clone()
    return torch.cond(query.isfinite().all(), causal, causal, inputs)


@pytest.mark.parametrize(
    "name", ["torch._C._TorchDispatchModeKey.__members__", "torch._C._get_dispatch_mode"]
)
def test_operators_that_take_functions_are_refused(name, take_away):
    take_away(name)
    with torch.no_grad():
        refused(Attention(branch), torch.randn(BATCH, LENGTH, WIDTH), "higher-order operators")


def test_the_compiler_of_an_operator_is_known_by_its_code(take_away):
    take_away("torch._higher_order_ops.utils._in_hop_compile")
    model, x = Attention(branch), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        (watched,) = undisturbed(model, x).values()
    check(watched, weights(*model.heads(x)[:2], visible=lower(LENGTH)))


@pytest.mark.parametrize("name", operator_mode._BELOW)
def test_inference_mode_is_refused_before_a_bit_differs(name, take_away):
    take_away(name)
    model, x = Attention(unnamed), torch.randn(BATCH, LENGTH, WIDTH)
    sentence = rf"torch.inference_mode bit for bit on PyTorch.*{name}[.] Run.*torch.no_grad\(\)"
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(x)
    assert nothing_is_open()
    with torch.no_grad():
        undisturbed(model, x)


def test_modules_that_cannot_be_told_apart_are_refused(monkeypatch):
    model = Attention(causal)
    assert nn.Module.__call__.__code__ is module_calls._CALL
    monkeypatch.setattr(module_calls, "_CALL", None)
    for block in (lambda: gh.watch(model, [gh.Entropy()]), lambda: gh.ablate(model, {"": [1]})):
        with pytest.raises(RuntimeError, match="cannot determine which module runs on PyTorch"):
            block().__enter__()


@pytest.fixture
def other_names(monkeypatch):
    """Operators that go by other names than those we know."""
    operator_mode._role.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    operator_mode._role.cache_clear()


def test_an_unknown_attention_operator_is_refused(other_names):
    model, x = Attention(unnamed), torch.randn(BATCH, LENGTH, WIDTH)
    other_names.setattr(operator_mode, "LOGSUMEXP_KERNELS", {})
    refused(model, x, "does not support aten::_scaled_dot_product_flash_attention_for_cpu of")
    undisturbed(Attention(causal), x)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_unknown_fast_path_is_refused(norm_first, other_names):
    layer = nn.TransformerEncoderLayer(WIDTH + 1, 4, 11, batch_first=True, norm_first=norm_first)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 16)
    other_names.delitem(operator_mode.FAST_PATHS, "aten::_transformer_encoder_layer_fwd")
    with torch.no_grad():
        refused(model.eval(), x, "does not support aten::_transformer_encoder_layer_fwd of")


def test_an_unknown_operator_of_several_heads_is_refused(other_names):
    heads = nn.MultiheadAttention(WIDTH + 1, 4, batch_first=True).eval()
    x = torch.randn(BATCH, LENGTH, WIDTH + 1)
    other_names.delitem(operator_mode.FAST_PATHS, "aten::_native_multi_head_attention")
    sentence = "does not support aten::_native_multi_head_attention of PyTorch"
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(heads, [gh.Entropy()]),
    ):
        heads(x, x, x)


def test_a_fallback_that_looks_like_a_softmax_by_hand_is_refused(other_names, take_away):
    take_away(SOFTMAX)
    other_names.setattr(operator_mode, "_SAFE_SOFTMAX", "aten::another")
    model, x = Attention(long_way), torch.randn(BATCH, LENGTH, WIDTH)
    refused(model, x, "has made. If it is a fallback of F.scaled_dot_product_attention")


def test_without_the_hooks_of_all_modules_no_step_is_fast(take_away):
    config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=2)
    model = gh.LanguageModel(config).eval()
    assert fast_decode._is_known(model)
    take_away(HOOKS)
    assert not fast_decode._is_known(model)

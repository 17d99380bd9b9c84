"""Operators that take functions run as they do unwatched, and what these run is seen."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as over_rows
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

import glasshead as gh
from watching.torch.explicit import check, lower, nothing_is_open, undisturbed, weights

# PyTorch 2.8 has no modes for these operators.
WITHOUT_MODES = not hasattr(TorchDispatchMode, "supports_higher_order_operators")
BATCH, LENGTH, HEADS, HEAD_DIM = 2, 7, 3, 5
WIDTH = HEADS * HEAD_DIM

pytestmark = [
    pytest.mark.usefixtures("compiler"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    # The compiler asks for the gradients of whatever it is given.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plain(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def long_way(query, key, value):
    with sdpa_kernel(SDPBackend.MATH):
        return plain(query, key, value)


class Attention(nn.Module):
    """Attention of a text to itself, which keeps what it was given last."""

    def __init__(self, attend=plain):
        super().__init__()
        self.qkv, self.attend = nn.Linear(WIDTH, 3 * WIDTH), attend

    def heads(self, x):
        return tuple(
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )

    def forward(self, x):
        return self.attend(*self.heads(x)).transpose(1, 2).flatten(2)


class Within(nn.Module):
    """A module that is run by an operator."""

    def __init__(self, operator, inner=None):
        super().__init__()
        self.operator, self.inner = operator, Attention() if inner is None else inner

    def forward(self, x):
        return self.operator(self.inner, x)


def in_a_loop(inner, x):
    def step(i, x):
        return i + 1, inner(x)

    return while_loop(lambda i, x: i < 3, step, (torch.tensor(0), x))[1]


def added_up(inner, x):
    def step(before, y):
        after = torch.tanh(before + y)
        return after, after.clone()

    return inner(scan(step, torch.zeros(BATCH, WIDTH), x, dim=1)[1])


def as_int32(inner, x):
    whole = (x.detach()[0] * 3).to(torch.int8), inner.weight.detach().to(torch.int8)
    return x + out_dtype(torch.ops.aten.mm.default, torch.int32, *whole).float()


def branch(inner, x):
    return torch.cond(x.isfinite().all(), inner, torch.sin, (x,))


def second_branch(inner, x):
    return torch.cond(x.isnan().any(), torch.sin, inner, (x,))


OPERATORS = {
    "cond": (branch, 1, True),
    "cond, the other way": (second_branch, 1, True),
    "while_loop": (in_a_loop, 3, True),
    "map": (lambda inner, x: over_rows(lambda row: inner(row[None])[0], x), BATCH, True),
    "strict_mode": (lambda inner, x: strict_mode(inner, (x,)), 1, False),
    "hints": (lambda inner, x: hints_wrapper(inner, (x,), {}, hints={"kept": 1}), 1, False),
}
RUNS = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "gradient": torch.enable_grad,
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("operator", "asked"), [("cond", "0"), *((operator, None) for operator in OPERATORS)]
)
def test_an_operator_is_passed_on_and_what_it_runs_is_seen(operator, run, asked):
    call, count, grows = OPERATORS[operator]
    if run == "gradient" and (WITHOUT_MODES or not grows):
        pytest.skip(f"PyTorch {torch.__version__} has no gradient of it while a mode is open")
    model = nn.Sequential(Attention(), Within(call))
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=run == "gradient")
    with RUNS[run]():
        seen = undisturbed(model, x, gradient=run == "gradient", asked={"layers": asked})
        given = {"0": model[0].heads(x), "1": model[1].inner.heads(model[0](x))}
    check(seen["0"], weights(*given["0"][:2], visible=lower(LENGTH)))
    inner = [seen[name] for name in seen if name != "0"]
    assert len(inner) == (asked is None)
    for watched in inner:
        assert len(watched) == count
        expected = weights(*given["1"][:2], visible=lower(LENGTH))
        check(watched[0], expected[:1] if operator == "map" else expected)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("operator", [branch, added_up, as_int32])
def test_an_operator_without_attention_is_passed_on(operator, run):
    if run == "gradient" and WITHOUT_MODES and operator is branch:
        pytest.skip(f"PyTorch {torch.__version__} has no gradient of it while a mode is open")
    model = nn.Sequential(Attention(), Within(operator, nn.Linear(WIDTH, WIDTH)))
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=run == "gradient")
    with RUNS[run]():
        seen = undisturbed(model, x, gradient=run == "gradient")
    assert list(seen) == ["0"]


def test_the_long_way_within_a_branch_is_seen():
    model = Within(branch, Attention(long_way))
    x = torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        (watched,) = undisturbed(model, x).values()
        query, key, _ = model.inner.heads(x)
    check(watched, weights(query, key, visible=lower(LENGTH)))


def test_heads_are_removed_from_a_model_with_a_branch():
    model = nn.Sequential(Attention(), Within(branch, nn.Linear(WIDTH, WIDTH)))
    x = torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        context = model[0](x).unflatten(-1, (HEADS, -1))
        context[..., 1, :] = 0
        expected = model[1](context.flatten(2))
        with gh.ablate(model, {"0": [1]}):
            output = model(x)
    torch.testing.assert_close(output, expected)
    assert nothing_is_open()


def tilted(score, batch, head, query, key):
    return 3 * torch.tanh(score / 3) - 0.25 * (head + 1) * (query - key).abs()


def with_flex(score_mod=None, windowed=False, **asked):
    mask = create_block_mask(in_window, None, None, LENGTH, LENGTH, "cpu") if windowed else None

    def attend(query, key, value):
        return flex_attention(query, key, value, score_mod, mask, **asked)

    return Attention(attend)


def in_window(batch, head, query, key):
    return (query >= key) & (query - key < 3)


@pytest.mark.parametrize("run", ["no_grad", "inference"])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("score_mod", [None, tilted])
def test_flex_attention_that_is_not_compiled_is_seen(score_mod, windowed, run):
    model = nn.Sequential(with_flex(score_mod, windowed, scale=0.7), Attention())
    x = torch.randn(BATCH, LENGTH, WIDTH)
    with RUNS[run]():
        seen = undisturbed(model, x)
        query, key, _ = model[0].heads(x)
    scores = 0.7 * query @ key.transpose(-1, -2)
    i, j = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    if score_mod:
        scores = score_mod(scores, 0, torch.arange(HEADS)[:, None, None], i, j)
    visible = in_window(0, 0, i, j) if windowed else torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    zeros = torch.zeros(BATCH, HEADS, LENGTH, 1)
    check(seen["0"], weights(zeros, zeros, bias=scores, visible=visible))


def test_flex_attention_of_shared_keys_is_seen():
    def attend(query, key, value):
        one = key[:, :1], value[:, :1]
        return flex_attention(query, *one, enable_gqa=True)

    model, x = Attention(attend), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        seen = undisturbed(model, x)
        query, key, _ = model.heads(x)
    check(seen[""], weights(query, key[:, :1]))


def test_flex_attention_that_is_left_out_is_left_alone():
    model = nn.Sequential(Attention(), with_flex(tilted, windowed=True))
    with torch.no_grad():
        seen = undisturbed(model, torch.randn(BATCH, LENGTH, WIDTH), asked={"layers": "0"})
    assert list(seen) == ["0"]


# One test alone, as compiling takes long.
@pytest.mark.slow
@pytest.mark.skipif(
    WITHOUT_MODES, reason=f"FlexAttention of PyTorch {torch.__version__} gives C++ without grammar"
)
@pytest.mark.filterwarnings("ignore")
def test_attention_within_code_of_the_compiler_is_refused_where_it_is_asked_for():
    attend = torch.compile(flex_attention)
    model, x = nn.Sequential(Attention(), Attention(attend)), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad():
        alone = model(x)
        sentence = r"Attention at '1' runs another attention\. Watch the model .* layers=.$"
        with pytest.raises(RuntimeError, match=sentence), gh.watch(model, [gh.Entropy()]):
            watched = model(x)
        assert torch.equal(alone, watched)
        assert list(undisturbed(model, x, asked={"layers": "0"})) == ["0"]

"""`same_bits=False`: context and statistics in one pass, where a watch allows other bits."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import glasshead as gh
from glasshead.watching import observing

QUERIES, HEADS, WIDTH = 257, 3, 7
STATISTICS = [gh.Entropy(), gh.Received(), gh.MassOn([0]), gh.MeanDistance()]


class Model(nn.Module):
    """Attention of three heads by PyTorch's function, with the arguments that it was made with."""

    def __init__(self, **named):
        super().__init__()
        self.named = named

    def forward(self, query, key=None, value=None):
        key = query if key is None else key
        value = key if value is None else value
        return F.scaled_dot_product_attention(query, key, value, **self.named)


def inputs(*heads, dtype=torch.float32, gradient=False):
    torch.manual_seed(0)
    counts = heads or (HEADS, HEADS, HEADS)
    made = [torch.randn(2, count, QUERIES, WIDTH, dtype=dtype) for count in counts]
    return [one.requires_grad_(gradient) for one in made]


def hidden():
    shown = torch.rand(2, 1, QUERIES, QUERIES) < 0.5
    return shown | torch.eye(QUERIES, dtype=torch.bool)


CALLS = {
    "all": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "boolean": {"attn_mask": hidden()},
    "bias": {"attn_mask": torch.randn(HEADS, QUERIES, QUERIES)},
    "hiding bias": {"attn_mask": torch.zeros(2, 1, QUERIES, QUERIES).masked_fill(~hidden(), -1e38)},
}


def watched(model, *given, **options):
    with gh.watch(model, STATISTICS, **options) as seen:
        output = model(*given)
    return output, seen[""][0]


def in_float64(name):
    """The call, computed by PyTorch in float64, and its statistics."""
    named = {
        key: one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
        for key, one in CALLS[name].items()
    }
    return watched(Model(**named), *(one.double() for one in inputs()))


@pytest.mark.parametrize("name", CALLS)
def test_by_default_the_model_keeps_its_bits(name):
    model, given = Model(**CALLS[name]), inputs()
    output, call = watched(model, *given)
    assert torch.equal(output, model(*given))
    assert call.kernel is None


@pytest.mark.parametrize("name", CALLS)
def test_one_pass_gives_the_context_and_statistics_of_float64(name, monkeypatch):
    truth, exact = in_float64(name)

    def second(*given):
        raise AssertionError("the scores were computed a second time")

    monkeypatch.setattr(observing, "reduce_by_fastest", second)
    output, call = watched(Model(**CALLS[name]), *inputs(), same_bits=False)
    assert call.kernel == "streaming"
    torch.testing.assert_close(output.double(), truth, rtol=1e-5, atol=1e-5)
    for one in STATISTICS:
        torch.testing.assert_close(call[one].double(), exact[one], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["all", "causal", "scaled"])
@pytest.mark.parametrize("width", [WIDTH, 64])
def test_bfloat16_is_within_its_rounding_of_float64(name, width):
    torch.manual_seed(0)
    given = [
        torch.randn(2, HEADS, QUERIES, width, dtype=torch.bfloat16).requires_grad_()
        for _ in range(3)
    ]
    exact = [one.detach().double().requires_grad_() for one in given]
    output, call = watched(Model(**CALLS[name]), *given, same_bits=False)
    truth, by_float64 = watched(Model(**CALLS[name]), *exact)
    output.sum().backward()
    truth.sum().backward()
    torch.testing.assert_close(output.double(), truth, rtol=2**-6, atol=2**-7)
    for one in STATISTICS:
        torch.testing.assert_close(call[one].double(), by_float64[one], rtol=1e-4, atol=1e-4)
    for ours, true in zip(given, exact, strict=True):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.double(), true.grad, rtol=2**-5, atol=2**-5)


@pytest.mark.parametrize("heads", [(6, 2, 2), (6, 6, 6)])
def test_heads_may_be_grouped(heads):
    given = inputs(*heads)
    model = Model(is_causal=True, enable_gqa=True)
    output, call = watched(model, *given, same_bits=False)
    assert call.kernel == "streaming"
    torch.testing.assert_close(output, model(*given), rtol=1e-4, atol=1e-5)
    assert call.entropy.shape == (2, 6, QUERIES)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_within_rounding_of_the_models_own(name):
    model, given = Model(**CALLS[name]), inputs(gradient=True)
    loss = torch.arange(WIDTH) / WIDTH
    wanted = torch.autograd.grad((model(*given) * loss).sum(), given)
    output, call = watched(model, *given, same_bits=False)
    assert call.kernel == "streaming"
    assert not call.entropy.requires_grad
    for ours, theirs in zip(torch.autograd.grad((output * loss).sum(), given), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("joined", [False, True])
def test_the_output_is_laid_out_as_that_of_the_models_kernel(joined):
    # Models split one axis into heads, and join the heads by a view.
    shape = (2, QUERIES, HEADS, WIDTH) if joined else (2, HEADS, QUERIES, WIDTH)
    x = torch.randn(shape).transpose(1, 2) if joined else torch.randn(shape)
    output, call = watched(Model(), x, same_bits=False)
    assert call.kernel == "streaming"
    assert output.stride() == Model()(x).stride()


def test_a_model_learns_the_same():
    def trained(**options):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(12, 3, 5, dropout=0.0, batch_first=True)
        model, x = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            torch.randn(2, 263, 12),
        )
        steps = torch.optim.SGD(model.parameters(), 0.1)
        with gh.watch(model, STATISTICS, **options) as seen:
            for _ in range(2):
                steps.zero_grad()
                model(x).square().mean().backward()
                steps.step()
        return [*model.parameters()], seen

    own, _ = trained()
    faster, seen = trained(same_bits=False)
    assert [call.kernel for layer in seen.values() for call in layer] == ["streaming"] * 4
    torch.testing.assert_close(faster, own, rtol=1e-4, atol=1e-5)


def learned():
    return Model(attn_mask=nn.Parameter(torch.zeros(QUERIES, QUERIES)))


class Checkpointed(Model):
    def forward(self, query, key=None, value=None):
        return checkpoint(super().forward, query, key, value, use_reentrant=False)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Model(dropout_p=0.5), inputs()),
        (learned(), inputs()),
        (Checkpointed(), inputs(gradient=True)),
        (Model(), [one[..., :251, :] for one in inputs()]),
        (Model(), inputs(dtype=torch.float64)),
    ],
    ids=["dropout", "a learned bias", "checkpointing", "few queries", "float64"],
)
def test_what_one_pass_cannot_or_need_not_compute_keeps_its_bits(model, given):
    torch.manual_seed(1)
    wanted = model(*given)
    torch.manual_seed(1)
    output, call = watched(model, *given, same_bits=False)
    assert call.kernel is None
    assert torch.equal(output, wanted)
    if output.requires_grad:
        output.sum().backward()


def test_a_second_watch_and_an_intervention_keep_the_models_kernel():
    model, given = Model(), inputs()
    wanted = model(*given)
    with gh.watch(model, STATISTICS), gh.watch(model, STATISTICS, same_bits=False) as seen:
        assert torch.equal(model(*given), wanted)
    with gh.watch(model, STATISTICS, same_bits=False) as changed, gh.ablate(model, {"": [0]}):
        model(*given)
    assert seen[""][0].kernel is changed[""][0].kernel is None


def test_a_layer_that_is_not_selected_keeps_its_bits():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Model(), Model()

        def forward(self, x):
            return self.first(x), self.second(x)

    model, (x, *_) = Two(), inputs()
    with gh.watch(model, STATISTICS, layers="second", same_bits=False) as seen:
        first, second = model(x)
    assert torch.equal(first, model.first(x))
    assert not torch.equal(second, model.second(x))
    assert [call.kernel for call in seen["second"]] == ["streaming"]


def test_padding_of_a_text_does_not_count():
    config = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 13, "num_hidden_layers": 2}
    transformers = pytest.importorskip("transformers")
    made = transformers.LlamaConfig(**config, num_attention_heads=6, num_key_value_heads=2)
    model, ids = transformers.LlamaForCausalLM(made).eval(), torch.randint(11, (2, 269))
    real = torch.ones_like(ids)
    real[1, :17] = 0
    seen = []
    for same_bits in (True, False):
        with torch.no_grad(), gh.watch(model, STATISTICS, same_bits=same_bits) as one:
            model(ids, attention_mask=real)
        seen.append(one["model.layers.1.self_attn"][0])
    own, faster = seen
    assert (own.kernel, faster.kernel) == (None, "streaming")
    for one in STATISTICS:
        torch.testing.assert_close(faster[one], own[one], rtol=1e-4, atol=1e-4)


def test_a_record_says_so_in_words_and_in_a_file(tmp_path):
    model, given = Model(), inputs()
    with gh.watch(model, STATISTICS, same_bits=False) as seen:
        model(*given)
    assert "computed by the streaming engine" in repr(seen[""][0])
    seen.save(tmp_path / "seen.safetensors")
    loaded: Any = gh.load(tmp_path / "seen.safetensors")
    assert loaded[""][0].kernel == "streaming"


def test_the_option_must_be_a_flag():
    flag: Any = 0
    with (
        pytest.raises(TypeError, match=re.escape("same_bits must be True or False, got 0.")),
        gh.watch(Model(), STATISTICS, same_bits=flag),
    ):
        pytest.fail("the block has run")

"""Layers that mix tokens by other means are reported, and no map leads through their stack."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import glasshead as gh
import watched_models as models

WIDTH, LENGTH = 6, 5


class Attention(nn.Module):
    def forward(self, x):
        heads = x[:, None]
        return F.scaled_dot_product_attention(heads, heads, heads)[:, 0]


class SigmoidAttention(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x @ x.mT) @ x


class Averages(nn.Module):
    """The mean of all tokens so far."""

    def forward(self, x):
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.over_time = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x):
        return self.over_time(x.mT).mT


class Recurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 11), nn.Linear(11, WIDTH)
        # Over one token at a time.
        self.pointwise = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x):
        return self.pointwise(self.down(self.up(x).relu()).mT).mT


class Layer(nn.Module):
    def __init__(self, *mixers):
        super().__init__()
        self.mixers = nn.ModuleDict({str(place): one for place, one in enumerate(mixers)})
        self.feed_forward = FeedForward()

    def forward(self, x):
        for mixer in self.mixers.values():
            x = x + mixer(x)
        return x + self.feed_forward(x)


class Model(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def seen_of(model, layers=None):
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], layers=layers, keep="weights") as seen:
        model(torch.randn(2, LENGTH, WIDTH))
    return seen


MIXERS = [SigmoidAttention, Averages, Convolution, Recurrence]


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_layer_that_mixes_tokens_otherwise_is_named_with_its_class(mixer):
    seen = seen_of(Model(Layer(Attention()), Layer(mixer()), Layer(Attention())))
    assert seen.unobserved == {"layers.1.mixers.0": mixer.__name__}
    told = "Not observed: 1 layer mixes tokens by other means, "
    assert f"{told}{mixer.__name__} at 'layers.1.mixers.0'" in repr(seen)
    for analysis in (gh.rollout, gh.flow):
        with pytest.raises(
            ValueError, match=rf"other means.* {mixer.__name__} at 'layers\.1\.mixers\.0'\.$"
        ):
            analysis(seen)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_list_of_mixers_alone_is_a_stack_too(mixer):
    assert seen_of(Model(Attention(), mixer(), Attention())).unobserved == {
        "layers.1": mixer.__name__
    }


def test_a_mixer_after_the_attention_of_a_layer_is_one():
    seen = seen_of(Model(Layer(Attention(), Convolution()), Layer(Attention(), Convolution())))
    assert list(seen.unobserved) == ["layers.0.mixers.1", "layers.1.mixers.1"]
    assert "2 layers mix tokens by other means, Convolution at 'layers.0.mixers.1' and 1 more" in (
        repr(seen)
    )
    with pytest.raises(ValueError, match="by other means"):
        gh.rollout(seen, layers="layers.*")


def test_attributes_of_a_model_are_layers_as_well():
    model = nn.Module()
    model.first, model.second, model.third = Attention(), SigmoidAttention(), Attention()
    model.forward = lambda x: model.third(model.second(model.first(x)))
    assert seen_of(model).unobserved == {"second": "SigmoidAttention"}


def test_what_treats_tokens_one_by_one_is_no_mixer():
    seen = seen_of(Model(Layer(Attention()), FeedForward(), Layer(Attention())))
    assert seen.unobserved == {}
    assert "Not observed" not in repr(seen)
    gh.rollout(seen)


def test_layers_without_a_mixer_between_them_are_a_stack():
    seen = seen_of(Model(Convolution(), Layer(Attention()), Layer(Attention()), Averages()))
    with pytest.raises(ValueError, match=r"other means.* Convolution at 'layers\.0' and 1 more\.$"):
        gh.rollout(seen)
    alone = seen_of(Model(Layer(Attention()), Layer(Attention())))
    assert gh.rollout(seen, layers="layers.[12].*").shape == gh.rollout(alone).shape


def test_what_was_not_observed_survives_a_file(tmp_path):
    model = Model(Layer(Attention()), Layer(Averages()))
    seen = seen_of(model)
    seen.save(tmp_path / "seen.safetensors")
    expected = seen.unobserved
    assert gh.Seen.load(tmp_path / "seen.safetensors").unobserved == expected != {}
    assert seen.gather().unobserved == expected


LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
LINEAR |= {"linear_value_head_dim": 8, "linear_conv_kernel_dim": 3}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}
MAMBA |= {"mamba_d_conv": 3, "mamba_chunk_size": 4}
TYPES = {"layer_types": ["linear_attention", "full_attention"] * 2}
JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_d_conv": 3}
JAMBA |= {"num_experts": 2, "mamba_dt_rank": 4, "use_mamba_kernels": False}
GRANITE = {"layer_types": ["mamba", "attention"] * 2, "num_local_experts": 2}
GRANITE |= {"num_experts_per_tok": 1, "shared_intermediate_size": 16}
# What a config takes beside the sizes, and the names and the classes of the mixers.
HYBRIDS = {
    "Qwen3Next": (
        LINEAR | TYPES | {"num_experts": 4, "num_experts_per_tok": 2},
        {f"model.layers.{n}.linear_attn": "Qwen3NextGatedDeltaNet" for n in (0, 2)},
    ),
    "Jamba": (JAMBA, {f"model.layers.{n}.mamba": "JambaMambaMixer" for n in (0, 2)}),
    "Bamba": (
        MAMBA | {"attn_layer_indices": [1, 3]},
        {f"model.layers.{n}.mamba": "BambaMixer" for n in (0, 2)},
    ),
    "FalconH1": (
        MAMBA | {"mamba_d_ssm": 64},
        {f"model.layers.{n}.mamba": "FalconH1Mixer" for n in range(4)},
    ),
    "GraniteMoeHybrid": (
        MAMBA | GRANITE,
        {f"model.layers.{n}.mamba": "GraniteMoeHybridMambaLayer" for n in (0, 2)},
    ),
    "Lfm2": (
        {"layer_types": ["conv", "full_attention"] * 2},
        {f"model.layers.{n}.conv": "Lfm2ShortConv" for n in (0, 2)},
    ),
    "Mixtral": ({"num_local_experts": 2, "num_experts_per_tok": 1}, {}),
}


@pytest.mark.parametrize("family", HYBRIDS)
def test_hybrids_of_transformers(family):
    transformers = pytest.importorskip("transformers")
    changes, mixers = HYBRIDS[family]
    sizes = models.sizes_of_a_decoder(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        head_dim=8,
        **changes,
    )
    if not hasattr(transformers, f"{family}Config"):
        pytest.skip(f"transformers {models.TRANSFORMERS} has no {family}")
    config = getattr(transformers, f"{family}Config")(**sizes)
    model = models.built(getattr(transformers, f"{family}ForCausalLM"), config, "eager")
    tokens = models.tokens(2, 7)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()], keep="weights") as seen:
        model(tokens)
    if models.TRANSFORMERS.major > 4:
        assert seen.unobserved == mixers
    if not mixers:
        gh.rollout(seen)
        gh.head_roles(seen, tokens)
        return
    with pytest.raises(ValueError, match="rollout needs layers that mix tokens by attention alone"):
        gh.rollout(seen)
    with pytest.raises(ValueError, match="head_roles needs layers that mix tokens by attention"):
        gh.head_roles(seen, tokens)
    # Who names the attention wants its heads, and no map through the others.
    with gh.watch(model, keep="weights", layers="*self_attn") as named:
        model(tokens)
    assert len(gh.head_roles(named, tokens).roles) == len(seen)
    with pytest.raises(ValueError, match="rollout needs layers that mix tokens by attention alone"):
        gh.rollout(named)

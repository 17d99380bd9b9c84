"""Prompt maps: where diffusion models look at a word, against weights that are computed plainly."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glasshead as gh

TEXT = 11
WORDS = {"cat": [3], "red hat": [5, 6]}


def library() -> Any:
    return pytest.importorskip("diffusers", reason="diffusers is not installed")


def unet() -> tuple[nn.Module, Any]:
    """A UNet of two levels with cross-attention, and a step with guidance."""
    model = library().UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=13,
        attention_head_dim=4,
    )

    def step(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        text = 3 * torch.randn(2, TEXT, 13)
        return {"sample": torch.randn(2, 4, 10, 6), "timestep": 7, "encoder_hidden_states": text}

    return model, step


def sd3() -> tuple[nn.Module, Any]:
    """A joint transformer, the picture before the prompt, one layer also of the picture alone."""
    model = library().SD3Transformer2DModel(
        sample_size=16,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=3,
        joint_attention_dim=13,
        caption_projection_dim=24,
        pooled_projection_dim=17,
        pos_embed_max_size=8,
        dual_attention_layers=(0,),
    )

    def step(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        return {
            "hidden_states": torch.randn(2, 4, 10, 6),
            "encoder_hidden_states": 3 * torch.randn(2, TEXT, 13),
            "pooled_projections": torch.randn(2, 17),
            "timestep": torch.tensor([7, 7]),
        }

    return model, step


def flux() -> tuple[nn.Module, Any]:
    """A joint transformer, the prompt before the picture, of double and of single layers."""
    model = library().FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=3,
        joint_attention_dim=13,
        pooled_projection_dim=17,
        axes_dims_rope=(4, 6, 6),
    )
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(3), indexing="ij")
    places = torch.stack([torch.zeros(5, 3), rows, columns], -1).reshape(15, 3)

    def step(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        return {
            "hidden_states": torch.randn(1, 15, 4),
            "encoder_hidden_states": 3 * torch.randn(1, TEXT, 13),
            "pooled_projections": torch.randn(1, 17),
            "timestep": torch.tensor([0.7]),
            "img_ids": places,
            "txt_ids": torch.zeros(TEXT, 3),
        }

    return model, step


# The first query that is a patch, and the first key of the prompt; of cross-attention 0.
MODELS = {unet: (0, 0), sd3: (0, 15), flux: (TEXT, 0)}


def made(build: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(3)
    model, step = build()
    for name, one in model.named_parameters():
        if "to_q" in name or "to_k" in name or "add_q" in name or "add_k" in name:
            nn.init.normal_(one, 0.0, 0.5)
    return model.eval(), step


def plain_weights(model: nn.Module, given: dict[str, Any], monkeypatch: Any) -> list[Tensor]:
    """The weights of all attention of a pass, each softmax(q kᵀ/√d) in full."""
    weights, fused = [], F.scaled_dot_product_attention

    def attend(query: Tensor, key: Tensor, value: Tensor, **others: Any) -> Tensor:
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights.append(scores.softmax(-1))
        # Another kernel would hand other numbers on to the next layer.
        return fused(query, key, value, **others)

    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr(F, "scaled_dot_product_attention", attend)
        model(**given)
    return weights


@pytest.mark.parametrize("build", MODELS)
def test_maps_are_the_weights_of_patches_on_the_tokens_of_a_word(build, monkeypatch):
    model, step = made(build)
    first_patch, first_token = MODELS[build]
    with torch.no_grad():
        plain = [model(**step(seed)).sample for seed in (0, 1)]
        with gh.prompt_maps(model, WORDS) as maps:
            outputs = [model(**step(seed)).sample for seed in (0, 1)]
    assert all(map(torch.equal, outputs, plain))
    assert maps.steps == 2
    expected = []
    for seed in (0, 1):
        for own in plain_weights(model, step(seed), monkeypatch):
            queries, keys = own.shape[-2:]
            if keys == TEXT or (build is not unet and keys == TEXT + 15):
                patches = queries if keys == TEXT else 15
                mean = own[-1].mean(0)[first_patch : first_patch + patches]
                expected.append(
                    torch.stack(
                        [
                            mean[:, [first_token + token for token in tokens]].sum(-1)
                            for tokens in WORDS.values()
                        ]
                    )
                )
    assert len(expected) == len(maps.calls) == 2 * len(maps.layers) > 2
    for call, own in zip(maps.calls, expected, strict=True):
        torch.testing.assert_close(call.weights.flatten(1), own, rtol=0, atol=1e-6)
        assert call.weights.shape[1:] in ((10, 6), (5, 3))
    # The mean over layers and steps, coarser maps scaled.
    finest = maps["cat"].weights.shape
    scaled = [
        F.interpolate(call.weights[None], finest, mode="bilinear")[0, 0] for call in maps.calls
    ]
    torch.testing.assert_close(maps["cat"].weights, torch.stack(scaled).mean(0))
    late = [one for call, one in zip(maps.calls, scaled, strict=True) if call.step == 1]
    found = maps.of("cat", steps=[1]).weights
    torch.testing.assert_close(found, torch.stack(late).mean(0))


# Of a single layer of Flux, which has prompt and picture in one text, theirs records nothing.
RECORDED = {unet: 7, sd3: 3, flux: 1}


@pytest.mark.parametrize("build", RECORDED)
def test_maps_are_those_of_the_processors_of_attention_map_diffusers(build):
    theirs = pytest.importorskip(
        "attention_map_diffusers", reason="attention-map-diffusers is not installed"
    )
    model, step = made(build)
    with torch.no_grad(), gh.prompt_maps(model, WORDS) as maps:
        for seed in (0, 1):
            model(**step(seed) | {"timestep": torch.full((1,), 0.7 + seed)})
    part = "unet" if build is unet else "transformer"
    pipeline = SimpleNamespace(**{part: model})
    options = {"relations": "image->text", "timesteps": "all", "heads": "mean", "mode": "exact"}
    with torch.no_grad(), theirs.AttentionCapture(pipeline, **options) as capture:
        for seed in (0, 1):
            model(**step(seed) | {"timestep": torch.full((1,), 0.7 + seed)})
    records = capture.compute().records
    assert len(records) == 2 * RECORDED[build]
    ours = {layer: [call for call in maps.calls if call.layer == layer] for layer in maps.layers}
    for record in records:
        call = ours[record.layer_id.removeprefix(f"{part}.")].pop(0)
        weights = record.data[-1].mean(0)
        expected = torch.stack([weights[:, tokens].sum(-1) for tokens in WORDS.values()])
        torch.testing.assert_close(call.weights.flatten(1), expected, rtol=0, atol=1e-6)


def test_a_layer_and_a_row_are_chosen():
    model, step = made(unet)
    with torch.no_grad(), gh.prompt_maps(model, WORDS, batch=0) as negative:
        model(**step(0))
    with torch.no_grad(), gh.prompt_maps(model, WORDS, layers="mid_block") as middle:
        model(**step(0))
    assert len(middle.layers) == 1
    assert middle["cat"].weights.shape == (5, 3)
    other = negative.of("cat", layers="mid_block").weights
    assert not torch.equal(middle["cat"].weights, other)
    assert list(middle) == ["cat", "red hat"]
    with pytest.raises(
        KeyError, match=r"'dog' is not a word of the maps\. Use one of cat, red hat"
    ):
        middle["dog"]
    with pytest.raises(ValueError, match="of 1 layers and 1 steps, counted from 0"):
        middle.of("cat", steps=[3])


def test_a_compiled_model_has_the_same_maps():
    model, step = made(unet)
    with torch.no_grad(), gh.prompt_maps(model, WORDS) as plain:
        model(**step(0))
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad(), gh.prompt_maps(compiled, WORDS) as maps:
        compiled(**step(0))
    assert maps.layers == plain.layers
    torch.testing.assert_close(maps["cat"].weights, plain["cat"].weights)


class Attention(nn.Module):
    """Cross-attention of patches to the tokens of a prompt."""

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        text = encoder_hidden_states[:, None]
        return F.scaled_dot_product_attention(x[:, None], text, text)[:, 0]


class Painter(nn.Module):
    """Two levels, the second of half the resolution, that read a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = Attention(), Attention()

    def forward(self, sample: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        above = self.above(sample.flatten(2).mT, encoder_hidden_states=encoder_hidden_states)
        half = F.avg_pool2d(sample, 2, ceil_mode=True)
        below = self.below(half.flatten(2).mT, encoder_hidden_states=encoder_hidden_states)
        return above.mean() + below.mean()


def test_any_model_that_is_given_a_picture_and_a_prompt_has_maps():
    torch.manual_seed(0)
    painter, sample, text = Painter(), torch.randn(2, 5, 7, 3), torch.randn(2, TEXT, 5)
    with gh.prompt_maps(painter, WORDS, batch=0) as maps:
        painter(sample, text)
        painter(sample, text)
    assert (maps.layers, maps.steps, len(maps)) == (["above", "below"], 2, 2)
    assert repr(maps) == "PromptMaps of 'cat', 'red hat': 2 layers, 2 steps"
    weights = (sample[0].flatten(1).T @ text[0].T / 5**0.5).softmax(-1)
    expected = weights[:, [5, 6]].sum(-1).reshape(7, 3)
    torch.testing.assert_close(maps.calls[0].weights[1], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(maps.of("red hat", layers="above").weights, expected)
    assert maps.calls[1].weights.shape == (2, 4, 2)
    assert maps["cat"].weights.shape == (7, 3)


def test_what_has_no_prompt_is_refused():
    painter = Painter()
    with pytest.raises(TypeError, match=r'needs the tokens of each word, such as \{"cat": \[5\]\}'):
        gh.prompt_maps(painter, ["cat"]).__enter__()
    with pytest.raises(TypeError, match=r"the tokens of 'cat' must be a list such as \[5\]"):
        gh.prompt_maps(painter, {"cat": 5}).__enter__()
    sample, text = torch.randn(2, 5, 7, 3), torch.randn(2, TEXT, 5)
    for given, told in (
        ({"words": {"cat": [11]}}, "words must name tokens of the 11 of the prompt"),
        ({"words": WORDS, "batch": 2}, "batch must be one of the 2 rows, got 2"),
    ):
        with pytest.raises(ValueError, match=told), gh.prompt_maps(painter, **given):
            painter(sample, text)
    painter.above.forward = lambda x, encoder_hidden_states: Attention.forward(
        painter.above, x[:, :20], encoder_hidden_states
    )
    with (
        pytest.raises(
            gh.watching.UnseenError, match="'above', where 20 queries are not a level of"
        ),
        gh.prompt_maps(painter, WORDS),
    ):
        painter(sample, text)
    layer = nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
    with (
        pytest.raises(gh.watching.UnseenError, match="saw no attention of a picture to a prompt"),
        gh.prompt_maps(layer, WORDS),
    ):
        layer(torch.randn(1, 5, 12))


def test_an_unknown_order_of_prompt_and_picture_is_refused():
    model, step = made(sd3)

    class Custom:
        def __call__(self, attn: Any, *given: Any, **named: Any) -> Any:
            return library().models.attention_processor.JointAttnProcessor2_0()(
                attn, *given, **named
            )

    model.set_attn_processor(Custom())
    with (
        pytest.raises(
            gh.watching.UnseenError, match=r"Custom does not show whether .* picture\. Omit it with"
        ),
        torch.no_grad(),
        gh.prompt_maps(model, WORDS),
    ):
        model(**step(0))


def test_the_tokens_of_a_word_are_found_in_the_prompt():
    class Tokenizer:
        def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
            words = [len(word) for word in text.split()]
            return {"input_ids": [0, *words, 99] if add_special_tokens else words}

    prompt = "a cat in red with a cat"
    assert gh.prompt_tokens(prompt, "cat", Tokenizer()) == [2, 4, 7]
    assert gh.prompt_tokens(prompt, "in red", Tokenizer()) == [3, 4]
    with pytest.raises(ValueError, match="must be part of the prompt"):
        gh.prompt_tokens(prompt, "elephant", Tokenizer())

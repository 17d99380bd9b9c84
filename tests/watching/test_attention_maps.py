"""Attention maps: weights on the patches of a picture, against those of eager mode."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glasshead as gh
from watched_models import built, settings

transformers = pytest.importorskip("transformers")
NEAR = {"rtol": 1e-5, "atol": 1e-6}
_VISION = {
    "hidden_size": 35,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "intermediate_size": 29,
    "image_size": 15,
    "patch_size": 3,
    "initializer_range": 0.6,
}
_TEXT = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 29,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE = 7


def vision(name: str, **changes: Any) -> Any:
    """What builds a vision transformer, by the name of its classes."""
    kind, config = getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")
    return lambda attention: built(kind, config(**_VISION | changes), attention)


# The model, the tokens before its patches, those after.
VISION = {
    "vit": (vision("ViT"), {"class": 1}, {}),
    "deit": (vision("DeiT"), {"class": 1, "distillation": 1}, {}),
    "dinov2": (
        vision("Dinov2WithRegisters", num_register_tokens=3),
        {"class": 1, "registers": 3},
        {},
    ),
    "clip": (vision("CLIPVision"), {"class": 1}, {}),
    "siglip": (vision("SiglipVision", vision_use_head=False), {}, {}),
    "yolos": (
        vision("Yolos", image_size=[15, 15], num_detection_tokens=7),
        {"class": 1},
        {"detection": 7},
    ),
}


def watched(model: nn.Module, **given: Any) -> gh.Seen:
    with torch.no_grad(), gh.watch(model, keep="weights") as seen:
        model(**given)
    return seen


def eager(model: nn.Module, **given: Any) -> Any:
    with torch.no_grad():
        return model(**given, output_attentions=True)


@pytest.mark.parametrize("name", VISION)
def test_a_map_is_a_row_of_the_eager_weights_on_the_grid(name):
    build, before, after = VISION[name]
    pixels = torch.randn(2, 3, 15, 15)
    seen = watched(build("sdpa"), pixel_values=pixels)
    weights = eager(build("eager"), pixel_values=pixels).attentions
    first, patches = sum(before.values()), 25
    for layer, own in zip(seen.values(), weights, strict=True):
        for query, batch in itertools.product((0, 11), (0, 1)):
            row = own[batch, :, query].mean(0)
            found = layer.image(query, batch=batch)
            torch.testing.assert_close(
                found.weights, row[first : first + patches].reshape(5, 5), **NEAR
            )
            at, told = 0, {}
            for kind, count in (*before.items(), ("", patches), *after.items()):
                told |= {kind: float(row[at : at + count].sum())} if kind else {}
                at += count
            assert found.elsewhere == pytest.approx(told, abs=1e-5)
            assert found.share + sum(found.elsewhere.values()) == pytest.approx(1, abs=1e-5)
        # All queries, some heads, a patch, several queries.
        chosen = own[1, [0, 3]]
        everyone = layer.image(heads=[0, 3], batch=1).weights
        expected = chosen.mean((0, 1))[first : first + patches].reshape(5, 5)
        torch.testing.assert_close(everyone, expected, **NEAR)
        place = first + 2 * 5 + 4
        patch = layer.image((2, 4)).weights
        expected = own[0, :, place].mean(0)[first : first + patches].reshape(5, 5)
        torch.testing.assert_close(patch, expected, **NEAR)
        both = layer.image([0, (2, 4)]).weights
        other = layer.image(0).weights
        torch.testing.assert_close(both, (other + patch) / 2, **NEAR)


def test_a_picture_of_another_size_has_another_grid():
    build, _, _ = VISION["dinov2"]
    seen = watched(build("sdpa"), pixel_values=torch.randn(1, 3, 9, 21))
    assert next(iter(seen.values())).image(0).weights.shape == (3, 7)


def test_registers_and_sinks_are_removed_and_their_share_is_told():
    build, _, _ = VISION["dinov2"]
    pixels = torch.randn(1, 3, 15, 15)
    layer = list(watched(build("sdpa"), pixel_values=pixels).values())[1]
    own = eager(build("eager"), pixel_values=pixels).attentions[1][0].mean(0)
    kept = own[0].clone()
    kept[1:4] = 0
    found = layer.image(0, without="registers")
    assert found.removed == pytest.approx(float(own[0, 1:4].sum()), abs=1e-5)
    expected = (kept / kept.sum())[4:].reshape(5, 5)
    torch.testing.assert_close(found.weights, expected, **NEAR)
    assert found.share + found.elsewhere["class"] == pytest.approx(1, abs=1e-5)
    # The two keys that the mean query looks at most.
    received = own.mean(0)
    threshold = float(received.topk(3).values[1:].mean())
    sinks = layer.image(0, sinks=threshold)
    top = received.topk(2).indices
    assert sinks.removed == pytest.approx(float(own[0, top].sum()), abs=1e-5)
    same = layer.image(0, without=sorted(top.tolist()))
    torch.testing.assert_close(sinks.weights, same.weights)


def detr(attention: str) -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=24,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=29,
        decoder_ffn_dim=29,
        num_queries=6,
        init_std=0.5,
    )
    model = built(transformers.DetrModel, config, "eager")
    # Its backbone has no attention.
    for part in (model.encoder, model.decoder):
        part.config._attn_implementation = attention
    return model


def test_detr_looks_at_the_cells_of_its_feature_map():
    # 2 × 3 cells, and as many object queries: only the first are on the picture.
    pixels = torch.randn(1, 3, 61, 96)
    seen = watched(detr("sdpa"), pixel_values=pixels)
    given = eager(detr("eager"), pixel_values=pixels)
    own, crossing = given.encoder_attentions[0][0], given.cross_attentions[0][0]
    encoder = seen["encoder.layers.0.self_attn"].image((1, 2))
    torch.testing.assert_close(encoder.weights, own[:, 5].mean(0).reshape(2, 3), **NEAR)
    decoder = seen["decoder.layers.0.encoder_attn"]
    found = decoder.image(4, heads=[2]).weights
    torch.testing.assert_close(found, crossing[2, 4].reshape(2, 3), **NEAR)
    with pytest.raises(ValueError, match="must be a number, because the queries of"):
        decoder.image((1, 2))
    with pytest.raises(ValueError, match="0.self_attn': its keys are those of a decoder"):
        seen["decoder.layers.0.self_attn"].image()


@pytest.mark.parametrize("name", ["Swin", "Swinv2"])
def test_windows_are_placed_back_on_the_picture(name):
    module = pytest.importorskip(f"transformers.models.{name.lower()}.modeling_{name.lower()}")
    sizes = {
        "image_size": 28,
        "patch_size": 2,
        "embed_dim": 12,
        "depths": [2, 1],
        "num_heads": [3, 3],
        "window_size": 5,
        "initializer_range": 0.6,
    }
    config = getattr(transformers, f"{name}Config")(**sizes)
    model = built(getattr(transformers, f"{name}Model"), config, "eager")
    pixels = torch.randn(2, 3, 28, 28)
    seen = watched(model, pixel_values=pixels)
    layers = [layer for stage in model.encoder.layers for layer in stage.blocks]
    weights = eager(model, pixel_values=pixels).attentions
    # The model returns those of the last layer of a stage alone, or of each.
    named = dict(zip(seen, layers, strict=True))
    returned = list(seen)[-len(weights) :] if len(weights) == 3 else [list(seen)[1], list(seen)[2]]
    for key, returned_weights in zip(returned, weights, strict=True):
        layer, (side, size) = named[key], (14 if ".0.blocks" in key else 7, 5)
        high = -(-side // size) * size
        own = returned_weights.reshape(2, -1, 3, 25, 25)
        # What becomes of the number of each patch on its way into windows.
        places = torch.full((1, high, high, 1), -1)
        places[0, :side, :side, 0] = torch.arange(side * side).reshape(side, side)
        shift = int(layer.shift_size)
        rolled = places.roll((-shift, -shift), (1, 2))
        numbers = module.window_partition(rolled, size).reshape(-1, 25)
        query = 4 * side + 3
        window, place = (numbers == query).nonzero()[0].tolist()
        expected, padding = torch.zeros(side * side), 0.0
        for number, weight in zip(
            numbers[window].tolist(), own[1, window, :, place].mean(0).tolist(), strict=True
        ):
            if number < 0:
                padding += weight
            else:
                expected[number] = weight
        found = seen[key].image((4, 3), batch=1)
        torch.testing.assert_close(found.weights, expected.reshape(side, side), **NEAR)
        assert sum(found.elsewhere.values()) == pytest.approx(padding, abs=1e-5)
        # Each patch is a query: the mean over them all.
        real = (numbers >= 0).double()
        received = torch.einsum("wq,whqk->wk", real, own[1].double()) / (3 * side * side)
        mean = torch.zeros(side * side, dtype=torch.double)
        mean[numbers[numbers >= 0]] = received[numbers >= 0]
        everyone = seen[key].image(batch=1).weights
        torch.testing.assert_close(everyone.double(), mean.reshape(side, side), **NEAR)
    with pytest.raises(ValueError, match=r"must be \(row, column\) if attention is by windows"):
        seen[key].image(0)
    with pytest.raises(ValueError, match="rollout needs .* windows"):
        gh.rollout(seen, layers=key)


def qwen(version: str) -> Any:
    """A model that reads pictures of 4 × 8 patches as 2 × 4 tokens, its inputs, its grid."""
    names = {"2": "Qwen2VL", "2.5": "Qwen2_5_VL", "3": "Qwen3VL"}
    kind = getattr(transformers, f"{names[version]}ForConditionalGeneration", None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {names[version]}")
    sizes = {"depth": 2, "num_heads": 2, "patch_size": 2, "spatial_merge_size": 2, "in_channels": 3}
    own = {
        "2": {"embed_dim": 16, "hidden_size": 24, "mlp_ratio": 2},
        "2.5": {
            "hidden_size": 16,
            "out_hidden_size": 24,
            "intermediate_size": 29,
            "window_size": 8,
            "fullatt_block_indexes": [1],
        },
        "3": {
            "hidden_size": 16,
            "out_hidden_size": 24,
            "intermediate_size": 29,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
    }[version]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    config = getattr(transformers, f"{names[version]}Config")(
        text_config=settings(_TEXT | {"rope_parameters": rope})
        | ({"head_dim": 8} if version == "3" else {}),
        vision_config=sizes | own | {"temporal_patch_size": 2, "initializer_range": 0.3},
        image_token_id=IMAGE,
        video_token_id=8,
        vision_start_token_id=9,
        vision_end_token_id=10,
    )
    return lambda attention: built(kind, config, attention)


def text_with_pictures(counts: list[int], length: int = 23) -> Tensor:
    """Texts with 8 image tokens for each picture, which begin at other places."""
    text = torch.randint(11, 61, (len(counts), length))
    for row, count in enumerate(counts):
        at = 2 + row
        for _ in range(count):
            text[row, at : at + 8] = IMAGE
            at += 9
    return text


@pytest.mark.parametrize("version", ["2", "2.5", "3"])
def test_a_language_model_looks_at_the_image_tokens_of_its_texts(version):
    build, text = qwen(version), text_with_pictures([1, 2])
    given = {
        "input_ids": text,
        "attention_mask": torch.ones_like(text),
        "pixel_values": torch.randn(3 * 32, 3 * 2 * 2 * 2),
        "image_grid_thw": torch.tensor([[1, 4, 8]] * 3),
        "mm_token_type_ids": (text == IMAGE).long(),
    }
    seen = watched(build("sdpa"), **given)
    weights = eager(build("eager"), **given).attentions
    layers = [one for name, one in seen.items() if "language_model" in name]
    for layer, own in zip(layers, weights, strict=True):
        for batch, image in ((0, 0), (1, 0), (1, 1)):
            first = 2 + batch + 9 * image
            row = own[batch, :, -1].mean(0)
            found = layer.image(-1, batch=batch, image=image)
            torch.testing.assert_close(
                found.weights, row[first : first + 8].reshape(2, 4), rtol=1e-4, atol=2e-6
            )
            assert found.elsewhere["text"] == pytest.approx(1 - found.share, abs=1e-5)
    with pytest.raises(ValueError, match="image must be in 0..0 for text 0, got 1"):
        layers[0].image(-1, image=1)
    tower = next(one for name, one in seen.items() if "visual" in name)
    with pytest.raises(ValueError, match="it reads 3 pictures at once"):
        tower.image()


def test_a_vision_tower_of_windows_is_seen_window_by_window(monkeypatch):
    """Qwen2.5-VL: one layer within windows of 2 × 2 blocks, cut at the border, and one of all."""
    build = qwen("2.5")
    module = pytest.importorskip("transformers.models.qwen2_5_vl.modeling_qwen2_5_vl")
    plain, fused = build("eager").model.visual, build("sdpa").model.visual
    high, wide = 6, 10
    given = {
        "hidden_states": torch.randn(high * wide, 24),
        "grid_thw": torch.tensor([[1, high, wide]]),
    }
    weights, attend = [], module.eager_attention_forward

    def kept(*arguments: Any, **named: Any) -> Any:
        output, own = attend(*arguments, **named)
        weights.append(own)
        return output, own

    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr(module, "eager_attention_forward", kept)
        plain.config._attn_implementation = "eager"
        plain(**given)
    fused.config._attn_implementation = "sdpa"
    with torch.no_grad():
        alone = fused(**given)
        with gh.watch(fused, [gh.Entropy(), gh.Received()], keep="weights") as seen:
            output = fused(**given)
    assert torch.equal(output[0], alone[0])
    # Windows of at most 4 × 4 patches, then all of them.
    assert [own.shape[-1] for own in weights] == [16, 16, 8, 8, 8, 4, 60]
    layers = list(seen.values())
    assert [len(layer.texts) for layer in layers] == [6, 1]
    texts = [text[0] for layer in layers for text in layer.texts]
    for text, own in zip(texts, weights, strict=True):
        entropy = -torch.special.xlogy(own, own).sum(-1)
        torch.testing.assert_close(text.values["entropy"], entropy, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(text.values["received"], own.sum(-2), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(text.weights[:], own, rtol=1e-5, atol=1e-6)
    # What becomes of the number of each patch on its way into blocks and windows.
    numbers = torch.arange(high * wide).reshape(high // 2, 2, wide // 2, 2).transpose(1, 2)
    windows = torch.cat(
        [
            numbers[row : row + 2, column : column + 2].reshape(-1)
            for row in (0, 2)
            for column in (0, 2, 4)
        ]
    )
    query = 3 * wide + 7
    expected = torch.empty(high * wide)
    expected[windows] = weights[-1][0, :, windows.tolist().index(query)].mean(0)
    found = layers[1].image((3, 7)).weights
    torch.testing.assert_close(found, expected.reshape(high, wide), **NEAR)
    with pytest.raises(ValueError, match="its 4 keys are one window of the 6 × 10 patches"):
        layers[0].image()


def test_a_vision_tower_that_merges_patches_orders_them_in_blocks():
    text = text_with_pictures([1])
    given = {
        "input_ids": text,
        "pixel_values": torch.randn(32, 24),
        "image_grid_thw": torch.tensor([[1, 4, 8]]),
        "mm_token_type_ids": (text == IMAGE).long(),
    }
    seen = watched(qwen("2")("sdpa"), **given)
    tower = next(one for name, one in seen.items() if "visual" in name)
    # Patches are read in blocks of 2 × 2; the second is to the right of the first.
    row = tower.weights[0, :, 0].mean(0).reshape(2, 4, 2, 2)
    found = tower.image((0, 0)).weights
    assert found.shape == (4, 8)
    torch.testing.assert_close(found[:2, 2:4], row[0, 1])
    torch.testing.assert_close(found[2:, :2], row[1, 0])


def llava(attention: str) -> nn.Module:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_VISION | {"image_size": 9}),
        text_config=transformers.LlamaConfig(**_TEXT),
        image_token_index=IMAGE,
        vision_feature_layer=-1,
    )
    return built(transformers.LlavaForConditionalGeneration, config, attention)


def test_what_is_written_looks_at_the_picture_too():
    text = torch.randint(11, 61, (1, 13))
    text[0, 2:11] = IMAGE
    pixels, model = torch.randn(1, 3, 9, 9), llava("sdpa")
    with gh.watch(model, keep="weights") as seen:
        model.generate(
            input_ids=text, pixel_values=pixels, max_new_tokens=4, min_new_tokens=4, do_sample=False
        )
    layer = next(one for name, one in seen.items() if "language_model" in name)
    assert layer.weights.shape[-2:] == (16, 16)
    for query in (5, 14, -1):
        row = layer.weights[0, :, query].mean(0)
        found = layer.image(query).weights
        torch.testing.assert_close(found, row[2:11].reshape(3, 3))
    tower = next(one for name, one in seen.items() if "vision_tower" in name)
    assert tower.image(0).weights.shape == (3, 3)


class TimmLike(nn.Module):
    """A vision transformer with its patches, as timm writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 12, (3, 5), (3, 5))
        self.patch_embed.patch_size = (3, 5)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 12))
        self.reg_token = nn.Parameter(torch.randn(1, 2, 12))
        self.attention = gh.MultiHeadAttention(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embed(x).flatten(2).mT
        tokens = [one.expand(len(x), -1, -1) for one in (self.cls_token, self.reg_token)]
        return self.attention(torch.cat([*tokens, patches], 1))


def test_a_model_with_patches_needs_no_config():
    layer = watched(TimmLike(), x=torch.randn(2, 3, 6, 20))["attention"]
    found = layer.image(0)
    torch.testing.assert_close(
        found.weights, layer.weights[0, :, 0].mean(0)[3:].reshape(2, 4), **NEAR
    )
    assert set(found.elsewhere) == {"class", "registers"}


def test_a_number_for_each_key_is_placed_on_the_picture():
    build, _, _ = VISION["vit"]
    seen = watched(build("sdpa"), pixel_values=torch.randn(1, 3, 15, 15))
    layer = list(seen.values())[-1]
    reached = gh.rollout(seen, rows=[0])[0, 0]
    found = layer.on_image(reached)
    torch.testing.assert_close(found.weights.flatten(), reached[1:])
    assert found.elsewhere["class"] == pytest.approx(float(reached[0]))
    with pytest.raises(ValueError, match="needs a number for each of 26 keys, got"):
        layer.on_image(reached[1:])


def test_a_rollout_without_some_keys_is_that_of_weights_without_them():
    build, _, _ = VISION["dinov2"]
    pixels = torch.randn(2, 3, 15, 15)
    seen = watched(build("sdpa"), pixel_values=pixels)
    weights = eager(build("eager"), pixel_values=pixels).attentions
    whole = torch.eye(29)
    for own in weights:
        kept = own.clone()
        kept[..., [1, 2, 3]] = 0
        kept = kept / kept.sum(-1, keepdim=True)
        whole = (0.5 * kept.mean(1) + 0.5 * torch.eye(29)) @ whole
    found = gh.rollout(seen, rows=[0, 7], without=[1, 2, 3])
    torch.testing.assert_close(found, whole[:, [0, 7]], **NEAR)
    with pytest.raises(ValueError, match="without must be in 0..28, got 29"):
        gh.rollout(seen, without=[29])


def test_what_is_not_known_is_refused_in_a_sentence():
    rule, x = gh.Attention(), torch.zeros(1, 2, 7, 3)
    with gh.watch(rule, [gh.Entropy()]) as told:
        rule(x, x, x)
    with pytest.raises(ValueError, match="Watch with keep='weights'"):
        told[""].image()
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x)
    layer = seen[""]
    with pytest.raises(
        ValueError, match=r"the position of the picture is not known\. Pass grid=\(rows, columns\)"
    ):
        layer.image()
    with pytest.raises(ValueError, match="got 3 × 3 = 9"):
        layer.image(grid=(3, 3))
    assert layer.image(grid=(2, 3)).elsewhere == pytest.approx({"other tokens": 1 / 7})
    refused = {
        "patch of the 2 × 3": {"query": (2, 0)},
        "query must be in -7..6": {"query": 7},
        "at least one query": {"query": []},
        "heads must be in 0..1": {"heads": [2]},
        "batch must be in 0..0": {"batch": 1},
        "without must be in 0..6": {"without": [7]},
        r"kinds of keys of '' \('other tokens'\), got 'class'": {"without": "class"},
    }
    for sentence, given in refused.items():
        with pytest.raises(ValueError, match=sentence):
            layer.image(grid=(2, 3), **given)
    with pytest.raises(TypeError, match=r"heads must be a list of heads such as \[0, 3\]"):
        layer.image(grid=(2, 3), heads=1)
    with pytest.raises(TypeError, match=r"query must be a number or \(row, column\)"):
        layer.image((1, 2, 3), grid=(2, 3))


def test_a_map_becomes_a_picture_and_a_page(tmp_path):
    rule, x = gh.Attention(), torch.randn(1, 2, 7, 3)
    with gh.watch(rule, keep="weights") as seen:
        rule(x, x, x)
    found = seen[""].image(0, grid=(2, 3))
    found.on(torch.rand(3, 40, 60)).save(tmp_path / "map.png")
    matplotlib = pytest.importorskip("matplotlib.image")
    drawn = matplotlib.imread(tmp_path / "map.png")
    assert drawn.shape == (240, 360, 3)
    found.save(tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text()
    assert "data:image/png;base64," in page
    assert "patches" in page
    assert "data:image/png" in found._repr_html_()
    with pytest.raises(ValueError, match="named .png or .html, got 'map.jpg'"):
        found.save("map.jpg")
    with pytest.raises(ValueError, match="Overlay picture must have the shape"):
        found.on(torch.rand(4, 40, 60, 3))


class Windowed(TimmLike):
    """The same, its attention within two halves of the picture."""

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embed(x).flatten(2).mT
        return self.attention(patches.reshape(2 * len(x), -1, patches.shape[-1]))


def test_windows_that_are_not_known_are_refused():
    model = Windowed()
    del model.cls_token, model.reg_token
    # Each of the two halves has as many patches as a picture of half the height.
    layer = watched(model, x=torch.randn(1, 3, 12, 20))["attention"]
    with pytest.raises(
        ValueError, match="its 8 keys are not 4 × 4 patches|its 2 rows are not the 1"
    ):
        layer.image()


@pytest.mark.skipif(
    not hasattr(torch._dynamo.eval_frame, "innermost_backend"),
    reason=f"on PyTorch {torch.__version__} watch compiles nothing again",
)
def test_a_compiled_model_has_maps_too():
    model = TimmLike().eval()
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(2, 3, 6, 20)
    layer = watched(compiled, x=x)["attention"]
    found = layer.image(0, batch=1).weights
    torch.testing.assert_close(
        found, watched(model, x=x)["attention"].image(0, batch=1).weights, **NEAR
    )

"""Models of transformers whose attention has no such weights are refused by what they do."""

import pytest
import torch
import transformers as hf

import glasshead as gh

SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 29,
}


def reformer(kind):
    return hf.ReformerConfig(
        vocab_size=61,
        hidden_size=24,
        attention_head_size=8,
        num_attention_heads=3,
        attn_layers=[kind],
        local_attn_chunk_length=7,
        lsh_attn_chunk_length=7,
        num_buckets=2,
        axial_pos_shape=(3, 7),
        axial_pos_embds_dim=(11, 13),
        feed_forward_size=29,
        hash_seed=1,
    )


def deformable():
    backbone = hf.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
        layer_type="basic",
    )
    return hf.DeformableDetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=13,
        decoder_ffn_dim=13,
        num_queries=5,
        num_feature_levels=3,
    )


CHUNKS = (
    "Attention at 'encoder.layers.0.attention.self_attention' splits its text into chunks of 7 "
)
NOTHING = "called no scaled_dot_product_attention, .* and no softmax; watch does"
REFUSED = {
    "reformer, local": (lambda: reformer("local"), f"LocalSelf{CHUNKS}"),
    "reformer, hashed": (lambda: reformer("lsh"), f"LSHSelf{CHUNKS}"),
    "ibert, quantized": (
        lambda: hf.IBertConfig(**SIZES, quant_mode=True),
        (
            r"IBertSelfAttention at 'encoder.layer.0.attention.self' \(and 1 more\) has none "
            r"between its scores and its values \(queries · keys, .*by round, .*· values\)"
        ),
    ),
    "yoso": (
        lambda: hf.YosoConfig(**SIZES, use_expectation=True),
        r"YosoSelfAttention at 'encoder.layer.0.attention.self' \(and 1 more\) has none .*acos",
    ),
    "mra": (lambda: hf.MraConfig(**SIZES, max_position_embeddings=64), NOTHING),
    "rwkv": (
        lambda: hf.RwkvConfig(
            vocab_size=61, hidden_size=24, num_hidden_layers=2, intermediate_size=29
        ),
        NOTHING,
    ),
    "swiftformer": (
        lambda: hf.SwiftFormerConfig(image_size=64, depths=[1] * 4, embed_dims=[8, 16, 16, 16]),
        "SwiftFormerEfficientAdditiveAttention at .* takes the softmax of a projection, and not",
    ),
    "deformable detr": (
        deformable,
        (
            r"MultiscaleDeformableAttention at 'encoder.layers.0.self_attn' \(and 1 more\) takes "
            "the softmax of a projection, and not of a product of queries and keys. Exclude these w"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_cause_is_that_of_the_model_and_no_way_out_is_one_that_it_lacks(name):
    build, cause = REFUSED[name]
    torch.manual_seed(3)
    model = hf.AutoModel.from_config(build()).eval()
    given = torch.randint(3, 61, (2, 21))
    if name in ("swiftformer", "deformable detr"):
        given = torch.randn(1, 3, 64, 64)
    with (
        pytest.raises(RuntimeError, match=cause) as told,
        torch.no_grad(),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(given)
    assert "sdpa" not in str(told.value)
    assert "call F." not in str(told.value)

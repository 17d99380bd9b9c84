"""`nn.TransformerDecoder` and `nn.Transformer`: attention of a text to itself, and to another."""

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.torch.explicit import check, lower, undisturbed

BATCH, LENGTH, MEMORY, WIDTH, HEADS = 2, 5, 7, 12, 2
PADDED = torch.arange(MEMORY) >= torch.tensor([7, 3])[:, None]
TARGET_PADDED = torch.arange(LENGTH) >= torch.tensor([4, 5])[:, None]
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")

MASKS = {
    "none": {},
    "later": {"tgt_mask": ~lower(LENGTH)},
    "memory padded": {"memory_key_padding_mask": PADDED},
    "all": {
        "tgt_mask": ~lower(LENGTH),
        "tgt_key_padding_mask": TARGET_PADDED,
        "memory_key_padding_mask": PADDED,
    },
}


def loud(model):
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0.0, 0.3)
    return model


def decoder(norm_first=False):
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 29, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    return loud(nn.TransformerDecoder(layer, 2))


def asked(module, x, memory, mask, padded):
    return module(
        x, memory, memory, attn_mask=mask, key_padding_mask=padded, average_attn_weights=False
    )[1].double()


def weights_of(model, x, memory, masks):
    """The weights of each attention, as it gives them itself, in the order in which they run."""
    found = {}
    later, padded = masks.get("tgt_mask"), masks.get("tgt_key_padding_mask")
    hidden = masks.get("memory_key_padding_mask")
    for number, layer in enumerate(model.layers):
        normed = layer.norm1(x) if layer.norm_first else x
        found[f"layers.{number}.self_attn"] = asked(layer.self_attn, normed, normed, later, padded)
        attended = layer._sa_block(normed, later, padded)
        middle = x + attended if layer.norm_first else layer.norm1(x + attended)
        normed = layer.norm2(middle) if layer.norm_first else middle
        name = f"layers.{number}.multihead_attn"
        found[name] = asked(layer.multihead_attn, normed, memory, None, hidden)
        x = layer(
            x, memory, tgt_mask=later, tgt_key_padding_mask=padded, memory_key_padding_mask=hidden
        )
    return found


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("way", ["training", "evaluated", "no_grad", "inference"])
def test_what_is_seen_is_what_eager_weights_say(way, norm_first, masks):
    masks = MASKS[masks]
    model = decoder(norm_first).train(way == "training")
    x, memory = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, MEMORY, WIDTH)
    expected = weights_of(model, x, memory, masks)
    gradients = way in ("training", "evaluated")
    with torch.inference_mode(way == "inference"), torch.set_grad_enabled(gradients):
        seen = undisturbed(model, x, memory, gradient=gradients, **masks)
    assert list(seen) == list(expected)
    for name, one in expected.items():
        check(seen[name], one.detach(), tolerance=5e-5)
        assert seen[name][0].position == 0
        assert seen[name][0].keys == one.shape[-1]


@pytest.mark.parametrize("way", ["training", "evaluated", "no_grad", "inference"])
def test_a_whole_transformer(way):
    model = loud(nn.Transformer(WIDTH, HEADS, 1, 1, 29, dropout=0.1, batch_first=True))
    model.train(way == "training")
    source, target = torch.randn(BATCH, MEMORY, WIDTH), torch.randn(BATCH, LENGTH, WIDTH)
    gradients = way in ("training", "evaluated")
    with torch.inference_mode(way == "inference"), torch.set_grad_enabled(gradients):
        seen = undisturbed(
            model,
            source,
            target,
            gradient=gradients,
            tgt_mask=~lower(LENGTH),
            src_key_padding_mask=PADDED,
            memory_key_padding_mask=PADDED,
        )
    assert {name: watched[0].keys for name, watched in seen.items()} == {
        "encoder.layers.0.self_attn": MEMORY,
        "decoder.layers.0.self_attn": LENGTH,
        "decoder.layers.0.multihead_attn": MEMORY,
    }
    for name in ("encoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"):
        assert not seen[name].received[1, :, 3:].any()


def test_a_padded_target_is_no_padded_source():
    model = loud(nn.Transformer(WIDTH, HEADS, 1, 1, 29, dropout=0.0, batch_first=True)).eval()
    source, target = torch.randn(2, BATCH, LENGTH, WIDTH).unbind()
    with torch.no_grad(), gh.watch(model, [gh.Received()]) as seen:
        model(source, target, tgt_key_padding_mask=TARGET_PADDED)
    assert seen["encoder.layers.0.self_attn"].real is None
    for name in ("decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"):
        assert torch.equal(seen[name].real, ~TARGET_PADDED)

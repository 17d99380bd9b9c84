"""Stacks of blocks with PyTorch's weights equal PyTorch's stacks, in value and in gradient."""

import copy

import pytest
import torch
from torch import nn

import glasshead as gh
from layers.torch_names import in_torch, loud

D_MODEL, HEADS, HIDDEN, LAYERS = 15, 3, 31, 2
SOURCES, TARGETS = torch.tensor([11, 3, 7]), torch.tensor([2, 7, 5])


def inputs():
    source = torch.randn(3, 11, D_MODEL, dtype=torch.float64, requires_grad=True)
    target = torch.randn(3, 7, D_MODEL, dtype=torch.float64, requires_grad=True)
    return source, target


def padded(lengths):
    return torch.arange(int(lengths.max())) >= lengths[:, None]


def options(order, **more):
    more = {"layer_norm_eps": 1e-3, **more}
    return {"batch_first": True, "norm_first": order == "pre", "dropout": 0.0, **more}


def pairs(blocks, layers, *, decoder):
    """Each parameter of the blocks beside that of PyTorch's layers."""
    found = []
    for block, layer in zip(blocks, layers, strict=True):
        theirs = dict(layer.named_parameters())
        mine = [(x, theirs.pop(in_torch(n, decoder=decoder))) for n, x in block.named_parameters()]
        assert not theirs
        found += mine
    return found


def assert_same_gradients(found, expected, leaves, parameters):
    mine, theirs = zip(*parameters, strict=True)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, [*leaves, *mine], upstream),
        torch.autograd.grad(expected, [*leaves, *theirs], upstream),
    )


def encoder_of(order, **more):
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, HIDDEN, **options(order, **more))
    norm = nn.LayerNorm(D_MODEL)
    return loud(nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False))


@pytest.mark.parametrize("order", ["pre", "post"])
class TestEncoder:
    @pytest.mark.parametrize("hidden", ["nothing", "padding", "both"])
    @pytest.mark.parametrize("more", [{}, {"activation": "gelu", "bias": False}], ids=str)
    def test_equals_pytorchs(self, order, hidden, more):
        theirs, (source, _) = encoder_of(order, **more), inputs()
        blocks = [gh.EncoderBlock.from_torch(layer) for layer in theirs.layers]
        norm, mask, masks = copy.deepcopy(theirs.norm), None, {}
        if hidden != "nothing":
            mask, masks["src_key_padding_mask"] = gh.padding(SOURCES), padded(SOURCES)
        if hidden == "both":
            mask, masks["mask"] = mask & gh.causal(), torch.ones(11, 11).triu(1).bool()
        x = source
        for block in blocks:
            x = block(x, mask=mask)
        found, expected = norm(x), theirs(source, **masks)
        torch.testing.assert_close(found, expected)
        parameters = pairs(blocks, theirs.layers, decoder=False)
        norms = zip(norm.parameters(), theirs.norm.parameters(), strict=True)
        assert_same_gradients(found, expected, [source], [*parameters, *norms])

    def test_equals_pytorchs_fast_path_where_texts_are(self, order):
        # Without gradients PyTorch puts zeros, or what it likes, where padding is.
        theirs, (source, _) = encoder_of(order), inputs()
        blocks = [gh.EncoderBlock.from_torch(layer) for layer in theirs.layers]
        with torch.no_grad():
            x, expected = source, theirs(source, src_key_padding_mask=padded(SOURCES))
            for block in blocks:
                x = block(x, mask=gh.padding(SOURCES))
            x = theirs.norm(x)
        real = ~padded(SOURCES)
        torch.testing.assert_close(x[real], expected[real])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("pads", [False, True], ids=["whole", "padded"])
def test_the_encoder_decoder_equals_pytorchs(order, pads):
    theirs = loud(nn.Transformer(D_MODEL, HEADS, LAYERS, LAYERS, HIDDEN, **options(order)))
    source, target = inputs()
    encoder = [gh.EncoderBlock.from_torch(layer) for layer in theirs.encoder.layers]
    decoder = [gh.DecoderBlock.from_torch(layer) for layer in theirs.decoder.layers]
    norms = [copy.deepcopy(part.norm) for part in (theirs.encoder, theirs.decoder)]
    masks, source_mask, mask = {}, None, None
    if pads:
        source_mask, mask = gh.padding(SOURCES), gh.padding(TARGETS)
        masks["src_key_padding_mask"] = masks["memory_key_padding_mask"] = padded(SOURCES)
        masks["tgt_key_padding_mask"] = padded(TARGETS)
    x = source
    for block in encoder:
        x = block(x, mask=source_mask)
    memory, x = norms[0](x), target
    for block in decoder:
        x = block(x, memory, mask=mask, source_mask=source_mask)
    found = norms[1](x)
    later = torch.ones(7, 7).triu(1).bool()
    expected = theirs(source, target, tgt_mask=later, **masks)
    torch.testing.assert_close(found, expected)
    parameters = [
        *pairs(encoder, theirs.encoder.layers, decoder=False),
        *pairs(decoder, theirs.decoder.layers, decoder=True),
        *zip(norms[0].parameters(), theirs.encoder.norm.parameters(), strict=True),
        *zip(norms[1].parameters(), theirs.decoder.norm.parameters(), strict=True),
    ]
    assert len(parameters) == len(list(theirs.parameters()))
    assert_same_gradients(found, expected, [source, target], parameters)


LOADERS = [
    (gh.EncoderBlock, nn.TransformerEncoderLayer),
    (gh.DecoderBlock, nn.TransformerDecoderLayer),
]


@pytest.mark.parametrize(("block", "layer"), LOADERS)
class TestLoading:
    def test_keeps_every_digit_and_takes_copies(self, block, layer):
        theirs = loud(layer(D_MODEL, HEADS, HIDDEN, **options("post"))).requires_grad_(False)
        mine = block.from_torch(theirs)
        of = dict(theirs.named_parameters())
        before = copy.deepcopy(mine.state_dict())
        for name, parameter in mine.named_parameters():
            assert parameter.requires_grad
            their = of[in_torch(name, decoder=block is gh.DecoderBlock)]
            assert torch.equal(parameter, their)
            nn.init.zeros_(their)
        assert all(torch.equal(x, before[name]) for name, x in mine.state_dict().items())

    def test_takes_every_setting(self, block, layer):
        settings = options("pre", activation="gelu") | {"dropout": 0.25}
        mine = block.from_torch(layer(D_MODEL, HEADS, HIDDEN, **settings))
        assert isinstance(mine.around_attention, gh.PreNorm)
        assert mine.feed_forward.activation is nn.functional.gelu
        dropouts = [x.p for x in mine.modules() if isinstance(x, nn.Dropout)]
        assert set(dropouts) == {0.25}
        assert mine.attention.attention.dropout == 0.25
        assert mine.around_feed_forward.norm.eps == 1e-3
        assert mine.training
        assert not block.from_torch(layer(D_MODEL, HEADS, HIDDEN).eval()).training

    def test_refuses_another_module(self, block, layer):
        with pytest.raises(TypeError, match=f"needs an nn.{layer.__name__}, got Linear"):
            block.from_torch(nn.Linear(3, 3))


def test_the_rule_of_a_decoder_is_causal():
    block = gh.DecoderBlock.from_torch(nn.TransformerDecoderLayer(6, 2, 24))
    assert repr(block.attention.attention.mask) == "causal()"
    assert block.cross_attention.attention.mask is None

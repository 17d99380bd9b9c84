"""`nn.TransformerEncoder` on its slow and its fast path: the same names, and the same numbers."""

import warnings

import pytest
import torch
from torch import nn

import glasshead as gh
from watching.torch.explicit import check, lower, undisturbed

BATCH, LENGTH = 3, 7
LENGTHS = torch.tensor([7, 5, 2])
PADDED = torch.arange(LENGTH) >= LENGTHS[:, None]
NAMES = ["layers.0.self_attn", "layers.1.self_attn"]
pytestmark = pytest.mark.filterwarnings(
    "ignore:enable_nested_tensor is True, but", "ignore:The PyTorch API of nested tensors"
)


def encoder(heads, *, nested=False, dropout=0.0, **asked):
    layer = nn.TransformerEncoderLayer(
        6 * heads, heads, 29, dropout=dropout, batch_first=True, **asked
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, 0.0, 0.3)
    return model


def weights_of(model, x, mask=None, padded=None):
    """The weights of each layer as its own attention gives them, asked for one after another."""
    found = []
    training = [module.training for module in model.modules()]
    model.eval()
    for layer in model.layers:
        normed = layer.norm1(x) if layer.norm_first else x
        with torch.enable_grad():
            _, one = layer.self_attn(
                normed,
                normed,
                normed,
                attn_mask=mask,
                key_padding_mask=padded,
                need_weights=True,
                average_attn_weights=False,
            )
            x = layer(x, src_mask=mask, src_key_padding_mask=padded)
        found.append(one.detach().double().nan_to_num(0.0))
    for module, was in zip(model.modules(), training, strict=True):
        module.training = was
    return found


MASKS = {
    "none": {},
    "pairs": {"mask": ~lower(LENGTH)},
    "infinities": {"mask": nn.Transformer.generate_square_subsequent_mask(LENGTH)},
    "padding": {"src_key_padding_mask": PADDED},
    "both": {"mask": ~lower(LENGTH), "src_key_padding_mask": PADDED},
}


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("way", ["training", "evaluated", "no_grad", "inference"])
def test_what_is_seen_is_what_eager_weights_say(way, heads, norm_first, masks):
    """Even heads are evaluated by one operator a layer, where there are no gradients."""
    masks = MASKS[masks]
    model = encoder(heads, norm_first=norm_first).train(way == "training")
    x = torch.randn(BATCH, LENGTH, 6 * heads)
    expected = weights_of(model, x, masks.get("mask"), masks.get("src_key_padding_mask"))
    gradients = way in ("training", "evaluated")
    with torch.inference_mode(way == "inference"), torch.set_grad_enabled(gradients):
        seen = undisturbed(model, x, gradient=gradients, **masks)
    assert list(seen) == NAMES
    for name, one in zip(NAMES, expected, strict=True):
        check(seen[name], one, tolerance=5e-5)


@pytest.mark.parametrize("inference", [False, True])
def test_packed_texts_have_no_padding_that_could_attend(inference):
    model = encoder(2, nested=True).eval()
    assert model.use_nested_tensor
    x = torch.randn(BATCH, LENGTH, 12)
    with torch.inference_mode(inference), torch.no_grad():
        seen = undisturbed(model, x, src_key_padding_mask=PADDED)
    assert list(seen) == NAMES
    expected = [torch.zeros(BATCH, 2, LENGTH, LENGTH, dtype=torch.float64) for _ in NAMES]
    for row, length in enumerate(LENGTHS.tolist()):
        for whole, one in zip(expected, weights_of(model, x[row : row + 1, :length]), strict=True):
            whole[row, :, :length, :length] = one[0]
    for name, one in zip(NAMES, expected, strict=True):
        check(seen[name], one, tolerance=5e-5)
        assert not seen[name].entropy[1, :, 5:].any()


def test_dropout_is_not_in_what_is_seen():
    model = encoder(2, dropout=0.3).train()
    x = torch.randn(BATCH, LENGTH, 12)
    seen = undisturbed(model, x, gradient=True)
    check(seen[NAMES[0]], weights_of(model, x)[0])


@pytest.mark.parametrize("heads", [2, 3])
def test_a_layer_may_be_watched_alone(heads):
    layer = encoder(heads).eval().layers[0]
    x = torch.randn(BATCH, LENGTH, 6 * heads)
    with torch.no_grad():
        assert list(undisturbed(layer, x)) == ["self_attn"]


def test_of_two_models_that_run_one_is_seen():
    model, other = encoder(2).eval(), encoder(2).eval()
    x = torch.randn(BATCH, LENGTH, 12)
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        other(x)
        assert not len(seen)
        model(x)
        other(x)
    assert [len(seen[name]) for name in NAMES] == [1, 1]


def test_a_watch_gives_no_warning_and_leaves_the_fast_path_on():
    model = encoder(2).eval()
    x = torch.randn(BATCH, LENGTH, 12)
    ran = []
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.extend([func] if func is layer else [])
            return func(*args, **(kwargs or {}))

    with warnings.catch_warnings(), torch.no_grad(), Counting():
        warnings.simplefilter("error")
        with gh.watch(model, [gh.Entropy()]):
            model(x)
    assert len(ran) == 2

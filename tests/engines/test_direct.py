"""SDPA alone has the bits of the fused engine's general way: masks kept ready, keys by length."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import glasshead as gh
from glasshead.attention import attention as module
from glasshead.engines import fused
from glasshead.engines.fused import Fused

WINDOW = gh.causal() & gh.window(before=3)
Band = type(gh.causal())


@pytest.fixture(autouse=True)
def no_masks_kept():
    torch.manual_seed(7)
    fused.AddedMask._kept.clear()
    module._REMEMBERED.clear()


def inputs_of(queries, keys, heads=3, dtype=torch.float32, *, requires_grad=False):
    return [
        torch.randn(2, heads, length, 7).to(dtype).requires_grad_(requires_grad)
        for length in (queries, keys, keys)
    ]


def with_gradients(attention, inputs, **call):
    context = attention(*inputs, **call)
    weight = torch.linspace(-1, 1, context.numel()).view_as(context).to(context.dtype)
    return [context, *torch.autograd.grad((context * weight).sum(), inputs)]


def general_way(function, *arguments, **call):
    """Call a function while the fused engine takes no direct way, and no call is remembered."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fused, "direct", lambda *_: None)
        patched.setattr(module, "_REMEMBERED", {})
        return function(*arguments, **call)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("mask", [WINDOW, gh.window(before=2, after=5)], ids=str)
def test_a_kept_mask_has_the_bits_of_a_boolean_one(mask, dtype):
    inputs = inputs_of(13, 13, dtype=dtype, requires_grad=True)
    attention = gh.Attention(mask=mask)
    expected = general_way(with_gradients, attention, inputs)
    assert not fused.AddedMask._kept
    for _ in range(2):
        assert_same(with_gradients(attention, inputs), expected)
    assert [kept.dtype for kept in fused.AddedMask._kept.values()] == [dtype]


def test_a_mask_that_is_made_in_inference_mode_serves_gradients():
    inputs = inputs_of(13, 13, requires_grad=True)
    attention = gh.Attention(mask=WINDOW)
    with torch.inference_mode():
        attention(*inputs)
    assert fused.AddedMask._kept
    expected = general_way(with_gradients, attention, inputs)
    assert_same(with_gradients(attention, inputs), expected)


def test_masks_of_equal_value_are_kept_once():
    for mask in (gh.causal() & gh.window(before=3), gh.window(before=3), WINDOW):
        for heads in (1, 3):
            gh.Attention(mask=mask)(*inputs_of(13, 13, heads))
    assert len(fused.AddedMask._kept) == 1


def test_no_more_masks_are_kept_than_are_bounded(monkeypatch):
    # 4 · (11² + 13² + 17²) bytes, three masks.
    monkeypatch.setattr(fused.AddedMask, "_most_bytes", 2316)
    attention = gh.Attention(mask=WINDOW)
    for length in (11, 13, 17, 11, 19, 23, 29, 11):
        inputs = inputs_of(length, length)
        assert torch.equal(attention(*inputs), general_way(attention, *inputs))
        assert sum(mask.nbytes for mask in fused.AddedMask._kept.values()) <= 2316
    assert [len(mask) for mask in fused.AddedMask._kept.values()] == [11]


def test_a_long_mask_is_not_kept(monkeypatch):
    monkeypatch.setattr(fused.AddedMask, "most_pairs", 13 * 13 - 1)
    inputs = inputs_of(13, 13)
    attention = gh.Attention(mask=gh.window(before=3))
    assert torch.equal(attention(*inputs), general_way(attention, *inputs))
    assert not fused.AddedMask._kept


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_mask_of_a_transform_is_not_kept():
    query, *others = inputs_of(13, 13)
    attention = gh.Attention(mask=WINDOW)
    torch.func.grad(lambda x: attention(x, *others).sum())(query)
    torch.func.vmap(lambda x: attention(x[None], *(y[:1] for y in others)))(query)
    assert not fused.AddedMask._kept


def test_a_mask_without_numbers_is_not_kept():
    attention, inputs = gh.Attention(mask=gh.window(before=3)), inputs_of(13, 13)
    with FakeTensorMode(allow_non_fake_inputs=True):
        attention(*inputs)
    assert not fused.AddedMask._kept


@pytest.mark.parametrize("queries", [3, 13, 17])
def test_what_no_window_shows_may_hold_anything(queries):
    query, key, value = inputs_of(queries, 13)
    unseen = max(0, 13 - queries - 1)
    key[..., :unseen, :], value[..., :unseen, :] = torch.nan, torch.nan
    attention = gh.Attention(mask=gh.window(before=1))
    assert attention(query, key, value).isfinite().all()


class EverySecond(Band):
    """A band of which every second key is seen, that looks like the whole."""

    def simplified(self, tile):
        return self

    def visible(self, tile):
        return super().visible(tile) & (tile.distance() % 2 == 0)


def test_a_custom_mask_is_not_taken_for_one_that_looks_the_same():
    inputs = inputs_of(13, 13)
    for mask in (EverySecond(3, 0), gh.window(before=3), EverySecond(3, 0)):
        expected = gh.Attention(mask=mask, engine="reference")(*inputs)
        torch.testing.assert_close(gh.Attention(mask=mask)(*inputs), expected)


LENGTHS = [[61, 61], [61, 97], [97, 3], [97, 97], [2**60, 1], [0, 5], [-3, 97], [0, 0], 41]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("queries", [1, 13, 131])
def test_keys_by_length_have_the_bits_of_the_general_way(lengths, queries, dtype):
    inputs = inputs_of(queries, 97, dtype=dtype, requires_grad=True)
    attention, mask = gh.Attention(), gh.padding(lengths)
    expected = general_way(with_gradients, attention, inputs, mask=mask)
    assert_same(with_gradients(attention, inputs, mask=mask), expected)


def test_heads_in_groups_read_keys_by_length():
    query, key, value = inputs_of(131, 97, heads=6)
    for queries in (1, 131):
        inputs = query[..., :queries, :], key[:, :2], value[:, :2]
        for lengths in ([61, 97], [5, 5]):
            call = {"mask": gh.padding(lengths)}
            found = gh.Attention()(*inputs, **call)
            assert torch.equal(found, general_way(gh.Attention(), *inputs, **call))


@pytest.mark.parametrize("hidden", [torch.nan, torch.inf])
@pytest.mark.parametrize("lengths", [(61, 41), (41, 41), (97, 0)])
def test_padding_may_hold_anything(lengths, hidden):
    results = []
    for filling in (0.0, hidden):
        torch.manual_seed(5)
        inputs = inputs_of(131, 97, requires_grad=True)
        with torch.no_grad():
            for x in inputs[1:]:
                x[0, :, lengths[0] :], x[1, :, lengths[1] :] = filling, filling
        results.append(with_gradients(gh.Attention(), inputs, mask=gh.padding(lengths)))
    assert_same(*results)
    assert not any(gradient[1, :, lengths[1] :].any() for gradient in results[1][2:])


def test_rows_have_calls_of_their_own_from_2_15_scores_on(monkeypatch):
    calls, original = [], torch.nn.functional.scaled_dot_product_attention

    def spy(query, key, value, attn_mask=None, **keywords):
        calls.append((len(query), key.shape[-2], attn_mask is not None))
        return original(query, key, value, attn_mask=attn_mask, **keywords)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    for queries, rows in ((128, [(1, 61, False), (1, 128, False)]), (127, [(2, 128, True)])):
        fused = gh.Attention(engine="fused")
        fused(*inputs_of(queries, 128, heads=2), mask=gh.padding([61, 128]))
        assert calls == rows
        calls.clear()

"""What once went wrong, and does no more."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

import glasshead as gh
from glasshead.watching.interception.operator_mode import OperatorInterceptMode
from glasshead.watching.interception.session import THREADS
from watching.torch.explicit import check, undisturbed, weights


class Cross(nn.Module):
    def forward(self, query, key, mask):
        return F.scaled_dot_product_attention(query, key, key, attn_mask=mask)


class Blocks(nn.Module):
    """Its names say nothing of what it is."""

    def __init__(self, second):
        super().__init__()
        self.first, self.second = Cross(), second

    def forward(self, x):
        return self.second(self.first(x, x, None))


def test_a_mask_of_keys_says_the_same_however_it_is_written():
    query, key = torch.randn(1, 2, 3, 5), torch.randn(1, 2, 7, 5)
    mask = (torch.arange(7) < 5)[None, None, None]
    model, found = Cross(), []
    for written in (mask, mask.expand(1, 1, 3, 7), mask.repeat(1, 1, 3, 1)):
        with gh.watch(model, [gh.MeanDistance(), gh.Received()]) as seen:
            model(query, key, written)
        found.append(seen[""][0])
    assert [call.position for call in found] == [0, 0, 0]
    for call in found[1:]:
        assert torch.equal(call.mean_distance, found[0].mean_distance)
        assert call.received.shape == (1, 2, 7)


def test_some_heads_keep_their_numbers():
    model, x = Cross(), torch.randn(1, 7, 3, 5)
    with gh.watch(model, [gh.Entropy()], heads=[5, 0]) as seen:
        model(x, x, None)
    assert "head 5  head 0" in str(seen.summary())
    heads = seen.to_frame().index.get_level_values("head")
    assert list(dict.fromkeys(heads)) == [5, 0]


def test_heads_keep_their_numbers_in_a_file(tmp_path):
    model, x = Cross(), torch.randn(1, 7, 3, 5)
    with gh.watch(model, [gh.Entropy()], heads=[5, 0]) as seen:
        model(x, x, None)
    seen.save(tmp_path / "seen.safetensors")
    assert gh.Seen.load(tmp_path / "seen.safetensors")[""][0].heads == (5, 0)


def test_what_was_read_of_a_mask_does_not_outlive_the_block():
    model, x = Cross(), torch.randn(1, 2, 3, 5)
    mask = torch.ones(3, 3, dtype=torch.bool)
    with gh.watch(model, [gh.ArgMax()]):
        model(x, x, mask)
    assert not THREADS.session.masks.last
    mask.data[:, 1:] = False
    with gh.watch(model, [gh.ArgMax()]) as seen:
        model(x, x, mask)
    assert (seen[""].arg_max == 0).all()


@pytest.mark.parametrize("inference", [False, True])
def test_the_long_way_of_pytorch_is_seen_by_whatever_name_it_was_imported(inference):
    bound = F.scaled_dot_product_attention

    class Part(nn.Module):
        def forward(self, x):
            return bound(x, x, x, dropout_p=0.5)

    model, x = Blocks(Part()), torch.randn(1, 2, 3, 5)
    with torch.inference_mode(inference):
        seen = undisturbed(model, x)
        given = model.first(x, x, None)
    check(seen["second"], weights(given, given))


def test_no_logsumexp_is_kept_that_nobody_asked_for():
    bound = F.scaled_dot_product_attention
    x = torch.randn(1, 2, 3, 5)
    model = Cross()
    with gh.watch(model, [gh.Entropy()]):
        bound(x, x, x)
        assert not THREADS.session._logsumexps
        model(x, x, None)


def test_masks_count_in_the_budget_of_what_is_kept():
    model, x = Cross(), torch.randn(1, 1, 97, 2)
    mask = torch.ones(97, 97, dtype=torch.bool).tril()
    bare = 2 * 97 * 2 * 4 + 97 * 4
    with gh.watch(model, keep="weights", budget=bare + 97 * 97):
        model(x, x, mask)
    with (
        pytest.warns(UserWarning, match="but needs"),
        gh.watch(model, keep="weights", budget=bare + 97 * 97 - 1) as seen,
    ):
        model(x, x, mask)
    assert not seen[""][0].has_weights


def test_a_statistic_that_cannot_be_joined_hides_no_other():
    config = gh.LanguageModelConfig(vocab_size=11, d_model=12, num_heads=3, num_layers=1)
    model = gh.LanguageModel(config)
    cache = model.new_cache()
    with gh.watch(model, [gh.Entropy(), gh.PooledMap(1, 1)]) as seen:
        model(torch.tensor([[3, 1, 4]]), cache=cache)
        model(torch.tensor([[1]]), cache=cache)
    layer = seen["blocks.0.attention"]
    assert layer.entropy.shape == (1, 3, 4)
    with pytest.raises(ValueError, match="cannot be computed from chunks"):
        _ = layer.pooled_map


def test_a_block_that_is_left_in_another_thread_leaves_no_function_replaced():
    original = F.scaled_dot_product_attention
    model, x = Cross(), torch.randn(1, 2, 3, 5)
    seen = []

    def watching():
        with gh.watch(model, [gh.Entropy()]) as found:
            yield model(x, x, None)
        seen.append(found)

    # As often as it takes for a thread to be given the number of the one that has ended.
    for _ in range(20):
        steps = watching()
        for _part in ("enter", "leave"):
            with ThreadPoolExecutor(1) as thread:
                thread.submit(next, steps, None).result()
        assert len(seen.pop()[""]) == 1
        assert F.scaled_dot_product_attention is original


def test_a_block_that_cannot_be_opened_leaves_nothing_behind(monkeypatch):
    original, x = F.scaled_dot_product_attention, torch.randn(1, 2, 3, 5)

    def interrupted(_mode):
        raise KeyboardInterrupt

    monkeypatch.setattr(OperatorInterceptMode, "__enter__", interrupted)
    with pytest.raises(KeyboardInterrupt), gh.watch(Cross(), [gh.Entropy()]):
        pass
    assert F.scaled_dot_product_attention is original
    assert not THREADS.session.watchers
    assert not THREADS.session.enabled
    monkeypatch.undo()
    with gh.watch(model := Cross(), [gh.Entropy()]) as seen:
        model(x, x, None)
    assert len(seen[""]) == 1
    assert F.scaled_dot_product_attention is original


def test_a_mode_that_is_entered_twice_is_left_twice():
    mode, before = OperatorInterceptMode(), _get_current_dispatch_mode()
    with mode, mode:
        assert _get_current_dispatch_mode() is mode
    assert _get_current_dispatch_mode() is before


@pytest.mark.parametrize("layers", [[], (), [3], {"a": 1}])
def test_patterns_that_are_none_are_refused_at_once(layers):
    with (
        pytest.raises(TypeError, match="layers must be a pattern"),
        gh.watch(Cross(), [gh.Entropy()], layers=layers),
    ):
        pass


class Reader(nn.Module):
    """Attends to pictures, or to texts whose mask it is given."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(3, 12)

    def attend(self, x, mask=None):
        query, key, value = self.project(x).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class Pictures(Reader):
    def forward(self, pixel_values):
        return self.attend(pixel_values)


class Texts(Reader):
    def forward(self, inputs_embeds, attention_mask):
        return self.attend(inputs_embeds, attention_mask[:, None, None].bool())


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.pictures, self.texts = Pictures(), Texts()

    def forward(self, inputs_embeds, pixel_values, attention_mask):
        return self.pictures(pixel_values) + self.texts(inputs_embeds, attention_mask)


@pytest.mark.parametrize("told", [True, False])
def test_the_padding_of_a_text_is_not_that_of_a_picture_of_as_many_parts(told):
    text, picture = torch.randn(2, 2, 5, 3).unbind()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    given = {"attention_mask": mask} if told else {}
    model = Both()
    with torch.no_grad(), gh.watch(model, [gh.Received()], **given) as seen:
        model(text, picture, mask)
    assert seen["pictures"].real is None
    assert torch.equal(seen["texts"].real, mask.bool())

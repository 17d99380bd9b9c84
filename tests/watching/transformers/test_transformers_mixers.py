"""Layers of transformers that mix tokens without attention, watched by mixers=True."""

import copy
import functools
import re
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", minversion="5.20")

from mixer_families import FAMILIES, built

import glasshead as gh
from glasshead.watching import BudgetError, UnseenError
from glasshead.watching.mixers import observer

ROOT = Path(__file__).resolve().parents[3]
LENGTH = 11
# What generates in two ways that transformers itself computes differently.
_DIFFERS = ("Bamba", "MiniMax")
# It has no language model of text alone.
_JOINED = [name for name in FAMILIES if name not in (*_DIFFERS, "Glm5NextText")]


def tokens(rows=2):
    torch.manual_seed(1)
    return torch.randint(3, 61, (rows, LENGTH))


def watched(name, x, *statistics, **options):
    options = {"keep": "weights", "mixers": True, **options}
    with torch.no_grad(), gh.watch(built(name), [*statistics], **options) as seen:
        output = built(name)(x, use_cache=False)
    return seen, output


def mixers(seen):
    return {name: one for name, one in seen.layers.items() if one.kind != "attention"}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_mixer_is_observed_by_its_kind_and_changes_no_bit(name):
    _, modules, kind = FAMILIES[name]
    with torch.no_grad():
        expected = built(name)(tokens(), use_cache=False)[0]
    seen, output = watched(name, tokens(), gh.Received())
    assert torch.equal(output[0], expected)
    found = mixers(seen)
    assert [one.split("layers.")[-1].split("blocks.")[-1] for one in found] == modules
    assert {one.kind for one in found.values()} == {kind}
    assert all(one.observed for one in seen.layers.values())
    assert seen.unobserved == {}
    for one in found.values():
        W = one.weights
        rows = W.dense()
        assert not rows.triu(1).any()
        torch.testing.assert_close(one.received, rows.sum(-2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", _JOINED)
def test_a_text_that_grows_by_generation_has_the_rows_of_the_whole_text(name):
    model = built(name)
    prompt = tokens(1)[:, :7]
    with torch.no_grad(), gh.watch(model, [gh.Received()], mixers=True, keep="weights") as seen:
        written = model.generate(
            prompt, max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None
        )
    whole, _ = watched(name, written[:, :-1], gh.Received())
    for each, one in mixers(whole).items():
        grown = seen[each]
        assert [call.position for call in grown.last_text] == [0, 7, 8, 9]
        expected = one.weights.dense()
        limit = 2e-4 * float(expected.abs().max())
        torch.testing.assert_close(grown.weights.dense(), expected, rtol=0, atol=limit)
        torch.testing.assert_close(grown.received, one.received, rtol=1e-3, atol=10 * limit)


def test_an_mlstm_over_chunks_and_single_tokens_has_the_weights_of_its_definition():
    seen, _ = watched("xLSTM", torch.randint(3, 61, (2, 64 + LENGTH)), gh.Received())
    W = seen["backbone.blocks.1.mlstm_layer"].weights.dense()
    # A row is divided by the magnitude of its sum, or by more.
    assert float(W.sum(-1).abs().max()) <= 1
    layer = built("xLSTM").backbone.blocks[1].mlstm_layer
    given = []
    handle = layer.mlstm_backend.register_forward_pre_hook(
        lambda _, inputs, named: given.append(named), with_kwargs=True
    )
    try:
        text = tokens()
        short, _ = watched("xLSTM", text, gh.Received())
    finally:
        handle.remove()
    q, k, i, f = (given[0][name].double() for name in ("query", "key", "igate", "fgate"))
    kept = nn.functional.logsigmoid(f).cumsum(-1)
    raw = (q @ k.mT) * q.shape[-1] ** -0.5
    raw = raw * (kept[..., None] - kept[..., None, :] + i[..., None, :]).exp().tril()
    expected = raw / raw.sum(-1, keepdim=True).abs().clamp(min=1)
    found = short["backbone.blocks.1.mlstm_layer"].weights.dense()
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-4)


def test_heads_of_zamba_are_runs_of_its_module():
    seen, _ = watched("Zamba", tokens())
    assert {f"model.layers.0.mamba#{head}" for head in range(2)} <= set(seen.layers)


def test_a_wrong_reading_of_a_kernel_raises_at_the_end_of_the_block(monkeypatch):
    monkeypatch.setattr(observer, "TOLERANCE", 0.0)
    with pytest.raises(UnseenError, match=r"cannot rebuild the output of 'model\.layers\.0"):
        watched("Qwen3Next", tokens())


def test_another_kernel_behind_the_function_is_observed_if_it_agrees(monkeypatch):
    from transformers.models.qwen3_next import modeling_qwen3_next as file

    other = file.torch_recurrent_gated_delta_rule
    monkeypatch.setattr(file, "torch_chunk_gated_delta_rule", other)
    seen, _ = watched("Qwen3Next", tokens(), gh.Received())
    assert all(one.observed for one in seen.layers.values())

    @functools.wraps(other)
    def wrong(*inputs, **named):
        output, state = other(*inputs, **named)
        return output * 1.001, state

    monkeypatch.setattr(file, "torch_chunk_gated_delta_rule", wrong)
    with pytest.raises(UnseenError, match="cannot rebuild the output of .* of gated delta rule"):
        watched("Qwen3Next", tokens(), gh.Received())


def test_a_fused_kernel_that_hides_its_scan_is_refused(monkeypatch):
    from transformers.models.bamba import modeling_bamba as file

    def fused(projected, *inputs, outproj_weight, **named):
        return projected.new_zeros(*projected.shape[:-1], len(outproj_weight))

    monkeypatch.setattr(file, "mamba2_split_conv1d_scan_combined", fused)
    model = copy.deepcopy(built("Bamba")).train()
    why = "BambaMixer at 'model.layers.0.mamba' and 1 more"
    with pytest.raises(UnseenError, match=why), gh.watch(model, [gh.Received()], mixers=True):
        model(tokens(), use_cache=False)


def test_the_reference_names_each_family():
    page = (ROOT / "docs/reference/watching.md").read_text(encoding="utf-8")
    section = page.partition("### Layers without attention")[2].partition("\n## ")[0].lower()
    words = re.sub(r"[ .-]", "", section)
    for name, (_, _, kind) in FAMILIES.items():
        row = next(line for line in section.splitlines() if line.startswith(f"| {kind.lower()} "))
        assert name.removesuffix("Text").lower().replace("_", "") in re.sub(r"[ .-]", "", row)
    assert "zamba(each" in words


def test_values_of_the_watch_rebuild_the_output_before_the_gate():
    model = built("Qwen3Next")
    given = []
    norm = model.model.layers[0].linear_attn.norm
    handle = norm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    try:
        seen, _ = watched("Qwen3Next", tokens(), keep="context")
    finally:
        handle.remove()
    context = seen["model.layers.0.linear_attn"].context
    expected = given[0].reshape(2, LENGTH, 6, 7).transpose(1, 2)
    torch.testing.assert_close(context, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_without_mixers_layers_lists_them_as_not_observed():
    seen, _ = watched("Jamba", tokens(), gh.Entropy(), mixers=False)
    kinds = {name: (one.kind, one.observed) for name, one in seen.layers.items()}
    assert kinds == {
        "model.layers.0.mamba": ("JambaMambaMixer", False),
        "model.layers.1.self_attn": ("attention", True),
        "model.layers.2.mamba": ("JambaMambaMixer", False),
    }
    with pytest.raises(AttributeError, match=r"JambaMambaMixer that was not observed\. Use mixers"):
        _ = seen.layers["model.layers.0.mamba"].entropy


def test_entropy_of_implied_weights_is_refused_by_name():
    seen, _ = watched("Jamba", tokens(), gh.Entropy(), gh.MassOn([0]))
    mamba, attention = seen["model.layers.0.mamba"], seen["model.layers.1.self_attn"]
    with pytest.raises(
        ValueError, match=r"^Entropy\(\) needs weights that are shares of 1, .*Mamba"
    ):
        _ = mamba.entropy
    assert attention.entropy.shape == (2, 4, LENGTH)
    torch.testing.assert_close(mamba.mass_on, mamba.weights.dense()[..., 0])
    summary = str(seen.summary())
    assert "model.layers.0.mamba (mean of 64 channels)" in summary
    frame = seen.to_frame("entropy")
    assert list(frame.index.unique("layer")) == ["model.layers.1.self_attn"]


def test_mean_distance_is_of_magnitudes():
    seen, _ = watched("Qwen3Next", tokens(), gh.MeanDistance())
    one = seen["model.layers.0.linear_attn"]
    sizes = one.weights.dense().abs()
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    expected = (sizes * distance).sum(-1) / sizes.sum(-1)
    torch.testing.assert_close(one.mean_distance, expected, rtol=1e-4, atol=1e-4)


def test_padded_queries_do_not_count():
    x = tokens()
    mask = torch.ones_like(x)
    mask[1, :4] = 0
    with (
        torch.no_grad(),
        gh.watch(built("Qwen3Next"), [gh.Received()], mixers=True, keep="weights") as seen,
    ):
        built("Qwen3Next")(x, attention_mask=mask, use_cache=False)
    one = seen["model.layers.0.linear_attn"]
    assert torch.equal(one.real, mask.bool())
    expected = (one.weights.dense() * mask[:, None, :, None]).sum(-2)
    torch.testing.assert_close(one.received, expected, rtol=1e-4, atol=1e-5)


def test_heads_are_chosen_for_mixers_too():
    seen, _ = watched("Qwen3Next", tokens(), gh.Received(), heads=[3, 0])
    one = seen["model.layers.0.linear_attn"]
    expected = one.weights.dense().sum(-2)[:, [3, 0]]
    torch.testing.assert_close(one.received, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"heads must be in 0\.\.5 for 'model\.layers\.0"):
        watched("Qwen3Next", tokens(), gh.Received(), heads=[6])


def test_rollout_multiplies_shares_of_mixers_and_states_so():
    seen, _ = watched("Qwen3Next", tokens())
    factors = [
        one.weights if one.kind == "attention" else one.weights.shares()
        for one in seen.layers.values()
    ]
    expected = torch.eye(LENGTH)
    for W in factors:
        expected = (W.dense().mean(1) / 2 + torch.eye(LENGTH) / 2) @ expected
    torch.testing.assert_close(gh.rollout(seen, range(LENGTH)), expected, rtol=1e-4, atol=1e-5)
    assert gh.rollout_factors(seen) == {
        "model.layers.0.linear_attn": "gated delta rule: the mean over 6 heads of |W| / Σ|W|",
        "model.layers.1.self_attn": "attention: the mean over 4 heads of W",
        "model.layers.2.linear_attn": "gated delta rule: the mean over 6 heads of |W| / Σ|W|",
    }
    with pytest.raises(ValueError, match=r"patterns needs attention weights, .* gated delta rule"):
        gh.patterns(seen)


def test_rollout_refuses_mixers_next_to_attention_in_a_layer():
    seen, _ = watched("FalconH1", tokens())
    with pytest.raises(ValueError, match=r"'model\.layers\.0\.mamba' and .* are of one layer"):
        gh.rollout(seen)
    assert gh.rollout(seen, layers="*.mamba").shape == (2, 1, LENGTH)


def test_what_was_observed_survives_a_file(tmp_path):
    seen, _ = watched("Jamba", tokens(), gh.Received())
    seen.save(tmp_path / "seen.safetensors")
    loaded = gh.Seen.load(tmp_path / "seen.safetensors")
    kinds = {name: one.kind for name, one in loaded.layers.items()}
    assert kinds == {name: one.kind for name, one in seen.layers.items()}
    assert torch.equal(
        loaded["model.layers.0.mamba"].received, seen["model.layers.0.mamba"].received
    )


def test_layers_that_were_not_selected_are_listed_as_not_observed():
    seen, _ = watched("Jamba", tokens(), layers="*.[01].*")
    kinds = {name: one.observed for name, one in seen.layers.items()}
    assert kinds == {
        "model.layers.0.mamba": True,
        "model.layers.1.self_attn": True,
        "model.layers.2.mamba": False,
    }


def test_a_mixer_without_a_known_kernel_is_refused():
    class Recurrence(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRU(6, 6, batch_first=True)

        def forward(self, x):
            return self.cell(x)[0]

    class Attention(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model = nn.Sequential(Attention(), Recurrence(), Attention())
    why = r"^mixers=True needs .*, but Recurrence at '1' did not"
    with pytest.raises(UnseenError, match=why), gh.watch(model, [gh.Received()], mixers=True):
        model(torch.randn(2, 5, 6))


def test_a_state_that_was_not_seen_is_refused():
    model, x = built("Qwen3Next"), tokens()
    with torch.no_grad():
        cache = model(x[:, :7], use_cache=True).past_key_values
    why = r"state of a text that this watch has not seen"
    with pytest.raises(UnseenError, match=why), gh.watch(model, [gh.Received()], mixers=True):
        model(x[:, 7:8], use_cache=True, past_key_values=cache)


def test_beams_continue_the_rows_that_their_states_come_from():
    model, x = built("Qwen3Next"), tokens(2)
    order = torch.tensor([1, 1])
    with torch.no_grad(), gh.watch(model, [gh.Received()], mixers=True, keep="weights") as seen:
        out = model(x[:, :7], use_cache=True)
        out.past_key_values.reorder_cache(order)
        model(x[:, 7:8], use_cache=True, past_key_values=out.past_key_values)
    one = seen["model.layers.0.linear_attn"]
    assert one[1].rows == (1, 1)
    text = torch.cat([x[order][:, :7], x[:, 7:8]], 1)
    whole, _ = watched("Qwen3Next", text)
    expected = whole["model.layers.0.linear_attn"].weights[..., 7, :]
    torch.testing.assert_close(one[1].weights[..., 0, :], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", ["gradients", "trace", "parts"])
def test_what_mixers_cannot_keep_is_refused(keep):
    with pytest.raises(ValueError, match=rf"or nothing, got keep='{keep}'"):
        watched("Jamba", tokens(), keep=keep)


def test_mixers_take_a_flag():
    with pytest.raises(TypeError, match="mixers must be True or False, got 1"):
        watched("Jamba", tokens(), mixers=1)


def test_a_budget_ends_what_is_kept():
    with pytest.warns(UserWarning, match="stopped keeping"):
        seen, _ = watched("Qwen3Next", tokens(), budget=10)
    with pytest.raises(BudgetError, match="budget"):
        _ = seen["model.layers.0.linear_attn"].weights

"""Interventions on models of transformers, against an attention function that writes them out."""

import pytest
import torch

import glasshead as gh
import watched_models as models
from watching.by_hand_changes import MAKE, explicit
from watching.torch.explicit import nothing_is_open

pytest.importorskip("transformers")
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

CHANGES = [change for change in MAKE if change != "nothing"]
NEAR = {"rtol": 1e-4, "atol": 1e-5}
EXACT = {"rtol": 1e-9, "atol": 1e-11}


class ByHand:
    """An attention function that changes one module, and keeps its context.

    Args:
        module: The one that is changed.
        change: How.
        source: The output of its heads on another text.
    """

    def __init__(self, module, change, source=None):
        self.module, self.change, self.source, self.kept, self.first = module, change, source, [], 0

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **named):
        own = module is self.module
        group = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(group, 1) for x in (key, value))
        bias = named.get("position_bias")
        bias = 0.0 if bias is None else bias[..., : key.shape[-2]]
        visible = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
        if attention_mask is not None:
            visible = attention_mask[..., : key.shape[-2]] > -1e4
        context, weights = explicit(
            query,
            key,
            value,
            visible,
            self.change if own else "nothing",
            self.source,
            beta=scaling,
            bias=bias,
            first=self.first,
        )
        if own:
            self.kept.append(context)
            self.first += query.shape[-2]
        return context.transpose(1, 2).contiguous(), weights


def by_hand(model, attention, run):
    """What runs a model gives under that attention function."""
    AttentionInterface.register("by_hand", attention)
    AttentionMaskInterface.register("by_hand", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("by_hand")
    try:
        return run(model)
    finally:
        model.set_attn_implementation(before)
        for functions in (AttentionInterface, AttentionMaskInterface):
            functions._global_mapping.pop("by_hand")


ATTENTIONS = [
    (models.llama, "attentions", "eager"),
    (models.llama, "attentions", "sdpa"),
    (models.gpt2, "attentions", "sdpa"),
    (models.bert, "attentions", "sdpa"),
    (models.vit, "attentions", "sdpa"),
    (models.bart, "encoder_attentions", "sdpa"),
    (models.bart, "cross_attentions", "eager"),
    (models.t5, "decoder_attentions", "eager"),
    (models.t5, "cross_attentions", "sdpa"),
]


def first_of(output):
    return output[0] if "logits" not in output else output.logits


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("build", "kind", "mode"), ATTENTIONS, ids=lambda one: getattr(one, "__name__", one)
)
def test_is_the_same_by_hand(build, kind, change, mode):
    side = None if build is models.vit else "right"
    model, given = build(mode).double(), models.inputs(build, side)
    if build is models.vit:
        given = {"pixel_values": given["pixel_values"].double()}
        other = {"pixel_values": torch.rand(3, 3, 12, 12).double()}
    else:
        other = {n: (x + 7) % models.VOCABULARY for n, x in models.inputs(build).items()}
    name = models.NAMES[build][kind].format(0)
    module = model.get_submodule(name)
    with gh.watch(model, keep="context") as run:
        model(**other)
    clean = first_of(model(**given))
    with gh.intervene(model, {name: MAKE[change](run)}):
        changed = first_of(model(**given))
    source = ByHand(module, "nothing")
    by_hand(model, source, lambda model: model(**other))
    if not source.kept:
        pytest.skip(f"{type(module).__name__} of transformers 4 attends by code of its own")
    written = ByHand(module, change, source.kept[0])
    expected = first_of(by_hand(model, written, lambda model: model(**given)))
    # Some eager functions compute their softmax in float32.
    near = NEAR if mode == "eager" else EXACT
    torch.testing.assert_close(run[name].context, source.kept[0], **near)
    torch.testing.assert_close(changed, expected, **near)
    assert (changed - clean).abs().max() > 1e-4
    assert torch.equal(first_of(model(**given)), clean)
    assert nothing_is_open()


@torch.no_grad()
@pytest.mark.parametrize(("mode", "cache"), [("eager", None), ("sdpa", None), ("sdpa", "static")])
@pytest.mark.parametrize("change", ["mean", "patch", "beta", "forbid", "force"])
def test_while_a_text_grows(change, mode, cache):
    """Steps with a cache are the text read at once, position by position."""
    model, name = models.llama(mode), "model.layers.0.self_attn"
    module, other = model.get_submodule(name), models.tokens(1, 12, seed=8)
    with gh.watch(model, keep="context") as run:
        model(other)
    options = {"max_new_tokens": 7, "do_sample": False, "output_logits": True}
    options |= {"return_dict_in_generate": True, "cache_implementation": cache}
    prompt = models.tokens(1, 4)
    with gh.intervene(model, {name: MAKE[change](run)}):
        written = model.generate(prompt, **options, disable_compile=True)
    attention = ByHand(module, change, run[name].context)
    logits = by_hand(model, attention, lambda model: model(written.sequences[:, :-1]).logits)
    steps = torch.stack(written.logits, 1)
    torch.testing.assert_close(steps, logits[:, 3:], **NEAR)
    assert (model(written.sequences[:, :-1]).logits[:, 3:] - steps).abs().max() > 1e-3


@torch.no_grad()
def test_a_sliding_window_keeps_the_positions_of_the_text():
    model, name = models.mistral("sdpa"), "model.layers.0.self_attn"
    tokens = models.tokens(1, 11)
    changes = {name: gh.ForbidKeys([4, 6], queries=[7, 8])}
    with gh.intervene(model, changes):
        expected = model(tokens).logits
        cache = model(tokens[:, :5], use_cache=True).past_key_values
        steps = [
            model(tokens[:, [at]], past_key_values=cache, use_cache=True).logits
            for at in range(5, 11)
        ]
    torch.testing.assert_close(torch.cat(steps, 1), expected[:, 5:], **NEAR)
    assert (model(tokens).logits - expected).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("change", ["patch", "beta", "forbid", "force"])
def test_cross_attention_is_changed_at_the_positions_of_its_own_text(change):
    model, given = models.bart("sdpa"), models.inputs(models.bart)
    name = models.NAMES[models.bart]["cross_attentions"].format(1)
    with gh.watch(model, keep="context") as run:
        model(given["input_ids"], decoder_input_ids=given["decoder_input_ids"] + 1)
    tokens = given["decoder_input_ids"]
    with gh.intervene(model, {name: MAKE[change](run)}):
        whole = model(**given)
        encoded = model.get_encoder()(given["input_ids"])
        steps, cache = [], None
        for at in range(tokens.shape[1]):
            output = model(
                encoder_outputs=encoded,
                decoder_input_ids=tokens[:, [at]],
                past_key_values=cache,
                use_cache=True,
            )
            steps.append(output.logits)
            cache = output.past_key_values
    torch.testing.assert_close(torch.cat(steps, 1), whole.logits, rtol=1e-3, atol=1e-4)
    assert (model(**given).logits - whole.logits).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("change", ["mean", "forbid", "force"])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_rows_of_padding_that_see_nothing_stay(mode, change):
    model, given = models.llama(mode), models.inputs(models.llama, "left")
    name = "model.layers.0.self_attn"
    with gh.watch(model, keep="context") as run:
        model(**given)
    with gh.intervene(model, {name: MAKE[change](run)}):
        changed = model(**given).logits
    assert changed.isfinite().all()
    attention = ByHand(model.get_submodule(name), change, run[name].context)
    if change == "mean":
        real = given["attention_mask"].bool()
        mean = run[name].context.movedim(-3, 0)[:, real].mean(1)
        attention.source = mean[None, :, None]
    expected = by_hand(model, attention, lambda model: model(**given)).logits
    real = given["attention_mask"].bool()
    torch.testing.assert_close(changed[real], expected[real], rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("change", ["beta", "forbid", "force"])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_a_watch_sees_the_changed_weights(mode, change):
    model, given = models.llama(mode), models.inputs(models.llama, "left")
    name = "model.layers.1.self_attn"
    statistics = [gh.Entropy(), gh.Received()]
    with gh.intervene(model, {name: MAKE[change](None)}), gh.watch(model, statistics) as seen:
        model(**given)
    weights = []

    class Weighing(ByHand):
        def __call__(self, module, *inputs, **named):
            made = super().__call__(module, *inputs, **named)
            weights.extend([made[1]] if module is self.module else [])
            return made

    by_hand(model, Weighing(model.get_submodule(name), change), lambda model: model(**given))
    (weights,) = weights
    real = given["attention_mask"][:, None, :, None]
    torch.testing.assert_close(seen[name].received, (weights * real).sum(-2), **NEAR)
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    real = real[..., 0].bool().expand(entropy.shape)
    torch.testing.assert_close(seen[name].entropy[real], entropy[real], **NEAR)


def test_sinks_and_softcaps_stay():
    """The factor comes before the softcap, and what is forced shares with the sink."""
    for build in (models.gemma2, models.gpt_oss):
        model, tokens = build(), models.tokens(2, 7)
        name = models.NAMES[build]["attentions"].format(1)
        with torch.no_grad(), gh.watch(model, [gh.MaxScore()], keep="weights") as clean:
            model(tokens)
        changes = {name: [gh.ScaleBeta(0.7), gh.ForceKeys([0, 2])]}
        with torch.no_grad(), gh.intervene(model, changes):  # noqa: SIM117
            with gh.watch(model, [gh.Entropy()], keep="weights") as seen:
                model(tokens)
        mass = seen[name].weights.dense().sum(-1)
        before = clean[name].weights.dense()
        assert (seen[name].weights.dense()[..., [1, 3, 4, 5, 6]] == 0).all()
        if build is models.gpt_oss:
            assert ((mass < 1) | (before[..., [0, 2]].sum(-1) == 0)).all()


class TestErrors:
    def test_a_function_without_a_mask_of_pairs(self):
        model = models.llama("sdpa")
        model.config._attn_implementation = "flash_attention_2"
        sentence = "a mask for each pair, but 'model.layers.0.self_attn' runs flash.*\\. Load"
        with torch.no_grad(), pytest.raises(ValueError, match=sentence):  # noqa: SIM117
            with gh.intervene(model, {"model.layers.0.self_attn": gh.ForbidKeys([0])}):
                model(models.tokens(1, 7))

    def test_query_heads_are_counted_and_not_those_of_keys(self):
        model = models.llama("sdpa")
        with (
            torch.no_grad(),
            pytest.raises(ValueError, match="heads must be in 0..5 for .*, got 6"),
            gh.intervene(model, {"model.layers.*.self_attn": gh.ForbidKeys([0], heads=[6])}),
        ):
            model(models.tokens(1, 7))

    def test_a_run_of_other_heads(self):
        model, other = models.llama("sdpa"), models.llama("sdpa", head_dim=6)
        with torch.no_grad(), gh.watch(other, keep="context") as run:
            other(models.tokens(1, 7))
        sentence = (
            "'model.layers.0.self_attn' has 6 heads of width 10, but the run has 6 of width 6"
        )
        for make in (gh.MeanAblation, gh.ActivationPatch):
            with torch.no_grad(), pytest.raises(ValueError, match=sentence):  # noqa: SIM117
                with gh.intervene(model, {"model.layers.0.self_attn": make(run)}):
                    model(models.tokens(1, 7))

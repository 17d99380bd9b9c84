"""A watched model gives the same outputs, gradients and random numbers, bit for bit.

Nothing of transformers or PyTorch stays replaced after the block.
What is seen of a model of transformers is what it returns itself, in eager mode.
"""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import glasshead as gh
import watched_models as models
import watched_weights as eager

pytest.importorskip("transformers")

DROPOUT = {
    models.gpt2: {"attn_pdrop": 0.2, "resid_pdrop": 0.2, "embd_pdrop": 0.2},
    models.bert: {"attention_probs_dropout_prob": 0.2, "hidden_dropout_prob": 0.2},
    models.vit: {"attention_probs_dropout_prob": 0.2, "hidden_dropout_prob": 0.2},
    models.t5: {"dropout_rate": 0.2},
    models.bart: {"attention_dropout": 0.2, "dropout": 0.2},
    models.whisper: {"attention_dropout": 0.2, "dropout": 0.2},
}


def tensors(output):
    """All tensors of an output, those of its cache apart."""
    named = {name: value for name, value in output.items() if "past_key" not in name}
    return [leaf for leaf in tree_leaves(named) if isinstance(leaf, torch.Tensor)]


def assert_same(these, those):
    assert len(these) == len(those) > 0
    assert all(map(torch.equal, these, those))


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("build", "mode"), models.MODES)
def test_outputs_are_the_same(build, mode, without_gradients):
    model = build(mode)
    given = models.inputs(build, "left")
    with without_gradients():
        alone = model(**given, output_hidden_states=True)
        with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
            watched = model(**given, output_hidden_states=True)
    assert_same(tensors(watched), tensors(alone))
    weights = eager.weights_of(build, given)
    for name in eager.compared(weights, mode, "left"):
        eager.check(seen[name], weights[name], real=eager.real_queries(build, given, name))


def trained(model, given):
    """Outputs, gradients and the next random number of a step of training."""
    torch.manual_seed(11)
    model.zero_grad()
    output = model(**given, output_hidden_states=True)
    sum(one.pow(2).mean() for one in tensors(output) if one.requires_grad).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*tensors(output), *gradients, torch.get_rng_state()]


@pytest.mark.parametrize("side", [None, "right"])
@pytest.mark.parametrize(("build", "mode"), models.MODES)
def test_a_step_of_training_is_the_same(build, mode, side):
    model = build(mode, **DROPOUT.get(build, {"attention_dropout": 0.2})).train()
    given = models.inputs(build, side)
    alone = trained(model, given)
    with gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        watched = trained(model, given)
    assert_same(watched, alone)
    assert len(seen) == 2 * len(models.NAMES[build])


@pytest.mark.parametrize(("build", "mode"), [(models.llama, "eager"), (models.llama, "sdpa")])
def test_weights_are_those_before_dropout(build, mode):
    model = build(mode, attention_dropout=0.5, num_hidden_layers=1).train()
    given = models.inputs(build, "left")
    with gh.watch(model, eager.STATISTICS) as seen:
        model(**given)
    for name, weights in eager.weights_of(build, given, num_hidden_layers=1).items():
        real = eager.real_queries(models.llama, given, name)
        eager.check(seen[name], weights, real=real)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_what_checkpointing_computes_again_counts_once(mode, reentrant):
    model = models.llama(mode, attention_dropout=0.2).train()
    # Its name before transformers 5.20.
    older = getattr(model, "gradient_checkpointing_enable", None)
    enable = getattr(model, "activation_checkpointing_enable", older)
    enable({"use_reentrant": reentrant})
    given = models.inputs(models.llama, "left") | {"use_cache": False}
    alone = trained(model, given)
    with gh.watch(model, eager.STATISTICS) as seen:
        watched = trained(model, given)
    assert_same(watched, alone)
    assert [len(one) for one in seen.values()] == [1, 1]


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_samples_are_the_same(mode):
    model = models.llama(mode)
    given = models.inputs(models.llama, "left")

    def sampled():
        torch.manual_seed(11)
        text = model.generate(**given, do_sample=True, num_return_sequences=2, max_new_tokens=7)
        return [text, torch.get_rng_state()]

    alone = sampled()
    with gh.watch(model, eager.STATISTICS, keep="weights"):
        assert_same(sampled(), alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["eager", "sdpa"])
@pytest.mark.parametrize("build", [models.llama, models.t5, models.bert])
def test_outputs_are_the_same_in_half_precision(build, mode, dtype):
    model = build(mode).to(dtype)
    given = models.inputs(build, "right")
    with torch.no_grad():
        alone = model(**given, output_hidden_states=True)
        with gh.watch(model, eager.STATISTICS) as seen:
            watched = model(**given, output_hidden_states=True)
    assert_same(tensors(watched), tensors(alone))
    weights = eager.weights_of(build, given)
    # Later layers differ by what rounding has made of the first.
    name = next(iter(weights))
    real = eager.real_queries(build, given, name)
    eager.check(seen[name], weights[name], tolerance=0.2, real=real)


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
@pytest.mark.parametrize("build", [models.llama, models.t5, models.bert])
def test_outputs_are_the_same_under_autocast(build, mode):
    model = build(mode)
    given = models.inputs(build, "right")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        alone = model(**given, output_hidden_states=True)
        with gh.watch(model, eager.STATISTICS):
            watched = model(**given, output_hidden_states=True)
    assert_same(tensors(watched), tensors(alone))


pytest.importorskip("transformers")


def looked_up():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    return (
        getattr(AttentionInterface, "get_interface", AttentionInterface.__getitem__),
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        dict(ALL_ATTENTION_FUNCTIONS),
    )


@pytest.mark.parametrize("mode", ["eager", "sdpa"])
def test_everything_is_as_it_was(mode):
    before = looked_up()
    model = models.llama(mode)
    modules = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
        assert looked_up()[0] is not before[0]
        model(models.tokens(2, 7))
    assert looked_up() == before
    assert modules == {name: set(vars(module)) for name, module in model.named_modules()}


def test_everything_is_as_it_was_after_an_error_in_the_block():
    before = looked_up()
    model = models.llama("sdpa")

    def fails():
        model(models.tokens(2, 7))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), gh.watch(model, [gh.Entropy()]):
        fails()
    assert looked_up() == before


def test_everything_is_as_it_was_after_an_error_in_the_model():
    before = looked_up()
    model = models.llama("sdpa")
    with pytest.raises(IndexError), gh.watch(model, [gh.Entropy()]):
        model(models.tokens(2, 7) + models.VOCABULARY)
    assert looked_up() == before
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(models.tokens(2, 7))
    assert len(seen) == 2


def test_everything_is_as_it_was_after_an_error_in_an_attention():
    before = looked_up()
    model = models.llama("eager")
    given = models.inputs(models.llama) | {"attention_mask": torch.zeros(3, 1, 7, 5)}
    with pytest.raises(RuntimeError, match="size of tensor"), gh.watch(model, [gh.Entropy()]):
        model(**given)
    assert looked_up() == before
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
        model(models.tokens(2, 7))
    assert len(seen) == 2


pytest.importorskip("transformers")


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize(("build", "mode"), models.MODES)
def test_statistics_are_those_of_the_eager_weights(build, mode, side):
    given = models.inputs(build, side)
    model = build(mode)
    with torch.no_grad(), gh.watch(model, eager.STATISTICS, keep="weights") as seen:
        model(**given)
    weights = eager.weights_of(build, given)
    assert set(seen) == set(weights)
    for name in eager.compared(weights, mode, side):
        eager.check(seen[name], weights[name], real=eager.real_queries(build, given, name))


@pytest.mark.parametrize("build", [models.llama, models.bert, models.gpt2])
def test_the_logsumexp_is_that_of_the_scores(build):
    given = models.inputs(build, "left")
    model = build("sdpa")
    with torch.no_grad(), gh.watch(model, [gh.LogSumExp(), gh.MaxScore()], keep="weights") as seen:
        model(**given)
    for name, weights in eager.weights_of(build, given).items():
        told = seen[name].log_sum_exp
        assert torch.equal(told.isneginf(), (weights == 0).all(-1))
        # The largest weight of a head's best row is exp(its score - that row's logsumexp).
        scores = told + weights.amax(-1).log()
        real = eager.real_queries(build, given, name)
        if real is not None:
            scores = scores.masked_fill(~real[:, None], -torch.inf)
        largest = scores.nan_to_num(-torch.inf, neginf=-torch.inf).amax(-1)
        torch.testing.assert_close(seen[name].max_score, largest, rtol=1e-5, atol=1e-5)

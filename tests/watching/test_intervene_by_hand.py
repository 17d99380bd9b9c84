"""Interventions on attention that is written by hand, where a watch follows it."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import glasshead as gh
import watched_models as models
from watching.by_hand_changes import MAKE, explicit
from watching.torch import by_hand
from watching.torch.by_hand import BATCH, HEAD_DIM, HEADS, LENGTH, WIDTH, Block
from watching.torch.explicit import lower, nothing_is_open

EXACT = {"rtol": 1e-10, "atol": 1e-12}
CHANGES = [change for change in MAKE if change not in ("nothing", "beta", "beta of heads")]
SOME = {"heads": [0, 2], "queries": [1, 3, 6]}
MASK = lower(LENGTH)


def plain(query, key, value):
    scores = (query @ key.mT * HEAD_DIM**-0.5).masked_fill(~MASK, -torch.inf)
    return F.dropout(scores.softmax(-1), 0.3, training=False) @ value


def added(query, key, value):
    mask = torch.zeros(LENGTH, LENGTH, dtype=query.dtype).masked_fill(
        ~MASK, torch.finfo(query.dtype).min
    )
    scores = torch.matmul(query, key.transpose(2, 3)) / HEAD_DIM**0.5 + mask
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float64).to(query.dtype), value)


def merged(query, key, value):
    query, key, value = (x.reshape(-1, LENGTH, HEAD_DIM) for x in (query, key, value))
    scores = torch.bmm(query * HEAD_DIM**-0.5, key.mT).masked_fill(~MASK, -torch.inf)
    return torch.bmm(nn.Softmax(dim=-1)(scores), value).view(BATCH, HEADS, LENGTH, HEAD_DIM)


def einsums(query, key, value):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * HEAD_DIM**-0.5
    weights = torch.softmax(scores.masked_fill(~MASK, -torch.inf), dim=-1)
    return torch.einsum("bhij, bhjd -> bihd", weights, value).transpose(1, 2)


def fused(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


WAYS = [plain, added, merged, einsums]


def made(way):
    torch.manual_seed(3)
    return nn.Sequential(Block(way), Block(way)).double().eval()


def text(seed=5):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(BATCH, LENGTH, WIDTH, generator=generator, dtype=torch.double)


def written_out(block, x, change, source=None):
    query, key = block.qk(x)
    value = block.value(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    context, weights = explicit(query, key, value, MASK, change, source)
    return block.out(context.transpose(1, 2).flatten(2)), weights, context


def make(change, run=None):
    # No query may lose all of its keys: the first forgets none.
    if change == "forbid":
        return gh.ForbidKeys([0, 2], **SOME)
    return MAKE[change](run)


@pytest.mark.parametrize("watch_first", [True, False])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_is_the_same_written_out_in_value_and_gradient(way, change, watch_first):
    model, x = made(way), text().requires_grad_()
    with torch.no_grad(), gh.watch(model, keep="context") as run:
        model(text(11))
    clean = model(x)
    blocks = [
        lambda: gh.watch(model, [gh.Received()]),
        lambda: gh.intervene(model, {"0": make(change, run)}),
    ]
    first, second = blocks if watch_first else reversed(blocks)
    with first() as one, second() as two:
        changed = model(x)
    source = written_out(model[0], text(11), "nothing")[2].detach()
    middle, weights, _ = written_out(model[0], x, change, source)
    expected = written_out(model[1], middle, "nothing")[0]
    torch.testing.assert_close(run["0"].context, source, **EXACT)
    torch.testing.assert_close(changed, expected, **EXACT)
    assert (changed - clean).abs().max() > 1e-3
    inputs = [x, *model.parameters()]
    found, known = (torch.autograd.grad(y.square().sum(), inputs) for y in (changed, expected))
    for pair in zip(found, known, strict=True):
        torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-9)
    seen = one if watch_first else two
    torch.testing.assert_close(seen["0"].received, weights.sum(-2), **EXACT)
    assert torch.equal(model(x), clean)
    assert nothing_is_open()


def test_texts_of_one_head():
    model, x = by_hand.CausalAttention().eval(), text().float()
    with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
        with gh.intervene(model, {"": gh.ForbidKeys([1], queries=[1, 4])}):
            changed = model(x)
        with gh.ablate(model, {"": [0]}):
            assert (model(x) == 0).all()
    query, key = (one[:, None] for one in model.qk(x))
    visible = MASK.clone()
    visible[[1, 4], 1] = False
    weights = (query @ key.mT * 11**-0.5).masked_fill(~visible, -torch.inf).softmax(-1)
    torch.testing.assert_close(changed, (weights @ model.v(x)[:, None])[:, 0])


@torch.no_grad()
def test_a_model_of_transformers_that_has_no_fused_kernel():
    pytest.importorskip("transformers")
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(vocab_size=models.VOCABULARY, hidden_size=30, n_layer=2, n_head=3)
    config.initializer_range = 0.3
    torch.manual_seed(7)
    model, tokens = BloomForCausalLM(config).eval(), models.tokens(2, 7)
    name = "transformer.h.0.self_attention"
    clean = model(tokens).logits
    weight = model.get_submodule(name).dense.weight
    with gh.watch(model, [gh.MassOn([0])]) as seen:  # noqa: SIM117
        with gh.intervene(model, {name: [gh.ForbidKeys([0], heads=[1], queries=range(1, 7))]}):
            forbidden = model(tokens).logits
    assert (seen[name].mass_on[:, 1, 1:] == 0).all()
    assert (seen[name].mass_on[:, 0] > 0).all()
    assert (forbidden - clean).abs().max() > 1e-3
    with gh.watch(model, [gh.Entropy()]), gh.ablate(model, {name: [2]}):
        ablated = model(tokens).logits
    before = weight.clone()
    weight[:, 20:] = 0
    torch.testing.assert_close(ablated, model(tokens).logits, rtol=1e-4, atol=1e-5)
    weight.copy_(before)
    assert torch.equal(model(tokens).logits, clean)


@torch.no_grad()
@pytest.mark.parametrize("change", ["patch", "forbid", "force"])
def test_a_text_that_grows_with_a_cache(change):
    pytest.importorskip("transformers")
    from transformers import BloomConfig, BloomForCausalLM

    config = BloomConfig(vocab_size=models.VOCABULARY, hidden_size=30, n_layer=2, n_head=3)
    config.initializer_range = 0.3
    torch.manual_seed(7)
    model, tokens = BloomForCausalLM(config).eval(), models.tokens(1, 9)
    name = "transformer.h.0.self_attention"
    with gh.watch(model, keep="context") as run:
        model(models.tokens(1, 9, seed=8))
    with gh.watch(model, [gh.Entropy()]), gh.intervene(model, {name: make(change, run)}):
        whole, cache, steps = model(tokens).logits, None, []
        for part in ([0, 1, 2, 3], [4], [5], [6], [7], [8]):
            output = model(tokens[:, part], past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            steps.append(output.logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-3, atol=1e-4)
    assert (model(tokens).logits - whole).abs().max() > 1e-3


class TestErrors:
    def refused(self, model, changes, sentence, error=ValueError, x=None, **asked):
        statistics = [gh.Entropy()]
        with torch.no_grad(), pytest.raises(error, match=sentence):  # noqa: SIM117
            with gh.watch(model, statistics, **asked), gh.intervene(model, changes):
                model(text() if x is None else x)
        assert nothing_is_open()

    def test_without_a_watch(self):
        model = made(plain)
        sentence = (
            r"explicit attention, as of '0', only if a watch follows it. Open gh\.watch\(model"
        )
        with torch.no_grad(), pytest.raises(RuntimeError, match=sentence):  # noqa: SIM117
            with gh.intervene(model, {"[01]": gh.ZeroAblation()}):
                model(text())

    def test_a_watch_of_other_layers(self):
        sentence = "explicit attention .*, but it did not follow the attention of '0' as one of"
        self.refused(made(plain), {"0": gh.ZeroAblation()}, sentence, layers="1")

    def test_beta(self):
        sentence = "ScaleBeta needs attention whose queries .*, but '0' is explicit, with bi"
        self.refused(made(plain), {"0": gh.ScaleBeta(2.0)}, sentence)

    def test_a_query_that_loses_its_last_key(self):
        sentence = "leave each query of explicit attention some key, but one of '0' sees none any"
        self.refused(made(plain), {"0": gh.ForbidKeys([0])}, sentence)

    def test_weights_that_are_laid_out_anew(self):
        def across(query, key, value):
            weights = (query @ key.mT).softmax(-1)
            return (value.mT @ weights.mT).mT

        sentence = "whose weights a product with values uses, but of '0' none used them"
        self.refused(made(across), {"0": gh.ZeroAblation()}, sentence, RuntimeError)

    def test_a_softmax_over_features(self):
        def features(query, key, value):
            return ((query.mT @ key).softmax(-1) @ value.mT).mT

        sentence = "but it did not follow the attention of '0' as one of tokens to tokens. Omit it"
        self.refused(made(features), {"0": gh.ZeroAblation()}, sentence)

    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize("way", [plain, imported])
    def test_gradient_checkpointing(self, way, reentrant):
        model, x = made(way), text().requires_grad_()
        sentence = "in the forward pass, but gradient checkpointing runs it again in the backward"
        changes = {"0": gh.ZeroAblation(heads=[0])}
        with pytest.raises(ValueError, match=sentence), gh.watch(model, [gh.Entropy()]):  # noqa: SIM117
            with gh.intervene(model, changes):
                checkpoint(model, x, use_reentrant=reentrant)
        assert nothing_is_open()

    @pytest.mark.skipif(
        not hasattr(TorchDispatchMode, "ignore_compile_internals"),
        reason=f"PyTorch {torch.__version__} compiles nothing while a mode is open",
    )
    @pytest.mark.parametrize("watched", [True, False])
    @pytest.mark.parametrize("way", [plain, fused])
    def test_what_is_compiled_within_the_block(self, way, watched):
        model = made(way)

        def run(x):
            return 2 * model(x)

        compiled = torch.compile(run, backend="eager")
        sentence = "intervene changes attention of what is not compiled, and a part of what ran was"
        block = gh.watch(model, [gh.Entropy()]) if watched else nullcontext()
        with torch.no_grad(), pytest.raises(RuntimeError, match=sentence), block:  # noqa: SIM117
            with gh.intervene(model, {"0": gh.ZeroAblation(heads=[1])}):
                compiled(text())
        assert nothing_is_open()

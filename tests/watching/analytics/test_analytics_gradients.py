"""Gradients of weights, and gradient-weighted rollout: as of autograd on whole matrices."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import glasshead as gh
import watched_models as models
from watching.small import BATCH, HEADS, LENGTH, WIDTH, Model, text

EXACT = {"rtol": 1e-10, "atol": 1e-12}
NEAR = {"rtol": 1e-5, "atol": 1e-5}


class Explicit(nn.Module):
    """The model of two layers, with weights of which autograd keeps the gradients."""

    def __init__(self, model):
        super().__init__()
        self.model, self.kept = model, []

    def forward(self, x, mask):
        for layer in self.model.layers:
            query, key, value = (
                part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for part in layer.qkv(x).chunk(3, -1)
            )
            scores = query @ key.mT * query.shape[-1] ** -0.5
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            weights.retain_grad()
            self.kept.append(weights)
            x = x + (weights @ value).transpose(1, 2).flatten(2)
        return x


def loss_of(output):
    return (output[:, -1] * torch.linspace(-1, 2, WIDTH).to(output)).sum()


def dense_rollout(kept):
    """R of Chefer et al. 2021, from weights with their gradients."""
    *batch, _, _, length = kept[0].shape
    relevance = torch.eye(length, dtype=kept[0].dtype).expand(*batch, length, length)
    for weights in kept:
        relevance = relevance + (weights * weights.grad).relu().mean(-3) @ relevance
    return relevance.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
class TestOfTwoLayers:
    def run(self, dtype):
        torch.manual_seed(2)
        model = Model().to(dtype)
        x, mask = text().to(dtype), torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        explicit = Explicit(model)
        loss_of(explicit(x, mask)).backward()
        with gh.watch(model, keep="gradients") as seen:
            output = model(x)
        loss_of(output).backward()
        return seen, explicit.kept

    def near(self, dtype):
        return EXACT if dtype == torch.float64 else NEAR

    def test_gradients_and_products_are_those_of_autograd(self, dtype):
        seen, kept = self.run(dtype)
        right, left = (
            torch.randn(LENGTH, 2, dtype=dtype),
            torch.randn(HEADS, LENGTH, 3, dtype=dtype),
        )
        near = self.near(dtype)
        for watched, known in zip(seen.values(), kept, strict=True):
            weights, gradient = known.detach(), known.grad
            W, G = watched.weights, watched.gradients
            torch.testing.assert_close(G.dense(), gradient, **near)
            torch.testing.assert_close(G @ right, gradient @ right, **near)
            torch.testing.assert_close(G.T @ left, gradient.mT @ left, **near)
            torch.testing.assert_close(G[1, 2, 3:, 4], gradient[1, 2, 3:, 4], **near)
            torch.testing.assert_close(G.head(1, 2).dense(), gradient[1, 2], **near)
            for made, product in (
                (W * G, weights * gradient),
                ((W * G).relu(), (weights * gradient).relu()),
            ):
                torch.testing.assert_close(made.dense(), product, **near)
                torch.testing.assert_close(made @ right, product @ right, **near)
                torch.testing.assert_close(made.T @ left, product.mT @ left, **near)
                torch.testing.assert_close(made.head(0, 1).dense(), product[0, 1], **near)
                torch.testing.assert_close(made[..., 5, :], product[..., 5, :], **near)

    def test_rows_are_those_of_the_product_of_whole_matrices(self, dtype):
        seen, kept = self.run(dtype)
        rows = [LENGTH - 1, 0, -3]
        found = gh.gradient_rollout(seen, rows)
        assert found.shape == (BATCH, 3, LENGTH)
        torch.testing.assert_close(found, dense_rollout(kept)[:, rows], **self.near(dtype))


def test_of_grouped_heads_and_without_heads():
    query, key = torch.randn(2, 6, 5, 3, dtype=torch.double), torch.randn(2, 2, 7, 3).double()
    value = torch.randn(2, 2, 7, 4, dtype=torch.double)
    for inputs in ((query, key, value), (query[:, 0], key[:, 0], value[:, 0])):
        rule, given = gh.Attention(), [x.clone().requires_grad_() for x in inputs]
        with gh.watch(rule, keep="gradients") as seen:
            output = rule(*given)
        weigh = torch.randn_like(output)
        (output * weigh).sum().backward()
        value = inputs[2].repeat_interleave(3, -3) if inputs[2].ndim > 3 else inputs[2]
        torch.testing.assert_close(seen[""].gradients.dense(), weigh @ value.mT, **EXACT)
        assert (seen[""].weights * seen[""].gradients).shape == (*output.shape[:-1], 7)


def eager_of(build, given, loss):
    """The output of a model in eager mode, in which weights keep their gradients."""
    output = build("eager").double()(**given, output_attentions=True)
    kept = {name: output[name] for name in models.NAMES[build]}
    for weights in (one for ones in kept.values() for one in ones):
        weights.retain_grad()
    loss(output).backward()
    return kept


def seen_of(build, given, loss, mode="sdpa"):
    model = build(mode).double()
    with gh.watch(model, keep="gradients") as seen:
        output = model(**given)
    loss(output).backward()
    return seen


@pytest.mark.parametrize("side", [None, "right"])
@pytest.mark.parametrize("build", [models.gpt2, models.bert], ids=["decoder", "encoder"])
def test_models_of_transformers(build, side):
    pytest.importorskip("transformers")
    given = models.inputs(build, side)

    def loss(output):
        made = output[0] if build is models.bert else output.logits
        return (made[:, 0 if build is models.bert else 2, :5] ** 2).sum()

    kept = eager_of(build, given, loss)["attentions"]
    seen = seen_of(build, given, loss)
    for watched, weights in zip(seen.values(), kept, strict=True):
        made = (watched.weights * watched.gradients).dense()
        torch.testing.assert_close(made, (weights * weights.grad).detach(), **EXACT)
    rows = [0, 2]
    found = gh.gradient_rollout(seen, rows)
    torch.testing.assert_close(found, dense_rollout(kept)[:, rows], **EXACT)
    assert (found - torch.eye(7)[rows]).abs().max() > 1e-3


def dense_crossing(kept):
    """R_sq of Chefer et al. 2021, equations 5 to 10, in whole matrices."""

    def weighted(weights):
        return (weights * weights.grad).relu().mean(-3)

    def normalized(relevance):
        rest = relevance - torch.eye(relevance.shape[-1]).double()
        sums = rest.sum(-1, keepdim=True)
        return rest / sums.masked_fill(sums == 0, 1.0) + torch.eye(relevance.shape[-1]).double()

    source = normalized(dense_rollout(kept["encoder_attentions"]))
    own = torch.eye(kept["decoder_attentions"][0].shape[-1]).double()
    crossing = torch.zeros(len(source), len(own), source.shape[-1]).double()
    layers = zip(kept["decoder_attentions"], kept["cross_attentions"], strict=True)
    for weights, across in layers:
        crossing = crossing + weighted(weights) @ crossing
        own = own + weighted(weights) @ own
        crossing = crossing + normalized(own).mT @ weighted(across) @ source
    return crossing.detach()


@pytest.mark.parametrize("build", [models.bart, models.t5], ids=["bart", "t5"])
def test_the_source_of_an_encoder_and_decoder(build):
    pytest.importorskip("transformers")
    given = models.inputs(build)

    def loss(output):
        return (output.logits[:, -1, :5] ** 2).sum()

    kept = eager_of(build, given, loss)
    seen = seen_of(build, given, loss, mode="eager" if build is models.t5 else "sdpa")
    names = {kind: name.format("*") for kind, name in models.NAMES[build].items()}
    found = gh.cross_gradient_rollout(
        seen,
        [-1, 0],
        encoder=names["encoder_attentions"],
        decoder=names["decoder_attentions"],
        cross=names["cross_attentions"],
    )
    torch.testing.assert_close(found, dense_crossing(kept)[:, [-1, 0]], **EXACT)
    assert found.shape == (3, 2, 11)
    assert found[:, 0].abs().max() > 1e-3


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_of_pytorch(need_weights):
    attention, x = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double(), text().double()
    with gh.watch(attention, keep="gradients") as seen:
        output, _ = attention(x, x, x, need_weights=need_weights)
    loss_of(output).backward()
    query, key, value = (
        part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in F.linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)
    )
    weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
    weights.retain_grad()
    loss_of(attention.out_proj((weights @ value).transpose(1, 2).flatten(2))).backward()
    torch.testing.assert_close(seen[""].gradients.dense(), weights.grad, **EXACT)


def test_the_last_backward_pass_counts_and_bits_stay():
    torch.manual_seed(2)
    model, x = Model(), text()
    output = model(x)
    plain = torch.autograd.grad(loss_of(output), list(model.parameters()))
    with gh.watch(model, keep="gradients") as seen:
        watched = model(x)
    assert torch.equal(watched, output)
    (2 * loss_of(watched)).backward(retain_graph=True)
    first = seen["layers.0"].gradients.dense()
    found = torch.autograd.grad(loss_of(watched), list(model.parameters()))
    assert all(map(torch.equal, found, plain))
    torch.testing.assert_close(seen["layers.0"].gradients.dense() * 2, first)


def test_what_interventions_change_has_its_gradients():
    torch.manual_seed(2)
    model, x = Model(), text()
    changes = {"layers.0": [gh.ForbidKeys([0], queries=[5]), gh.ZeroAblation(heads=[1])]}
    with gh.intervene(model, changes), gh.watch(model, keep="gradients") as seen:
        loss_of(model(x)).backward()
    made = seen["layers.0"].weights * seen["layers.0"].gradients
    assert (made.dense()[:, :, 5, 0] == 0).all()
    assert (made.dense()[:, 1] == 0).all()
    assert (made.dense()[:, 0, 4] != 0).any()


class Largest(TorchDispatchMode):
    """The largest tensor that any operator makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            if isinstance(one, torch.Tensor):
                # Of what is expanded there is one number in memory.
                sizes = zip(one.shape, one.stride(), strict=True)
                count = torch.tensor([size for size, stride in sizes if stride]).prod()
                self.numbers = max(self.numbers, int(count))
        return made


def test_no_matrix_of_tokens_by_tokens_is_built():
    length = 1531
    rule, x = gh.Attention(mask=gh.causal()), torch.randn(1, 2, length, 3, requires_grad=True)
    with gh.watch(rule, keep="gradients") as seen:
        rule(x, x, x)[..., -1, :].sum().backward()
    with Largest() as largest:
        found = gh.gradient_rollout(seen)
    assert found.shape == (1, 1, length)
    assert 0 < largest.numbers < length**2 / 8


class TestErrors:
    def run(self, **given):
        torch.manual_seed(2)
        model = Model()
        with gh.watch(model, keep="gradients", **given) as seen:
            model(text())
        return seen

    def test_without_a_backward_pass(self):
        seen = self.run()
        with pytest.raises(ValueError, match="no gradient has reached .*Call backward"):
            gh.gradient_rollout(seen)

    def test_without_gradients(self):
        with pytest.raises(ValueError, match=r"output of 'layers\.0' has none\. Run it"):  # noqa: SIM117
            with torch.no_grad():
                self.run()

    def test_reentrant_checkpointing(self):
        model, x = Model(), text().requires_grad_()
        with pytest.raises(ValueError, match=r"has none\. Run .*, reentrant checkpointing"):  # noqa: SIM117
            with gh.watch(model, keep="gradients"):
                checkpoint(model, x, use_reentrant=True)

    def test_other_checkpointing_is_seen(self):
        found = []
        for again in (True, False):
            torch.manual_seed(2)
            model, x = Model(), text()
            with gh.watch(model, keep="gradients") as seen:
                output = checkpoint(model, x, use_reentrant=False) if again else model(x)
                loss_of(output).backward()
            found.append(gh.gradient_rollout(seen))
        torch.testing.assert_close(*found)

    def test_dropout(self):
        layer = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True).train()
        for asks in (True, False):
            with pytest.raises(ValueError, match=r"'the model' drops weights\. Call"):  # noqa: SIM117
                with gh.watch(layer, keep="gradients"):
                    layer(text(), text(), text(), need_weights=asks)

    def test_attention_by_hand(self):
        class ByHand(nn.Module):
            def forward(self, x):
                return (x @ x.mT).softmax(-1) @ x

        model = ByHand()
        with (
            pytest.raises(
                ValueError, match="output autograd shows, but it does not show the output of ''"
            ),
            gh.watch(model, keep="gradients"),
        ):
            model(text().requires_grad_())

    def test_a_budget(self):
        model = Model()
        sentence = "keep='gradients' may use at most budget=2000 bytes"
        with pytest.warns(UserWarning, match=sentence):  # noqa: SIM117
            with gh.watch(model, keep="gradients", budget=2000) as seen:
                loss_of(model(text())).backward()
        for ask in (lambda: seen["layers.0"].gradients, lambda: gh.gradient_rollout(seen)):
            with pytest.raises(ValueError, match=sentence):
                ask()
        with gh.watch(model, keep="gradients") as seen:
            loss_of(model(text())).backward()
        with pytest.raises(ValueError, match="gradient_rollout may use at most budget=10 bytes"):
            gh.gradient_rollout(seen, budget=10)

    def test_gradients_that_were_not_kept(self):
        model = Model()
        with gh.watch(model, keep="weights") as seen:
            model(text())
        with pytest.raises(ValueError, match="gradients were not kept. Watch with keep='g"):
            gh.gradient_rollout(seen)

    def test_a_text_in_several_calls(self):
        model = Model()
        with gh.watch(model, keep="gradients") as seen:
            model(text(4), cached=True)
            model(text(1), cached=True)
        with pytest.raises(ValueError, match=r"of one call, but .* 'layers\.0' has 2. Use seen"):
            seen["layers.0"].gradients  # noqa: B018

    def test_of_other_shapes(self):
        W, G = gh.Attention().weights(*torch.randn(2, 3, 5)), gh.WeightGradients(text(), text())
        with pytest.raises(ValueError, match=r"one shape, got \[3, 3\] and \[2, 7, 7\]\. Use"):
            W * G
        with pytest.raises(TypeError):
            W * 2  # type: ignore[operator]

    def test_patterns_of_an_encoder_and_decoder(self):
        pytest.importorskip("transformers")
        seen = seen_of(models.bart, models.inputs(models.bart), lambda out: out.logits.sum())
        names = models.NAMES[models.bart]
        own = {side: names[f"{side}_attentions"].format("*") for side in ("encoder", "decoder")}
        with pytest.raises(ValueError, match="needs cross-attention in cross=, but 'model.dec"):
            gh.cross_gradient_rollout(seen, cross=own["decoder"], **own)
        first = names["cross_attentions"].format(0)
        with pytest.raises(ValueError, match="each layer of the decoder, but there are 1 for 2"):
            gh.cross_gradient_rollout(seen, cross=first, **own)

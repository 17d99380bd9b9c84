"""Attention written by hand is seen at its softmax, and what it shows is what its weights say."""

import math
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import glasshead as gh
from glasshead import ladder
from glasshead.watching.errors import BudgetError
from glasshead.watching.interception import explicit_follower
from glasshead.watching.interception.explicit_records import TensorRecords, TensorRole
from watching.torch import by_hand
from watching.torch.by_hand import BATCH, HEAD_DIM, HEADS, LENGTH, WIDTH, Block, Model
from watching.torch.explicit import check, lower, nothing_is_open, undisturbed, weights

SCALE = HEAD_DIM**-0.5
EXACT = 1e-6


def texts(*leading, length=LENGTH, dtype=torch.float64):
    torch.manual_seed(7)
    return torch.randn(*leading, length, WIDTH, dtype=dtype).requires_grad_()


def seen_of(model, x, **asked):
    """The only attention that a watch sees of a run which it leaves as it is, bit for bit."""
    (watched,) = undisturbed(model, x, gradient=True, **asked).values()
    return watched[-1]


def explicit(model, x, *, causal=False):
    with torch.no_grad():
        query, key = model.qk(x)
    while query.ndim < 4:
        query, key = (one.unsqueeze(0 if one.ndim < 3 else -3) for one in (query, key))
    return weights(query, key, visible=lower(x.shape[-2]) if causal else None)


def refusal(model, x, **asked):
    with pytest.raises(RuntimeError) as told, gh.watch(model, [gh.Entropy()], **asked):
        model(x)
    assert nothing_is_open()
    return str(told.value)


class TestTheClassesOfTheTexts:
    @pytest.mark.parametrize("kind", [by_hand.SelfAttentionV1, by_hand.SelfAttentionV2])
    def test_one_text_without_a_batch(self, kind):
        model, x = kind().double(), texts()
        call = seen_of(model, x)
        assert call.shape == (1, 1, LENGTH)
        check(call, explicit(model, x), tolerance=EXACT)
        assert call.by_hand == "queries · keys, divided by 3.317, softmax, · values"

    @pytest.mark.parametrize("training", [True, False])
    def test_a_mask_filled_in_place_and_dropout(self, training):
        model, x = by_hand.CausalAttention().double().train(training), texts(BATCH)
        call = seen_of(model, x)
        assert call.shape == (BATCH, 1, LENGTH)
        check(call, explicit(model, x, causal=True), tolerance=EXACT)
        after = "a dropout, " if training else ""
        words = f"queries · keys, masked, divided by 3.317, softmax, {after}· values"
        assert call.by_hand == words

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("kind", [by_hand.MultiHeadAttention, by_hand.SlowPath])
    def test_several_heads(self, kind, training):
        model, x = kind().double().train(training), texts(BATCH)
        call = seen_of(model, x)
        assert call.shape == (BATCH, HEADS, LENGTH)
        check(call, explicit(model, x, causal=True), tolerance=EXACT)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    @pytest.mark.parametrize("kind", [by_hand.MultiHeadAttention, by_hand.SlowPath])
    def test_without_gradients(self, kind, mode):
        model, x = kind().double().eval(), texts(BATCH).detach()
        with mode():
            call = undisturbed(model, x)[""][-1]
            check(call, explicit(model, x, causal=True), tolerance=EXACT)

    def test_a_list_of_heads_each_by_its_name(self):
        class Wrapper(nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = nn.ModuleList(by_hand.CausalAttention() for _ in range(3))

            def forward(self, x):
                return torch.cat([head(x) for head in self.heads], -1)

        model, x = Wrapper().double().eval(), texts(BATCH)
        seen = undisturbed(model, x)
        assert list(seen) == ["heads.0", "heads.1", "heads.2"]
        for head, watched in zip(model.heads, seen.values(), strict=True):
            check(watched, explicit(head, x, causal=True), tolerance=EXACT)

    def test_a_query_in_the_middle_of_a_text_by_a_vector(self):
        class Pooled(nn.Module):
            def forward(self, x):
                return torch.softmax(x @ x[2], dim=0) @ x

        x = texts()
        call = seen_of(Pooled(), x)
        assert call.shape == (1, 1, 1)
        expected = weights(x[None, None, 2:3], x[None, None], scale=1.0)
        torch.testing.assert_close(call.received, expected.sum(-2))

    def test_columns_for_tokens(self):
        class Columns(nn.Module):
            def __init__(self):
                super().__init__()
                self.maps = nn.ParameterList(torch.randn(WIDTH, WIDTH) for _ in range(3))

            def forward(self, X):
                query, key, value = (one @ X for one in self.maps)
                return value @ torch.softmax(key.T @ query / WIDTH**0.5, dim=0)

        model, x = Columns().double(), texts().detach().T.contiguous().requires_grad_()
        query, key, _ = ((one @ x).T[None, None] for one in model.maps)
        check(seen_of(model, x), weights(query, key), tolerance=EXACT)


def rungs():
    return {
        "v1": (ladder.SelfAttentionV1(WIDTH, 11), ()),
        "v2": (ladder.SelfAttentionV2(WIDTH, 11), ()),
        "causal": (ladder.CausalAttention(WIDTH, 11, LENGTH, 0.0), (BATCH,)),
        "heads": (ladder.MultiHeadAttention(WIDTH, WIDTH, LENGTH, 0.0, HEADS), (BATCH,)),
    }


@pytest.mark.parametrize("rung", rungs())
def test_a_rung_of_the_ladder_is_seen_as_the_layer_that_takes_its_weights(rung):
    module, leading = rungs()[rung]
    x = texts(*leading, dtype=torch.float32).detach()
    (own,) = undisturbed(module, x).values()
    layer = gh.MultiHeadAttention.from_module(module)
    (ours,) = undisturbed(layer, x if leading else x[None]).values()
    torch.testing.assert_close(own.entropy, ours.entropy)
    torch.testing.assert_close(own.received, ours.received)


def products(query, key, value):
    return (query @ key.mT * SCALE).softmax(-1) @ value


def einsum(query, key, value):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * SCALE
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), value)


def einsum_by_tokens(query, key, value):
    """Heads after the tokens, as `bqhd`."""
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    probs = torch.einsum("bqhd,bkhd->bhqk", query, key).mul(SCALE).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", probs, value).transpose(1, 2)


def einsum_heads_last(query, key, value):
    """Keys in the middle and heads last, with a softmax over the second axis but one."""
    scores = torch.einsum("bhqd,bhkd->bqkh", query, key) * SCALE
    return torch.einsum("bqkh,bhkd->bhqd", scores.softmax(2), value)


def baddbmm(query, key, value):
    """Heads and batch in one axis, and the scale within the product."""
    query, key, value = (one.flatten(0, 1) for one in (query, key, value))
    scores = query.new_zeros(1, 1, 1).baddbmm(query, key.mT, beta=0, alpha=SCALE)
    return torch.bmm(scores.softmax(-1), value).unflatten(0, (-1, HEADS))


def bmm_apart(query, key, value):
    """Products over one axis of batch and heads, and the softmax over two."""
    batch = len(query)
    query, key, value = (one.flatten(0, 1) for one in (query, key, value))
    scores = torch.bmm(query, key.transpose(1, 2) / HEAD_DIM**0.5)
    probs = F.softmax(scores.view(batch, HEADS, *scores.shape[1:]), dim=-1)
    return torch.bmm(probs.view(scores.shape), value).view(batch, HEADS, *value.shape[1:])


def keys_by_queries(query, key, value):
    """The matrix of scores, and that of weights, turned round."""
    weights = (key @ query.mT * SCALE).softmax(-2)
    return (value.mT @ weights).mT


def function(query, key, value):
    return F.softmax(query @ key.mT * SCALE, dim=-1, dtype=torch.float64).to(value.dtype) @ value


WRITTEN = [
    products,
    einsum,
    einsum_by_tokens,
    einsum_heads_last,
    baddbmm,
    bmm_apart,
    keys_by_queries,
    function,
]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("attend", WRITTEN, ids=lambda one: one.__name__)
def test_however_the_products_are_written(attend, inference):
    model, x = Block(attend).double(), texts(BATCH)
    if inference:
        with torch.inference_mode():
            call = undisturbed(model, x.detach())[""][-1]
    else:
        call = seen_of(model, x)
    assert call.shape == (BATCH, HEADS, LENGTH)
    check(call, explicit(model, x), tolerance=EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_softmax_in_float32_of_half_precision(dtype):
    def upcast(query, key, value):
        scores = (query @ key.mT * SCALE).masked_fill(~lower(LENGTH), torch.finfo(dtype).min)
        return scores.float().softmax(-1).to(dtype) @ value

    model, x = Block(upcast).to(dtype), texts(BATCH, dtype=dtype)
    call = seen_of(model, x)
    with torch.no_grad():
        query, key = model.qk(x)
        scores = (query @ key.mT * SCALE).double().masked_fill(~lower(LENGTH), -torch.inf)
    check(call, scores.softmax(-1), tolerance=1e-5)
    words = f"queries · keys, times {SCALE:.4g}, masked, in float32, softmax, · values"
    assert call.by_hand == words
    assert call.entropy[..., 0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast(dtype):
    model, x = Block(products), texts(BATCH, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype != torch.float32):
        call = seen_of(model, x)
    assert call.shape == (BATCH, HEADS, LENGTH)
    check(call, explicit(model, x), tolerance=1e-5 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_keys_and_values_repeated_for_groups_of_heads(kv_heads):
    def repeated(query, key, value):
        key, value = (one.repeat_interleave(HEADS // kv_heads, 1) for one in (key, value))
        return products(query, key, value)

    model, x = Block(repeated, kv_heads).double(), texts(BATCH)
    check(seen_of(model, x), explicit(model, x), tolerance=EXACT)


def test_keys_and_values_of_one_head_broadcast():
    model, x = Block(products, kv_heads=1).double(), texts(BATCH)
    check(seen_of(model, x), explicit(model, x), tolerance=EXACT)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_keys_and_values_without_an_axis_of_heads(mode):
    def shared(query, key, value):
        scores = torch.einsum("bhid,bjd->bhij", query, key[:, 0]) * SCALE
        return torch.einsum("bhij,bjd->bhid", scores.softmax(-1), value[:, 0])

    model, x = Block(shared, kv_heads=1).double(), texts(BATCH).detach()
    with mode():
        call = undisturbed(model, x)[""][-1]
        check(call, explicit(model, x), tolerance=EXACT)


class Cached(Block):
    """Goes on with the keys of its last calls."""

    def __init__(self):
        super().__init__(products)
        self.cached = []

    def forward(self, x):
        query, key = self.qk(x)
        self.cached.append((key, by_hand.split(self.value(x))))
        key, value = (torch.cat(all_of, -2) for all_of in zip(*self.cached, strict=True))
        scores = query @ key.mT * SCALE
        visible = lower(key.shape[-2])[-query.shape[-2] :]
        return scores.masked_fill(~visible, -math.inf).softmax(-1) @ value


def test_single_queries_with_a_cache_are_one_text():
    model, x = Cached().double(), texts(BATCH).detach()
    with torch.no_grad(), gh.watch(model, [gh.Entropy(), gh.Received()], keep="weights") as seen:
        model(x[:, :4])
        for place in range(4, LENGTH):
            model(x[:, place : place + 1])
    watched = seen[""]
    assert [call.position for call in watched] == [0, 4, 5, 6]
    words = f"queries · keys, times {SCALE:.4g}, masked, softmax, · values"
    assert watched.by_hand == watched[0].by_hand == words
    expected = explicit(model, x, causal=True)
    torch.testing.assert_close(watched.received, expected.sum(-2))
    torch.testing.assert_close(watched.weights.dense(), expected)


def added(query, key, value):
    bias = torch.linspace(-1, 1, LENGTH, dtype=query.dtype).expand(LENGTH, -1).clone()
    mask = torch.zeros(LENGTH, LENGTH, dtype=query.dtype).masked_fill(~lower(LENGTH), -1e9)
    return (query @ key.mT * SCALE + bias + mask).softmax(-1) @ value


def test_a_bias_and_a_mask_of_a_large_number_are_told_apart():
    model, x = Block(added).double(), texts(BATCH)
    call = seen_of(model, x)
    with torch.no_grad():
        query, key = model.qk(x)
    bias = torch.linspace(-1, 1, LENGTH, dtype=torch.float64)
    expected = weights(query, key, visible=lower(LENGTH), bias=bias.expand(LENGTH, -1))
    check(call, expected, tolerance=EXACT)
    assert call.by_hand == (
        f"queries · keys, times {SCALE:.4g}, a bias added, a mask of -1e+09 added, softmax, "
        "· values"
    )


HIDING = {
    "lowest": lambda scores, hidden: scores.masked_fill(hidden, torch.finfo(scores.dtype).min),
    "infinite": lambda scores, hidden: scores.masked_fill(hidden, -torch.inf),
    "where": lambda scores, hidden: torch.where(hidden, -torch.inf, scores),
    "added": lambda scores, hidden: (
        scores + torch.zeros_like(scores).masked_fill(hidden, torch.finfo(scores.dtype).min)
    ),
    "indexed": lambda scores, hidden: scores.index_put(
        torch.where(hidden.expand(scores.shape)), scores.new_tensor(-torch.inf)
    ),
    "scaled": lambda scores, hidden: (
        scores.mul(3).masked_fill(hidden, torch.finfo(scores.dtype).min).div(3)
    ),
}


@pytest.mark.parametrize("hide", HIDING)
def test_rows_that_see_nothing_have_no_weights(hide):
    """Padding at the beginning hides all keys from the first queries."""
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[1, :2] = False
    hidden = ~(lower(LENGTH) & real[:, None, None])

    def padded(query, key, value):
        return HIDING[hide](query @ key.mT * SCALE, hidden).softmax(-1).nan_to_num() @ value

    model, x = Block(padded).double(), texts(BATCH).detach()
    seen = undisturbed(model, x, asked={"attention_mask": real})
    with torch.no_grad():
        query, key = model.qk(x)
    call = seen[""][-1]
    check(call, weights(query, key, visible=~hidden), tolerance=EXACT)
    assert call.entropy[1, :, :2].eq(0).all()
    assert call.real.equal(real)
    assert "mask" in call.by_hand


def test_a_softcap():
    def capped(query, key, value):
        return ((query @ key.mT / 5).tanh() * 5).softmax(-1) @ value

    model, x = Block(capped).double(), texts(BATCH)
    call = seen_of(model, x)
    with torch.no_grad():
        query, key = model.qk(x)
        expected = ((query @ key.mT / 5).tanh() * 5).softmax(-1)
    check(call, expected, tolerance=EXACT)
    words = "queries · keys, divided by 5, tanh, times 5, softmax, · values"
    assert call.by_hand == words


class TestWhatBecomesOfTheWeights:
    def test_a_factor_for_each_head(self):
        factors = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)[:, None, None]

        def masked(query, key, value):
            return ((query @ key.mT * SCALE).softmax(-1) * factors) @ value

        model, x = Block(masked).double(), texts(BATCH)
        call = seen_of(model, x)
        check(call, explicit(model, x), tolerance=EXACT)
        assert call.by_hand.endswith("softmax, times a number for each head, · values")

    @pytest.mark.parametrize(
        "change",
        [
            lambda weights: weights * lower(LENGTH),
            lambda weights: weights.tril() / weights.tril().sum(-1, keepdim=True),
            lambda weights: weights.square(),
        ],
        ids=["hidden", "hidden and scaled", "squared"],
    )
    def test_other_weights_than_those_of_the_softmax_are_refused(self, change):
        def changed(query, key, value):
            return change((query @ key.mT * SCALE).softmax(-1)) @ value

        model, x = Model(Block(changed)).double(), texts(BATCH)
        told = refusal(model, x)
        assert "Block at 'blocks.0' changes its weights after the softmax" in told
        assert told.endswith("Exclude it with layers=.")

    def test_scores_that_change_after_the_softmax_are_refused(self):
        def changing(query, key, value):
            scores = query @ key.mT * SCALE
            weights = scores.softmax(-1)
            scores.mul_(2)
            return weights @ value

        model, x = Block(changing).double(), texts(BATCH).detach()
        with torch.no_grad():
            assert "gave another output" in refusal(model, x)


class Router(nn.Module):
    """Mixes experts by the softmax of a product, then a product with what they gave."""

    def __init__(self, prepare=lambda gate: gate):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(5, WIDTH))
        self.experts = nn.Parameter(torch.randn(5, WIDTH, WIDTH))
        self.prepare = prepare

    def forward(self, x):
        mix = F.linear(x, self.prepare(self.gate)).softmax(-1)
        made = torch.einsum("btc,ecd->bted", x, self.experts)
        return torch.einsum("bte,bted->btd", mix, made)


class Other(nn.Module):
    """Some use of a softmax."""

    def __init__(self, use):
        super().__init__()
        self.use, self.table = use, nn.Parameter(torch.randn(11, WIDTH))

    def forward(self, x):
        return self.use(self, x)


def contrast(module, x):
    """Likenesses of the texts to one another, as in a contrastive loss."""
    pooled = x.mean(1)
    return x * (pooled @ pooled.T).softmax(-1).diagonal()[:, None, None]


def codebook(module, x):
    """A mixture of the entries of a table."""
    return (x @ module.table.T).softmax(-1) @ module.table


def gumbel(module, x):
    return F.gumbel_softmax(x @ module.table.T, hard=True) @ module.table


def classes(module, x):
    return x * (x @ module.table.T).softmax(-1).amax(-1, keepdim=True)


def among_heads(module, x):
    """A softmax over an axis that neither queries nor keys have made."""
    parts = by_hand.split(x)
    weights = (parts @ parts.mT).softmax(1)
    mixed = torch.einsum("bhij,bhc->bijc", weights, parts.mean(2)).sum(2)
    return mixed.sum(-1, keepdim=True) * x


def learned_values(module, x):
    """Likenesses that mix the rows of a table, as classes of the other tokens."""
    return (x @ x.mT).softmax(-1) @ module.table[:LENGTH]


OTHER_USES = contrast, codebook, gumbel, classes, among_heads, learned_values
OTHERS = {
    "router": Router(),
    "cosine router": Router(lambda gate: F.normalize(gate, dim=-1)),
    "router of another type": Router(lambda gate: gate.to(torch.float64)),
    **{use.__name__: Other(use) for use in OTHER_USES},
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("use", OTHERS)
def test_other_softmaxes_are_no_attention(use, inference):
    model = Model(Block(products), OTHERS[use]).double()
    with torch.inference_mode(inference):
        assert list(undisturbed(model, texts(BATCH).detach())) == ["blocks.0"]


def cross_covariance(module, x):
    """Weights between features, as XCiT has them."""
    query, key, value = (by_hand.split(module.project(x)).mT for _ in range(3))
    weights = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    return (weights.softmax(-1) @ value).mT.transpose(1, 2).flatten(2)


def few_keys(module, x):
    """Learned mixtures of tokens for keys and values, as Linformer has them."""
    few = module.table[:, :LENGTH] @ x
    return (module.project(x) @ few.mT).softmax(-1) @ few


@pytest.mark.parametrize("inference", [False, True])
def test_queries_that_weigh_mixtures_of_tokens_are_refused(inference):
    model, x = Model(Block(products), Refused(few_keys)).double(), texts(BATCH).detach()
    with torch.inference_mode(inference):
        told = refusal(model, x)
    assert told.endswith(
        "Refused at 'blocks.1' has features of a projection on one side of its softmax, and not on "
        "both, as cross-covariance attention has. Exclude it with layers=."
    )


class TestFeatures:
    """Weights between the features of a head, as of XCiT, which has no positions among them."""

    STATISTICS = gh.Entropy(), gh.Received(), gh.MaxWeight(), gh.ArgMax(), gh.TopK(2)

    def model(self):
        return Refused(cross_covariance).double()

    def expected(self, model, x):
        parts = F.normalize(by_hand.split(model.project(x)).detach().mT, dim=-1)
        return (parts @ parts.mT).softmax(-1)

    @pytest.mark.parametrize("inference", [False, True])
    @pytest.mark.parametrize("length", [LENGTH, HEAD_DIM, WIDTH, 1])
    def test_the_statistics_are_of_features(self, length, inference):
        model, x = self.model(), texts(BATCH, length=length).detach()
        with torch.inference_mode(inference):
            call = undisturbed(model, x, statistics=list(self.STATISTICS))[""][-1]
            expected = self.expected(model, x)
            top = call.top_k
        assert call.by_hand == "queries · keys, softmax over features, · values"
        assert call.over_features
        assert call.shape == (BATCH, HEADS, HEAD_DIM)
        assert (call.position, call.crossing, call.keys) == (0, False, HEAD_DIM)
        near = {"rtol": EXACT, "atol": EXACT}
        entropy = -torch.special.xlogy(expected, expected).sum(-1)
        torch.testing.assert_close(call.entropy, entropy, **near)
        torch.testing.assert_close(call.received, expected.sum(-2), **near)
        torch.testing.assert_close(call.max_weight, expected.amax(-1), **near)
        torch.testing.assert_close(top.weights, expected.topk(2).values, **near)
        torch.testing.assert_close(expected.gather(-1, top.keys), top.weights, **near)
        assert call.arg_max.equal(expected.argmax(-1))

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_channels_of_a_convolution_are_features(self, mode):
        """As Restormer has them."""

        class Channels(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.near = nn.Conv2d(6, 18, 1), nn.Conv2d(18, 18, 3, padding=1)

            def forward(self, x):
                parts = self.near(self.qkv(x)).flatten(2).unflatten(1, (3, 2, 3))
                query, key, value = parts.unbind(1)
                query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
                return ((query @ key.mT).softmax(-1) @ value).reshape(x.shape)

        model, x = Channels().double(), torch.randn(BATCH, 6, 5, 7, dtype=torch.float64)
        with mode():
            seen = undisturbed(model, x, statistics=[gh.Entropy()])
        assert seen[""][-1].over_features
        assert seen[""][-1].shape == (BATCH, 2, 3)

    def test_padding_of_as_many_tokens_is_no_padding_of_features(self):
        model, x = self.model(), texts(BATCH, length=HEAD_DIM).detach()
        real = torch.ones(BATCH, HEAD_DIM, dtype=torch.bool)
        real[1, 3:] = False
        outer = Model(Block(products), model).double()
        seen = undisturbed(outer, x, statistics=[gh.Received()], asked={"attention_mask": real})
        assert seen["blocks.0"][-1].real.equal(real)
        assert seen["blocks.1"][-1].real is None

    def test_tokens_before_and_after_are_placed_as_without_it(self):
        model = Model(Block(products), self.model(), Block(products)).double()
        seen = undisturbed(model, texts(BATCH).detach(), statistics=[gh.Entropy()])
        assert [watched[-1].position for watched in seen.values()] == [0, 0, 0]
        assert [watched[-1].over_features for watched in seen.values()] == [False, True, False]

    @pytest.mark.parametrize(
        "statistic", [gh.MassOn([0]), gh.MeanDistance(), gh.DistanceHistogram([0, 2, math.inf])]
    )
    def test_statistics_of_positions_are_refused(self, statistic):
        model, x = Model(Block(products), self.model()).double(), texts(BATCH).detach()
        sentence = (
            rf"^{type(statistic).__name__}\(.*\) needs attention to tokens, whose positions it "
            r"reads, but 'blocks.1' weighs features by its softmax\. Exclude 'blocks.1' with "
            r"layers=\.$"
        )
        with pytest.raises(ValueError, match=sentence), gh.watch(model, [statistic]):
            model(x)
        assert nothing_is_open()

    def test_the_weights_are_kept(self):
        model, x = self.model(), texts(BATCH).detach()
        with torch.no_grad(), gh.watch(model, keep="weights") as seen:
            model(x)
        torch.testing.assert_close(seen[""].weights.dense(), self.expected(model, x))
        with pytest.raises(
            ValueError, match=r"but '' weighs features by its softmax\. Choose othe"
        ):
            gh.rollout(seen)
        with pytest.raises(ValueError, match="its keys are features, and not patches"):
            seen[""].image(query=0)

    def test_it_is_saved_as_of_features(self, tmp_path):
        model, x = self.model(), texts(BATCH).detach()
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]) as seen:
            model(x)
        seen.save(tmp_path / "seen.safetensors")
        assert gh.Seen.load(tmp_path / "seen.safetensors")[""][0].over_features

    def test_steps_and_interventions_are_refused(self):
        model, x = self.model(), texts(BATCH).detach()
        with (
            pytest.raises(
                ValueError, match=r"'' weighs features by its softmax, and not tokens\. U"
            ),
            gh.watch(model, keep="trace"),
        ):
            model(x)
        with (
            pytest.raises(ValueError, match="it did not follow the attention of '' as one of tok"),
            gh.watch(model, [gh.Entropy()]),
            gh.intervene(model, {"": [gh.ZeroAblation(heads=[0])]}),
        ):
            model(x)
        assert nothing_is_open()


def differential(module, x):
    query, other = module.project(x), module.project(x).flip(-1)
    first, second = ((one @ x.mT).softmax(-1) for one in (query, other))
    return (first - 0.3 * second) @ x


def landmarks(module, x):
    """A product of two matrices of weights."""
    few = x[:, ::3]
    return (x @ few.mT).softmax(-1) @ (few @ x.mT).softmax(-1) @ x


def mixed(module, x, *, axis=1, change=lambda weights: weights):
    """Weights that a learned product mixes along an axis, after the softmax."""
    parts = by_hand.split(module.project(x))
    weights = change((parts @ parts.mT).softmax(-1))
    weights = F.linear(weights.movedim(axis, -1), *module.mixers[axis]).movedim(-1, axis)
    return (weights @ parts[:, :1]).transpose(1, 2).flatten(2)[..., :WIDTH]


def mixed_queries(module, x):
    return mixed(module, x, axis=2)


def more_heads(module, x):
    """Heads of which others are made, more than there were."""
    return mixed(module, x, axis=-3)


def with_a_sink(module, x):
    """One more score, whose weight is dropped."""
    scores = module.project(x) @ x.mT
    scores = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1)
    return scores.softmax(-1)[..., :-1] @ x


def over_the_scores(module, x):
    with torch.no_grad():
        scores = module.project(x) @ x.mT
        return torch.softmax(scores, -1, out=scores) @ x


def banded(module, x):
    """Weights of a band, which are laid out again."""
    weights = F.pad((module.project(x) @ x.mT).softmax(-1), (0, 2))
    return weights[..., :LENGTH] @ x


def neighbours(module, x):
    """Each query has keys of its own."""
    near = torch.stack([x.roll(step, 1) for step in (-1, 0, 1)], 2)
    weights = torch.einsum("btc,btnc->btn", module.project(x), near).softmax(-1)
    return torch.einsum("btn,btnc->btc", weights, near)


class Refused(Other):
    def __init__(self, use):
        super().__init__(use)
        self.project = nn.Linear(WIDTH, WIDTH)
        sizes = {1: (HEADS, HEADS), 2: (LENGTH, LENGTH), -3: (HEADS + 2, HEADS)}
        self.learned = nn.ParameterList(torch.randn(size) for size in sizes.values())
        self.biases = nn.ParameterList(torch.randn(size[0]) for size in sizes.values())
        self.mixers = dict(zip(sizes, zip(self.learned, self.biases, strict=True), strict=True))


# Others have no way to be seen.
WAYS = {over_the_scores: "Write them to a tensor of their own, or exclude"}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    ("use", "why"),
    [
        (differential, "combines the weights of several softmaxes"),
        (landmarks, "combines the weights of several softmaxes"),
        (mixed_queries, "multiplies its weights along another axis than its softmax"),
        (more_heads, "multiplies its weights along another axis than its softmax"),
        (with_a_sink, "takes only a part of the weights of its softmax"),
        (over_the_scores, "writes its weights over its scores"),
        (banded, "passes its weights on through aten::.*pad"),
        (neighbours, "gives each query keys of its own"),
    ],
)
def test_what_cannot_be_told_from_the_softmax_is_refused(use, why, inference):
    model, x = Model(Block(products), Refused(use)).double(), texts(BATCH).detach()
    sentence = (
        f"^watch follows explicit attention from a product of queries and keys .*, but Refused at "
        f"'blocks.1' {why}.*[.] {WAYS.get(use, 'Exclude')} it with layers=[.]$"
    )
    with (
        torch.inference_mode(inference),
        pytest.raises(RuntimeError, match=sentence),
        gh.watch(model, [gh.Entropy()]),
    ):
        model(x)
    assert nothing_is_open()
    with torch.inference_mode(inference):
        assert list(undisturbed(model, x, asked={"layers": "blocks.0"})) == ["blocks.0"]


class TestMixedHeads:
    """Heads that a learned product mixes after the softmax, as in CaiT."""

    def seen(self, **asked):
        model, x = Refused(mixed).double(), texts(BATCH).detach()
        parts = by_hand.split(model.project(x)).detach()
        with torch.no_grad():
            seen = undisturbed(model, x, asked=asked)
        return seen[""][-1], weights(parts, parts, scale=1.0), parts, model

    def test_the_statistics_are_of_the_softmax(self):
        call, expected, *_ = self.seen()
        check(call, expected, tolerance=EXACT)
        assert call.by_hand == (
            "queries · keys, softmax, heads mixed by a learned product, · values"
        )

    @pytest.mark.parametrize("inference", [False, True])
    @pytest.mark.parametrize(
        "equation", ["bhij,gh->bgij", "bhij,hg->bgij", "gh,bhij->bgij", "...hij,hg->...gij"]
    )
    def test_a_product_without_a_bias(self, equation, inference):
        def einsum_of_heads(module, x):
            parts = by_hand.split(module.project(x))
            first, second = (parts @ parts.mT).softmax(-1), module.learned[0]
            given = (second, first) if equation.startswith("g") else (first, second)
            return (torch.einsum(equation, *given) @ parts).transpose(1, 2).flatten(2)

        model, x = Refused(einsum_of_heads).double(), texts(BATCH).detach()
        with torch.inference_mode(inference):
            call = undisturbed(model, x)[""][-1]
            parts = by_hand.split(model.project(x))
            check(call, weights(parts, parts, scale=1.0), tolerance=EXACT)
        assert call.by_hand.endswith("softmax, heads mixed by a learned product, · values")

    def test_the_context_is_of_the_mixed_weights(self):
        call, expected, parts, model = self.seen(keep="context")
        mixed_weights = torch.einsum("gh,bhij->bgij", model.mixers[1][0], expected)
        mixed_weights = mixed_weights + model.mixers[1][1][:, None, None]
        torch.testing.assert_close(call.context, mixed_weights @ parts[:, :1])

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        model, x = Refused(mixed).to(dtype), texts(BATCH, dtype=dtype).detach()
        parts = by_hand.split(model.project(x)).detach()
        seen = undisturbed(model, x)
        check(seen[""], weights(parts, parts, scale=1.0), tolerance=0.02)
        assert "heads mixed by a learned product" in seen[""].by_hand

    def test_the_weights_are_kept_as_the_softmax_has_them(self):
        call, expected, *_ = self.seen(keep="weights")
        torch.testing.assert_close(call.weights.dense(), expected)

    def test_weights_that_are_changed_before_are_refused(self):
        def squared(module, x):
            return mixed(module, x, change=torch.square)

        model = Model(Block(products), Refused(squared)).double()
        told = refusal(model, texts(BATCH))
        assert "Refused at 'blocks.1' changes its weights after the softmax by other than" in told

    @pytest.mark.parametrize("inference", [False, True])
    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("groups", [1, HEADS])
    @pytest.mark.parametrize("before", [False, True])
    def test_a_convolution_of_one_place(self, before, groups, bias, inference):
        """As x-transformers has them, before the softmax and after it."""

        class Talking(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix = nn.Conv2d(HEADS, HEADS, 1, bias=bias, groups=groups)

            def forward(self, x):
                parts = by_hand.split(x)
                scores = parts @ parts.mT
                made = self.mix(scores).softmax(-1) if before else self.mix(scores.softmax(-1))
                return (made @ parts).transpose(1, 2).flatten(2)

        model, x = Talking().double(), texts(BATCH).detach()
        with torch.inference_mode(inference):
            call = undisturbed(model, x)[""][-1]
            parts = by_hand.split(x)
            scores = parts @ parts.mT
            expected = (model.mix(scores) if before else scores).softmax(-1)
        check(call, expected, tolerance=EXACT)
        steps = ["softmax", "heads mixed by a learned product"]
        assert ", ".join(steps[::-1] if before else steps) in call.by_hand

    @pytest.mark.parametrize(("made", "size"), [(HEADS, 3), (HEADS + 2, 1)])
    def test_a_convolution_that_mixes_neighbours_or_makes_heads_is_refused(self, made, size):
        class Talking(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix = nn.Conv2d(HEADS, made, size, padding=size // 2)

            def forward(self, x):
                parts = by_hand.split(x)
                weights = self.mix((parts @ parts.mT).softmax(-1))
                return weights @ parts[:, :1]

        told = refusal(Talking().double(), texts(BATCH))
        assert "passes its weights on through aten::convolution, after which nothing" in told

    def test_steps_have_no_place_for_it(self):
        with pytest.raises(
            ValueError, match=r"'' mixes the weights of its heads after the softmax\. Use keep='w"
        ):
            self.seen(keep="trace")

    def test_interventions_are_refused(self):
        model, x = Refused(mixed).double(), texts(BATCH).detach()
        with (
            pytest.raises(RuntimeError, match=r"but of '' none used them as they were\. Omit it"),
            torch.no_grad(),
            gh.watch(model, [gh.Entropy()]),
            gh.intervene(model, {"": [gh.ZeroAblation(heads=[0])]}),
        ):
            model(x)
        assert nothing_is_open()


class TestTheWatch:
    def test_layers_and_heads(self):
        model, x = Model(Block(products), Block(einsum), Block(products)).double(), texts(BATCH)
        seen = undisturbed(model, x, asked={"layers": "blocks.[12]", "heads": [2, 0]})
        assert list(seen) == ["blocks.1", "blocks.2"]
        first = model.blocks[0](x) + x
        expected = explicit(model.blocks[1], first)[:, [2, 0]]
        check(seen["blocks.1"], expected, tolerance=EXACT)

    def test_weights_are_kept_within_the_budget(self):
        model, x = Block(added).double(), texts(BATCH)
        with gh.watch(model, keep="weights") as seen:
            model(x)
        with torch.no_grad():
            query, key = model.qk(x)
        bias = torch.linspace(-1, 1, LENGTH, dtype=torch.float64).expand(LENGTH, -1)
        expected = weights(query, key, visible=lower(LENGTH), bias=bias)
        torch.testing.assert_close(seen[""].weights.dense(), expected)
        numbers = BATCH * HEADS * LENGTH * LENGTH * 8
        with (
            pytest.warns(UserWarning, match=f"at most budget={numbers} bytes"),
            gh.watch(model, keep="weights", budget=numbers) as seen,
        ):
            model(x)
        with pytest.raises(BudgetError, match=f"at most budget={numbers} bytes"):
            _ = seen[""].weights

    def test_nested_watches_see_the_same(self):
        model, x = Model(Block(products), Block(einsum)).double(), texts(BATCH)
        with gh.watch(model, [gh.Entropy()]) as outer:
            model(x)
            with gh.watch(model.blocks[1], [gh.Entropy()]) as inner:
                model(x)
        assert [len(watched) for watched in outer.values()] == [2, 2]
        assert inner[""].entropy.equal(outer["blocks.1"][1].entropy)

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_gradient_checkpointing_is_not_counted_twice(self, reentrant):
        block = Block(products).double()

        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = block

            def forward(self, x):
                return checkpoint(self.block, x, use_reentrant=reentrant)

        x = texts(BATCH)
        seen = undisturbed(Checkpointed(), x, gradient=True)
        assert len(seen["block"]) == 1
        check(seen["block"], explicit(block, x), tolerance=EXACT)

    def test_beside_the_fused_kernel(self):
        model = Model(Block(products), Block(F.scaled_dot_product_attention)).double()
        seen = undisturbed(model, texts(BATCH), gradient=True)
        assert [watched[-1].by_hand is None for watched in seen.values()] == [False, True]

    def test_cross_attention_of_another_length(self):
        class Crossing(Block):
            def forward(self, x, memory):
                key, value = (by_hand.split(one(memory)) for one in (self.key, self.value))
                return products(by_hand.split(self.query(x)), key, value)

        model, x, memory = Crossing(products).double(), texts(BATCH), texts(BATCH, length=11)
        call = undisturbed(model, x, memory)[""][-1]
        assert call.crossing
        assert call.keys == 11
        with torch.no_grad():
            query, key = model.qk(x)[0], model.qk(memory)[1]
        check(call, weights(query, key), tolerance=EXACT)

    def test_it_is_saved_and_told(self, tmp_path):
        model, x = Block(products).double(), texts(BATCH)
        with gh.watch(model, [gh.Entropy()]) as seen:
            model(x)
        words = f"queries · keys, times {SCALE:.4g}, softmax, · values"
        assert f"explicit attention: {words}" in repr(seen[""][0])
        seen.save(tmp_path / "seen.safetensors")
        assert gh.Seen.load(tmp_path / "seen.safetensors")[""][0].by_hand == words

    def test_within_and_after_a_higher_order_operator(self):
        class Branching(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block(products), Block(einsum)])

            def forward(self, x):
                first, second = self.blocks
                return second(torch.cond(x.sum() > -1e9, first, torch.clone, (x,)))

        model, x = Branching().double(), texts(BATCH).detach()
        with torch.no_grad():
            seen = undisturbed(model, x)
            # The module that calls the operator gives its name, where the operator is compiled.
            name = "" if "" in seen else "blocks.0"
            check(seen[name], explicit(model.blocks[0], x), tolerance=EXACT)
            after = explicit(model.blocks[1], model.blocks[0](x))
        check(seen["blocks.1"], after, tolerance=EXACT)

    def test_vmap_has_one_more_axis_of_the_batch(self):
        model, x = Block(products).double(), texts(3, BATCH)
        with gh.watch(model, [gh.Entropy(), gh.Received()]) as seen:
            torch.vmap(model)(x)
        expected = explicit(model, x.flatten(0, 1)).unflatten(0, (3, BATCH))
        torch.testing.assert_close(seen[""].received, expected.sum(-2))

    def test_tensors_without_numbers_are_told(self):
        model, x = Model(Block(products)).to("meta"), texts(BATCH, dtype=torch.float32)
        assert "Block at 'blocks.0' ran on tensors" in refusal(model, x.to("meta"))


def test_heads_and_batch_in_one_axis_go_by_what_the_module_was_given():
    """As of [batch · heads] rows the first [heads] belong to the first text."""

    class Merged(nn.Module):
        def forward(self, x, heads):
            parts = x.unflatten(-1, (heads, -1)).transpose(1, 2).flatten(0, 1)
            return torch.bmm(torch.bmm(parts, parts.mT).softmax(-1), parts)

    x = texts(BATCH).detach()
    call = undisturbed(Merged(), x, heads=HEADS)[""][-1]
    assert call.shape == (BATCH, HEADS, LENGTH)
    check(call, weights(by_hand.split(x), by_hand.split(x), scale=1.0), tolerance=EXACT)
    alone = undisturbed(Merged(), x, heads=1)[""][-1]
    assert alone.shape == (BATCH, 1, LENGTH)


def test_heads_of_images_go_by_the_attribute_and_the_batch():
    class OfImages(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads = HEADS

        def forward(self, x):
            tokens = x.flatten(1, 2)
            parts = by_hand.split(tokens).flatten(0, 1)
            return torch.bmm(torch.bmm(parts, parts.mT).softmax(-1), parts)

    x = texts(BATCH, 2, length=3).detach()
    call = undisturbed(OfImages(), x)[""][-1]
    assert call.shape == (BATCH, HEADS, 6)


class TestTheTrace:
    """Every step, from queries and keys on, which `explain` tells in words."""

    @pytest.mark.parametrize("inference", [False, True])
    @pytest.mark.parametrize("attend", WRITTEN, ids=lambda one: one.__name__)
    def test_its_steps_are_those_of_the_model(self, attend, inference):
        model, x = Block(attend).double(), texts(BATCH).detach()
        with torch.inference_mode(inference):
            seen = undisturbed(model, x, statistics=(), asked={"keep": "trace"})
        (trace,) = (call.trace for call in seen[""])
        with torch.no_grad():
            query, key = model.qk(x)
            value = by_hand.split(model.value(x))
        expected = weights(query, key)
        wanted = {
            "queries": query,
            "values": value,
            "scaled": query @ key.mT * SCALE,
            "weights": expected,
            "context": expected @ value,
        }
        if attend is not bmm_apart:
            # There the keys are scaled before the product.
            wanted |= {"keys": key, "scores": query @ key.mT}
        steps = dict(trace.steps())
        for name, step in wanted.items():
            torch.testing.assert_close(steps[name].reshape(step.shape), step)

    def test_a_class_of_a_text_is_explained(self):
        torch.manual_seed(3)
        model, x = by_hand.SelfAttentionV2(WIDTH, 2).double(), texts(length=3).detach()
        with gh.watch(model, keep="trace") as seen:
            context = model(x)
        trace = seen[""].trace
        assert trace.context.shape == (3, 2)
        torch.testing.assert_close(trace.context, context)
        assert repr(trace.problem.score) == "ScaledDot()"
        explanation = gh.explain(trace, tokens=["I", "see", "you"], query="see")
        first = model.W_query(x)[1] @ model.W_key(x)[0]
        assert f"= {first.item():.4f}" in explanation["scores"].numbers[0]

    def test_a_causal_mask_is_told_by_its_name(self):
        model, x = by_hand.CausalAttention().double(), texts(BATCH).detach()
        with gh.watch(model, keep="trace") as seen:
            model(x)
        assert repr(seen[""].trace.problem.mask) == "causal()"
        torch.testing.assert_close(
            seen[""].trace.weights, explicit(model, x, causal=True).squeeze(1)
        )

    def test_a_bias_and_a_mask_are_steps_of_it(self):
        def biased(query, key, value):
            scores = (query @ key.mT + torch.arange(LENGTH) / 3) / 2
            hidden = torch.ones(LENGTH, LENGTH).tril(-2).bool()
            return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value

        model, x = Block(biased).double(), texts(BATCH).detach()
        with gh.watch(model, keep="trace") as seen:
            model(x)
        trace = seen[""].trace
        assert repr(trace.problem.score) == "Dot(beta=0.5)"
        (bias,) = trace.problem.biases
        visible = ~torch.ones(LENGTH, LENGTH).tril(-2).bool()
        expected = (torch.arange(LENGTH, dtype=torch.float64) / 6).expand(LENGTH, -1)
        torch.testing.assert_close(bias[0, 0][visible], expected[visible])
        assert trace.masked[..., ~visible].isneginf().all()

    @pytest.mark.parametrize(
        ("attend", "sentence"),
        [
            (
                lambda q, k, v: ((q @ k.mT).tanh() * 5).softmax(-1) @ v,
                "keep='trace' needs scores that are products, .* but '' changes its scores",
            ),
            (
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
                "keep='trace' needs attention without dropout, but 'the model' drops weights",
            ),
        ],
        ids=["softcap", "dropout"],
    )
    def test_what_has_no_such_steps_is_refused(self, attend, sentence):
        model, x = Block(attend).double(), texts(BATCH)
        with pytest.raises(ValueError, match=sentence), gh.watch(model, keep="trace"):
            model(x)
        assert nothing_is_open()

    def test_it_takes_its_bytes_of_the_budget(self):
        model, x = Block(products).double(), texts(BATCH)
        needed = BATCH * HEADS * LENGTH * (6 * LENGTH + 4 * HEAD_DIM) * 8
        with gh.watch(model, keep="trace", budget=needed) as seen:
            model(x)
        trace = seen[""].trace
        assert sum(step.numel() for _, step in trace.steps()) * 8 <= needed + 8 * 6 * LENGTH**2
        with (
            pytest.warns(
                UserWarning, match=f"keep='trace' may use at most budget={needed - 1} byt"
            ),
            gh.watch(model, keep="trace", budget=needed - 1) as seen,
        ):
            model(x)
        with pytest.raises(BudgetError, match=f"at most budget={needed - 1} bytes"):
            _ = seen[""].trace

    def test_without_it_the_way_to_it_is_told(self):
        model, x = Block(products).double(), texts(BATCH)
        with gh.watch(model, [gh.Entropy()]) as seen:
            model(x)
        with pytest.raises(ValueError, match="the steps of '' were not kept. Watch with keep='tr"):
            _ = seen[""].trace


class TestMemory:
    def test_a_product_lives_no_longer(self):
        alive = []

        def told(query, key, value):
            scores = query @ key.mT
            product = weakref.ref(scores)
            scores = scores * SCALE
            alive.append(product() is not None)
            weights = scores.softmax(-1)
            softmax = weakref.ref(scores)
            del scores
            made = weights @ value
            alive.append(softmax() is not None)
            taken = weakref.ref(weights)
            del weights
            alive.append(taken() is not None)
            return made

        model, x = Block(told), texts(BATCH, dtype=torch.float32).detach()
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
            model(x)
        assert alive == [False, False, False]

    def test_scores_whose_weights_are_gone_are_not_held(self):
        alive = []

        def told(query, key, value):
            scores = query @ key.mT
            unused = weakref.ref(scores)
            scores.softmax(-1)
            del scores
            made = products(query, key, value)
            alive.append(unused() is not None)
            return made

        model, x = Block(told), texts(BATCH, dtype=torch.float32).detach()
        with torch.no_grad(), gh.watch(model, [gh.Entropy()]):
            model(x)
        assert alive == [False]

    def test_nothing_is_held_after_the_block(self):
        model, x = Other(contrast), texts(BATCH, dtype=torch.float32)
        kept = []

        def told(module, x):
            pooled = x.mean(1)
            weights = (pooled @ pooled.T).softmax(-1)
            kept.append(weakref.ref(weights))
            return x * weights.diagonal()[:, None, None]

        model.use = told
        fused = Model(Block(F.scaled_dot_product_attention), model)
        with gh.watch(fused, [gh.Entropy()]):
            fused(x)
        assert kept[0]() is None


def test_what_fails_on_the_way_leaves_the_model_as_it_is(monkeypatch):
    def failing(*given):
        raise ZeroDivisionError("no product")

    model, x = by_hand.CausalAttention().double().eval(), texts(BATCH).detach()
    expected = model(x)
    monkeypatch.setattr(explicit_follower, "product", failing)
    with pytest.raises(RuntimeError, match="'the model' cannot be followed there .ZeroDivis"):  # noqa: SIM117
        with gh.watch(model, [gh.Entropy()]):
            assert model(x).equal(expected)


def test_a_record_lasts_as_long_as_the_memory_of_its_tensor():
    records = TensorRecords()
    kept, x = torch.ones(5), torch.ones(7)
    view = x[2:]
    records.remember(kept, TensorRole.FEATURES)
    records.remember(x, TensorRole.FEATURES)
    records.remember(view, TensorRole.SCORES)
    del x
    assert records.of(view).kind is TensorRole.SCORES
    key = view.untyped_storage()._cdata
    del view
    assert key not in records._known
    assert len(records._known) == 1
    assert records.of(kept).kind is TensorRole.FEATURES
